"""SIGHUP: read the configuration file again.

Only messageDelayLevel takes effect at once.  One warning names the other changed keys, which
take effect at the next start.  A file with an error changes nothing; the log says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqlite.broker.schedule.level_changes import LevelChanges
from rmqlite.config import KEYS, BrokerConfig
from rmqlite.errors import ConfigInvalid, StoreUnavailable

LIVE: Final = "message_delay_level"

log = logging.getLogger(__name__)


class Reload:
    """Reads one broker's configuration file again after a SIGHUP."""

    def __init__(
        self, config: BrokerConfig, load: Callable[[], BrokerConfig] | None, levels: LevelChanges
    ) -> None:
        """config: the one at the start.  load: reads the current one; None if there is no file."""
        self._config = config
        self._load = load
        self._levels = levels

    async def run(self, asked: asyncio.Event) -> None:
        """Read the file each time asked is set.  Raises FlushFailed."""
        while True:
            await asked.wait()
            asked.clear()
            self.read()

    def read(self) -> None:
        """Read the file now.  Raises FlushFailed."""
        if self._load is None:
            log.warning("the broker was started without a configuration file, SIGHUP reads none")
            return
        try:
            config = self._load()
            changed = self._levels.configure(config.levels)
        except ConfigInvalid as error:
            log.error("the configuration cannot be used, nothing has changed error=%s", error)
            return
        except StoreUnavailable as error:
            log.error("the new delay levels cannot be stored, the old ones stay error=%s", error)
            return
        if changed.before == changed.after:
            log.info("configuration read again, the delay levels stay levels=%r", changed.after)
        self._tell_others(config)

    def _tell_others(self, config: BrokerConfig) -> None:
        names = [
            key
            for name, key in KEYS.items()
            if name != LIVE and getattr(config, name) != getattr(self._config, name)
        ]
        if names:
            log.warning("these keys take effect at the next start keys=%s", ",".join(names))

"""SIGHUP: read the configuration file again, and let hold at once what can.

That is messageDelayLevel.  Every other key needs a start, which is said in one warning; a
file that cannot be used changes nothing, and the broker goes on.
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
    """What one broker does when it is told that its configuration file has changed."""

    def __init__(
        self, config: BrokerConfig, load: Callable[[], BrokerConfig] | None, levels: LevelChanges
    ) -> None:
        """config: what the broker was started with.  load: as now; None where there is no file."""
        self._config = config
        self._load = load
        self._levels = levels

    async def run(self, asked: asyncio.Event) -> None:
        """Read it whenever somebody asks.  Raises FlushFailed."""
        while True:
            await asked.wait()
            asked.clear()
            self.read()

    def read(self) -> None:
        """Read it now.  Raises FlushFailed."""
        if self._load is None:
            log.warning("told to read the configuration again, but started without a file")
            return
        try:
            config = self._load()
            changed = self._levels.configure(config.levels)
        except ConfigInvalid as error:
            log.error("the configuration cannot be used, nothing has changed error=%s", error)
            return
        except StoreUnavailable as error:
            log.error("the delay levels cannot be written down, they stay error=%s", error)
            return
        if changed.before == changed.after:
            log.info("configuration read again, delay levels stay levels=%r", changed.after)
        self._tell_others(config)

    def _tell_others(self, config: BrokerConfig) -> None:
        names = [
            key
            for name, key in KEYS.items()
            if name != LIVE and getattr(config, name) != getattr(self._config, name)
        ]
        if names:
            log.warning("these keys take effect at the next start keys=%s", ",".join(names))

"""The configuration in force, as texts by key, and changes of it that need no restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqlite.kernel.config.config import KEYS, BrokerConfig, parse_config
from rmqlite.kernel.requests.broker import LevelsChange
from rmqlite.kernel.waits.wait_queues import LevelChanges
from rmqlite.kernel.words.errors import InvalidValue, PermissionMissing

LEVELS: Final = KEYS["message_delay_level"]
"""The one key that can be changed without a restart."""
_SOURCE: Final = "request"


class Settings:
    """The settings of one broker."""

    def __init__(self, config: BrokerConfig, levels: LevelChanges) -> None:
        self._texts = {key: _text(getattr(config, name)) for name, key in KEYS.items()}
        self._levels = levels

    def all(self) -> dict[str, str]:
        return self._texts | {LEVELS: self._levels.in_force().message_delay_level}

    def change(self, wanted: Mapping[str, str]) -> None:
        """Change keys at once, all or none; a key that has the value already is no change.

        Messages that wait keep their times.  Raises ConfigInvalid for a key that does not
        exist, PermissionMissing for one that takes effect only at a start, InvalidValue,
        StoreUnavailable.
        """
        for key, value in wanted.items():
            if key not in self._texts:
                parse_config(f"{key}={value}", _SOURCE)
            if key != LEVELS and value != self._texts[key]:
                rule = f"it is {self._texts[key]!r} until the next start: write it into broker.conf"
                raise PermissionMissing(key, "changing", rule)
        if LEVELS in wanted:
            self._change_levels(wanted[LEVELS])

    def _change_levels(self, text: str) -> None:
        """A table that takes something away needs a confirmation, which no request can give.

        Most often the value was not quoted: then mqadmin sends only its first word.
        """
        loss = self._levels.change(LevelsChange(text, dry_run=True)).loss
        if loss:
            rule = (
                f"a table that takes nothing away: this one {loss}."
                " mqadmin needs quotes around a value with blanks."
                f" If you mean this table: rmqlite levels set {text}"
            )
            raise InvalidValue(LEVELS, text, rule)
        self._levels.change(LevelsChange(text))


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)

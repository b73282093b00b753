"""The delay levels in force, their history, and a change of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LevelsChange:
    """Put this messageDelayLevel in force; dry_run: only answer what it would change."""

    message_delay_level: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LevelChange:
    """What a new table changes for one level; a delay is empty if a table has no such level.

    pending: how many messages wait at this level; they keep their deliver times.
    next_due_ms: the earliest deliver time; 0 if none waits.
    """

    level: int
    delay_before: str
    delay_after: str
    pending: int
    next_due_ms: int


@dataclass(frozen=True, slots=True)
class LevelsChanged:
    """before: the table until now.  levels: those of either table, and those with messages."""

    before: str
    after: str
    levels: tuple[LevelChange, ...]


@dataclass(frozen=True, slots=True)
class DatedTable:
    """A table of delay levels and its start; 0 means that no earlier table is recorded."""

    in_force_from_ms: int
    message_delay_level: str


@dataclass(frozen=True, slots=True)
class LevelsInForce:
    """The table in force and its origin.

    configured: the table of broker.conf at its last reading; if the table in force is another
    one, somebody has set it since.  tables: every table so far, the oldest first.
    """

    message_delay_level: str
    configured: str
    tables: tuple[DatedTable, ...]

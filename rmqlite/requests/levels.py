"""The delay levels in force, their history, and a change of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LevelsChange:
    """Put this messageDelayLevel in force; dry_run: only say what it would mean."""

    message_delay_level: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LevelChange:
    """What a new table means for one level; a delay is empty where a table has no such level.

    pending: how many messages wait at it.  They keep their times.  next_due_ms: of the
    earliest; 0 when none waits.
    """

    level: int
    delay_before: str
    delay_after: str
    pending: int
    next_due_ms: int


@dataclass(frozen=True, slots=True)
class LevelsChanged:
    """before: the table until now.  levels: every level of either table, or with messages."""

    before: str
    after: str
    levels: tuple[LevelChange, ...]


@dataclass(frozen=True, slots=True)
class DatedTable:
    """A table of delay levels and since when it is in force; 0: as far back as is known."""

    in_force_from_ms: int
    message_delay_level: str


@dataclass(frozen=True, slots=True)
class LevelsInForce:
    """The table in force and where it is from.

    configured: what broker.conf said when it was read last; another table than the one in
    force was set since.  tables: every table so far, the oldest first.
    """

    message_delay_level: str
    configured: str
    tables: tuple[DatedTable, ...]

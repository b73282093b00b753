"""Requests about the schedule and their answers: plain values.

They list the waiting messages, count when they come due, change them, and read or change the table
of delay levels.  Times are milliseconds since 1970, on the broker's clock; sizes are bytes.  A
level is a delay level, 1 or more, or -1: the messages that wait for an instant of their own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rmqlite.kernel.words.levels import parse_levels


class ScheduleAction(enum.IntEnum):
    """What to do with a pending message."""

    CANCEL = 0
    """Do not deliver it."""
    FIRE = 1
    """Deliver it at once."""
    RESCHEDULE = 2
    """Let it wait for the delay of another level from now on, or for another instant."""


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

    @property
    def loss(self) -> str:
        """What the change takes away: it "removes levels 2 to 18".

        Empty if every level stays and the last one is at least as long as before: then nobody who
        sends to a long delay gets a short one.
        """
        before, after = parse_levels(self.before), parse_levels(self.after)
        last, first_gone = before.max_level, after.max_level + 1
        if first_gone > last:
            if after.delay_ms(last) >= before.delay_ms(last):
                return ""
            return f"makes level {last} shorter: {after.name(last)} instead of {before.name(last)}"
        gone = f"levels {first_gone} to {last}" if first_gone < last else f"level {last}"
        waiting = sum([each.pending for each in self.levels if each.level >= first_gone])
        return f"removes {gone}" + (f" (messages that wait there: {waiting})" if waiting else "")


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

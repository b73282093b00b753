"""Figures about traffic and progress, as operators and RocketMQ's mqadmin read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.requests.topics import Queue


class TableVersion(NamedTuple):
    """counter: the changes of a table; changed_at_ms: the newest record at the last change."""

    counter: int
    changed_at_ms: int


class Rate(NamedTuple):
    """messages: in the whole window.  per_call: how many one call brought on average."""

    messages: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class Rates(NamedTuple):
    """The last minute, hour and day; a window without two samples is all zeros."""

    minute: Rate = Rate()
    hour: Rate = Rate()
    day: Rate = Rate()


@dataclass(frozen=True, slots=True)
class TakenQueue:
    """A group's progress in one queue.

    committed_offset: 0 before the first commit.  taken_at_ms: when the last message before it
    was stored; 0 if there is none.
    """

    queue: Queue
    end_offset: int
    committed_offset: int
    taken_at_ms: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A group's progress in the queues of one topic, and how fast it takes messages."""

    topic: str
    per_second: float
    queues: tuple[TakenQueue, ...]

    @property
    def behind(self) -> int:
        """How many messages the group has still to take."""
        return sum([each.end_offset - each.committed_offset for each in self.queues])


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """When messages of a queue were stored, in milliseconds.

    first, last: of all messages; next: of the first message that the group has not taken; each
    is None if there is none.  taken: of the last message that the group has taken, else first.
    """

    queue: Queue
    first_ms: int | None
    last_ms: int | None
    taken_ms: int | None
    next_ms: int | None


class Totals(NamedTuple):
    """Counts since the start; a difference of two samples is the traffic between them.

    stored: records of every kind, the broker's own too.  found, missed: pulls with and without
    messages.  taken: messages that pulls returned.
    """

    stored: int = 0
    found: int = 0
    missed: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the whole broker does.

    stored_per_second …: over the last 10 seconds, minute and ten minutes.  at_midnight: totals
    at the beginning of yesterday and of today, local time; zero before the start.
    """

    now: Totals
    stored_per_second: tuple[float, float, float]
    found_per_second: tuple[float, float, float]
    missed_per_second: tuple[float, float, float]
    taken_per_second: tuple[float, float, float]
    at_midnight: tuple[Totals, Totals]
    stored_bytes: int

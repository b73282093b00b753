"""What a broker must hold: a plain list of messages, kept beside the real one.

Nothing here knows files, queues of entries or recovery.  A message is hidden until it is
shown, is shown once, and never before it is due unless it was fired; or it is cancelled, and
never shown.  A power cut takes back what was written last, and of the ledger just that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.topics import Queue


@dataclass(frozen=True, slots=True)
class Wait:
    """One scheduled record of a message; scheduled_at: where it begins.

    level: the id of the wait queue.  table: which table of levels was in force; within one, a level
    keeps its order.  Timers are in due order.
    """

    level: int
    due_ms: int
    table: int
    scheduled_at: int
    serial: int


@dataclass(slots=True)
class Line:
    """One message on its way: where it goes, how it waits, and where its records begin.

    waits: more than one, if it was rescheduled; none, if it never waited.  shown_at,
    cancelled_at: physical offsets; None where there is no such record.
    """

    key: str
    message_id: str
    message_key: str
    queue: Queue
    attempts: int
    waits: list[Wait] = field(default_factory=list)
    shown_at: int | None = None
    cancelled_at: int | None = None
    is_fired: bool = False
    unique_id: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.shown_at is None and self.cancelled_at is None

    @property
    def wait(self) -> Wait:
        """The one that counts."""
        return self.waits[-1]


class Shown(NamedTuple):
    """A record in a real topic, as the broker's store has it."""

    key: str
    physical_offset: int
    store_timestamp_ms: int
    is_fired: bool


@dataclass
class Ledger:
    """Every message that the broker has taken, in the order in which it took them."""

    lines: dict[str, Line] = field(default_factory=dict)
    commits: dict[tuple[str, Queue], int] = field(default_factory=dict)
    persisted_commits: dict[tuple[str, Queue], int] = field(default_factory=dict)
    serial: int = 0

    def add(self, line: Line) -> None:
        assert line.key not in self.lines
        self.lines[line.key] = line

    def wait(self, line: Line, level: int, due_ms: int, table: int, scheduled_at: int) -> None:
        """The message waits, from now on like this."""
        self.serial += 1
        line.waits.append(Wait(level, due_ms, table, scheduled_at, self.serial))

    def waiting(self) -> list[Line]:
        """In the order in which they come due."""
        found = [line for line in self.lines.values() if line.is_waiting]
        return sorted(found, key=lambda each: (each.wait.due_ms, each.wait.level, each.wait.serial))

    def with_unique_id(self, topic: str, unique_id: str) -> Line | None:
        """The one message that counts."""
        lines = [each for each in self.lines.values() if each.cancelled_at is None]
        name = (topic, unique_id)
        found = [each for each in lines if (each.queue.topic, each.unique_id) == name]
        assert len(found) <= 1, f"two with one unique id: {found}"
        return found[0] if found else None

    def shown(self) -> list[Line]:
        return [line for line in self.lines.values() if line.shown_at is not None]

    def pending(self) -> Counter[int]:
        """How many wait, by level."""
        return Counter(line.wait.level for line in self.lines.values() if line.is_waiting)

    def next_due_ms(self, level: int) -> int:
        """0 when none waits, as in a level's status."""
        waits = [line.wait for line in self.lines.values() if line.is_waiting]
        return min((wait.due_ms for wait in waits if wait.level == level), default=0)

    def compare(self, queues: dict[Queue, list[Shown]]) -> None:
        """Nothing lost, nothing twice, nothing early, nothing astray; what is new is noted."""
        seen = Counter(shown.key for found in queues.values() for shown in found)
        assert set(seen) <= set(self.lines), "a message that nobody sent"
        assert not [key for key, count in seen.items() if count > 1], "delivered twice"
        for queue, found in queues.items():
            order: dict[tuple[int, int], tuple[int, int]] = {}
            for shown in found:
                line = self.lines[shown.key]
                assert line.queue == queue
                assert line.cancelled_at is None, "delivered, and was cancelled"
                if line.shown_at is None:
                    line.shown_at = shown.physical_offset
                assert line.shown_at == shown.physical_offset
                assert shown.is_fired == line.is_fired
                if line.waits and not line.is_fired:
                    wait = line.wait
                    assert shown.store_timestamp_ms >= wait.due_ms, "delivered early"
                    is_timer = wait.level == TIMERS
                    run = (wait.level, 0 if is_timer else wait.table)
                    place = (wait.due_ms if is_timer else 0, wait.serial)
                    assert order.get(run, (-1, -1)) < place, "out of order"
                    order[run] = place
        assert {line.key for line in self.shown()} == set(seen), "lost"

    def end_of_log(self, physical_offset: int) -> None:
        """A power cut: no record from here on is left."""
        for line in list(self.lines.values()):
            if line.shown_at is not None and line.shown_at >= physical_offset:
                line.shown_at, line.is_fired = None, False
            if line.cancelled_at is not None and line.cancelled_at >= physical_offset:
                line.cancelled_at = None
            while line.waits and line.wait.scheduled_at >= physical_offset:
                line.waits.pop()
            if not line.waits and line.shown_at is None:
                del self.lines[line.key]

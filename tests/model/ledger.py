"""What a broker must hold: a plain list of messages, kept beside the real one.

Nothing here knows files, queues of entries or recovery.  A message is hidden until it is
shown, is shown once, and never before it is due; a power cut takes back what was written
last, and of the ledger just that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqlite.requests import Queue


@dataclass(slots=True)
class Line:
    """One message on its way: where it goes, when it is due, and where its records begin.

    scheduled_at, shown_at: physical offsets; None where there is no such record.
    """

    key: str
    queue: Queue
    attempts: int
    due_ms: int = 0
    level: int = 0
    table: int = 0
    """Which table of levels was in force; within one, a level keeps its order."""
    scheduled_at: int | None = None
    shown_at: int | None = None


class Shown(NamedTuple):
    """A record in a real topic, as the broker's store has it."""

    key: str
    physical_offset: int
    store_timestamp_ms: int


@dataclass
class Ledger:
    """Every message that the broker has taken, in the order in which it took them."""

    lines: dict[str, Line] = field(default_factory=dict)
    commits: dict[tuple[str, Queue], int] = field(default_factory=dict)
    persisted_commits: dict[tuple[str, Queue], int] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        assert line.key not in self.lines
        self.lines[line.key] = line

    def shown(self) -> list[Line]:
        return [line for line in self.lines.values() if line.shown_at is not None]

    def pending(self) -> Counter[int]:
        """How many wait, by level."""
        hidden = [line for line in self.lines.values() if line.shown_at is None]
        return Counter(line.level for line in hidden)

    def next_due_ms(self, level: int) -> int:
        """0 when none waits, as in a level's status."""
        lines = self.lines.values()
        due = [line.due_ms for line in lines if line.shown_at is None and line.level == level]
        return min(due, default=0)

    def compare(self, queues: dict[Queue, list[Shown]]) -> None:
        """Nothing lost, nothing twice, nothing early, nothing astray; what is new is noted."""
        seen = Counter(shown.key for found in queues.values() for shown in found)
        assert set(seen) <= set(self.lines), "a message that nobody sent"
        assert not [key for key, count in seen.items() if count > 1], "delivered twice"
        for queue, found in queues.items():
            order: dict[tuple[int, int], int] = {}
            serials = {key: serial for serial, key in enumerate(self.lines)}
            for shown in found:
                line = self.lines[shown.key]
                assert line.queue == queue
                assert shown.store_timestamp_ms >= line.due_ms, "delivered early"
                if line.shown_at is None:
                    line.shown_at = shown.physical_offset
                assert line.shown_at == shown.physical_offset
                if line.level:
                    run = (line.level, line.table)
                    assert order.get(run, -1) < serials[shown.key], "out of order"
                    order[run] = serials[shown.key]
        assert {line.key for line in self.shown()} == set(seen), "lost"

    def end_of_log(self, physical_offset: int) -> None:
        """A power cut: no record from here on is left."""
        for line in list(self.lines.values()):
            if line.shown_at is not None and line.shown_at >= physical_offset:
                line.shown_at = None
            first = line.scheduled_at if line.level else line.shown_at
            if first is None or first >= physical_offset:
                del self.lines[line.key]

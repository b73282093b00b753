"""Wrong entries of a queue that follow one another: found one by one, told as one finding.

A process that is killed leaves records without entries at the end of its queues.  RocketMQ
enters records in the order of the log, so all records behind one place lack theirs, and none
before it.  Anything else that is missing or wrong was damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.store.checking.finding import Finding
from rmqlite.store.consume_queue import ENTRY_BYTES

NO_ENTRY: Final = "missing-entry"
WRONG_ENTRY: Final = "wrong-entry"
STRAY_ENTRY: Final = "entry-without-record"
WRONG_ENTRIES: Final = (NO_ENTRY, WRONG_ENTRY, STRAY_ENTRY)


@dataclass(slots=True)
class EntryRun:
    """begin: queue offset of the first one.  record: the physical offset of that one's record."""

    path: Path
    position: int
    what: str
    begin: int
    record: int
    said: str
    expected: str
    found: str
    is_kept: bool
    """By opening: it is not mended."""
    count: int = 1

    @property
    def end(self) -> int:
        return self.begin + self.count

    def goes_on(self, after: EntryRun) -> bool:
        """Is it another one of the same kind, right behind the last one of `after`?"""
        mine = (self.path, self.what, self.is_kept, self.begin)
        return mine == (after.path, after.what, after.is_kept, after.end)

    def drop_first(self) -> None:
        """The first one is not wrong any more."""
        self.begin += 1
        self.position += ENTRY_BYTES
        self.count -= 1

    def finding(self, name: str, *, is_mended: bool, is_leftover: bool) -> Finding:
        """name: the queue's."""
        said = f"{name}, queue offset {self.begin}: {self.said}"
        if self.count > 1:
            said += f"; the same up to queue offset {self.end - 1}"
        return Finding(
            *(self.path, self.position, self.what, said, self.expected, self.found),
            size=self.count * ENTRY_BYTES,
            opening_mends=is_mended,
            count=self.count,
            is_leftover=is_leftover,
        )


def add_run(runs: list[EntryRun], run: EntryRun) -> None:
    """One entry more; the last run grows if it goes on."""
    if runs and run.goes_on(runs[-1]):
        runs[-1].count += run.count
    else:
        runs.append(run)


def missing_tail(runs: Sequence[EntryRun], end: int) -> list[EntryRun]:
    """The runs of missing entries that reach up to the end of their queue, the last one first."""
    tail: list[EntryRun] = []
    for run in reversed(runs):
        if run.what == NO_ENTRY:
            if run.end != end:
                break
            tail.append(run)
            end = run.begin
    return tail

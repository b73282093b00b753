"""Runs of wrong entries of a queue: each run becomes one finding.

A killed process leaves records without entries at the end of its queues.  RocketMQ enters
records in the order of the log, so all records behind one place lack entries, and none
before it does.  Any other missing or wrong entry was damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.records.queue_entry import ENTRY_BYTES, Entry
from rmqlite.records.wait_queues import HASH_END, TIMERS
from rmqlite.store.checking.finding import Finding

NO_ENTRY: Final = "missing-entry"
WRONG_ENTRY: Final = "wrong-entry"
STRAY_ENTRY: Final = "entry-without-record"
WRONG_ENTRIES: Final = (NO_ENTRY, WRONG_ENTRY, STRAY_ENTRY)


@dataclass(slots=True)
class EntryRun:
    """begin: queue offset of the first entry.  record: physical offset of its record."""

    path: Path
    position: int
    what: str
    begin: int
    record: int
    said: str
    expected: str
    found: str
    is_kept: bool
    """Opening the store keeps the entry and does not mend it."""
    count: int = 1

    @property
    def end(self) -> int:
        return self.begin + self.count

    def goes_on(self, after: EntryRun) -> bool:
        """Is this run of the same kind as `after`, and right behind it?"""
        mine = (self.path, self.what, self.is_kept, self.begin)
        return mine == (after.path, after.what, after.is_kept, after.end)

    def drop_first(self) -> None:
        """Remove the first entry, which is not wrong any more."""
        self.begin += 1
        self.position += ENTRY_BYTES
        self.count -= 1

    def finding(self, name: str, *, is_mended: bool, is_leftover: bool) -> Finding:
        """name: the queue's."""
        said = f"{name}, queue offset {self.begin}: {self.said}"
        if self.count > 1:
            said += f"; the same up to queue offset {self.end - 1}"
        return Finding(
            self.path,
            self.position,
            self.what,
            said,
            self.expected,
            self.found,
            size=self.count * ENTRY_BYTES,
            opening_mends=is_mended,
            count=self.count,
            is_leftover=is_leftover,
        )


def add_run(runs: list[EntryRun], run: EntryRun) -> None:
    """Add a run, or extend the last one if it continues there."""
    if runs and run.goes_on(runs[-1]):
        runs[-1].count += run.count
    else:
        runs.append(run)


def missing_tail(runs: Sequence[EntryRun], end: int) -> list[EntryRun]:
    """The runs of missing entries up to the end of their queue, the last one first."""
    tail: list[EntryRun] = []
    for run in reversed(runs):
        if run.what == NO_ENTRY:
            if run.end != end:
                break
            tail.append(run)
            end = run.begin
    return tail


def has_hash(wait_queue: int, found: Entry, wanted: Entry) -> bool:
    """Is it a timer's entry as RocketMQ writes it: right, but for a hash in place of the time?"""
    is_timer = wait_queue == TIMERS and found[:2] == wanted[:2]
    return is_timer and found.tags_code < HASH_END

"""The timers of a store under test: a real queue and table, a plain list beside them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from shutil import copytree, rmtree

from rmqlite.kernel.records.queue_entry import ENTRY
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timer_index import IndexWrite, TimerIndex
from rmqlite.kernel.waits.timer_queue import TimerQueue
from tests.support.files import QuickFiles
from tests.support.steps import done

RECORD_BYTES = 100
TIMERS_ID = -1
Pair = tuple[int, int]


class TimersUnderTest:
    """Add, complete, write, and open again: closed, killed, or after a power cut.

    A record has RECORD_BYTES, and so has a completion; the log is on disk up to durable_end.
    """

    def __init__(self, folder: Path, *, files: Files | None = None) -> None:
        self.folder = folder
        self.files = files or QuickFiles()
        self.due_ms: list[int] = []
        """Of every entry, by queue offset."""
        self.ended: list[tuple[int, int]] = []
        """Completed queue offsets, and where the log ended then."""
        self.log_end = self.durable_end = 0
        self._saved = folder / "saved"
        self.open()

    @property
    def path(self) -> Path:
        return self.folder / "timers" / "timers.db"

    def open(self) -> None:
        self.write: IndexWrite | None = None
        self.index = TimerIndex(self.files, self.folder / "timers")
        queue = ConsumeQueue(self.files, self.folder / "queue", 20 * 4096)
        queue.advance(len(self.due_ms))
        completed = CompletedOffsets((each, each + 1) for each, _ in self.ended)
        self.queue = TimerQueue(TIMERS_ID, queue, completed, self.index, lambda: self.log_end)

    def add(self, *due_ms: int) -> None:
        """One append."""
        queue, first = self.queue.queue, len(self.due_ms)
        entries = [
            ENTRY.pack(self.log_end + at * RECORD_BYTES, RECORD_BYTES, due)
            for at, due in enumerate(due_ms)
        ]
        queue.write(first, b"".join(entries))
        queue.advance(first + len(due_ms))
        self.due_ms += due_ms
        self.log_end += RECORD_BYTES * len(due_ms)
        self.queue.notice(first, due_ms[0])

    def complete(self, *queue_offsets: int) -> None:
        for each in queue_offsets:
            assert self.queue.is_open(each)
            self.log_end += RECORD_BYTES
            self.ended.append((each, self.log_end))
            self.queue.completed.add(each, each + 1)
        self.queue.advance([self.due_ms[each] for each in queue_offsets], queue_offsets)

    def deliver(self, now_ms: int, count_max: int = 1000) -> list[Pair]:
        """Deliver slices until nothing is due; what was delivered, in order."""
        found: list[Pair] = []
        for _ in range(len(self.due_ms) + 1000):
            due_ms = self.queue.next_due_ms()
            if due_ms is None or due_ms > now_ms:
                return found
            # The packed form looks at the entries, too.
            is_due = [each <= now_ms for each in self.due_ms]
            offsets = [*takewhile(is_due.__getitem__, self.queue.first_due(now_ms, count_max))]
            if not offsets:
                places = list(self.queue.due(now_ms))[:count_max]
                offsets = [place.queue_offset for place in places]
            assert all(self.due_ms[each] <= now_ms for each in offsets), "never early"
            self.complete(*offsets)
            found += [(self.due_ms[each], each) for each in offsets]
        raise AssertionError("delivery makes no progress")

    def catch_up(self) -> None:
        """All that a start has left, with the writes that it needs."""
        keys = self.queue.keys
        while keys.is_comparing or keys.unindexed.rebuilding:
            while keys.catch_up():
                pass
            if keys.unindexed.rebuilding:
                self.written()
            keys.compare()

    def begin(self) -> IndexWrite:
        """Begin a write; its log is synced."""
        self.write = self.queue.keys.begin_write()
        self.durable_end = max(self.durable_end, self.write.log_end)
        return self.write

    def written(self) -> None:
        self.begin().run()
        self.end()

    def end(self) -> None:
        self.queue.keys.end_write()
        self.write = None

    # ---- ways to start again

    def kill(self) -> None:
        self.index.close()
        self.open()

    def restart(self) -> None:
        self.written()
        self.kill()

    def save(self) -> None:
        """What a power cut may bring back: the table as it is on disk now."""
        rmtree(self._saved, ignore_errors=True)
        copytree(self.folder / "timers", self._saved)

    def cut_power(self) -> None:
        """Lose what was not synced of the log, and all of the table since save()."""
        self.index.close()
        if self._saved.exists():
            rmtree(self.folder / "timers", ignore_errors=True)
            copytree(self._saved, self.folder / "timers")
        self.ended = [each for each in self.ended if each[1] <= self.durable_end]
        self.log_end = self.durable_end
        queue = self.queue.queue
        while self.due_ms:
            entry = queue.entry(len(self.due_ms) - 1)
            assert entry is not None
            if entry.physical_offset + entry.size <= self.durable_end:
                break
            self.due_ms.pop()
            queue.advance(len(self.due_ms))
        queue.cut()
        self.open()

    # ---- what must be

    def waiting(self) -> list[Pair]:
        gone = {each for each, _ in self.ended}
        return sorted((due, at) for at, due in enumerate(self.due_ms) if at not in gone)

    def listed(self, due_ms: int = -1, queue_offset: int = -1) -> list[Pair]:
        """What a reader of pages finds behind a place."""
        (places,) = self.queue.places_behind(due_ms, TIMERS_ID, queue_offset)
        return [(place.due_ms, place.queue_offset) for place in places]

    def timeline(self, bounds_ms: Sequence[int]) -> list[int]:
        return list(done(self.queue.timeline(bounds_ms)))

    def check(self, bounds_ms: Sequence[int] = (50, 100, 5000)) -> None:
        """Whatever is asked, the plain list would answer the same."""
        waiting = self.waiting()
        assert self.queue.pending == len(waiting)
        assert self.listed() == waiting
        if waiting:
            middle = waiting[len(waiting) // 2]
            assert self.listed(*middle) == [each for each in waiting if each > middle]
        counted = [0] * (len(bounds_ms) + 1)
        for due, _ in waiting:
            counted[sum(bound <= due for bound in bounds_ms)] += 1
        if self.write is None:
            # Until end_write() what a write deletes may be counted, or counted twice.
            assert self.timeline(bounds_ms) == counted
        first = self.queue.next_due_ms()
        assert first is not None if waiting else True
        assert not waiting or first is None or first <= waiting[0][0]

    def rows(self) -> int:
        """How many rows the table has, open or not."""
        return len(self.index.slice(-1, 1 << 40, self.queue.keys.unindexed.indexed))

"""The completed scheduled records, and the numbers of pending ones by topic.

A delivery completes its scheduled record, and so does a cancellation (completion.py); so the
progress follows from the log, and the tables in config/ only save where to begin.  If its
delay never changed, a level completes in order, and its set is one number; a record that was
completed before its turn is a bit in a bitmap, so that the set's size has a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqlite.kernel.config.table_shapes import CHUNK_OFFSETS
from rmqlite.kernel.records.wait_queues import TIMERS

_CHUNK_SHIFT: Final = 13
_IN_CHUNK: Final = CHUNK_OFFSETS - 1
_FULL: Final = (1 << CHUNK_OFFSETS) - 1
_FLAGS: Final = bytes.maketrans(b"01", b"\x01\x00")
"""Translates the digits of completed bits to flags of open ones."""
RANGES_MAX: Final = 1_000
"""For a level with more ranges than this, the table has the bitmap."""


class CompletedOffsets:
    """A set of queue offsets: all below `below`, and a bitmap of those above it."""

    __slots__ = ("_chunks", "below", "count_above")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.below = 0
        """The lowest queue offset that is not completed."""
        self.count_above = 0
        """The number of completed offsets above `below`."""
        self._chunks: dict[int, int] = {}
        """Number of a chunk of 8,192 queue offsets -> its bits; those below `below` are unused."""
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Complete start <= n < end; adding again changes nothing."""
        start = max(start, self.below)
        if start >= end:
            return
        if not self._chunks and start == self.below:
            self.below = end
            return
        for number, first, last in _chunks_of(start, end):
            before = self._chunks.get(number, 0)
            # All full chunks share one object: a range may have very many.
            whole = last - first == CHUNK_OFFSETS
            after = _FULL if whole else before | ((1 << (last - first)) - 1) << first
            self._chunks[number] = after
            self.count_above += after.bit_count() - before.bit_count()
        if start == self.below:
            self._rise()

    def is_open(self, queue_offset: int) -> bool:
        bits = self._chunks.get(queue_offset >> _CHUNK_SHIFT, 0)
        return queue_offset >= self.below and not bits >> (queue_offset & _IN_CHUNK) & 1

    def next_open(self, queue_offset: int) -> int:
        """The first queue offset at or after this one that is not completed."""
        queue_offset = max(queue_offset, self.below)
        while (bits := self._chunks.get(queue_offset >> _CHUNK_SHIFT)) is not None:
            at = queue_offset & _IN_CHUNK
            clear = ~bits >> at & _FULL >> at
            if clear:
                return queue_offset + (clear & -clear).bit_length() - 1
            queue_offset += CHUNK_OFFSETS - at
        return queue_offset

    def open_until(self, queue_offset: int, end: int) -> int:
        """The end of the run of open offsets that begins at an open queue offset; at most end."""
        for number, first, last in _chunks_of(queue_offset, end):
            bits = self._chunks.get(number, 0) >> first & (1 << (last - first)) - 1
            if bits:
                lowest = (bits & -bits).bit_length() - 1
                return (number << _CHUNK_SHIFT) + first + lowest
        return end

    def open_between(self, start: int, end: int) -> Sequence[int]:
        """The open offsets of start <= n < end, ascending."""
        start = max(start, self.below)
        if not self._chunks:
            return range(start, end)
        found: list[int] = []
        while (start := self.next_open(start)) < end:
            until = self.open_until(start, end)
            found.extend(range(start, until))
            start = until
        return found

    def count_between(self, start: int, end: int) -> int:
        """The number of completed offsets of start <= n < end."""
        count = max(0, min(end, self.below) - start)
        start = max(start, self.below)
        if not self._chunks:
            return count
        for number, first, last in _chunks_of(start, end):
            if bits := self._chunks.get(number):
                count += (bits >> first & (1 << (last - first)) - 1).bit_count()
        return count

    def last_open(self, start: int, end: int) -> int | None:
        """The last of start <= n < end that is not completed; None if all are."""
        for number, first, last in reversed([*_chunks_of(max(start, self.below), end)]):
            clear = ~self._chunks.get(number, 0) >> first & (1 << (last - first)) - 1
            if clear:
                return (number << _CHUNK_SHIFT) + first + clear.bit_length() - 1
        return None

    def union(self, other: CompletedOffsets) -> CompletedOffsets:
        """The offsets that are in one of both; the caller must not change them."""
        if not other.below and not other._chunks:
            return self
        both = CompletedOffsets()
        both.below = max(self.below, other.below)
        both._chunks = dict(self._chunks)
        for number, bits in other._chunks.items():
            both._chunks[number] = both._chunks.get(number, 0) | bits
        both._count()
        return both

    def open_flags(self, start: int, end: int) -> bytes:
        """A byte for each of start <= n < end: 1 if it is open, 0 if it is completed."""
        flags = bytearray(b"\x01") * (end - start)
        low = max(start, min(end, self.below))
        flags[: low - start] = bytes(low - start)
        for number, first, last in _chunks_of(low, end):
            if bits := self._chunks.get(number):
                bits = bits >> first & (1 << (last - first)) - 1
                digits = format(bits, f"0{last - first}b")[::-1].encode()
                at = (number << _CHUNK_SHIFT) + first - start
                flags[at : at + len(digits)] = digits.translate(_FLAGS)
        return bytes(flags)

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges for the constructor: separate and ascending."""
        found = [(0, self.below)] if self.below else []
        found.extend(self._ranges_above())
        return found

    def to_json(self) -> Any:
        """ranges(), or for very many ranges the bitmap, its chunks in hexadecimal digits."""
        found = [(0, self.below)] if self.below else []
        for each in self._ranges_above():
            if len(found) == RANGES_MAX:
                above = {number: f"{bits:x}" for number, bits in sorted(self._chunks.items())}
                return {"below": self.below, "above": above}
            found.append(each)
        return found

    @classmethod
    def from_json(cls, tree: Any) -> CompletedOffsets:
        """The inverse of to_json, for a tree that table_shapes.Completed has validated."""
        if not isinstance(tree, Mapping):
            return cls((int(start), int(end)) for start, end in tree)
        completed = cls()
        completed.below = int(tree["below"])
        for number, digits in tree["above"].items():
            completed._chunks[int(number)] = int(digits, 16)
        completed._count()
        return completed

    def _count(self) -> None:
        self._rise()
        self.count_above = self.count_between(self.below, self._end)

    @property
    def _end(self) -> int:
        """One past the last offset that a chunk has a bit for."""
        return (max(self._chunks, default=-1) + 1) << _CHUNK_SHIFT

    def _ranges_above(self) -> Iterator[tuple[int, int]]:
        end = self._end
        start = self.open_until(self.below, end)
        while start < end:
            until = self.next_open(start)
            yield start, until
            start = self.open_until(until, end)

    def _rise(self) -> None:
        """Move `below` up to the lowest open offset, and drop chunks below it."""
        below = self.next_open(self.below)
        self.count_above -= below - self.below
        first = self.below >> _CHUNK_SHIFT
        self.below = below
        last = below >> _CHUNK_SHIFT
        for number in range(first, last):
            self._chunks.pop(number, None)
        bits = self._chunks.get(last)
        if bits is not None and not bits >> (below & _IN_CHUNK):
            del self._chunks[last]


def _chunks_of(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The chunks of the range start <= n < end: number, and first <= bit < last in it."""
    while start < end:
        number = start >> _CHUNK_SHIFT
        until = min(end, (number + 1) << _CHUNK_SHIFT)
        yield number, start & _IN_CHUNK, until - (number << _CHUNK_SHIFT)
        start = until


@dataclass(slots=True)
class SortedRun:
    """Queue offsets cursor <= n < end, sorted by deliver time; head_due_ms: that of cursor."""

    cursor: int
    end: int
    head_due_ms: int
    last_due_ms: int


class ScheduleProgress:
    """The completed offsets of every wait queue, by id, and the pending counts by topic."""

    def __init__(self) -> None:
        self._queues: dict[int, CompletedOffsets] = {}
        self.runs: dict[int, list[SortedRun]] = {}
        """Level -> the runs of its queue; until that is opened, only their ends are known."""
        self.pending: dict[int, Counter[str]] = {}
        """Wait queue -> topic -> number of messages that wait for the topic; "" stands for messages
        without a destination."""
        self.left_timers: Counter[str] = Counter()
        """Topic -> number of timers that were completed since the store was opened."""

    def of(self, wait_queue: int) -> CompletedOffsets:
        completed = self._queues.get(wait_queue)
        if completed is None:
            completed = self._queues[wait_queue] = CompletedOffsets()
        return completed

    def scheduled(self, wait_queue: int, topic: str, count: int = 1) -> None:
        """Count more waiting messages of a wait queue."""
        counts = self.pending.get(wait_queue)
        if counts is None:
            counts = self.pending[wait_queue] = Counter()
        counts[topic] += count

    def complete(self, wait_queue: int, start: int, end: int, topics: Mapping[str, int]) -> None:
        """Complete start <= n < end; topics: the number of newly completed ones by destination."""
        self.of(wait_queue).add(start, end)
        if wait_queue == TIMERS:
            self.left_timers.update(topics)
        counts = self.pending.setdefault(wait_queue, Counter())
        for topic, count in topics.items():
            left = counts[topic] - count
            if left > 0:
                counts[topic] = left
            else:
                del counts[topic]

    def complete_one(self, wait_queue: int, queue_offset: int, topic: str) -> bool:
        """Complete a message for this destination; False if it is completed already."""
        if not self.of(wait_queue).is_open(queue_offset):
            return False
        self.complete(wait_queue, queue_offset, queue_offset + 1, {topic: 1})
        return True

    def delay_offsets(self) -> dict[int, int]:
        """The content of RocketMQ's delayOffset.json: level -> next queue offset to deliver."""
        levels = sorted(self._queues.items())
        return {number: each.below for number, each in levels if each.below and number != TIMERS}

    def ranges(self) -> dict[int, list[tuple[int, int]]]:
        """The completed ranges of queue offsets of every wait queue."""
        return {number: each.ranges() for number, each in sorted(self._queues.items())}

    def to_json(self) -> dict[int, Any]:
        """The completed offsets of every wait queue; pending_now() is beside it in the table."""
        return {number: each.to_json() for number, each in sorted(self._queues.items())}

    def pending_now(self) -> dict[int, dict[str, int]]:
        """A sorted copy of pending, for the table."""
        return {number: dict(sorted(each.items())) for number, each in sorted(self.pending.items())}

    @classmethod
    def from_json(
        cls, tree: Mapping[Any, Any], pending: Mapping[Any, Mapping[str, int]] | None = None
    ) -> ScheduleProgress:
        """The inverse of to_json and pending_now, for validated trees."""
        progress = cls()
        for number, completed in tree.items():
            progress._queues[int(number)] = CompletedOffsets.from_json(completed)
        for number, counts in (pending or {}).items():
            progress.pending[int(number)] = Counter(counts)
        return progress

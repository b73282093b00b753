"""Which scheduled records are completed, and of those that are not how many go to which topic.

A delivery completes its scheduled record, as a cancellation does (completion.py); so all of
this is made from the log, and what config/ keeps of it is only where to begin.  Levels whose
table never changed complete in order, and the set of a level is one number; whatever was
completed before its turn is a bit in a bitmap, so that its size has a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rmqlite.table_shapes import CHUNK_OFFSETS

_CHUNK_SHIFT: Final = 13
_IN_CHUNK: Final = CHUNK_OFFSETS - 1
_FULL: Final = (1 << CHUNK_OFFSETS) - 1
_FLAGS: Final = bytes.maketrans(b"01", b"\x01\x00")
"""The digits of completed bits -> flags of open ones."""
RANGES_MAX: Final = 1_000
"""Of a level with more ranges than this, the table holds the bitmap."""


class CompletedOffsets:
    """A set of queue offsets: all below `below`, and a bitmap of what is above it."""

    __slots__ = ("_chunks", "below", "count_above")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.below = 0
        """The lowest queue offset that is not completed."""
        self.count_above = 0
        """How many completed ones lie above it."""
        self._chunks: dict[int, int] = {}
        """Number of a chunk of 8,192 queue offsets -> its bits; below `below` they mean nothing."""
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """start <= n < end are completed; adding again changes nothing."""
        start = max(start, self.below)
        if start >= end:
            return
        if not self._chunks and start == self.below:
            self.below = end
            return
        for number, first, last in _chunks_of(start, end):
            before = self._chunks.get(number, 0)
            # One number for all full chunks: a range may have very many.
            whole = last - first == CHUNK_OFFSETS
            after = _FULL if whole else before | ((1 << (last - first)) - 1) << first
            self._chunks[number] = after
            self.count_above += after.bit_count() - before.bit_count()
        if start == self.below:
            self._rise()

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
        """Where the open ones that begin at this open queue offset stop, at most end."""
        for number, first, last in _chunks_of(queue_offset, end):
            bits = self._chunks.get(number, 0) >> first & (1 << (last - first)) - 1
            if bits:
                lowest = (bits & -bits).bit_length() - 1
                return (number << _CHUNK_SHIFT) + first + lowest
        return end

    def open_between(self, start: int, end: int) -> Sequence[int]:
        """Those of start <= n < end that are not completed, ascending."""
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
        """How many of start <= n < end are completed."""
        count = max(0, min(end, self.below) - start)
        start = max(start, self.below)
        if not self._chunks:
            return count
        for number, first, last in _chunks_of(start, end):
            if bits := self._chunks.get(number):
                count += (bits >> first & (1 << (last - first)) - 1).bit_count()
        return count

    def open_flags(self, start: int, end: int) -> bytes:
        """Of each of start <= n < end a byte: 1 if it is not completed, else 0."""
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
        """What the constructor takes: apart from each other, ascending."""
        found = [(0, self.below)] if self.below else []
        found.extend(self._ranges_above())
        return found

    def to_json(self) -> Any:
        """ranges(), or of very many the bitmap, its chunks in hexadecimal digits."""
        found = [(0, self.below)] if self.below else []
        for each in self._ranges_above():
            if len(found) == RANGES_MAX:
                above = {number: f"{bits:x}" for number, bits in sorted(self._chunks.items())}
                return {"below": self.below, "above": above}
            found.append(each)
        return found

    @classmethod
    def from_json(cls, tree: Any) -> CompletedOffsets:
        """The inverse of to_json, for what table_shapes.Completed has taken."""
        if not isinstance(tree, Mapping):
            return cls((int(start), int(end)) for start, end in tree)
        completed = cls()
        completed.below = int(tree["below"])
        for number, digits in tree["above"].items():
            completed._chunks[int(number)] = int(digits, 16)
        completed._rise()
        completed.count_above = completed.count_between(completed.below, completed._end)
        return completed

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
        """The lowest open one may have moved up; chunks that say nothing any more go."""
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
    """The chunks that start <= n < end touches: number, and first <= bit < last in it."""
    while start < end:
        number = start >> _CHUNK_SHIFT
        until = min(end, (number + 1) << _CHUNK_SHIFT)
        yield number, start & _IN_CHUNK, until - (number << _CHUNK_SHIFT)
        start = until


class ScheduleProgress:
    """The completed offsets of every level, and what is pending per topic; levels from 1."""

    def __init__(self) -> None:
        self._levels: dict[int, CompletedOffsets] = {}
        self.pending: dict[int, Counter[str]] = {}
        """Level -> topic -> messages that wait to be delivered there.  "" is the topic of
        those that do not say where they are going."""

    def level(self, level: int) -> CompletedOffsets:
        completed = self._levels.get(level)
        if completed is None:
            completed = self._levels[level] = CompletedOffsets()
        return completed

    def scheduled(self, level: int, topic: str) -> None:
        """One more message of the level waits."""
        counts = self.pending.get(level)
        if counts is None:
            counts = self.pending[level] = Counter()
        counts[topic] += 1

    def complete(self, level: int, start: int, end: int, topics: Mapping[str, int]) -> None:
        """start <= n < end are completed; topics: how many of those that were open went where."""
        self.level(level).add(start, end)
        counts = self.pending.setdefault(level, Counter())
        for topic, count in topics.items():
            left = counts[topic] - count
            if left > 0:
                counts[topic] = left
            else:
                del counts[topic]

    def delay_offsets(self) -> dict[int, int]:
        """The content of RocketMQ's delayOffset.json: level -> next queue offset to deliver."""
        return {level: each.below for level, each in sorted(self._levels.items()) if each.below}

    def ranges(self) -> dict[int, list[tuple[int, int]]]:
        """Of every level what is completed, as ranges of queue offsets."""
        return {level: each.ranges() for level, each in sorted(self._levels.items())}

    def to_json(self) -> dict[int, Any]:
        """Of every level what is completed; pending is beside it in the same table."""
        return {level: each.to_json() for level, each in sorted(self._levels.items())}

    def pending_now(self) -> dict[int, dict[str, int]]:
        """A copy of pending, in order; as it stands in the table."""
        return {level: dict(sorted(each.items())) for level, each in sorted(self.pending.items())}

    @classmethod
    def from_json(
        cls, tree: Mapping[Any, Any], pending: Mapping[Any, Mapping[str, int]] | None = None
    ) -> ScheduleProgress:
        """The inverse of to_json and pending_now, for what table_shapes has taken."""
        progress = cls()
        for level, completed in tree.items():
            progress._levels[int(level)] = CompletedOffsets.from_json(completed)
        for level, counts in (pending or {}).items():
            progress.pending[int(level)] = Counter(counts)
        return progress

"""Which scheduled records are completed: per level, a set of queue offsets as ranges.

A delivery completes its scheduled record (design: progress lives in the log); so this set
is made from the log, and what config/ keeps of it is only where to begin.  Levels whose
table never changed complete in order, and the set is one number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class CompletedOffsets:
    """A set of queue offsets: all below `below`, and the ranges above it."""

    __slots__ = ("_ends", "_starts", "below", "count_above")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.below = 0
        """The lowest queue offset that is not completed."""
        self.count_above = 0
        """How many completed ones lie above it."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """start <= n < end are completed; adding again changes nothing."""
        start = max(start, self.below)
        if start >= end:
            return
        if not self._starts:
            if start == self.below:
                self.below = end
                return
            self._starts, self._ends = [start], [end]
            self.count_above = end - start
            return
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        if self._starts[0] <= self.below:
            self.below = self._ends[0]
            del self._starts[0], self._ends[0]
        self.count_above = sum(self._ends) - sum(self._starts)

    def next_open(self, queue_offset: int) -> int:
        """The first queue offset at or after this one that is not completed."""
        if queue_offset < self.below:
            return self.below
        at = bisect_right(self._starts, queue_offset) - 1
        if at >= 0 and queue_offset < self._ends[at]:
            return self._ends[at]
        return queue_offset

    def open_until(self, queue_offset: int, end: int) -> int:
        """Where the open ones that begin at this open queue offset stop, at most end."""
        at = bisect_right(self._starts, queue_offset)
        return min(end, self._starts[at]) if at < len(self._starts) else end

    def ranges(self) -> list[tuple[int, int]]:
        """What the constructor takes."""
        above = list(zip(self._starts, self._ends, strict=True))
        return [(0, self.below), *above] if self.below else above


class ScheduleProgress:
    """The completed offsets of every level; levels are counted from 1."""

    def __init__(self) -> None:
        self._levels: dict[int, CompletedOffsets] = {}

    def level(self, level: int) -> CompletedOffsets:
        completed = self._levels.get(level)
        if completed is None:
            completed = self._levels[level] = CompletedOffsets()
        return completed

    def delay_offsets(self) -> dict[int, int]:
        """The content of RocketMQ's delayOffset.json: level -> next queue offset to deliver."""
        return {level: each.below for level, each in sorted(self._levels.items()) if each.below}

    def to_json(self) -> dict[int, list[tuple[int, int]]]:
        return {level: each.ranges() for level, each in sorted(self._levels.items())}

    @classmethod
    def from_json(cls, tree: dict[str, list[list[int]]]) -> ScheduleProgress:
        """The inverse of to_json, keys being text.  Raises TypeError, ValueError."""
        progress = cls()
        for level, ranges in tree.items():
            progress._levels[int(level)] = CompletedOffsets((int(a), int(b)) for a, b in ranges)
        return progress

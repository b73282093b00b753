"""Compares the bytes that a reader returns with their checksums, and no others.

A record's CRC covers its body alone; the running checksums of its file cover the rest (see
checksums.py), as far as these are on disk.  A stretch between two checksums is summed up
once, when its first message is wanted; a store that RocketMQ wrote has no checksums, so
nothing is compared there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from rmqlite.errors import StoreDamaged
from rmqlite.store.log.checksums import Checksums, Point
from rmqlite.store.reading.log_view import LogView, LogWalk


class _File:
    """The points of one file, and a flag for each stretch between them that was compared."""

    def __init__(self, points: list[Point]) -> None:
        self.points = points
        self.ends = [point.position for point in points]
        self.is_compared = bytearray(len(points))


class ChainView:
    """Compares a log with its checksums, stretch by stretch."""

    def __init__(self, log: LogView, sums: Checksums, persisted: Point | None) -> None:
        """persisted: end and chain of the last persist."""
        self._log = log
        self._sums = sums
        self._persisted = persisted
        mark = log.log_end.mark_over(log.begin)
        self._trusted_end = max(
            persisted.position if persisted else 0, mark.synced_end if mark else 0
        )
        self._files: dict[int, _File] = {}

    def damage_in(self, begin: int, end: int) -> StoreDamaged | None:
        """The error for the first changed stretch with bytes begin <= n < end; None if none.

        The bytes lie in one file.  Each stretch is reported once.
        """
        start = begin - begin % self._log.segment_bytes
        file = self._files.get(start)
        if file is None:
            file = self._files[start] = _File(self._points(start))
        first = max(1, bisect_right(file.ends, begin))
        last = min(len(file.ends) - 1, bisect_left(file.ends, end))
        for number in range(first, last + 1):
            if file.is_compared[number]:
                continue
            file.is_compared[number] = 1
            before, known = file.points[number - 1], file.points[number]
            chain = self._sums.chain_at(before, known.position)
            if chain == known.chain or self._log.is_gone(start):
                continue
            if not self._has_broken_record(before.position, known.position):
                upto = known.position - start
                return StoreDamaged(
                    str(self._log.segments.path_at(start)),
                    before.position - start,
                    f"the checksum {known.chain:#010x} of all bytes before {upto}",
                    f"{chain:#010x}: a header or properties have changed since they were written",
                )
        return None

    def _has_broken_record(self, begin: int, end: int) -> bool:
        """Is there a broken record, which the reader itself will report?"""
        start = begin - begin % self._log.segment_bytes
        file_end = start + self._log.segment_bytes
        position: int | None = start
        while position is not None and position < end:
            walk = LogWalk(self._log, position, file_end, check_bodies=True)
            if any(walk.position >= end for _ in walk) or not walk.is_stuck:
                return False
            position = self._log.log_end.next_sound(walk.position, 0)
            if walk.position < end and (position is None or position > begin):
                return True
        return False

    def _points(self, start: int) -> list[Point]:
        """The points of the file that begins at start, ascending; the first is its beginning."""
        limit = min(self._trusted_end, start + self._log.segment_bytes)
        mark = self._log.log_end.mark_of(start)
        points = [self._persisted] if self._persisted else []
        points += [Point(*mark[1:])] if mark and mark.is_sure else []
        points = [each for each in points if start < each.position <= limit]
        if points:
            points += self._sums.points(start, max(each.position for each in points))
        return [Point(start, 0), *sorted(set(points))]

"""Verifies that the log's last bytes are those that were written, before opening walks it.

The chains of the last persist, of the synced mark and of the tables must fit the present
bytes; so any changed byte is found, also in the fields that RocketMQ's CRC does not cover.
The cost is bounded: only a check of the store compares the whole log.
"""

from __future__ import annotations

from typing import Final

from rmqlite.errors import StoreDamaged
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.log.checksums import Point

LOOK_BACK_BYTES: Final = 16 << 20
"""Bytes before the persisted end that every opening compares."""


def verify(log: CommitLog, persisted: Point, look_back_bytes: int = LOOK_BACK_BYTES) -> bool:
    """Compare from look_back_bytes before the persisted end up to the synced mark.

    False: the log ends earlier, because its tail was cut off.  Raises StoreDamaged; it names
    the broken record if that record's CRC or lengths are wrong.
    """
    newest = log.log_end.mark_over(log.min_offset)
    trusted_end = max(persisted.position, newest.synced_end if newest else 0)
    begin = max(log.min_offset, persisted.position - look_back_bytes)
    for start in log.segment_starts:
        if start + log.segment_bytes <= begin:
            continue
        point = log.sums.known_before(max(begin, start))
        for known in known_points(log, point, start, persisted, trusted_end):
            chain = log.sums.chain_at(point, known.position)
            if chain != known.chain:
                _check_broken(log, start, point, known, chain)
                return False
            point = known
    return True


def known_points(
    log: CommitLog, first: Point, start: int, persisted: Point, trusted_end: int
) -> list[Point]:
    """The chains that one file must have, at ascending positions behind first.

    start: where the file begins.  trusted_end: chains behind it are left out, because a power
    cut may have taken their bytes.
    """
    mark = log.log_end.mark_of(start)
    points = [persisted, Point(*mark[1:])] if mark and mark.is_sure else [persisted]
    limit = min(trusted_end, start + log.segment_bytes)
    points = [each for each in points if first.position < each.position <= limit]
    if points:
        last = max(each.position for each in points)
        points += log.sums.points(first.position, last)
    return sorted(set(points))


def _check_broken(log: CommitLog, start: int, begin: Point, known: Point, chain: int) -> None:
    """Raises StoreDamaged for changed bytes between two points, unless the log ends there."""
    log.end, position = start + log.segment_bytes, start
    try:
        for walked in log.walk(start):
            position = walked.head.physical_offset + walked.head.size
            if position >= known.position:
                break
    except StoreDamaged:
        log.log_end.check(position, 0, known.position)
        return
    raise StoreDamaged(
        str(log.path_at(begin.position)),
        begin.position % log.segment_bytes,
        f"the checksum {known.chain:#010x} of all bytes before {known.position - start}",
        f"{chain:#010x}: a header or properties have changed since they were written",
    )

"""Partitions: one task reads a stretch of one log file, or stretches of some queues.

A partition is a small value that the driver makes and an executor gets.  It has the place, the
begin and the end of the reading, so that reading it again gives the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.kernel.words.levels import LevelHistory


class QueueStretch(NamedTuple):
    """The records begin <= queue offset < end of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store's folder (root) or a broker (endpoint), in its state when the reading was planned.

    Only begin <= physical offset < end is read.  known_end: for records before this physical
    offset the queue files have all entries.
    """

    root: str
    endpoint: str
    log_file_bytes: int
    queue_file_bytes: int
    begin: int
    known_end: int
    end: int
    levels: LevelHistory

    @property
    def where(self) -> str:
        return self.root or self.endpoint


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records of one log file that begin at begin <= physical offset < end.

    bounds: stretches of queues; records of these queues outside of the stretches are left out.
    """

    place: StorePlace
    begin: int
    end: int
    bounds: tuple[QueueStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSlices:
    """Records by their queue offsets, stretch by stretch; place None: the task looks it up."""

    ranges: tuple[QueueStretch, ...]
    place: StorePlace | None = None


Partition = LogSlice | QueueSlices


def packed(
    slices: Sequence[QueueStretch], *, partitions_max: int, rows: int
) -> list[tuple[QueueStretch, ...]]:
    """The slices in partitions of about the same length: about `rows` rows each.

    They are longer if that would make more than partitions_max.  A partition costs a fixed time
    even if it reads little, and a topic has many queues.
    """
    total = sum(each.end - each.begin for each in slices)
    count = max(1, min(partitions_max, -(-total // rows)))
    waiting = deque(each for each in slices if each.begin < each.end)
    made: list[tuple[QueueStretch, ...]] = []
    for number in range(count):
        room = total * (number + 1) // count - total * number // count
        part: list[QueueStretch] = []
        while room > 0:
            first = waiting.popleft()
            cut = min(first.end, first.begin + room)
            part.append(first._replace(end=cut))
            room -= cut - first.begin
            if cut < first.end:
                waiting.appendleft(first._replace(begin=cut))
        if part:
            made.append(tuple(part))
    return made

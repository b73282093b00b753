"""Packs stretches of queues into partitions of about the same length."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class QueueSlice(NamedTuple):
    """The records begin <= queue offset < end of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int


def packed(
    slices: Sequence[QueueSlice], *, partitions_max: int, rows: int
) -> list[tuple[QueueSlice, ...]]:
    """The slices in partitions of about the same length: about `rows` rows each.

    They are longer if that would make more than partitions_max.  A partition costs a fixed time
    even if it reads little, and a topic has many queues.
    """
    total = sum(each.end - each.begin for each in slices)
    count = max(1, min(partitions_max, -(-total // rows)))
    waiting = deque(each for each in slices if each.begin < each.end)
    made: list[tuple[QueueSlice, ...]] = []
    for number in range(count):
        room = total * (number + 1) // count - total * number // count
        part: list[QueueSlice] = []
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

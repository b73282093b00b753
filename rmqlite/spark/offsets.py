"""How far a stream is: a queue offset for every queue, and what may be done with them.

A queue that a stream does not name is at 0: it was not there before.  Spark compares offsets
as text, so the same offsets are always the same text: topics and queues sorted, and a queue
that never held a record left out.  Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rmqlite.errors import InvalidValue

Queue = tuple[str, int]
Offsets = dict[Queue, int]
"""(topic, queue id) -> the next queue offset to read."""
_RULE: Final = 'offsets of this format, such as {"topic": {"0": 23}}'


def to_spark(offsets: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """As Spark keeps them in its checkpoint."""
    tree: dict[str, dict[str, int]] = {}
    for topic, queue_id in sorted(offsets):
        tree.setdefault(topic, {})[str(queue_id)] = offsets[topic, queue_id]
    return tree


def from_spark(tree: Mapping[str, Any]) -> Offsets:
    """The inverse of to_spark.  Raises InvalidValue: the checkpoint is of another source."""
    try:
        return {
            (topic, int(queue_id)): int(offset)
            for topic, queues in tree.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidValue("checkpointLocation", tree, _RULE) from error


def limited(sizes: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """How many records of each queue make a batch of at most rows_max; none may be nothing.

    Each queue that has any gets one, as far as they go, so that a long queue does not hold up
    a short one; the rest is shared out by their lengths.
    """
    waiting = {queue: size for queue, size in sizes.items() if size > 0}
    total = sum(waiting.values())
    if total <= rows_max:
        return waiting
    longest = sorted(waiting, key=lambda queue: (-waiting[queue], queue))
    if rows_max <= len(longest):
        return dict.fromkeys(longest[:rows_max], 1)
    left, beyond = rows_max - len(longest), total - len(longest)
    shares = {queue: 1 + left * (size - 1) // beyond for queue, size in waiting.items()}
    # What rounding down has left over is less than one a queue.
    for queue in longest[: rows_max - sum(shares.values())]:
        shares[queue] += 1
    return shares

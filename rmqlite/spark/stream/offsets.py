"""A stream's offsets: a queue offset for every queue, as values and as Spark stores them.

A queue without an offset is at 0: it did not exist before.  Spark compares offsets as text, so
the same offsets are always the same text: topics and queues are sorted, and a queue that never
had a record is left out.  Nothing here reads a store or a broker.
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
    """The offsets as Spark stores them in its checkpoint."""
    tree: dict[str, dict[str, int]] = {}
    for topic, queue_id in sorted(offsets):
        tree.setdefault(topic, {})[str(queue_id)] = offsets[topic, queue_id]
    return tree


def from_spark(tree: Mapping[str, Any]) -> Offsets:
    """The inverse of to_spark.  Raises InvalidValue if the checkpoint is of another source."""
    try:
        return {
            (topic, int(queue_id)): int(offset)
            for topic, queues in tree.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidValue("checkpointLocation", tree, _RULE) from error


def limited(sizes: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """How many records of each queue make a batch of at most rows_max; some queues may get none.

    Each queue with records gets one, the longest queues first, so that a long queue does not
    hold up a short one; the rest is divided by the lengths of the queues.
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
    # Rounding down leaves less than one per queue.
    for queue in longest[: rows_max - sum(shares.values())]:
        shares[queue] += 1
    return shares

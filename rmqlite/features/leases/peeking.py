"""What a receive would find in a queue now; looking at it leases nothing and moves no cursor."""

from __future__ import annotations

from itertools import islice

from rmqlite.features.leases.lease_table import LeaseTable
from rmqlite.features.leases.leased_queue import LeasedQueue
from rmqlite.features.leases.taking import Asked, is_of, message_group_of, pull_of
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import pull
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.steps import Steps


def peek_at(
    parts: BrokerParts, table: LeaseTable, queue: LeasedQueue, asked: Asked
) -> Steps[list[Record]]:
    """Messages of a queue, in steps; of those that nobody has seen yet only the next few.

    Raises what pull() raises.
    """
    topic, room = asked.request.topic, asked.room
    seen = (
        offset
        for offset, (of_topic, message_group) in queue.visible.items()
        if of_topic == topic and not queue.is_group_leased(message_group)
    )
    offsets = list(islice(seen, room))
    found = [record for _, record in table.records(queue, offsets) if record is not None]
    begin = queue.cursor(topic)
    pulled = yield from pull(parts, pull_of(queue, asked.request, begin, asked))
    for record in pulled.records:
        if queue.has_seen(record.head.queue_offset) or (
            queue.is_retry and not is_of(record, topic)
        ):
            continue
        if not asked.in_order or not queue.is_group_leased(message_group_of(record)):
            found.append(record)
    return found[:room]

"""Messages as the bytes of a request, and its answer as results.

A request has one batch for each topic and delay; nearly always that is one for all messages.
"""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

from rmqlite.clock import wall_ms
from rmqlite.message import Message
from rmqlite.requests.messages import EncodedBatch, SendAnswer, SendRequest, SendResult
from rmqlite.wire.remoting.batch import write_messages


class Encoded(NamedTuple):
    """groups: the messages of each batch; places: where those stand in the call."""

    request: SendRequest
    groups: list[tuple[Message, ...]]
    places: list[int] | None = None

    def results(self, answer: SendAnswer) -> tuple[SendResult, ...]:
        """In the order of the messages."""
        if len(answer.physical_offsets) == 1:
            # The columns below cost a single send more than the rest of its answer.
            ((message,),) = self.groups
            (queue_id,), (queue_offset,) = answer.queue_ids, answer.queue_offsets
            (physical_offset,) = answer.physical_offsets
            due_ms = answer.deliver_at_ms[0] if answer.deliver_at_ms else 0
            result = SendResult(
                message.topic,
                queue_id,
                queue_offset,
                message.message_id,
                physical_offset,
                due_ms,
                answer.store_host,
            )
            return (result,)
        results: list[SendResult] = []
        for messages, queue_id in zip(self.groups, answer.queue_ids, strict=True):
            mine = slice(len(results), len(results) + len(messages))
            columns = zip(
                repeat(messages[0].topic),
                repeat(queue_id),
                answer.queue_offsets[mine],
                [message.message_id for message in messages],
                answer.physical_offsets[mine],
                answer.deliver_at_ms[mine] or repeat(0),
                repeat(answer.store_host),
                strict=False,
            )
            results += map(SendResult._make, columns)
        if self.places is None:
            return tuple(results)
        in_order = dict(zip(self.places, results, strict=True))
        return tuple([in_order[place] for place in range(len(results))])


def encoded(messages: tuple[Message, ...], group: str, queue_id: int) -> Encoded:
    """The request for messages that have ids."""
    first = messages[0]
    kinds = [(first.topic, first.delay)]
    groups, places = [messages], None
    # Two sets cost a third of one pair for each message.
    topics, delays = {each.topic for each in messages}, {each.delay for each in messages}
    if len(topics) > 1 or len(delays) > 1:
        keys = [(each.topic, each.delay) for each in messages]
        kinds = list(dict.fromkeys(keys))
        by_kind = [[at for at, key in enumerate(keys) if key == kind] for kind in kinds]
        groups = [tuple([messages[at] for at in mine]) for mine in by_kind]
        places = [at for mine in by_kind for at in mine]
    batches = [
        EncodedBatch(topic, "" if delay is None else str(delay), write_messages(mine))
        for (topic, delay), mine in zip(kinds, groups, strict=True)
    ]
    return Encoded(SendRequest((), group, queue_id, wall_ms(), tuple(batches)), groups, places)

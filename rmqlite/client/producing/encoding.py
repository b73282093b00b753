"""Messages as the bytes of a request, and its answer as results.

A request has one batch for each topic and delay; nearly always that is one for all messages.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import NamedTuple

from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import (
    EncodedBatch,
    SendAnswer,
    SendRequest,
    SendResult,
)
from rmqlite.protocols.remoting.bytes.batch import write_messages


class EncodedSend(NamedTuple):
    """groups: the messages of each batch; places: where those stand in the call."""

    request: SendRequest
    groups: list[tuple[Message, ...]]
    places: list[int] | None = None

    def results(self, answer: SendAnswer) -> tuple[SendResult, ...]:
        """In the order of the messages."""
        if len(answer.physical_offsets) == 1:
            # The columns below cost a single send more than the rest of its answer.
            one, queue_id, host = self.groups[0][0], answer.queue_ids[0], answer.store_host
            at, place = answer.queue_offsets[0], answer.physical_offsets[0]
            due_ms = answer.deliver_at_ms[0] if answer.deliver_at_ms else 0
            return (SendResult(one.topic, queue_id, at, one.message_id, place, due_ms, host),)
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
            results += map(partial(tuple.__new__, SendResult), columns)
        if self.places is None:
            return tuple(results)
        in_order = dict(zip(self.places, results, strict=True))
        return tuple([in_order[place] for place in range(len(results))])


def encoded(messages: tuple[Message, ...], group: str, queue_id: int) -> EncodedSend:
    """The request for messages that have ids."""
    groups, places = [messages], None
    if len(messages) > 1 and not _are_alike(messages):
        keys = [(each.topic, each.delay) for each in messages]
        by_kind = [
            [at for at, key in enumerate(keys) if key == kind] for kind in dict.fromkeys(keys)
        ]
        groups = [tuple([messages[at] for at in mine]) for mine in by_kind]
        places = [at for mine in by_kind for at in mine]
    batches = tuple([_batch(mine) for mine in groups])
    return EncodedSend(SendRequest(group, queue_id, wall_ms(), batches), groups, places)


def _are_alike(messages: tuple[Message, ...]) -> bool:
    """Have they one topic and delay?  Two sets cost a third of one pair for each message."""
    return len({each.topic for each in messages}) == len({each.delay for each in messages}) == 1


def _batch(messages: tuple[Message, ...]) -> EncodedBatch:
    topic, delay = messages[0].topic, messages[0].delay
    return EncodedBatch(topic, "" if delay is None else str(delay), write_messages(messages))

"""Sends as the client makes them, without a client: values in, results out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from rmqlite.client.producer import EncodedSend, encoded
from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import Message, pack_host
from rmqlite.protocols.native import table
from rmqlite.protocols.native.bytes.messages import SendRequest, SendResult

BORN_HOST = pack_host("10.0.0.1:1234")


def encoded_of(
    messages: Sequence[Message], queue_id: int = -1, *, group: str = "", born_at_ms: int = 0
) -> EncodedSend:
    """The client's encoded call; messages without an id get one."""
    named = [
        each if each.message_id else each.named(secrets.token_hex(16).upper()) for each in messages
    ]
    sent = encoded(tuple(named), group, queue_id)
    return sent._replace(request=sent.request._replace(born_at_ms=born_at_ms))


def request_of(messages: Sequence[Message], queue_id: int = -1) -> SendRequest:
    return encoded_of(messages, queue_id).request


def call_of(messages: Sequence[Message], queue_id: int = -1) -> DraftCall:
    """What the service takes."""
    return table.call_of(request_of(messages, queue_id), BORN_HOST)


def sending(
    broker: Broker,
    messages: Sequence[Message],
    queue_id: int = -1,
    *,
    group: str = "",
    born_at_ms: int = 0,
) -> Steps[tuple[SendResult, ...]]:
    """Store messages by the broker itself, as one call.  Raises what refuses them."""
    born_at_ms = born_at_ms or broker.parts.clock.now_ms()
    sent = encoded_of(messages, queue_id, group=group, born_at_ms=born_at_ms)
    (outcome,) = yield from broker.drafts.send([table.call_of(sent.request, BORN_HOST)])
    if isinstance(outcome, RmqliteError):
        raise outcome
    return sent.results(table.answer_of(outcome, broker.store_host))

"""Every field of every request of RocketMQ 5's protocol has a limit, checked before parsing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words import limits as numbers
from rmqlite.protocols.rocketmq_v2.bytes import rpcs, rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.limits import (
    ACKS_MAX,
    TOPICS_MAX,
    limits_of,
    rocketmq_limits,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.shared.bounded import SMALL_BYTES_MAX
from tests.support.rocketmq_v2 import outgoing, refused

CONFIG = BrokerConfig()
LIMITS = rocketmq_limits(CONFIG)
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def fields_of(message: Descriptor) -> Iterator[tuple[str, FieldDescriptor]]:
    """The fields of a message and of those in it, as "Message.field"."""
    for field in message.fields:
        yield f"{message.name}.{field.name}", field
        if field.message_type is not None:
            yield from fields_of(field.message_type)


def needs(field: FieldDescriptor) -> set[str]:
    """Which limits a field must have."""
    wanted = {"count"} if field.is_repeated else set()
    return wanted | ({"size or total"} if field.type in TEXTS else set())


def test_every_field_has_a_limit() -> None:
    """A field without one can be as large as a call, and holds up everybody."""
    table = limits_of(CONFIG)
    known = {name: field for rpc in rpcs.ALL for name, field in fields_of(rpc.descriptor)}
    missing = []
    for name, field in known.items():
        limit = table.get(name)
        has = set()
        if limit is not None and limit.count is not None:
            has.add("count")
        if limit is not None and (limit.size is not None or limit.total is not None):
            has.add("size or total")
        missing += [f"{name} has no {each}" for each in needs(field) - has]
    assert missing == []
    assert [name for name in table if name not in known] == []


LONG = "x" * 100_000
NAME = definition.Resource(name="x" * 300)
ROWS: list[tuple[RocketmqRpc[Any, Any], Any, Code, str]] = [
    (
        rpcs.SEND_MESSAGE,
        b"\x0a\x00" * 1_000_000,
        Code.PAYLOAD_TOO_LARGE,
        "messages must be at most 500 in one call (maxSendMessages), not 'more than 500'",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(bytes((4 << 20) + 1))]),
        Code.MESSAGE_BODY_TOO_LARGE,
        "messages.body must be at most 4194304 bytes (maxMessageSize)",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(tag=LONG)]),
        Code.ILLEGAL_MESSAGE_TAG,
        "messages.system_properties.tag must be at most 1024 bytes, not '100000 bytes'",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(keys=["k"] * 1_001)]),
        Code.ILLEGAL_MESSAGE_KEY,
        "messages.system_properties.keys must be at most 1000 in one call",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(message_group=LONG)]),
        Code.ILLEGAL_MESSAGE_GROUP,
        "messages.system_properties.message_group must be",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(message_id=LONG)]),
        Code.ILLEGAL_MESSAGE_ID,
        "messages.system_properties.message_id must be",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(user={"a": LONG})]),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "messages.user_properties.value must be",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(
            messages=[outgoing(user={f"{n}": "v" for n in range(100)}) for _ in range(41)]
        ),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "messages.user_properties must be at most 4000 in one call",
    ),
    (
        rpcs.SEND_MESSAGE,
        service.SendMessageRequest(messages=[outgoing(topic="x" * 300)]),
        Code.ILLEGAL_TOPIC,
        "messages.topic.name must be at most 127 bytes",
    ),
    (
        rpcs.QUERY_ROUTE,
        service.QueryRouteRequest(topic=NAME),
        Code.ILLEGAL_TOPIC,
        "topic.name must be at most 127 bytes",
    ),
    (
        rpcs.QUERY_ROUTE,
        service.QueryRouteRequest(
            endpoints=definition.Endpoints(addresses=[definition.Address(host="h" * 9)] * 65)
        ),
        Code.ILLEGAL_ACCESS_POINT,
        "endpoints.addresses must be at most 64 in one call",
    ),
    (
        rpcs.HEARTBEAT,
        service.HeartbeatRequest(group=NAME),
        Code.ILLEGAL_CONSUMER_GROUP,
        "group.name must be at most 127 bytes",
    ),
    (
        rpcs.RECEIVE_MESSAGE,
        service.ReceiveMessageRequest(
            filter_expression=definition.FilterExpression(expression="a||" * 10_000)
        ),
        Code.ILLEGAL_FILTER_EXPRESSION,
        "filter_expression.expression must be at most 4096 bytes",
    ),
    (
        rpcs.ACK_MESSAGE,
        service.AckMessageRequest(entries=[service.AckMessageEntry()] * (ACKS_MAX + 1)),
        Code.BAD_REQUEST,
        "entries must be at most 1024 in one call",
    ),
    (
        rpcs.ACK_MESSAGE,
        service.AckMessageRequest(entries=[service.AckMessageEntry(receipt_handle=LONG)]),
        Code.INVALID_RECEIPT_HANDLE,
        "entries.receipt_handle must be at most 1024 bytes",
    ),
    (
        rpcs.CHANGE_INVISIBLE,
        service.ChangeInvisibleDurationRequest(receipt_handle=LONG),
        Code.INVALID_RECEIPT_HANDLE,
        "receipt_handle must be at most 1024 bytes",
    ),
    (
        rpcs.END_TRANSACTION,
        service.EndTransactionRequest(transaction_id=LONG),
        Code.INVALID_TRANSACTION_ID,
        "transaction_id must be at most 1024 bytes",
    ),
    (
        rpcs.SYNC_LITE_SUBSCRIPTION,
        service.SyncLiteSubscriptionRequest(lite_topic_set=["x" * 200] * 2),
        Code.ILLEGAL_LITE_TOPIC,
        "lite_topic_set must be at most 127 bytes",
    ),
    (
        rpcs.TELEMETRY,
        service.TelemetryCommand(
            settings=definition.Settings(
                client_properties={f"{n}": "v" * 20 for n in range(33)},
            )
        ),
        Code.INVALID_CLIENT_PROPERTIES,
        "settings.client_properties must be at most 32 in one call",
    ),
    (
        rpcs.HEARTBEAT,
        b"\x7a\x00" * 20_000,
        Code.BAD_REQUEST,
        "request must be at most",
    ),
]


@pytest.mark.parametrize(
    ("rpc", "request_", "code", "part"), ROWS, ids=[f"{row[0].name} {row[3][:30]}" for row in ROWS]
)
def test_what_is_too_much_is_named(
    rpc: RocketmqRpc[Any, Any], request_: Any, code: Code, part: str
) -> None:
    """With the code of the field, and never with the text itself, which may be 5 MB."""
    data = request_ if isinstance(request_, bytes) else request_.SerializeToString()
    with refused(code, part):
        LIMITS.check(rpc, data)


def test_a_whole_request_has_a_length_by_its_call() -> None:
    """7 MB have nothing to say to a call that names one topic."""
    for rpc in rpcs.ALL:
        with refused(Code.PAYLOAD_TOO_LARGE, "request must be at most"):
            LIMITS.check(rpc, b"\xff" * (7 << 20))


def test_the_largest_requests_that_are_allowed_pass() -> None:
    """The limits fit together."""
    message = outgoing(
        bytes(8_000),
        {f"p{number}": "v" * 100 for number in range(100)},
        topic="t" * 127,
        message_id="x" * numbers.MESSAGE_ID_BYTES_MAX,
        tag="t" * 1_000,
        keys=["k" * 100] * 10,
        message_group="g" * 63,
    )
    LIMITS.check(
        rpcs.SEND_MESSAGE, service.SendMessageRequest(messages=[message] * 40).SerializeToString()
    )
    topics = [definition.Resource(name=f"topic-{number:0100}") for number in range(TOPICS_MAX)]
    told = definition.Settings(publishing=definition.Publishing(topics=topics))
    LIMITS.check(rpcs.TELEMETRY, service.TelemetryCommand(settings=told).SerializeToString())
    entry = service.AckMessageEntry(message_id="m" * 34, receipt_handle="h" * 100)
    acks = service.AckMessageRequest(entries=[entry] * ACKS_MAX)
    LIMITS.check(rpcs.ACK_MESSAGE, acks.SerializeToString())


@pytest.mark.parametrize("rpc", rpcs.ALL, ids=lambda rpc: rpc.name)
@settings(deadline=None, max_examples=30)
@given(data=st.binary(min_size=SMALL_BYTES_MAX + 1, max_size=600))
def test_bytes_that_are_no_request_are_refused_in_words(
    rpc: RocketmqRpc[Any, Any], data: bytes
) -> None:
    """Neither the check nor the parser fails on them."""
    with contextlib.suppress(RocketmqRefusal):
        LIMITS.check(rpc, data)
    with contextlib.suppress(RocketmqRefusal):
        rpc.decode(data)


def test_a_handle_that_is_too_long_is_a_handle_that_is_not_valid() -> None:
    """Any other code would make a push consumer ask for ever."""
    for rpc, request in (
        (rpcs.ACK_MESSAGE, service.AckMessageRequest()),
        (rpcs.CHANGE_INVISIBLE, service.ChangeInvisibleDurationRequest(receipt_handle=LONG)),
        (rpcs.FORWARD_MESSAGE, service.ForwardMessageToDeadLetterQueueRequest(receipt_handle=LONG)),
    ):
        if isinstance(request, service.AckMessageRequest):
            request.entries.add(receipt_handle=LONG)
        with refused(Code.INVALID_RECEIPT_HANDLE, "receipt_handle must be"):
            LIMITS.check(rpc, request.SerializeToString())


def test_the_rules_are_not_wider_than_the_limits() -> None:
    """Otherwise a rule would never be reached."""
    assert rules.MESSAGE_GROUP_BYTES_MAX < numbers.KEY_BYTES_MAX
    assert rules.USER_PROPERTIES_BYTES_MAX < numbers.PROPERTIES_BYTES_MAX
    assert rules.USER_PROPERTIES_BYTES_MAX < numbers.SENT_PROPERTIES_BYTES_MAX - 8_000

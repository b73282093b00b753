"""Every field of every request has a limit, which is looked at before the request is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rmqlite.features.bulk.requests import SCHEDULE_BULK
from rmqlite.features.changes.requests import CHANGE_BY_IDS, GET_TIMELINE, LIST_PENDING
from rmqlite.features.finding.requests import QUERY_MESSAGES
from rmqlite.features.rows import Row
from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.errors import InvalidName, InvalidValue, MessageTooLarge
from rmqlite.kernel.words.names import TOPIC_BYTES_MAX
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows, limits_of, native_limits
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.bounded import SMALL_BYTES_MAX

CONFIG = BrokerConfig()
LIMITS = native_limits(CONFIG)
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
    known = {name: field for rpc in all_rows() for name, field in fields_of(rpc_of(rpc).request)}
    missing = []
    for name, field in known.items():
        limit = table.get(name, table.get(field.name))
        has = set()
        if limit is not None and limit.count is not None:
            has.add("count")
        if limit is not None and (limit.size is not None or limit.total is not None):
            has.add("size or total")
        missing += [f"{name} has no {each}" for each in needs(field) - has]
    assert missing == []
    names = {*known, *[field.name for field in known.values()]}
    assert [name for name in table if name not in names] == []


def test_a_limit_that_an_operator_may_change_names_its_key() -> None:
    """Who is refused by it is told what to change."""
    keys = {
        key
        for limit in limits_of(CONFIG).values()
        for key in (limit.size_key, limit.count_key, limit.total_key)
    }
    assert keys - {""} == {"maxSendBytes", "maxBulkMessages"}
    assert keys - {""} <= set(KEYS.values())


def refusal(rpc: Row[Any, Any], request: Any) -> InvalidValue:
    data = request if isinstance(request, bytes) else request.SerializeToString()
    with pytest.raises(InvalidValue) as raised:
        LIMITS.check(rpc, data)
    assert len(str(raised.value)) < 300
    return raised.value


@pytest.mark.parametrize(
    ("rpc", "request_", "field", "value", "rule"),
    [
        (
            rpcs.COMMIT_OFFSETS,
            b"\x12\x00" * 400_000,
            "offsets",
            "more than 2048",
            "at most 2048 in one call",
        ),
        (
            QUERY_MESSAGES,
            pb.QueryMessagesRequest(topic="orders", key="x" * 100_000),
            "key",
            "100000 bytes",
            "at most 32767 bytes",
        ),
        (
            LIST_PENDING,
            pb.ListPendingRequest(filter=pb.PendingFilter(key="é" * 20_000)),
            "filter.key",
            "40000 bytes",
            "at most 32767 bytes",
        ),
        (
            rpcs.PULL,
            pb.PullRequest(group="shop", topic="orders", expression="a||" * 40_000),
            "expression",
            "120000 bytes",
            "at most 4096 bytes",
        ),
        (
            rpcs.SEND,
            pb.SendRequest(batches=[pb.EncodedBatch(topic="t")] * 101),
            "batches",
            "more than 100",
            "at most 100 in one call",
        ),
        (
            GET_TIMELINE,
            pb.GetTimelineRequest(bounds_ms=range(1 << 40, (1 << 40) + 201)),
            "bounds_ms",
            "more than 200",
            "at most 200 in one call",
        ),
        (GET_TIMELINE, b"\x10\x01" * 300, "levels", "more than 65", "at most 65 in one call"),
        (
            rpcs.HEARTBEAT,
            pb.HeartbeatRequest(subscriptions=[pb.Subscription(expression="x")] * 257),
            "subscriptions",
            "more than 256",
            "at most 256 in one call",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_too_much_is_named(
    rpc: Row[Any, Any], request_: Any, field: str, value: str, rule: str
) -> None:
    """Field, count or length, and rule; never the text itself, which may be 5 MB."""
    error = refusal(rpc, request_)
    assert (error.field, error.value, error.rule) == (field, value, rule)


def test_a_whole_request_has_a_length_by_its_call() -> None:
    """19 MB have nothing to say to a call that names one topic."""
    for rpc in all_rows():
        error = refusal(rpc, b"\xff" * (7 << 20))
        assert isinstance(error, MessageTooLarge)
        assert error.value == f"{7 << 20} bytes"


def test_a_request_is_not_much_longer_than_its_bodies() -> None:
    """Texts cost a hundred times what bodies cost."""
    text = "x" * 30_000
    bodies = [b"x" * 1_000_000] * 3
    bulk = pb.ScheduleBulkRequest(bodies=bodies, properties=[text] * 60)
    LIMITS.check(SCHEDULE_BULK, bulk.SerializeToString())
    error = refusal(SCHEDULE_BULK, pb.ScheduleBulkRequest(bodies=bodies, properties=[text] * 70))
    assert (error.field, error.rule) == ("request without bodies", "at most 2097152 bytes")


def test_bodies_that_are_too_large_together_are_called_so() -> None:
    """By the class that a client knows, which splits its call then."""
    batch = pb.EncodedBatch(messages=bytes(7 << 19))
    error = refusal(rpcs.SEND, pb.SendRequest(batches=[batch] * 2))
    assert isinstance(error, MessageTooLarge)
    assert error.field == "request"


def test_one_bad_message_of_a_bulk_call_is_not_the_others_fault() -> None:
    """Its sender takes MessageTooLarge as: in two parts, please."""
    for column in ("message_ids", "topics", "tags", "keys", "properties", "delays"):
        request = pb.ScheduleBulkRequest()
        getattr(request, column).append("x" * 40_000)
        error = refusal(SCHEDULE_BULK, request)
        assert isinstance(error, MessageTooLarge), column
    error = refusal(SCHEDULE_BULK, pb.ScheduleBulkRequest(bodies=[b"x"] * 501))
    assert error.rule == "at most 500 in one call (maxBulkMessages)"


def test_a_name_that_is_too_long_is_an_invalid_name() -> None:
    """As when the broker finds it."""
    error = refusal(rpcs.GET_ROUTE, pb.GetRouteRequest(topic="x" * 20_000))
    assert isinstance(error, InvalidName)
    assert (error.value, error.rule) == ("20000 bytes", f"at most {TOPIC_BYTES_MAX} bytes")


def test_junk_is_not_looked_at_for_long() -> None:
    """Also fields that nobody knows, or the same one over and over, have an end."""
    for junk in (b"\x18\x01", b"\x78\x01", b"\xfa\x3e\x00"):
        error = refusal(rpcs.SEND, junk * 500_000)
        assert error.value == "more fields"


def test_the_largest_requests_that_are_allowed_pass() -> None:
    """The limits fit together."""
    batch = pb.EncodedBatch(topic="t" * TOPIC_BYTES_MAX, delay="10m", messages=bytes(8_000))
    request = pb.SendRequest(batches=[batch] * limits.BATCHES_MAX)
    LIMITS.check(rpcs.SEND, request.SerializeToString())
    ids = [f"{number:0255}" for number in range(1_000)]
    LIMITS.check(CHANGE_BY_IDS, pb.ChangeByIdsRequest(message_ids=ids).SerializeToString())
    offset = pb.QueueOffset(topic="t" * TOPIC_BYTES_MAX, queue_id=1_000, queue_offset=1 << 40)
    commit = pb.CommitOffsetsRequest(group="g", offsets=[offset] * limits.QUEUES_MAX)
    LIMITS.check(rpcs.COMMIT_OFFSETS, commit.SerializeToString())


def test_what_is_small_is_not_looked_into() -> None:
    """A look costs as much as parsing, and nothing that so few bytes can be takes long."""
    LIMITS.check(rpcs.SEND, b"\x12\x00" * (SMALL_BYTES_MAX // 2))

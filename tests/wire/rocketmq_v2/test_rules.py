"""What the fields of requests must be: each row of RocketMQ's proxy, with its code."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.support.rocketmq_v2 import DAY_MS, NOW_MS, drafted, outgoing, refusal, refused

Kind = definition.MessageType


def named(name: str) -> definition.Resource:
    return definition.Resource(name=name, resource_namespace="ignored")


def at(milliseconds: int) -> Timestamp:
    made = Timestamp()
    rules.write_timestamp(made, milliseconds)
    return made


@pytest.mark.parametrize("text", [None, "", "  ", "a\tb", "x" * 256])
def test_a_client_has_an_id(text: str | None) -> None:
    """Idempotent sends, leases and memberships are kept by it."""
    with refused(Code.CLIENT_ID_REQUIRED, "x-mq-client-id must be"):
        rules.client_id_of(text)
    assert rules.client_id_of("host@17@0@abc") == "host@17@0@abc"


@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", "a b", "x" * 128, "a.b", "é", "TBW102", "SCHEDULE_TOPIC_XXXX"),
        *("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "CHECKPOINT_TOPIC", "BenchmarkTest"),
        "rmq_sys_wheel_timer",
    ],
)
def test_a_topic_has_a_plain_name(name: str) -> None:
    """The broker's own topics are not for users."""
    with refused(Code.ILLEGAL_TOPIC, "topic must be"):
        rules.topic_of(named(name))


@pytest.mark.parametrize("name", ["orders", "x" * 127, "%DLQ%payers", "a-b_c|d"])
def test_the_namespace_of_a_topic_does_not_count(name: str) -> None:
    """As in the proxy: clients of Node send it in some calls only."""
    assert rules.topic_of(named(name)) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "x" * 121, "é", "CID_RMQ_SYS_TRANS", "SCHEDULE_CONSUMER"]
)
def test_a_group_has_a_plain_name(name: str) -> None:
    """Its retry topic must have one, too."""
    with refused(Code.ILLEGAL_CONSUMER_GROUP, "group must be"):
        rules.group_of(named(name))
    assert rules.group_of(named("x" * 120)) == "x" * 120


def test_a_send_is_about_one_topic() -> None:
    """All of its messages are stored, or none."""
    with refused(Code.MESSAGE_CORRUPTED, "messages must be at least one message"):
        rules.topic_of_messages([])
    with refused(Code.MESSAGE_CORRUPTED, "topic must be that of the first message, 'orders'"):
        rules.topic_of_messages([outgoing(), outgoing(topic="stock")])
    assert rules.topic_of_messages([outgoing(), outgoing()]) == "orders"


LONG = "x" * 1_000
FORBIDDEN_SENDS: list[tuple[str, Code, str, dict[str, Any]]] = [
    ("no body", Code.MESSAGE_BODY_EMPTY, "body", {"body": b""}),
    ("a long body", Code.MESSAGE_BODY_TOO_LARGE, "body", {"body": bytes(4_097)}),
    ("an unknown encoding", Code.MESSAGE_CORRUPTED, "body_encoding", {"body_encoding": 9}),
    ("no id", Code.ILLEGAL_MESSAGE_ID, "message_id", {"message_id": ""}),
    ("a blank id", Code.ILLEGAL_MESSAGE_ID, "message_id", {"message_id": " "}),
    ("a long id", Code.ILLEGAL_MESSAGE_ID, "message_id", {"message_id": "x" * 256}),
    ("a broken id", Code.ILLEGAL_MESSAGE_ID, "message_id", {"message_id": "a\x01b"}),
    ("a blank tag", Code.ILLEGAL_MESSAGE_TAG, "tag", {"tag": "  "}),
    ("two tags", Code.ILLEGAL_MESSAGE_TAG, "tag", {"tag": "a|b"}),
    ("a tag with a control character", Code.ILLEGAL_MESSAGE_TAG, "tag", {"tag": "a\x02"}),
    ("a blank key", Code.ILLEGAL_MESSAGE_KEY, "keys", {"keys": ["a", " "]}),
    ("an empty key", Code.ILLEGAL_MESSAGE_KEY, "keys", {"keys": [""]}),
    ("a key with a control character", Code.ILLEGAL_MESSAGE_KEY, "keys", {"keys": ["a\x7f"]}),
    ("a blank group", Code.ILLEGAL_MESSAGE_GROUP, "message_group", {"message_group": " "}),
    ("a long group", Code.ILLEGAL_MESSAGE_GROUP, "message_group", {"message_group": "é" * 32}),
    ("a broken group", Code.ILLEGAL_MESSAGE_GROUP, "message_group", {"message_group": "\x85a"}),
    ("a name of the broker", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"DELAY": "3"}}),
    ("a name of ours", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"FIRED": "1"}}),
    ("the group", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"__SHARDINGKEY": "1"}}),
    ("a control character", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"a": "\x01"}}),
    ("one in a name", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"a\x02": "b"}}),
    ("no value", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"a": ""}}),
    ("no name", Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user", {"user": {"": "a"}}),
    (
        "many properties",
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "user_properties must be at most 128 properties",
        {"user": {f"p{number}": "v" for number in range(129)}},
    ),
    (
        "long properties",
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "user_properties must be at most 16384 bytes with keys and tag",
        {"user": {"a": "x" * 8_000}, "tag": "x" * 8_000, "keys": ["k" * 400]},
    ),
    ("a broken context", Code.BAD_REQUEST, "trace_context", {"trace_context": "a\x01b"}),
    (
        "a day and a millisecond",
        Code.ILLEGAL_DELIVERY_TIME,
        "delivery_timestamp must be at most 86400000 ms from now (timerMaxDelaySec)",
        {"delivery_timestamp": at(NOW_MS + DAY_MS + 1)},
    ),
    (
        "no instant",
        Code.ILLEGAL_DELIVERY_TIME,
        "delivery_timestamp",
        {"delivery_timestamp": Timestamp(seconds=1 << 60)},
    ),
    (
        "a long recovery",
        Code.BAD_REQUEST,
        "orphaned_transaction_recovery_duration must be 0 to 3600 seconds",
        {
            "message_type": Kind.TRANSACTION,
            "orphaned_transaction_recovery_duration": Duration(seconds=3_600, nanos=1),
        },
    ),
    (
        "a recovery before the send",
        Code.BAD_REQUEST,
        "orphaned_transaction_recovery_duration",
        {
            "message_type": Kind.TRANSACTION,
            "orphaned_transaction_recovery_duration": Duration(seconds=-1),
        },
    ),
]


@pytest.mark.parametrize(
    ("code", "part", "fields"),
    [row[1:] for row in FORBIDDEN_SENDS],
    ids=[row[0] for row in FORBIDDEN_SENDS],
)
def test_a_message_that_breaks_a_rule_is_refused(
    code: Code, part: str, fields: dict[str, Any]
) -> None:
    """With the code of the proxy, so that a client raises the exception that its user knows."""
    with refused(code, part):
        drafted(outgoing(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"body": bytes(4_096)},
        {"message_id": "x" * 255},
        {"tag": "é"},
        {"tag": ""},
        {"keys": ["a", "b c"]},
        {"message_group": "é" * 31},
        {"user": {f"p{number}": "v" for number in range(128)}},
        {"user": {"a": "x" * 16_000}},
        {"delivery_timestamp": at(NOW_MS + DAY_MS)},
        {"delivery_timestamp": at(1)},
        {"body_encoding": definition.ENCODING_UNSPECIFIED},
        {
            "message_type": Kind.TRANSACTION,
            "orphaned_transaction_recovery_duration": Duration(seconds=3_600),
        },
        {"priority": 0},
    ],
    ids=str,
)
def test_a_message_just_inside_the_rules_is_accepted(fields: dict[str, Any]) -> None:
    """A rule that refuses more than RocketMQ's would break programs that work there."""
    assert drafted(outgoing(**fields)).body


GROUPED = {"message_group": "g"}
TIMED = {"delivery_timestamp": at(NOW_MS)}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Kind.NORMAL, GROUPED),
        (Kind.NORMAL, TIMED),
        (Kind.FIFO, {}),
        (Kind.FIFO, TIMED),
        (Kind.DELAY, {}),
        (Kind.DELAY, GROUPED),
        (Kind.TRANSACTION, GROUPED),
        (Kind.TRANSACTION, TIMED),
        (Kind.FIFO, GROUPED | TIMED),
        (Kind.DELAY, GROUPED | TIMED),
        (0, GROUPED | TIMED),
        (Kind.PRIORITY, {"priority": 3}),
        (17, {}),
    ],
    ids=str,
)
def test_the_type_of_a_message_fits_its_fields(kind: int, fields: dict[str, Any]) -> None:
    """Otherwise the broker would have to drop one of the two promises."""
    with refused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "message_type must be"):
        drafted(outgoing(message_type=kind, **fields))


@pytest.mark.parametrize("fields", [{"message_type": Kind.LITE}, {"lite_topic": "a"}], ids=str)
def test_there_are_no_lite_topics(fields: dict[str, Any]) -> None:
    """A clear word is better than a message that no consumer of its lite topic gets."""
    with refused(Code.UNSUPPORTED, "message_type must be NORMAL, FIFO, DELAY or TRANSACTION"):
        drafted(outgoing(**fields))


@pytest.mark.parametrize(
    ("kind", "fields", "found"),
    [
        (0, {}, rules.NORMAL),
        (0, GROUPED, rules.FIFO),
        (0, TIMED, rules.DELAY),
        (Kind.FIFO, GROUPED, rules.FIFO),
        (Kind.DELAY, TIMED, rules.DELAY),
        (Kind.TRANSACTION, {}, rules.TRANSACTION),
    ],
    ids=str,
)
def test_a_client_may_leave_the_type_out(kind: int, fields: dict[str, Any], found: int) -> None:
    """The fields say it, too."""
    system = outgoing(message_type=kind, **fields).system_properties
    assert rules.message_type(system) == found


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (definition.TAG, "a || b", ("a || b", "")),
        (definition.TAG, "", ("*", "")),
        (0, "*", ("*", "")),
        (definition.SQL, "a > 3", ("*", "a > 3")),
    ],
)
def test_a_filter_is_of_tags_or_sql(kind: int, text: str, found: tuple[str, str]) -> None:
    """Without one a consumer gets all messages."""
    made = definition.FilterExpression(type=definition.FilterType.Name(kind), expression=text)
    assert rules.filter_of(made) == found


@pytest.mark.parametrize(("kind", "text"), [(definition.SQL, " "), (9, "a")])
def test_another_filter_is_refused(kind: Any, text: str) -> None:
    """A filter that is not understood would give a consumer messages that it does not want."""
    with refused(Code.ILLEGAL_FILTER_EXPRESSION, "filter_expression"):
        rules.filter_of(definition.FilterExpression(type=kind, expression=text))


@pytest.mark.parametrize(("asked", "found"), [(0, 32), (-5, 32), (1, 1), (32, 32), (1_000, 32)])
def test_a_batch_has_up_to_32_messages(asked: int, found: int) -> None:
    """The client for Node sends 0 if its settings have no number."""
    assert rules.batch_size(asked) == found


def receive(seconds: float | None, *, auto_renew: bool = False) -> int:
    request = service.ReceiveMessageRequest(auto_renew=auto_renew)
    if seconds is not None:
        request.invisible_duration.CopyFrom(rules.to_duration(round(1_000 * seconds)))
    return rules.invisible_ms(request)


@pytest.mark.parametrize("seconds", [None, 0, 9.999, 43_200.001])
def test_what_is_received_is_invisible_for_10_seconds_to_12_hours(seconds: float | None) -> None:
    """Unless the broker renews that time by itself."""
    with refused(Code.ILLEGAL_INVISIBLE_TIME, "invisible_duration must be 10000 to 43200000 ms"):
        receive(seconds)
    assert receive(seconds, auto_renew=True) == 0
    assert (receive(10), receive(43_200)) == (10_000, 43_200_000)


def test_an_invisible_time_can_be_changed_to_none_at_all() -> None:
    """That is how a consumer says: I failed it, give it to somebody else."""
    assert rules.changed_invisible_ms(Duration()) == 0
    assert rules.changed_invisible_ms(Duration(seconds=43_200)) == 43_200_000
    assert rules.changed_invisible_ms(Duration(nanos=1)) == 1
    for bad in (Duration(seconds=43_201), Duration(seconds=-1), Duration(seconds=1, nanos=-5)):
        with refused(Code.ILLEGAL_INVISIBLE_TIME, "invisible_duration must be 0 to 43200000 ms"):
            rules.changed_invisible_ms(bad)


@pytest.mark.parametrize(
    ("asked_s", "remaining_ms", "found"),
    [
        (20, 23_000, 20_000),
        (1, 4_000, 1_000),
        (30, 33_000, 20_000),
        (20, 10_000, 9_500),
        (0, 100, 0),
        (None, 3_000, 2_500),
        (None, None, 20_000),
        (3, None, 3_000),
        (None, 300, 0),
    ],
)
def test_a_poll_ends_before_its_client_gives_up(
    asked_s: int | None, remaining_ms: int | None, found: int
) -> None:
    """A client takes the end of its time for an error."""
    asked = None if asked_s is None else Duration(seconds=asked_s)
    assert rules.polling_ms(asked, remaining_ms, "5.1.2") == found


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.1.2", Code.ILLEGAL_POLLING_TIME),
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("1.0.8", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
def test_a_poll_that_its_call_has_no_time_for_is_refused(version: str, code: Code) -> None:
    """Older clients do not know the newer code."""
    for asked, remaining_ms in ((Duration(seconds=20), 4_999), (Duration(seconds=-1), 30_000)):
        found, sentence = refusal(
            lambda asked=asked, left=remaining_ms: rules.polling_ms(asked, left, version)  # type: ignore[misc]
        )
        assert (found, sentence[:20]) == (code, "long_polling_timeout")


def test_an_offset_is_not_negative() -> None:
    """To pull from, or to commit."""
    assert rules.queue_offset_of(0) == 0
    with refused(Code.ILLEGAL_OFFSET, "offset must be 0 or more, not '-1'"):
        rules.queue_offset_of(-1)


def test_times_are_rounded_up() -> None:
    """A message is never early, and never visible too soon."""
    assert rules.timestamp_ms(Timestamp(seconds=1, nanos=1)) == 1_001
    assert rules.timestamp_ms(Timestamp(seconds=-1, nanos=999_000_000)) == -1
    assert rules.duration_ms(Duration(seconds=1, nanos=999_000_001)) == 2_000
    assert rules.timestamp_ms(at(1_234)) == 1_234
    assert rules.duration_ms(rules.to_duration(1_234)) == 1_234


def test_an_instant_of_a_record_is_one_of_protobuf() -> None:
    """The header of a record may hold any number, and a client must still be able to read it."""
    assert rules.timestamp_ms(at(-5)) == 0
    assert rules.timestamp_ms(at(1 << 62)) == rules.INSTANT_MS_MAX

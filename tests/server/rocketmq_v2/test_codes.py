"""What each wrong request is answered: row by row as RocketMQ's proxy, or better where it says so.

Some rows of the proxy cannot happen here: a broker that serves its clients itself has no time-out
towards another one, and it never needs a client's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import START_MS
from tests.support.rocketmq_v2_client import (
    ENDPOINTS,
    GROUP,
    TOPIC,
    V2,
    code_of,
    delayed,
    half,
    message,
    named,
    ordered,
    receive,
    served_v2,
)

LONG_TOPIC = "t" * 128
LONG_GROUP = "g" * 121
SYSTEM_TOPICS = ("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x")
FAR_MS = 10 * 366 * 24 * 3_600_000


def send(*messages: definition.Message) -> service.SendMessageRequest:
    return service.SendMessageRequest(messages=messages)


def with_properties(**pairs: str) -> definition.Message:
    made = message()
    for key, value in pairs.items():
        made.user_properties[key] = value
    return made


def route(topic: str) -> service.QueryRouteRequest:
    return service.QueryRouteRequest(topic=named(topic), endpoints=ENDPOINTS)


def assignment(topic: str, group: str = GROUP) -> service.QueryAssignmentRequest:
    return service.QueryAssignmentRequest(
        topic=named(topic), group=named(group), endpoints=ENDPOINTS
    )


def beat(group: str, kind: int = 3) -> service.HeartbeatRequest:
    return service.HeartbeatRequest(group=named(group), client_type=kind)  # type: ignore[arg-type]


SQL = definition.SQL
NO_TOPICS = ("", "  ", LONG_TOPIC, "a.b", "ä", *SYSTEM_TOPICS)
NO_GROUPS = ("", "  ", LONG_GROUP, "a.b", "ä", "CID_RMQ_SYS_TRANS")
NO_PROPERTIES = (
    ("UNIQ_KEY", "x"),
    ("DELAY", "3"),
    ("TRAN_MSG", "true"),
    ("a\x01", "x"),
    ("a", "\x02"),
)
Rows = dict[str, tuple[Any, Code]]
"""What is wrong -> the request, and the code of its answer."""


def rows_of_names() -> Iterator[tuple[RocketmqRpc[Any, Any], Rows]]:
    by_topic: list[tuple[RocketmqRpc[Any, Any], Callable[[str], Any]]] = [
        (rpcs.QUERY_ROUTE, route),
        (rpcs.QUERY_ASSIGNMENT, assignment),
        (rpcs.SEND_MESSAGE, lambda topic: send(message(topic=topic))),
        (rpcs.RECEIVE_MESSAGE, lambda topic: receive(topic=topic)),
    ]
    wrong = Code.ILLEGAL_TOPIC
    for rpc, request in by_topic:
        yield rpc, {f"topic {name!r:.12}": (request(name), wrong) for name in NO_TOPICS}
    by_group: list[tuple[RocketmqRpc[Any, Any], Callable[[str], Any]]] = [
        (rpcs.QUERY_ASSIGNMENT, lambda group: assignment(TOPIC, group)),
        (rpcs.RECEIVE_MESSAGE, lambda group: receive(group=group)),
        (rpcs.HEARTBEAT, beat),
    ]
    wrong = Code.ILLEGAL_CONSUMER_GROUP
    for rpc, request in by_group:
        yield rpc, {f"group {name!r:.12}": (request(name), wrong) for name in NO_GROUPS}


def sends() -> Rows:
    conflict, too_large = (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
    )
    messages: dict[str, tuple[definition.Message, Code]] = {
        "an empty body": (message(body=b""), Code.MESSAGE_BODY_EMPTY),
        "a long body": (message(body=bytes(600_000)), Code.MESSAGE_BODY_TOO_LARGE),
        "a blank id": (message(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        "no id": (message(message_id=""), Code.ILLEGAL_MESSAGE_ID),
        "129 properties": (with_properties(**{f"p{n}": "x" for n in range(129)}), too_large),
        "long properties": (with_properties(a="x" * 16_400), too_large),
        "a far instant": (delayed("a", START_MS + FAR_MS), Code.ILLEGAL_DELIVERY_TIME),
        "no instant": (
            message(message_type=definition.DELAY, delivery_timestamp=Timestamp(seconds=2**62)),
            Code.ILLEGAL_DELIVERY_TIME,
        ),
        "a long recovery": (
            half("a", orphaned_transaction_recovery_duration=Duration(seconds=3_601)),
            Code.BAD_REQUEST,
        ),
        "DELAY without instant": (message(message_type=definition.DELAY), conflict),
        "FIFO without group": (message(message_type=definition.FIFO), conflict),
        "NORMAL with group": (message(message_group="g"), conflict),
        "PRIORITY": (message(message_type=definition.PRIORITY, priority=3), conflict),
        "LITE": (message(message_type=definition.LITE, lite_topic="x"), Code.UNSUPPORTED),
        "read-only": (message(topic="read-only"), Code.FORBIDDEN),
    }
    for tag in (" ", "a|b", "a\x01b", "\n"):
        messages[f"tag {tag!r}"] = message(tag=tag), Code.ILLEGAL_MESSAGE_TAG
    for key in (" ", "", "a\x02b"):
        messages[f"key {key!r}"] = message(keys=[key]), Code.ILLEGAL_MESSAGE_KEY
    for group in (" ", "g" * 64, "ä" * 32, "a\x01"):
        messages[f"group {group!r:.8}"] = ordered("a", group), Code.ILLEGAL_MESSAGE_GROUP
    for key, value in NO_PROPERTIES:
        wrong = with_properties(**{key: value}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY
        messages[f"property {key!r}"] = wrong
    return {
        "no messages": (send(), Code.MESSAGE_CORRUPTED),
        "two topics": (send(message(), message(topic="b")), Code.MESSAGE_CORRUPTED),
        **{name: (send(wrong), code) for name, (wrong, code) in messages.items()},
    }


def receives() -> Rows:
    wrong = definition.FilterExpression(type=SQL, expression="a >")
    missing = definition.FilterExpression(type=SQL)
    return {
        "write-only": (receive(topic="write-only"), Code.FORBIDDEN),
        "an unknown topic": (receive(topic="none"), Code.TOPIC_NOT_FOUND),
        "a wrong filter": (
            receive(filter_expression=wrong),
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
        "no filter": (receive(filter_expression=missing), Code.ILLEGAL_FILTER_EXPRESSION),
        "a negative time": (receive(poll_s=-1), Code.ILLEGAL_POLLING_TIME),
        **{
            f"invisible for {seconds}": (
                receive(invisible_s=seconds),
                Code.ILLEGAL_INVISIBLE_TIME,
            )
            for seconds in (None, 0, 9, 12 * 3_600 + 1, -1)
        },
    }


def ends() -> Rows:
    about = {"topic": named(TOPIC), "message_id": "x", "resolution": definition.COMMIT}
    return {
        f"id {text!r}": (
            service.EndTransactionRequest(transaction_id=text, **about),  # type: ignore[arg-type]
            Code.INVALID_TRANSACTION_ID,
        )
        for text in ("", " ", "7-7", "x")
    }


ROWS: list[tuple[RocketmqRpc[Any, Any], Rows]] = [
    *rows_of_names(),
    (rpcs.SEND_MESSAGE, sends()),
    (rpcs.RECEIVE_MESSAGE, receives()),
    (rpcs.END_TRANSACTION, ends()),
    (rpcs.QUERY_ASSIGNMENT, {"write-only": (assignment("write-only"), Code.FORBIDDEN)}),
    (
        rpcs.HEARTBEAT,
        {
            "client type 0": (beat(GROUP, 0), Code.UNRECOGNIZED_CLIENT_TYPE),
            "client type 99": (beat(GROUP, 99), Code.UNRECOGNIZED_CLIENT_TYPE),
            "lite client": (beat(GROUP, 5), Code.UNSUPPORTED),
        },
    ),
    (
        rpcs.ACK_MESSAGE,
        {
            "no entries": (
                service.AckMessageRequest(group=named(GROUP), topic=named(TOPIC)),
                Code.BAD_REQUEST,
            )
        },
    ),
    (
        rpcs.RECALL_MESSAGE,
        {
            "no handle": (
                service.RecallMessageRequest(topic=named(TOPIC), recall_handle="x"),
                Code.BAD_REQUEST,
            )
        },
    ),
    (
        rpcs.SYNC_LITE_SUBSCRIPTION,
        {"lite": (service.SyncLiteSubscriptionRequest(), Code.UNSUPPORTED)},
    ),
]


@pytest.mark.parametrize(
    ("rpc", "request_", "code"),
    [(rpc, *row) for rpc, rows in ROWS for row in rows.values()],
    ids=[f"{rpc.name}: {name}" for rpc, rows in ROWS for name in rows],
)
def test_a_wrong_request_is_answered_with_its_code(
    under_test: BrokerUnderTest, rpc: RocketmqRpc[Any, Any], request_: Any, code: Code
) -> None:
    """And with a sentence, which names the field and the rule; nothing is stored."""

    async def scenario(v2: V2) -> None:
        for topic, perm in ((TOPIC, 6), ("read-only", 4), ("write-only", 2)):
            under_test.broker.topics.create(TopicInfo(topic, 1, 1, perm))
        answers = await v2.answers(rpc, request_)
        assert code_of(answers[0]) is code, answers[0].status.message
        assert answers[0].status.message not in ("", code.name)
        assert under_test.broker.counts.sent == 0

    served_v2(under_test, scenario)


def test_a_type_that_clients_leave_out_is_found_out(under_test: BrokerUnderTest) -> None:
    """A message group is one of FIFO, an instant one of DELAY."""

    async def scenario(v2: V2) -> None:
        unset = definition.MESSAGE_TYPE_UNSPECIFIED
        await v2.sent(message("a", message_type=unset))
        await v2.sent(message("b", message_type=unset, message_group="g"))
        types = {each.body: each.system_properties.message_type for each in await v2.received()}
        assert types == {b"a": definition.NORMAL, b"b": definition.FIFO}

    served_v2(under_test, scenario)


@pytest.mark.parametrize(
    ("version", "code"), [("5.0.3", Code.ILLEGAL_POLLING_TIME), ("1.0.8", Code.BAD_REQUEST)]
)
def test_a_poll_that_is_longer_than_its_call_is_refused(
    under_test: BrokerUnderTest, version: str, code: Code
) -> None:
    """Only if the call has less than five seconds: else the poll is shorter."""

    async def scenario(v2: V2) -> None:
        v2.sent_with = tuple(
            (key, version if key == "x-mq-client-version" else value) for key, value in v2.sent_with
        )
        await v2.sent(message())
        answers = await v2.answers(rpcs.RECEIVE_MESSAGE, receive(poll_s=20), left_s=4.9)
        assert code_of(answers[0]) is code
        answers = await v2.answers(rpcs.RECEIVE_MESSAGE, receive(poll_s=20), left_s=5.0)
        assert code_of(answers[0]) is Code.OK

    served_v2(under_test, scenario)


def test_a_broker_at_its_limit_says_so(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python then sends no second time, and Node waits: so it is no other code."""

    def full(*_: object) -> None:
        raise Overloaded("maxParkedPolls", 10)

    async def scenario(v2: V2) -> None:
        await v2.sent(message())
        await v2.received()
        monkeypatch.setattr(v2.server.service[LeaseCalls]._pulls, "wait", full)
        answers = await v2.answers(rpcs.RECEIVE_MESSAGE, receive(poll_s=5))
        assert code_of(answers[0]) is Code.TOO_MANY_REQUESTS

    served_v2(under_test, scenario)


def test_bytes_that_are_no_request_are_refused(under_test: BrokerUnderTest) -> None:
    """By every call, without a stack in the log."""

    async def scenario(v2: V2) -> None:
        for rpc in rpcs.ALL:
            for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", bytes(100)):
                answers = await v2.answers(rpc, data)
                assert 40_000 <= answers[0].status.code < 51_000 or rpc is rpcs.TELEMETRY

    served_v2(under_test, scenario)

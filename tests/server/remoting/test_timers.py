"""Timers of RocketMQ 5's clients: the answer to a send, its handle, and recalls by it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final

import pytest

from rmqlite.features.changes.requests import RecallHandle, read_handle
from rmqlite.features.figures.traffic import Traffic
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import TIMER_TOPIC, retry_topic
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.broker import (
    GET_ALL_DELAY_OFFSET,
    GET_BROKER_RUNTIME_INFO,
    GET_TIMER_CHECK_POINT,
    GET_TIMER_METRICS,
)
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    QUERY_MESSAGE,
    VIEW_MESSAGE_BY_ID,
    PhysicalOffset,
    QueryMessage,
    SendBack,
)
from rmqlite.protocols.remoting.bytes.requests.sends import (
    RECALL_MESSAGE,
    REFUSED_RECALL_EXT,
    REFUSED_SEND_EXT,
    Recall,
)
from tests.server.remoting.asking import GROUP, TOPIC, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol
from tests.support.steps import done

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
OTHER: Final = "other"
Scenario = Callable[[ProtocolUnderTest, LoopClient], Awaitable[None]]


@pytest.fixture(autouse=True)
def _topics(under_test: BrokerUnderTest) -> None:
    for topic in (TOPIC, OTHER):
        under_test.broker.topics.create(TopicInfo(topic, 4, 4))


def served_client(under_test: BrokerUnderTest, scenario: Scenario) -> None:
    async def run(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(version=477) as client:
            await scenario(protocol, client)

    served_protocol(under_test, run)


async def sent(client: LoopClient, message_id: str = "id-1", /, **asked: Any) -> Command:
    """The answer to a send.  Names in capitals are properties."""
    own = {name: asked.pop(name) for name in list(asked) if name.isupper()}
    own |= {"UNIQ_KEY": message_id} if message_id else {}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
    send = send_of(client, asked.pop("body", b"x"), properties=properties, **asked)
    client.send(send)
    return await client.answer(send.opaque)


async def recalled(client: LoopClient, handle: str, topic: str = TOPIC) -> Command:
    return await client.ask(RECALL_MESSAGE, Recall(topic, handle, "senders"))


def handle_at(due_ms: int, message_id: str = "id-1", topic: str = TOPIC) -> str:
    return RecallHandle(topic, "broker-a", due_ms, message_id).text()


def bodies(under_test: BrokerUnderTest, topic: str = TOPIC) -> list[bytes]:
    return [each.body for queue in range(4) for each in under_test.messages(topic, queue)]


# ---- sends


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
def test_a_timer_is_answered_with_its_handle_and_comes_when_it_is_due(
    under_test: BrokerUnderTest, name: str, is_binary: bool
) -> None:
    """To the queue that was asked for; the offset is that of the record that waits."""
    clock = under_test.clock
    due_ms = clock.now_ms() + 5_000
    value = {"TIMER_DELAY_MS": 5_000, "TIMER_DELAY_SEC": 5, "TIMER_DELIVER_MS": due_ms}[name]

    async def run(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(version=477, is_binary=is_binary) as client:
            for number in range(2):
                answer = await sent(client, f"id-{number}", queue_id=2, **{name: value})
                assert answer.code == 0
                assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", str(number))
                handle = read_handle(answer.ext["recallHandle"])
                assert handle == (TOPIC, "broker-a", due_ms, f"id-{number}")

    served_protocol(under_test, run)
    clock.forward(4_999)
    assert not under_test.deliver()
    clock.forward(1)
    assert under_test.deliver() == 2
    assert len(under_test.messages(TOPIC, 2)) == 2


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_DELAY_MS": 0},
        {"TIMER_DELAY_MS": -1},
        {"TIMER_DELIVER_MS": 1},
        {"DELAY": 1, "TIMER_DELAY_MS": 5_000},
    ],
)
def test_what_does_not_wait_for_an_instant_has_no_handle(
    under_test: BrokerUnderTest, properties: dict[str, int]
) -> None:
    """A plain message, one whose instant has passed, one with a delay level."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, **properties)
        assert answer.code == 0
        assert "recallHandle" not in answer.ext

    served_client(under_test, scenario)
    assert bodies(under_test) == ([] if "DELAY" in properties else [b"x"])


def test_a_timer_without_an_id_has_no_handle(under_test: BrokerUnderTest) -> None:
    """Every client of RocketMQ gives one; without it there is nothing to name."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for message_id in ("", "two words"):
            answer = await sent(client, message_id, TIMER_DELAY_MS=5_000)
            assert answer.code == 0
            assert "recallHandle" not in answer.ext

    served_client(under_test, scenario)


def test_timers_of_a_batch_wait_one_by_one(under_test: BrokerUnderTest) -> None:
    """RocketMQ delivers them at once.  The answer to a batch has no handle."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        items = [
            BatchItem(
                0, b"%d" % delay, f"TIMER_DELAY_MS\x01{delay}\x02UNIQ_KEY\x01{delay}".encode()
            )
            for delay in (5_000, 0, 3_000)
        ]
        answer = await sent(client, body=write_batch(items), is_batch=True)
        assert answer.code == 0
        assert "recallHandle" not in answer.ext

    served_client(under_test, scenario)
    assert bodies(under_test) == [b"0"]
    under_test.clock.forward(3_000)
    under_test.deliver()
    assert bodies(under_test) == [b"0", b"3000"]
    under_test.clock.forward(2_000)
    under_test.deliver()
    assert bodies(under_test) == [b"0", b"3000", b"5000"]


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, HOUR_MS])
def test_a_delay_counts_from_the_brokers_clock(under_test: BrokerUnderTest, wrong_ms: int) -> None:
    """The producer's clock, which the message shows, is an hour wrong."""
    now_ms = under_test.clock.now_ms()

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, born_timestamp=now_ms + wrong_ms, TIMER_DELAY_MS=60_000)
        assert read_handle(answer.ext["recallHandle"]).timer_out_ms == now_ms + 60_000

    served_client(under_test, scenario)
    under_test.clock.forward(59_999)
    assert not under_test.deliver()
    under_test.clock.forward(1)
    assert under_test.deliver() == 1


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"TIMER_DELAY_MS": 3 * DAY_MS + 1}, "timerMaxDelaySec"),
        ({"TIMER_DELAY_SEC": 3 * 86_400 + 1}, "timerMaxDelaySec"),
        ({"TIMER_DELAY_SEC": 9_223_372_036_854_775}, "timerMaxDelaySec"),
        ({"TIMER_DELAY_MS": 2**63 - 1}, "timerMaxDelaySec"),
        ({"TIMER_DELIVER_MS": 2**63}, "whole number"),
        ({"TIMER_DELAY_MS": "soon"}, "whole number"),
        ({"TIMER_DELAY_MS": " 5"}, "whole number"),
        ({"TIMER_OUT_MS": 1}, "sent again"),
        ({"TIMER_DELAY_MS": 5_000, "TIMER_OUT_MS": 1}, "sent again"),
        ({"TIMER_DELAY_MS": 5_000, "TIMER_DEL_UNIQKEY": "id-1"}, "only a broker"),
        ({"TIMER_EXACT": 1}, "only a broker"),
    ],
)
def test_a_timer_that_cannot_be_kept_is_refused_with_the_reason(
    under_test: BrokerUnderTest, properties: dict[str, Any], named: str
) -> None:
    """By code 13, as in RocketMQ, and in words: RocketMQ delivers some of these at once."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, **properties)
        assert answer.code == 13
        assert named in answer.remark
        assert next(reversed(properties)) in answer.remark
        assert answer.ext.keys() == REFUSED_SEND_EXT.keys()

    under_test.restart(timer_max_delay_s=3 * 86_400)
    served_client(under_test, scenario)


def test_without_timers_one_is_refused_by_the_name_of_the_key(under_test: BrokerUnderTest) -> None:
    """Code 1, after which a client tries another broker."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, TIMER_DELAY_MS=5_000)
        assert answer.code == 1
        assert "timerWheelEnable=false" in answer.remark
        assert (await sent(client)).code == 0

    under_test.restart(timer_wheel_enable=False)
    served_client(under_test, scenario)


def test_the_longest_properties_and_the_largest_body_of_a_timer(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ 5 accepts such a timer, and then delivers none at all any more."""
    body = bytes(under_test.config.max_message_bytes)

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, NOTE="n" * 29_900, TIMER_DELAY_MS=5_000, body=body)
        assert answer.code == 0
        assert (await sent(client, "id-2", TIMER_DELAY_MS=5_000)).code == 0

    served_client(under_test, scenario)
    under_test.clock.forward(5_000)
    assert under_test.deliver() == 2
    assert bodies(under_test) == [body, b"x"]


# ---- recalls


def test_a_recalled_timer_never_comes_and_a_second_recall_says_so(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ answers 0 whatever the handle names, and its success has a remark of failure."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        handle = (await sent(client, TIMER_DELAY_MS=5_000)).ext["recallHandle"]
        answer = await recalled(client, handle)
        assert (answer.code, answer.remark) == (0, "")
        assert answer.ext == {"msgId": "id-1", "MSG_REGION": "DefaultRegion"}
        for _again in range(2):
            again = await recalled(client, handle)
            assert again.code == 604
            assert again.remark == "recall failed: the message id-1 is cancelled already"
            assert again.ext == REFUSED_RECALL_EXT

    served_client(under_test, scenario)
    under_test.restart()
    under_test.clock.forward(DAY_MS)
    assert not under_test.deliver()
    assert bodies(under_test) == []


def test_a_recall_is_on_disk_when_it_is_answered(under_test: BrokerUnderTest) -> None:
    """Otherwise a power cut would bring the message back."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        handle = (await sent(client, TIMER_DELAY_MS=5_000)).ext["recallHandle"]
        await recalled(client, handle)
        assert under_test.store.durable_end == under_test.store.end

    served_client(under_test, scenario)


def test_a_recall_after_the_delivery_says_that_it_is_too_late(under_test: BrokerUnderTest) -> None:
    """The message is in its topic, and stays there."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        handle = (await sent(client, TIMER_DELAY_MS=5_000)).ext["recallHandle"]
        under_test.clock.forward(5_000)
        assert under_test.deliver() == 1
        answer = await recalled(client, handle)
        assert answer.code == 604
        assert answer.remark == "recall failed: the message id-1 is delivered already"

    served_client(under_test, scenario)
    assert bodies(under_test) == [b"x"]


def test_a_recall_names_one_topic_one_id_and_one_instant(under_test: BrokerUnderTest) -> None:
    """Older and newer RocketMQ cancel the same id in every topic."""
    now_ms = under_test.clock.now_ms()

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for topic, delay_ms in ((TOPIC, 5_000), (TOPIC, 6_000), (OTHER, 5_000)):
            body = f"{topic} {delay_ms}".encode()
            assert (await sent(client, topic=topic, TIMER_DELAY_MS=delay_ms, body=body)).code == 0
        assert (await sent(client, "id-2", TIMER_DELAY_MS=5_000, body=b"id-2")).code == 0
        assert (await sent(client, DELAY=1, body=b"level")).code == 0
        for handle in (handle_at(now_ms + 4_999), handle_at(now_ms + 5_000, "id-3")):
            answer = await recalled(client, handle)
            assert answer.code == 604
            assert "is not known here" in answer.remark
        assert (await recalled(client, handle_at(now_ms + 5_000))).code == 0

    served_client(under_test, scenario)
    under_test.clock.forward(DAY_MS)
    under_test.deliver()
    assert sorted(bodies(under_test)) == [b"id-2", b"level", f"{TOPIC} 6000".encode()]
    assert bodies(under_test, OTHER) == [f"{OTHER} 5000".encode()]


def test_a_recall_that_cannot_be_is_refused_with_the_reason(under_test: BrokerUnderTest) -> None:
    """RocketMQ's codes; and a request without a topic names the field."""
    handle = handle_at(under_test.clock.now_ms() + 5_000)
    named = RecallHandle(TOPIC, "broker-b", 1, "id-1").text()

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for topic, text, code, remark in (
            ("absent", handle, 17, "no topic named 'absent'"),
            (TOPIC, "", 604, "recallHandle"),
            (TOPIC, "***", 604, "recallHandle"),
            (OTHER, handle, 604, TOPIC),
            (TOPIC, named, 604, "broker-b"),
        ):
            answer = await recalled(client, text, topic)
            assert answer.code == code
            assert remark in answer.remark
            assert answer.ext == REFUSED_RECALL_EXT
        answer = await client.ask(370, {"recallHandle": handle})
        assert (answer.code, answer.remark.partition(" ")[0]) == (1, "topic")

    served_client(under_test, scenario)


# ---- retries


def test_a_delivered_timer_that_fails_is_an_ordinary_retry(under_test: BrokerUnderTest) -> None:
    """With RocketMQ its TIMER_ properties stay for ever: the message, sent on, is no timer."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        assert (await sent(client, TIMER_DELAY_MS=5_000)).code == 0
        under_test.clock.forward(5_000)
        assert under_test.deliver() == 1
        (received,) = under_test.messages(TOPIC)
        assert "TIMER_OUT_MS" in received.properties
        back = SendBack(received.physical_offset, GROUP, 1)
        assert (await client.ask(CONSUMER_SEND_MSG_BACK, back)).code == 0
        own = {**received.properties, "DELAY": "1"}
        fallback = await sent(client, "id-2", topic=retry_topic(GROUP), **own)
        assert fallback.code == 0
        del own["DELAY"]
        refused = await sent(client, "id-3", **own)
        assert refused.code == 13
        assert "sent again" in refused.remark

    served_client(under_test, scenario)
    under_test.clock.forward(DAY_MS)
    under_test.deliver()
    retries = under_test.messages(retry_topic(GROUP))
    assert len(retries) == 2
    assert not [name for each in retries for name in each.properties if name.startswith("TIMER_")]


# ---- tools


def test_a_timer_that_waits_is_found_by_key_and_by_offset(under_test: BrokerUnderTest) -> None:
    """As mqadmin looks for it: under the topic in which it waits."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        answer = await sent(client, TIMER_DELAY_MS=5_000, KEYS="k1")
        for key, is_id in (("k1", False), ("id-1", True)):
            asked = QueryMessage(TIMER_TOPIC, key, 32, 0, 2**63 - 1, is_unique_key=is_id)
            found = await client.ask(QUERY_MESSAGE, asked)
            (record,) = records_of(found.body)
            assert record.properties["REAL_TOPIC"] == TOPIC
        at = PhysicalOffset(int(answer.ext["msgId"][16:], 16))
        assert (await client.ask(VIEW_MESSAGE_BY_ID, at)).body == found.body

    served_client(under_test, scenario)


def test_the_figures_of_timers(under_test: BrokerUnderTest) -> None:
    """Those of 28, 60 and 61, as RocketMQ's: by topic, and how far behind."""
    begin_ms = under_test.clock.now_ms()

    async def runtime(client: LoopClient) -> dict[str, str]:
        body = (await client.ask(GET_BROKER_RUNTIME_INFO)).body
        table = json.loads(body)["table"]
        return {name: value for name, value in table.items() if name.startswith("timer")}

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for number, topic in enumerate((TOPIC, TOPIC, OTHER)):
            delay_ms = 5_000 + number
            assert (
                await sent(client, f"id-{number}", topic=topic, TIMER_DELAY_MS=delay_ms)
            ).code == 0
        found = await runtime(client)
        assert found.keys() == {
            *("timerReadBehind", "timerOffsetBehind", "timerCongestNum"),
            *("timerEnqueueTps", "timerDequeueTps"),
        }
        assert (found["timerCongestNum"], found["timerReadBehind"]) == ("3", "0")
        under_test.clock.forward(65_000)
        assert (await runtime(client))["timerReadBehind"] == "60"
        done(under_test.broker[Traffic].sample())
        assert float((await runtime(client))["timerEnqueueTps"]) == pytest.approx(3 / 65)
        body = (await client.ask(GET_TIMER_METRICS)).body
        counts = json.loads(body)["timingCount"]
        assert {name: row["count"] for name, row in counts.items()} == {TOPIC: 2, OTHER: 1}
        body = (await client.ask(GET_TIMER_CHECK_POINT)).body
        read_ms, _log_end, end, *_same = Struct(">7q").unpack(body)
        assert (read_ms, end) == ((begin_ms + 5_000) // 1_000 * 1_000, 3)
        assert under_test.deliver() == 3
        assert (await runtime(client))["timerCongestNum"] == "0"

    served_client(under_test, scenario)


def test_levels_of_tools_leave_the_timers_out(under_test: BrokerUnderTest) -> None:
    """Their tables name delay levels by number, from 1 on."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        assert (await sent(client, TIMER_DELAY_MS=1)).code == 0
        assert (await sent(client, DELAY=1)).code == 0
        under_test.clock.forward(DAY_MS)
        under_test.deliver()
        body = (await client.ask(GET_ALL_DELAY_OFFSET)).body
        assert b'"offsetTable":{1:1}' in body
        body = (await client.ask(GET_BROKER_RUNTIME_INFO)).body
        names = [name for name in json.loads(body)["table"] if name.startswith("scheduleMessage")]
        assert names == ["scheduleMessageOffset_1"]

    served_client(under_test, scenario)


def test_nobody_pulls_or_sends_where_timers_wait(under_test: BrokerUnderTest) -> None:
    """One message there without a time stops every timer of a RocketMQ 5."""

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        assert (await sent(client, topic=TIMER_TOPIC)).code == 16
        assert (await sent(client, TIMER_DELAY_MS=5_000)).code == 0
        pull = PullRequest(GROUP, TIMER_TOPIC, 0, 0)
        assert len((await protocol.server.service.messages.pull(pull)).records) == 1

    served_client(under_test, scenario)


def test_an_ordered_queue_keeps_its_timers_in_the_order_of_their_instants(
    under_test: BrokerUnderTest,
) -> None:
    """And those of one instant in the order in which they were sent."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for number, delay_ms in enumerate((3_000, 1_000, 2_000, 1_000)):
            body = b"%d" % number
            answer = await sent(
                client, f"id-{number}", queue_id=1, body=body, TIMER_DELAY_MS=delay_ms
            )
            assert answer.ext["queueId"] == "1"

    served_client(under_test, scenario)
    under_test.clock.forward(3_000)
    under_test.deliver()
    assert [each.body for each in under_test.messages(TOPIC, 1)] == [b"1", b"3", b"2", b"0"]
    under_test.send(Message(TOPIC, b"after"), queue_id=1)

"""One broker, three protocols: what one sends, any other consumes, fails, recalls or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from rmqlite.features.changes.requests import CHANGE_BY_IDS, ChangeByIds, ChangedId, ChangeOutcome
from rmqlite.features.operating.requests import RESET_OFFSETS, OffsetReset
from rmqlite.features.redrive.requests import START_REDRIVE, RedriveRequest, RedriveSpec
from rmqlite.features.rows import Row
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest, SendBackResult
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.words.message import DELAY, Message, encode_properties, offset_message_id
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs as native_rpcs
from rmqlite.protocols.native.bytes.messages import PullResult
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.requests.clients import (
    INVOKE_BROKER_TO_RESET_OFFSET,
    ResetOffset,
)
from rmqlite.protocols.remoting.bytes.requests.groups import (
    CLONE_GROUP_OFFSET,
    UPDATE_CONSUMER_OFFSET,
    OffsetCommit,
    OffsetsCopy,
)
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    END_TRANSACTION,
    PULL_MESSAGE,
    EndTransaction,
    PullMessage,
    SendBack,
)
from rmqlite.protocols.remoting.bytes.requests.sends import (
    RECALL_MESSAGE,
    SEND_MESSAGE_V2,
    Recall,
    SendMessage,
)
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask, turns_until
from tests.support.clock import START_MS
from tests.support.messages import plain
from tests.support.redrives import run
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol
from tests.support.rocketmq_v2_client import (
    GROUP,
    INVISIBLE_S,
    TOPIC,
    V2,
    change,
    code_of,
    consumer_settings,
    delayed,
    half,
    message,
    message_id,
    named,
    ordered,
    served_v2,
)
from tests.support.sends import request_of


class Native:
    """A client of rmqlite.v1 on the same broker."""

    def __init__(self, v2: V2) -> None:
        methods = methods_of(v2.server.service)
        config = v2.server.config
        self._handlers = handlers_of(methods, InFlight(1 << 30, 1 << 20), config, everybody)

    async def ask(self, row: Row[Any, Any], request: Any) -> Any:
        context = await ask(self._handlers, row.path, rpc_of(row).encode_request(request))
        assert context.code.name == "OK", context.details
        return rpc_of(row).decode_response(context.answers[0])

    async def pulled(self, topic: str, queue_id: int = 0) -> PullResult:
        found: PullResult = await self.ask(
            native_rpcs.PULL, PullRequest("readers", topic, queue_id, 0)
        )
        return found


def with_remoting(
    under_test: BrokerUnderTest, scenario: Callable[[V2, LoopClient], Awaitable[Any]]
) -> None:
    """Both protocols of RocketMQ on one broker."""

    async def inside(protocol: ProtocolUnderTest) -> None:
        v2 = V2(under_test, protocol.server)
        async with protocol.client() as client:
            await scenario(v2, client)
        await v2.end()

    served_protocol(under_test, inside)


def of_one_queue(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))


async def pulled(client: LoopClient, topic: str = TOPIC) -> list[Any]:
    asked = PullMessage("readers", topic, 0, 0, 32, 4, 0, 0, 0, "*")
    return records_of((await client.ask(PULL_MESSAGE, asked)).body)


Write = Callable[[V2, LoopClient, int], Awaitable[Any]]


async def by_15(_: V2, tool: LoopClient, offset: int) -> None:
    assert (await tool.ask(UPDATE_CONSUMER_OFFSET, OffsetCommit(GROUP, TOPIC, 0, offset))).code == 0


async def by_314(_: V2, tool: LoopClient, offset: int) -> None:
    await tool.ask(UPDATE_CONSUMER_OFFSET, OffsetCommit("other", TOPIC, 0, offset))
    assert (await tool.ask(CLONE_GROUP_OFFSET, OffsetsCopy("other", GROUP, TOPIC))).code == 0


async def by_222(_: V2, tool: LoopClient, offset: int) -> None:
    """To the latest or the earliest, as mqadmin's resetOffsetByTime."""
    reset = ResetOffset(TOPIC, GROUP, -1 if offset else 0, True)
    assert (await tool.ask(INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0


async def by_update(v2: V2, _: LoopClient, offset: int) -> None:
    queue = definition.MessageQueue(topic=named(TOPIC), id=0)
    asked = service.UpdateOffsetRequest(group=named(GROUP), message_queue=queue, offset=offset)
    assert await v2.code(rpcs.UPDATE_OFFSET, asked) is Code.OK


async def by_commit(v2: V2, _: LoopClient, offset: int) -> None:
    commit = OffsetsCommit(GROUP, {Queue(TOPIC, 0): offset})
    await Native(v2).ask(native_rpcs.COMMIT_OFFSETS, commit)


async def by_reset(v2: V2, _: LoopClient, offset: int) -> None:
    reset = OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=offset, force=True)
    await Native(v2).ask(RESET_OFFSETS, reset)


@pytest.mark.parametrize(("offset", "left"), [(6, ""), (0, "abcdef")])
@pytest.mark.parametrize("write", [by_15, by_314, by_222, by_update, by_commit, by_reset])
def test_an_acknowledgement_undoes_no_offset_of_others(
    under_test: BrokerUnderTest, write: Write, offset: int, left: str
) -> None:
    """A client has a message in hand while somebody moves its group, on whichever protocol."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        of_one_queue(under_test)
        await v2.sent(*[message(each) for each in "abcdef"])
        talk = v2.telemetry()
        talk.settings(consumer_settings(GROUP))
        await talk.next()
        await v2.acked(*await v2.received(batch_size=3))
        (held,) = await v2.received(batch_size=1)
        await write(v2, client, offset)
        assert await v2.acked(held) == [Code.OK]
        assert "".join([each.body.decode() for each in await v2.received()]) == left

    with_remoting(under_test, scenario)


def test_a_message_of_this_protocol_is_pulled_by_the_others(under_test: BrokerUnderTest) -> None:
    """With its id, tag, keys, properties and message group under RocketMQ's own names."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        of_one_queue(under_test)
        sent = ordered("a", "customer-7", tag="paid", keys=["k1", "k2"])
        sent.user_properties["colour"] = "red"
        await v2.sent(sent)
        (by_remoting,) = await pulled(client)
        (by_native,) = (await Native(v2).pulled(TOPIC)).messages
        for found in (by_remoting, by_native):
            assert (found.body, found.tags, found.keys) == (b"a", "paid", ("k1", "k2"))
            assert found.properties["colour"] == "red"
            assert found.properties["__SHARDINGKEY"] == "customer-7"
            assert found.message_id == message_id("a")

    with_remoting(under_test, scenario)


def test_messages_of_the_others_are_received_here(under_test: BrokerUnderTest) -> None:
    """Also one without an id: then its place in the log names it."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        of_one_queue(under_test)
        properties = encode_properties({"UNIQ_KEY": "7F00", "TAGS": "paid", "a": "b"}).decode()
        asked = SendMessage(TOPIC, "senders", queue_id=0, properties=properties)
        assert (await client.ask(SEND_MESSAGE_V2, asked, b"remoting")).code == 0
        bare = SendMessage(TOPIC, "senders", queue_id=0, properties="")
        at = int((await client.ask(SEND_MESSAGE_V2, bare, b"bare")).ext["msgId"][-16:], 16)
        request = request_of([Message(TOPIC, b"native", tags="paid")], 0)
        await Native(v2).ask(native_rpcs.SEND, request)
        first, second, third = await v2.received()
        assert [each.body for each in (first, second, third)] == [b"remoting", b"bare", b"native"]
        assert first.system_properties.message_id == "7F00"
        assert dict(first.user_properties) == {"a": "b"}
        host = under_test.broker.store_host
        assert second.system_properties.message_id == offset_message_id(host, at)
        assert third.system_properties.tag == "paid"
        assert await v2.acked(first, second, third) == [Code.OK] * 3

    with_remoting(under_test, scenario)


def test_a_timer_of_one_protocol_is_cancelled_by_another(under_test: BrokerUnderTest) -> None:
    """A recall handle of one is good for the other, and a cancelled one says so everywhere."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        entries = await v2.sent(*[delayed(name, START_MS + 60_000) for name in "abc"])
        handle = entries[0].recall_handle
        recall = Recall(producer_group="senders", topic=TOPIC, recall_handle=handle)
        assert (await client.ask(RECALL_MESSAGE, recall)).code == 0
        by_ids = ChangeByIds(ScheduleAction.CANCEL, (message_id("b"),))
        (changed,) = await Native(v2).ask(CHANGE_BY_IDS, by_ids)
        assert isinstance(changed, ChangedId)
        assert changed.outcome is ChangeOutcome.DONE
        for entry in entries[:2]:
            request = service.RecallMessageRequest(
                topic=named(TOPIC), recall_handle=entry.recall_handle
            )
            answer = await v2.ask(rpcs.RECALL_MESSAGE, request)
            assert code_of(answer) is Code.NOT_FOUND
            assert "cancelled already" in answer.status.message
        properties = {"TIMER_DELIVER_MS": str(START_MS + 60_000), "UNIQ_KEY": "7F00"}
        text = encode_properties(properties).decode()
        sent = await client.ask(
            SEND_MESSAGE_V2, SendMessage(TOPIC, "senders", queue_id=0, properties=text), b"d"
        )
        request = service.RecallMessageRequest(
            topic=named(TOPIC), recall_handle=sent.ext["recallHandle"]
        )
        assert await v2.code(rpcs.RECALL_MESSAGE, request) is Code.OK
        await v2.later(60_000)
        assert [each.body for each in await v2.received()] == [b"c"]

    with_remoting(under_test, scenario)


def test_a_message_that_failed_here_is_a_retry_for_the_others(
    under_test: BrokerUnderTest,
) -> None:
    """It lies in the group's retry topic, with the same count; and one of theirs comes here."""

    async def scenario(v2: V2) -> None:
        native = Native(v2)
        await v2.sent(message("a"))
        await v2.received()
        await v2.later(1_000 * INVISIBLE_S)
        (retry,) = (await native.pulled(retry_topic(GROUP))).messages
        assert (retry.body, retry.reconsume_times) == (b"a", 1)
        failed = SendBackRequest(GROUP, retry.physical_offset, 3, "ValueError: no")
        answer = await native.ask(native_rpcs.SEND_BACK, failed)
        assert isinstance(answer, SendBackResult)
        first = await v2.received()
        await v2.acked(*first)
        await v2.later(10_000)
        (again,) = await v2.received()
        assert again.topic.name == TOPIC
        assert again.system_properties.delivery_attempt == 3

    served_v2(under_test, scenario)


def test_a_dead_letter_is_the_same_for_all(under_test: BrokerUnderTest) -> None:
    """It can be listed and redriven, with where it came from."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        request = service.ForwardMessageToDeadLetterQueueRequest(
            group=named(GROUP),
            topic=received.topic,
            receipt_handle=received.system_properties.receipt_handle,
            message_id=received.system_properties.message_id,
        )
        assert await v2.code(rpcs.FORWARD_MESSAGE, request) is Code.OK
        (dead,) = (await Native(v2).pulled(dlq_topic(GROUP))).messages
        assert dead.body == b"a"
        (letter,) = await v2.received(topic=dlq_topic(GROUP), group="undertakers")
        assert letter.system_properties.message_id == message_id("a")

    served_v2(under_test, scenario)


def test_an_attempt_of_seventeen_is_the_last(under_test: BrokerUnderTest) -> None:
    """As on the other protocols: the first delivery and sixteen retries, then the dead letter."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        for attempt in range(1, 18):
            (received,) = await v2.received()
            assert received.system_properties.delivery_attempt == attempt
            assert await v2.code(rpcs.CHANGE_INVISIBLE, change(received, 1)) is Code.OK
            await v2.later(1_000)
        assert await v2.received() == []
        (dead,) = (await Native(v2).pulled(dlq_topic(GROUP))).messages
        assert dead.body == b"a"

    served_v2(under_test, scenario)


def test_a_half_message_belongs_to_whoever_sends_to_its_topic(
    under_test: BrokerUnderTest,
) -> None:
    """Its topic stands for the producer group, also where a remoting client ends it."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        of_one_queue(under_test)
        (sent,) = await v2.sent(half("a"))
        queue_offset, physical_offset = (int(x, 16) for x in sent.transaction_id.split("-"))
        other = EndTransaction("senders", queue_offset, physical_offset, 8)
        assert (await client.ask(END_TRANSACTION, other)).code != 0
        own = EndTransaction(TOPIC, queue_offset, physical_offset, 8)
        assert (await client.ask(END_TRANSACTION, own)).code == 0
        (received,) = await v2.received()
        assert received.system_properties.message_type == definition.TRANSACTION

    with_remoting(under_test, scenario)


PROTOCOLS: Final = ("native", "remoting", "rocketmq5")
CONTEXT: Final = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "baggage": "tenant=blue,region=eu%20west;ttl=3",
}


class Traced:
    """A delayed message with the context of a trace, and each protocol's part of its way."""

    def __init__(self, v2: V2, client: LoopClient) -> None:
        self.v2, self.client, self.native = v2, client, Native(v2)
        self._times = 0

    async def send(self, protocol: str) -> None:
        if protocol == "native":
            first = Message(TOPIC, b"a", properties=CONTEXT, delay_level=1)
            await self.native.ask(native_rpcs.SEND, request_of([first]))
        elif protocol == "remoting":
            text = encode_properties(CONTEXT | {DELAY: "1"}).decode()
            asked = SendMessage(TOPIC, "senders", queue_id=0, properties=text)
            assert (await self.client.ask(SEND_MESSAGE_V2, asked, b"a")).code == 0
        else:
            sent = delayed("a", START_MS + 1_000)
            sent.user_properties.update(CONTEXT)
            await self.v2.sent(sent)

    async def seen(self, topic: str, *, as_group: bool = False) -> definition.Message:
        """Every protocol reads the newest message there, whole; as RocketMQ 5's client got it."""
        self._times += 1
        about = {} if as_group else {"topic": topic, "group": f"watchers-{self._times}"}
        found = [
            (await self.native.pulled(topic)).messages[-1].properties,
            (await pulled(self.client, topic))[-1].properties,
            (received := (await self.v2.received(**about))[-1]).user_properties,
        ]
        assert [dict(each) | CONTEXT for each in found] == [dict(each) for each in found]
        return received

    async def failed(
        self, protocol: str, topic: str, received: definition.Message, delay_level: int
    ) -> None:
        """The group fails the newest message of the topic; at level -1 for good."""
        place = (await self.native.pulled(topic)).messages[-1].physical_offset
        if protocol == "rocketmq5":
            if delay_level > 0:
                return await self.v2.later(1_000 * INVISIBLE_S)
            request = service.ForwardMessageToDeadLetterQueueRequest(
                group=named(GROUP),
                topic=received.topic,
                receipt_handle=received.system_properties.receipt_handle,
                message_id=received.system_properties.message_id,
            )
            assert await self.v2.code(rpcs.FORWARD_MESSAGE, request) is Code.OK
            return None
        await self.v2.acked(received)
        if protocol == "native":
            failed = SendBackRequest(GROUP, place, delay_level, "boom")
            await self.native.ask(native_rpcs.SEND_BACK, failed)
        else:
            back = SendBack(place, GROUP, delay_level)
            assert (await self.client.ask(CONSUMER_SEND_MSG_BACK, back)).code == 0
        await self.v2.later(1_000)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("failing", PROTOCOLS)
@pytest.mark.parametrize("sending", PROTOCOLS)
def test_the_context_of_a_trace_stays_with_its_message(
    under_test: BrokerUnderTest, sending: str, failing: str
) -> None:
    """Through delay, retry, dead letter and redrive, as every protocol reads it."""

    async def scenario(v2: V2, client: LoopClient) -> None:
        of_one_queue(under_test)
        under_test.broker.groups.change(GroupChange(GROUP))
        traced = Traced(v2, client)
        await traced.send(sending)
        await v2.later(1_000)
        await traced.seen(TOPIC)
        (first,) = await v2.received()
        await traced.failed(failing, TOPIC, first, 1)
        retried = await traced.seen(retry_topic(GROUP), as_group=True)
        await traced.failed(failing, retry_topic(GROUP), retried, -1)
        await traced.seen(dlq_topic(GROUP))
        started = await traced.native.ask(START_REDRIVE, RedriveRequest(RedriveSpec(GROUP)))
        assert run(under_test, started.job_id).sent == 1
        again = await traced.seen(retry_topic(GROUP), as_group=True)
        assert (again.body, again.topic.name) == (b"a", TOPIC)

    with_remoting(under_test, scenario)


def test_two_processes_of_one_client_id_are_shown(under_test: BrokerUnderTest) -> None:
    """On each protocol.  One connection more is a client that came back; with two it is not one."""
    under_test.send(plain("x", topic=TOPIC))

    def is_parked(v2: V2, count: int) -> bool:
        return v2.server.service.parked == count

    async def shown(v2: V2) -> list[str]:
        status = await v2.server.service.status()
        return [each for each in status.warnings if "have the client id" in each]

    async def scenario(v2: V2, _: LoopClient) -> None:
        groups = v2.server.service.groups
        # rmqlite.v1: two heartbeats wait.
        beat = HeartbeatRequest("own", "one", (Subscription(TOPIC),))
        epoch = (await groups.heartbeat(beat)).epoch
        waits = replace(beat, known_epoch=epoch, wait_ms=30_000)
        calls = []
        for count in (1, 2, 3):
            calls.append(asyncio.create_task(groups.heartbeat(waits)))
            await turns_until(partial(is_parked, v2, count))
            assert len(await shown(v2)) == (count == 3)
        for number, call in enumerate(calls, 1):
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            # The member leaves with its last connection.
            assert under_test.broker.membership.is_member("own", "one") is (number < 3)
        # RocketMQ 5: one Telemetry call takes the other's place.
        for count in (1, 2, 3):
            talk = v2.telemetry()
            talk.settings(consumer_settings(GROUP))
            await talk.next()
            assert len(await shown(v2)) == 1 + (count == 3)

    with_remoting(under_test, scenario)

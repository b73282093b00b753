"""Requests that the broker passes on to a client, and answers that it passes back."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import RequestMode, RequestModeChange
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.tables.membership import DOUBLED_MS
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.clients import (
    CONSUME_MESSAGE_DIRECTLY,
    GET_CONSUMER_RUNNING_INFO,
    HEART_BEAT,
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    INVOKE_BROKER_TO_RESET_OFFSET,
    ClientOffsets,
    ClientsOffsets,
    ConsumeDirectly,
    ConsumerData,
    ConsumerStatusQuery,
    Heartbeat,
    OffsetList,
    OffsetTable,
    ResetOffset,
    RunningInfoQuery,
    SubscriptionBody,
)
from rmqlite.protocols.remoting.bytes.requests.groups import MessageQueue
from rmqlite.protocols.remoting.bytes.requests.pop import POP_MESSAGE, PopMessage
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from rmqlite.protocols.remoting.requests import relays
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, create_topic, plain
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol

ODD = b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"x":1}},"unknown":[1,{}]}'
"""A client's answer with parts that no dataclass here has."""


async def join(client: LoopClient, client_id: str = "me") -> None:
    data = ConsumerData(GROUP, subscription_data_set=(SubscriptionBody(TOPIC),))
    answer = await client.ask(HEART_BEAT, None, Heartbeat(client_id, (), (data,)))
    assert answer.code == 0


def offset_message_id(under_test: BrokerUnderTest) -> str:
    (sent,) = under_test.send(plain("look at me"))
    return sent.offset_message_id


@pytest.mark.parametrize("kind", ["running info", "consume"])
def test_a_clients_answer_comes_back_as_it_was(under_test: BrokerUnderTest, kind: str) -> None:
    """Code, remark and every byte of the body: only the tools know what is in it."""
    at = offset_message_id(under_test)
    row: Any = GET_CONSUMER_RUNNING_INFO
    asked: Any = RunningInfoQuery(GROUP, "me", jstack_enable=True)
    if kind == "consume":
        row, asked = CONSUME_MESSAGE_DIRECTLY, ConsumeDirectly(GROUP, "me", at)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as consumer, protocol.client() as tool:
            await join(consumer)
            command = tool.request(row, asked)
            tool.send(command)
            told = await consumer.told(row.code)
            assert not told.is_one_way
            assert (told.ext["consumerGroup"], told.ext["clientId"]) == (GROUP, "me")
            if kind == "consume":
                assert told.ext["brokerName"] == "broker-a"
                assert told.body == under_test.store.read_record(int(at[-16:], 16)).encoded
            else:
                assert told.ext["jstackEnable"] == "true"
            consumer.write(encode(told.answer(7, {}, ODD, "not set any response code")))
            answer = await tool.answer(command.opaque)
            assert (answer.code, answer.remark) == (7, "not set any response code")
            assert answer.body == ODD

    served_protocol(under_test, scenario)


def test_a_client_that_does_not_answer_or_leaves_is_said_so(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C++ does not know code 309: mqadmin must not wait for ever."""
    row, asked = GET_CONSUMER_RUNNING_INFO, RunningInfoQuery(GROUP, "me")

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as consumer, protocol.client() as tool:
            await join(consumer)
            monkeypatch.setattr(relays, "ANSWER_S", 0.0)
            assert (await tool.ask(row, asked)).code == 207
            monkeypatch.setattr(relays, "ANSWER_S", 60.0)
            command = tool.request(row, asked)
            tool.send(command)
            await consumer.told(307)
            await consumer.told(307)
            consumer.close()
            assert (await tool.answer(command.opaque)).code == 207
            answer = await tool.ask(row, asked)
            assert (answer.code, "not online" in answer.remark) == (1, True)

    served_protocol(under_test, scenario)


def test_a_client_that_is_too_old_is_not_asked(under_test: BrokerUnderTest) -> None:
    """It would not know the request."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(version=61) as consumer, protocol.client() as tool:
            await join(consumer)
            asked = RunningInfoQuery(GROUP, "me")
            answer = await tool.ask(GET_CONSUMER_RUNNING_INFO, asked)
            assert (answer.code, "too low" in answer.remark) == (1, True)

    served_protocol(under_test, scenario)


def test_a_message_that_does_not_exist_reaches_nobody(under_test: BrokerUnderTest) -> None:
    """The tool is told instead."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as consumer, protocol.client() as tool:
            await join(consumer)
            for message_id in ("nonsense", "7F00000100002A9F00000000000FFFFF"):
                asked = ConsumeDirectly(GROUP, "me", message_id)
                assert (await tool.ask(CONSUME_MESSAGE_DIRECTLY, asked)).code == 1
            assert not consumer.take_asked(309)

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("language", ["JAVA", "CPP"])
def test_all_members_are_told_where_to_go_on(under_test: BrokerUnderTest, language: str) -> None:
    """In the form that the tool's language stands for: C++ cannot read the other one."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a"), plain("b"))
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 1}))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client() as one,
            protocol.client() as two,
            protocol.client(language=language) as tool,
        ):
            await join(one, "one")
            await join(two, "two")
            for timestamp, is_force, expected in ((-1, True, 2), (-1, False, 1), (0, False, 0)):
                reset = ResetOffset(TOPIC, GROUP, timestamp, is_force)
                answer = await tool.ask(INVOKE_BROKER_TO_RESET_OFFSET, reset)
                assert answer.code == 0
                offsets = read_body(OffsetTable, answer.body).offset_table
                assert offsets == {
                    MessageQueue(TOPIC, 0, "broker-a"): expected,
                    MessageQueue(TOPIC, 1, "broker-a"): 0,
                }
                for member in (one, two):
                    told = await member.told(220)
                    assert told.is_one_way
                    assert b" " not in told.body
                    assert (told.ext["isForce"], told.ext["group"]) == ("false", GROUP)
                    if language == "JAVA":
                        assert told.body == answer.body
                    else:
                        listed = read_body(OffsetList, told.body).offset_table
                        assert {each.queue_id: each.offset for each in listed} == {
                            0: expected,
                            1: 0,
                        }

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(("timestamp", "left"), [(-1, []), (0, [b"a", b"b", b"c"])])
def test_the_broker_resets_members_that_pop(
    under_test: BrokerUnderTest, timestamp: int, left: list[bytes]
) -> None:
    """They ignore request 220, but for a pause; whoever pulls in such a group gets it."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(plain("a"), plain("b"), plain("c"))
    mode = RequestModeChange(GROUP, TOPIC, RequestMode.POP)
    under_test.broker[RequestModes].change(mode)
    pop = PopMessage(GROUP, TOPIC, -1, 1, 60_000, 0, exp_type="TAG", exp="*")

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client() as pops,
            protocol.client() as pulls,
            protocol.client() as tool,
        ):
            await join(pops, "pops")
            await join(pulls, "pulls")
            assert records_of((await pops.ask(POP_MESSAGE, pop)).body)
            await join(pops, "pops")
            reset = ResetOffset(TOPIC, GROUP, timestamp, True)
            assert (await tool.ask(INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0
            assert (await pulls.told(220)).is_one_way
            found = []
            while answer := records_of((await pops.ask(POP_MESSAGE, pop)).body):
                found += [each.body for each in answer]
            assert found == left
            assert not pops.take_asked(220)

    served_protocol(under_test, scenario)


def test_a_group_that_is_offline_is_answered_with_206(under_test: BrokerUnderTest) -> None:
    """Then mqadmin commits the offsets itself; an unknown topic is none of that."""
    under_test.send(plain("a"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as tool:
            row = INVOKE_BROKER_TO_RESET_OFFSET
            assert (await tool.ask(row, ResetOffset(TOPIC, GROUP, 0, True))).code == 206
            assert (await tool.ask(row, ResetOffset("none", GROUP, 0, True))).code == 17

    served_protocol(under_test, scenario)


def test_members_say_how_far_they_are(under_test: BrokerUnderTest) -> None:
    """One that answers nonsense is left out, and so are those that are not asked for."""
    queue = MessageQueue(TOPIC, 0, "broker-a")

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as one, protocol.client() as two, protocol.client() as tool:
            row = INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            assert (await tool.ask(row, ConsumerStatusQuery(TOPIC, GROUP))).code == 1
            await join(one, "one")
            await join(two, "two")
            command = tool.request(row, ConsumerStatusQuery(TOPIC, GROUP))
            tool.send(command)
            body = write_body(ClientOffsets({queue: 7}))
            for client, answer in ((one, body), (two, b"nonsense")):
                told = await client.told(221)
                client.write(encode(told.answer(0, {}, answer)))
            found = read_body(ClientsOffsets, (await tool.answer(command.opaque)).body)
            assert found.consumer_table == {"one": {queue: 7}}
            command = tool.request(row, ConsumerStatusQuery(TOPIC, GROUP, "one"))
            tool.send(command)
            one.write(encode((await one.told(221)).answer(0, {}, body)))
            await tool.answer(command.opaque)
            assert not two.take_asked(221)

    served_protocol(under_test, scenario)


def test_two_processes_of_one_client_id_are_shown(under_test: BrokerUnderTest) -> None:
    """Containers with one address and process id: each heartbeat takes the member over."""
    under_test.send(plain("a"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        service = protocol.server.service
        async with protocol.client() as one, protocol.client() as two:
            for count, client in enumerate((one, one, two, two, one, two), 1):
                await join(client, "172.17.0.2@1")
                shown = (await service.status()).warnings
                assert len(shown) == (count >= 5)
            assert "group 'shop' have the client id '172.17.0.2@1'" in shown[0]
            under_test.clock.forward(DOUBLED_MS + 1)
            assert not (await service.status()).warnings

    served_protocol(under_test, scenario)

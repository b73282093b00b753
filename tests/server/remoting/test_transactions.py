"""Transactions over the wire: what producers send, and what they are asked."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.transactions.checking_back import CheckingBack
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.words.message import encode_properties
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.clients import HEART_BEAT, Heartbeat, ProducerData
from rmqlite.protocols.remoting.bytes.requests.messages import END_TRANSACTION, EndTransaction
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.transactions import GROUP, TOPIC, bodies

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


async def send_half(client: LoopClient, body: str) -> Command:
    properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body}
    text = encode_properties(properties).decode()
    asked = SendMessage(TOPIC, GROUP, queue_id=0, sys_flag=4, properties=text)
    return await client.ask(SEND_MESSAGE_V2, asked, body.encode())


def end_of(sent: Command, how: int, *, group: str = GROUP) -> EndTransaction:
    """As a client makes it of the answer to its send."""
    at = int(sent.ext["msgId"][-16:], 16)
    return EndTransaction(group, int(sent.ext["queueOffset"]), at, how)


async def join(client: LoopClient, client_id: str = "producer-1") -> None:
    beat = Heartbeat(client_id, (ProducerData(GROUP),), ())
    assert (await client.ask(HEART_BEAT, None, beat)).code == 0


async def check(protocol: ProtocolUnderTest, under_test: BrokerUnderTest) -> None:
    """A round, when half messages are old enough."""
    under_test.clock.forward(6_000)
    server = protocol.server
    task = CheckingBack(
        server.config, under_test.broker, server.commit, server.service[TransactionCalls]
    )
    await task.round()


def test_a_commit_and_a_rollback_are_answered_and_unknown_is_not(
    under_test: BrokerUnderTest,
) -> None:
    """Go and C++ send these without the one-way flag; nobody gets a message before the commit."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            sent = [await send_half(client, body) for body in ("a", "b", "c")]
            assert [each.ext["queueId"] for each in sent] == ["0"] * 3
            # RocketMQ's proxy needs it.
            assert [each.ext["transactionId"] for each in sent] == ["a", "b", "c"]
            assert bodies(under_test) == []
            row = END_TRANSACTION
            unknown = client.request(row, end_of(sent[2], UNKNOWN))
            client.send(unknown)
            assert (await client.ask(row, end_of(sent[0], COMMIT))).code == 0
            assert (await client.ask(row, end_of(sent[1], ROLLBACK))).code == 0
            assert (await client.ask(row, end_of(sent[0], COMMIT))).code == 0
            assert bodies(under_test) == ["a"]
            assert unknown.opaque not in client.answers

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    "change",
    [{"producer_group": "others"}, {"tran_state_table_offset": 7}, {"commit_log_offset": 1}],
)
def test_an_end_that_names_no_half_message_of_the_producer_is_refused(
    under_test: BrokerUnderTest, change: dict[str, Any]
) -> None:
    """With code 1, as RocketMQ refuses it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            wrong = end_of(await send_half(client, "a"), COMMIT)._replace(**change)
            assert (await client.ask(END_TRANSACTION, wrong)).code == 1
            assert bodies(under_test) == []

    served_protocol(under_test, scenario)


def test_the_producer_is_asked_and_its_answer_ends_the_transaction(
    under_test: BrokerUnderTest,
) -> None:
    """One-way, on the connection that sent the group's heartbeat; offsets are those of the copy."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as sender, protocol.client() as client:
            await send_half(sender, "a")
            await check(protocol, under_test)
            await join(client)
            await check(protocol, under_test)
            asked = await client.told(39)
            assert asked.is_one_way
            assert asked.ext["msgId"] == asked.ext["transactionId"] == "a"
            assert asked.ext["offsetMsgId"].endswith(f"{int(asked.ext['commitLogOffset']):016X}")
            shown = read_head(asked.body)
            assert shown is not None
            assert (shown.topic, shown.queue_id) == (TOPIC, 0)
            assert b"PGROUP\x01payers" in shown.properties
            answer = EndTransaction(
                GROUP,
                int(asked.ext["tranStateTableOffset"]),
                int(asked.ext["commitLogOffset"]),
                COMMIT,
                asked.ext["msgId"],
                asked.ext["transactionId"],
                True,
            )
            client.one_way(END_TRANSACTION, answer)
            assert (await client.ask(END_TRANSACTION, answer)).code == 0
            assert bodies(under_test) == ["a"]
            assert sender.take_asked(39) is None

    served_protocol(under_test, scenario)


def test_another_producer_of_the_group_is_asked_when_one_is_gone(
    under_test: BrokerUnderTest,
) -> None:
    """Any of them can look up how the local transaction ended."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as first, protocol.client() as second:
            await join(first)
            await join(second, "producer-2")
            await send_half(first, "a")
            first.close()
            while len(protocol.connections.open) > 1:
                await second.ask(HEART_BEAT, None, Heartbeat("producer-2", (), ()))
            await check(protocol, under_test)
            assert (await second.told(39)).ext["msgId"] == "a"

    served_protocol(under_test, scenario)

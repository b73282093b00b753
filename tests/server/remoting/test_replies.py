"""Request and reply: a consumer's reply reaches the client that asked, and is stored."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.kernel.words.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import encode_properties
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.clients import HEART_BEAT, Heartbeat, ProducerData
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_MESSAGE_V2,
    SEND_REPLY_MESSAGE,
    SEND_REPLY_MESSAGE_V2,
    SendMessage,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.transactions import bodies

REPLIES = "DefaultCluster_REPLY_TOPIC"


def reply_of(client: LoopClient, to: str = "asker-1", *, is_short: bool = True) -> Command:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "17", "REPLY_TO_CLIENT": to, "TTL": "9"}
    text = encode_properties({name: value for name, value in properties.items() if value})
    asked = SendMessage(REPLIES, "repliers", queue_id=0, properties=text.decode())
    row = SEND_REPLY_MESSAGE_V2 if is_short else SEND_REPLY_MESSAGE
    return client.request(row, asked, b"yes")


async def join(client: LoopClient) -> None:
    beat = Heartbeat("asker-1", (ProducerData("askers"),), ())
    assert (await client.ask(HEART_BEAT, None, beat)).code == 0


@pytest.mark.parametrize("is_short", [True, False])
def test_a_reply_reaches_the_client_that_asked(under_test: BrokerUnderTest, is_short: bool) -> None:
    """It answers the broker, and then the replier has its answer; Go sends code 324."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as asker, protocol.client() as replier:
            await join(asker)
            command = reply_of(replier, is_short=is_short)
            replier.send(command)
            pushed = await asker.told(326)
            assert not pushed.is_one_way
            assert pushed.body == b"yes"
            assert pushed.ext["topic"] == REPLIES
            assert pushed.ext["producerGroup"] == "repliers"
            assert pushed.ext["bornHost"] == "{}:{}".format(*replier.address)
            assert pushed.ext["storeHost"].endswith(f":{protocol.protocol.port}")
            assert "CORRELATION_ID\x0117" in pushed.ext["properties"]
            assert "PUSH_REPLY_TIME\x01" in pushed.ext["properties"]
            assert all(isinstance(value, str) for value in pushed.ext.values())
            assert command.opaque not in replier.answers
            asker.write(encode(pushed.answer(0)))
            answer = await replier.answer(command.opaque)
            assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "0", "0")
            assert len(answer.ext["msgId"]) == 32
            assert bodies(under_test, REPLIES) == ["yes"]

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    ("to", "remark"),
    [
        ("nobody", "push reply message fail, channel of <nobody> not found."),
        ("", "push reply message fail, REPLY_TO_CLIENT is missing."),
    ],
)
def test_a_reply_to_nobody_is_refused(under_test: BrokerUnderTest, to: str, remark: str) -> None:
    """With RocketMQ's code and remark; people can still find it in the topic."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as replier:
            command = reply_of(replier, to)
            replier.send(command)
            answer = await replier.answer(command.opaque)
            assert (answer.code, answer.remark) == (1, remark)
            assert bodies(under_test, REPLIES) == ["yes"]

    served_protocol(under_test, scenario)


def test_a_reply_that_the_client_refuses_or_does_not_take_fails(
    under_test: BrokerUnderTest,
) -> None:
    """The replier learns it, whether the client answers with an error or goes away."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as asker, protocol.client() as replier:
            await join(asker)
            for ends in ("error", "gone"):
                command = reply_of(replier)
                replier.send(command)
                pushed = await asker.told(326)
                if ends == "error":
                    asker.write(encode(pushed.answer(1)))
                else:
                    asker.close()
                answer = await replier.answer(command.opaque)
                assert (answer.code, answer.remark) == (1, "push reply message to asker-1 fail.")

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(
    "odd",
    [
        "DELAY\x01ten",
        "TIMER_DELAY_MS\x01soon",
        "TIMER_OUT_MS\x015",
        "a\x01" + "x" * SENT_PROPERTIES_BYTES_MAX,
    ],
)
def test_a_reply_that_must_not_be_stored_is_not_passed_on(
    under_test: BrokerUnderTest, odd: str
) -> None:
    """It is refused as any message is, with code 13, before its receiver sees it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as asker, protocol.client() as replier:
            await join(asker)
            command = reply_of(replier)
            command.ext["i"] += f"\x02{odd}"
            replier.send(command)
            answer = await replier.answer(command.opaque)
            assert answer.code == 13
            assert (
                odd.partition("\x01")[0] if odd[0] != "a" else str(SENT_PROPERTIES_BYTES_MAX)
            ) in (answer.remark or "")
            assert asker.take_asked(326) is None
            assert bodies(under_test, REPLIES) == []

    served_protocol(under_test, scenario)


def test_replies_need_not_be_stored(under_test: BrokerUnderTest) -> None:
    """storeReplyMessageEnable=false: the answer names no message."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as asker, protocol.client() as replier:
            await join(asker)
            command = reply_of(replier)
            replier.send(command)
            asker.write(encode((await asker.told(326)).answer(0)))
            answer = await replier.answer(command.opaque)
            assert (answer.code, answer.ext["msgId"]) == (0, "0")
            assert bodies(under_test, REPLIES) == []

    served_protocol(under_test, scenario, stores_replies=False)


def test_traces_and_replies_have_their_topics(under_test: BrokerUnderTest) -> None:
    """Also without topics on demand: clients ask for the route first."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for topic in ("RMQ_SYS_TRACE_TOPIC", REPLIES):
                wanted: Any = {"topic": topic}
                assert (await client.ask(105, wanted)).code == 0
                asked = SendMessage(topic, "traces", queue_id=0)
                assert (await client.ask(SEND_MESSAGE_V2, asked, b"Pub")).code == 0

    served_protocol(under_test, scenario, auto_create_topic=False)

"""Half messages: committed, rolled back, asked about through Telemetry, also over a restart."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from rmqlite.features.transactions.checking_back import CheckingBack
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import END_TRANSACTION, definition, service
from rmqlite.protocols.rocketmq_v2.calls import ClientKey
from rmqlite.protocols.rocketmq_v2.clients import FRAMES_MAX
from tests.support.brokers import BrokerUnderTest
from tests.support.rocketmq_v2_client import (
    CLIENT,
    TOPIC,
    V2,
    TelemetryCall,
    half,
    message_id,
    named,
    producer_settings,
    served_v2,
)

CHECKED_MS = 60_000


def end(
    transaction_id: str,
    resolution: definition.TransactionResolution = definition.COMMIT,
    *,
    text: str = "a",
    topic: str = TOPIC,
    source: definition.TransactionSource = definition.SOURCE_CLIENT,
) -> service.EndTransactionRequest:
    return service.EndTransactionRequest(
        topic=named(topic),
        message_id=message_id(text),
        transaction_id=transaction_id,
        resolution=resolution,
        source=source,
    )


async def check(v2: V2) -> None:
    """A round of checks, a minute later."""
    server = v2.server
    v2.under_test.clock.forward(CHECKED_MS)
    own = server.service[TransactionCalls]
    await CheckingBack(server.config, v2.under_test.broker, server.commit, own).round()


async def listening(v2: V2, *topics: str) -> TelemetryCall:
    call = v2.telemetry()
    call.settings(producer_settings(*(topics or (TOPIC,))))
    await call.next()
    return call


def test_a_committed_message_comes_once(under_test: BrokerUnderTest) -> None:
    """A second commit is no error: the first answer may be lost."""

    async def scenario(v2: V2) -> None:
        (sent,) = await v2.sent(half("a"))
        assert await v2.received() == []
        assert await v2.code(END_TRANSACTION, end(sent.transaction_id)) is Code.OK
        (received,) = await v2.received()
        assert received.body == b"a"
        assert received.system_properties.message_type == definition.TRANSACTION
        assert received.system_properties.message_id == message_id("a")
        assert await v2.code(END_TRANSACTION, end(sent.transaction_id)) is Code.OK
        assert await v2.received() == []

    served_v2(under_test, scenario)


def test_a_message_that_is_rolled_back_never_comes(under_test: BrokerUnderTest) -> None:
    """Also if it is committed afterwards."""

    async def scenario(v2: V2) -> None:
        (sent,) = await v2.sent(half("a"))
        asked = end(sent.transaction_id, definition.ROLLBACK)
        assert await v2.code(END_TRANSACTION, asked) is Code.OK
        await v2.code(END_TRANSACTION, end(sent.transaction_id))
        assert await v2.received() == []

    served_v2(under_test, scenario)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (end(""), Code.INVALID_TRANSACTION_ID),
        (end("x"), Code.INVALID_TRANSACTION_ID),
        (end("0-FFFFFF"), Code.INVALID_TRANSACTION_ID),
        (end("FFFFFFFFFFFFFFFF-FFFFFFFFFFFFFFFF"), Code.INVALID_TRANSACTION_ID),
        (end("0-0", topic="no.dots"), Code.ILLEGAL_TOPIC),
        (end("0-0", topic="bills"), Code.INVALID_TRANSACTION_ID),
    ],
)
def test_an_id_that_names_no_transaction_is_refused(
    under_test: BrokerUnderTest, request_: service.EndTransactionRequest, code: Code
) -> None:
    """Or one of another topic."""

    async def scenario(v2: V2) -> None:
        await v2.sent(half("a"))
        assert await v2.code(END_TRANSACTION, request_) is code

    served_v2(under_test, scenario)


def test_who_has_said_nothing_is_asked(under_test: BrokerUnderTest) -> None:
    """The question has the whole message; its answer ends the transaction."""

    async def scenario(v2: V2) -> None:
        call = await listening(v2)
        sent = half("a", tag="paid")
        await v2.sent(sent)
        await check(v2)
        asked = (await call.next(2)).recover_orphaned_transaction_command
        assert asked.message.body == b"a"
        assert asked.message.topic.name == TOPIC
        assert asked.message.system_properties.message_id == message_id("a")
        assert asked.message.system_properties.tag == "paid"
        assert asked.message.system_properties.HasField("body_digest")
        source = definition.SOURCE_SERVER_CHECK
        unsure = end(
            asked.transaction_id, definition.TRANSACTION_RESOLUTION_UNSPECIFIED, source=source
        )
        assert await v2.code(END_TRANSACTION, unsure) is Code.OK
        assert await v2.received() == []
        await check(v2)
        again = (await call.next(3)).recover_orphaned_transaction_command
        sure = end(again.transaction_id, source=source)
        assert await v2.code(END_TRANSACTION, sure) is Code.OK
        assert [each.body for each in await v2.received()] == [b"a"]
        await check(v2)
        assert len(call.frames) == 3

    served_v2(under_test, scenario)


def test_the_first_id_ends_a_transaction_that_was_asked_about(
    under_test: BrokerUnderTest,
) -> None:
    """The producer was only slow."""

    async def scenario(v2: V2) -> None:
        call = await listening(v2)
        (sent,) = await v2.sent(half("a"))
        await check(v2)
        await call.next(2)
        assert await v2.code(END_TRANSACTION, end(sent.transaction_id)) is Code.OK
        assert [each.body for each in await v2.received()] == [b"a"]

    served_v2(under_test, scenario)


def test_a_message_says_how_long_nobody_is_asked(under_test: BrokerUnderTest) -> None:
    """Its producer knows best how long its own work takes."""

    async def scenario(v2: V2) -> None:
        call = await listening(v2)
        patient = half("a", orphaned_transaction_recovery_duration=Duration(seconds=150))
        await v2.sent(patient)
        await check(v2)
        await check(v2)
        assert len(call.frames) == 1
        await check(v2)
        await call.next(2)

    served_v2(under_test, scenario)


def test_each_producer_of_the_topic_is_asked_in_turn(under_test: BrokerUnderTest) -> None:
    """The one that has sent it may be gone; others of the topic can look, too."""

    async def scenario(v2: V2) -> None:
        first, second = await listening(v2), await listening(v2.other("second"), TOPIC, "bills")
        other = await listening(v2.other("other"), "bills")
        await v2.sent(half("a"))
        await check(v2)
        await check(v2)
        await first.next(2)
        await second.next(2)
        first.call.cancel()
        await check(v2)
        await second.next(3)
        second.call.cancel()
        await check(v2)
        assert (len(first.frames), len(second.frames), len(other.frames)) == (2, 3, 1)

    served_v2(under_test, scenario)


def test_a_producer_that_does_not_read_is_passed_over(under_test: BrokerUnderTest) -> None:
    """Questions to it would fill the memory."""

    async def scenario(v2: V2) -> None:
        stuck = await listening(v2)
        stuck.reads.clear()
        await v2.sent(*[half(f"{n}") for n in range(90)])
        await check(v2)
        client = v2.protocol.clients.get(ClientKey("", CLIENT))
        assert client is not None
        assert client.stream is not None
        assert len(client.stream._frames) == FRAMES_MAX
        stuck.reads.set()
        await stuck.next(60)

    served_v2(under_test, scenario)


def test_transactions_outlive_a_restart(under_test: BrokerUnderTest) -> None:
    """Half messages and their ids are in the log."""
    ids = {}

    async def before(v2: V2) -> None:
        for entry in await v2.sent(half("a"), half("b"), half("c")):
            ids[entry.message_id] = entry.transaction_id

    async def after(v2: V2) -> None:
        first = end(ids[message_id("a")])
        assert await v2.code(END_TRANSACTION, first) is Code.OK
        asked = end(ids[message_id("b")], definition.ROLLBACK, text="b")
        assert await v2.code(END_TRANSACTION, asked) is Code.OK
        call = await listening(v2)
        await check(v2)
        question = (await call.next(2)).recover_orphaned_transaction_command
        assert question.message.body == b"c"
        assert await v2.code(END_TRANSACTION, end(question.transaction_id)) is Code.OK
        assert sorted(each.body for each in await v2.received()) == [b"a", b"c"]

    served_v2(under_test, before)
    under_test.crash()
    under_test.open()
    served_v2(under_test, after)

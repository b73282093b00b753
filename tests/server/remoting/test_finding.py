"""Messages by key, by the producer's id, and by physical offset."""

from __future__ import annotations

import pytest

from rmqlite.features.changes.requests import (
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
    PendingQuery,
)
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.features.dead_letters.requests import HistoryQuery
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.finding.requests import MessageQuery
from rmqlite.features.finding.service import FindingCalls
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.fields import FRAME_BYTES_MAX
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    QUERY_MESSAGE,
    VIEW_MESSAGE_BY_ID,
    PhysicalOffset,
    QueryMessage,
    SendBack,
)
from rmqlite.protocols.remoting.requests import messages as limits
from tests.server.remoting.asking import GROUP, TOPIC, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import ProtocolUnderTest, records_of, served_protocol

EVER = (0, 2**63 - 1)


def test_a_message_is_found_by_its_key_and_by_its_offset(under_test: BrokerUnderTest) -> None:
    """As a record, which the client takes apart."""
    (sent,) = under_test.send(Message(TOPIC, b"x", keys=("k1",)))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            found = await client.ask(QUERY_MESSAGE, QueryMessage(TOPIC, "k1", 32, *EVER))
            assert found.code == 0
            assert [each.body for each in records_of(found.body)] == [b"x"]
            assert found.ext["indexLastUpdatePhyoffset"] == str(sent.physical_offset)
            at = PhysicalOffset(sent.physical_offset)
            assert (await client.ask(VIEW_MESSAGE_BY_ID, at)).body == found.body

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("key", ["k" * 1_025, "k" * 29_000, "ä" * 14_000])
def test_a_key_of_any_length_that_can_be_sent_is_found(
    under_test: BrokerUnderTest, key: str
) -> None:
    """By its hash, and then compared as a whole; on every way that looks for keys."""
    with_key = f"KEYS\x01{key} other\x02UNIQ_KEY\x01short"
    with_id = f"UNIQ_KEY\x01{key}"

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for properties in (with_key, with_id, f"{with_id}\x02DELAY\x0118"):
                send = send_of(client, properties=properties)
                client.send(send)
                assert (await client.answer(send.opaque)).code == 0
            for wanted, is_id, count in (
                *((key, False, 1), (key, True, 1)),
                *((key[:-1], False, 0), (key[:-1], True, 0), ("other", False, 1)),
            ):
                asked = QueryMessage(TOPIC, wanted, 32, *EVER, is_unique_key=is_id)
                found = await client.ask(QUERY_MESSAGE, asked)
                assert len(records_of(found.body)) == count
            service = protocol.server.service
            by_key = await service[FindingCalls].find(MessageQuery(TOPIC, key, False))
            assert len(by_key.messages) == 1
            page = await service[ChangeCalls].pending(PendingQuery(PendingFilter(ids=(key,))))
            assert [each.message_id for each in page.messages] == [key]
            life = await service[DeadLetterCalls].history(HistoryQuery(key))
            assert len(life.events) == 2
            (changed,) = await service[ChangeCalls].change_by_ids(
                ChangeByIds(ScheduleAction.CANCEL, (key,))
            )
            assert changed.outcome is ChangeOutcome.DONE

    served_protocol(under_test, scenario)


def test_a_message_with_a_long_id_is_sent_back(under_test: BrokerUnderTest) -> None:
    """Clients name the id, which the broker only logs: a refusal would keep it from its retry."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            message_id = "k" * 256
            send = send_of(client, properties=f"UNIQ_KEY\x01{message_id}")
            client.send(send)
            sent = await client.answer(send.opaque)
            offset = int(sent.ext["msgId"][16:], 16)
            back = SendBack(offset, GROUP, 0, message_id, TOPIC, max_reconsume_times=3)
            assert (await client.ask(CONSUMER_SEND_MSG_BACK, back)).code == 0

    served_protocol(under_test, scenario)


def test_what_is_not_there_is_not_found(under_test: BrokerUnderTest) -> None:
    """22 with both fields for a key, 1 for an offset; the clients expect exactly these."""
    under_test.send(Message(TOPIC, b"x", keys=("k1",)))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            absent = await client.ask(QUERY_MESSAGE, QueryMessage(TOPIC, "k2", 32, *EVER))
            assert absent.code == 22
            assert absent.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
            for offset in (-1, 1, 999_999_999, 2**63 - 1):
                answer = await client.ask(VIEW_MESSAGE_BY_ID, PhysicalOffset(offset))
                assert answer.code == 1

    served_protocol(under_test, scenario)


@pytest.mark.long_bodies
def test_many_large_messages_of_one_key_fit_into_one_frame(under_test: BrokerUnderTest) -> None:
    """A client closes the connection at a longer frame, and would never see any of them."""
    for _ in range(40):
        under_test.send(Message(TOPIC, b"x" * 500_000, keys=("k1",)))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            found = await client.ask(QUERY_MESSAGE, QueryMessage(TOPIC, "k1", 64, *EVER))
            assert found.code == 0
            assert 500_000 < len(found.body) <= limits.RECORDS_BYTES_MAX < FRAME_BYTES_MAX

    served_protocol(under_test, scenario)

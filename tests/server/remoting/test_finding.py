"""Messages by key, by the producer's id, and by physical offset."""

from __future__ import annotations

from rmqlite.message import Message
from rmqlite.server.faces.remoting import finding as limits
from rmqlite.wire.remoting.codes import consuming as codes
from rmqlite.wire.remoting.codes.consuming import PhysicalOffset, QueryMessage
from rmqlite.wire.remoting.limits import FRAME_BYTES_MAX
from tests.server.remoting.asking import TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import FaceUnderTest, records_of, served_face

EVER = (0, 2**63 - 1)


def test_a_message_is_found_by_its_key_and_by_its_offset(under_test: BrokerUnderTest) -> None:
    """As a record, which the client takes apart."""
    (sent,) = under_test.send(Message(TOPIC, b"x", keys=("k1",)))

    async def scenario(face: FaceUnderTest) -> None:
        async with face.client() as client:
            found = await client.ask(codes.QUERY_MESSAGE, QueryMessage(TOPIC, "k1", 32, *EVER))
            assert found.code == 0
            assert [each.body for each in records_of(found.body)] == [b"x"]
            assert found.ext["indexLastUpdatePhyoffset"] == str(sent.physical_offset)
            at = PhysicalOffset(sent.physical_offset)
            assert (await client.ask(codes.VIEW_MESSAGE_BY_ID, at)).body == found.body

    served_face(under_test, scenario)


def test_what_is_not_there_is_not_found(under_test: BrokerUnderTest) -> None:
    """22 with both fields for a key, 1 for an offset; the clients expect exactly these."""
    under_test.send(Message(TOPIC, b"x", keys=("k1",)))

    async def scenario(face: FaceUnderTest) -> None:
        async with face.client() as client:
            absent = await client.ask(codes.QUERY_MESSAGE, QueryMessage(TOPIC, "k2", 32, *EVER))
            assert absent.code == 22
            assert absent.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
            for offset in (-1, 1, 999_999_999, 2**63 - 1):
                answer = await client.ask(codes.VIEW_MESSAGE_BY_ID, PhysicalOffset(offset))
                assert answer.code == 1

    served_face(under_test, scenario)


def test_many_large_messages_of_one_key_fit_into_one_frame(under_test: BrokerUnderTest) -> None:
    """A client closes the connection at a longer frame, and would never see any of them."""
    for _ in range(40):
        under_test.send(Message(TOPIC, b"x" * 500_000, keys=("k1",)))

    async def scenario(face: FaceUnderTest) -> None:
        async with face.client() as client:
            found = await client.ask(codes.QUERY_MESSAGE, QueryMessage(TOPIC, "k1", 64, *EVER))
            assert found.code == 0
            assert 500_000 < len(found.body) <= limits.RECORDS_BYTES_MAX < FRAME_BYTES_MAX

    served_face(under_test, scenario)

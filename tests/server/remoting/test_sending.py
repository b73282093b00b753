"""Sends: what arrives together is stored together, and each one has an outcome of its own."""

from __future__ import annotations

import asyncio

import pytest

from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.command import ONE_WAY_FLAG, Command
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.sends import REFUSED_SEND_EXT
from rmqlite.protocols.remoting.calls import refused
from tests.server.remoting.asking import TOPIC, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import ProtocolUnderTest, served_protocol
from tests.support.services import breaking

SEND_ANSWER = {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}


@pytest.fixture(autouse=True)
def _topic(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))


def bodies(under_test: BrokerUnderTest, queue_id: int = 0) -> list[bytes]:
    return [stored.body for stored in under_test.messages(TOPIC, queue_id)]


def test_sends_that_arrive_together_are_one_append(under_test: BrokerUnderTest) -> None:
    """Each append costs a walk through store and sync; a hundred pipelined sends share one."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client, protocol.client() as other:
            # The files of a queue are made before its first message.
            assert (await client.ask(310, send_of(client).ext, b"first")).code == 0
            protocol.appends.clear()
            sends = [send_of(client, b"%d" % number) for number in range(100)]
            client.send(*sends)
            other.send(send_of(other, b"another client"))
            answers = [await client.answer(send.opaque) for send in sends]
            assert {answer.code for answer in answers} == {0}
            assert all(answer.ext.keys() == SEND_ANSWER for answer in answers)
            assert [int(answer.ext["queueOffset"]) for answer in answers] == list(range(1, 101))
            assert protocol.appends[0] >= 100
            assert len(protocol.appends) <= 2

    served_protocol(under_test, scenario)
    assert bodies(under_test)[1:101] == [b"%d" % number for number in range(100)]


def test_a_refused_send_refuses_no_neighbour(under_test: BrokerUnderTest) -> None:
    """They are of other callers, who know nothing of it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            sends = [
                send_of(client, b"first"),
                send_of(client, b"bad", topic="SCHEDULE_TOPIC_XXXX"),
                send_of(client, b"", queue_id=0),
                send_of(client, b"too many", queue_id=99),
                client.request(310, {"a": "senders"}, b"without a topic"),
                client.request(310, {"b": TOPIC, "e": "zz"}, b"no number"),
                send_of(client, b"not a batch", is_batch=True),
                send_of(client, b"late", properties="DELAY\x01ten"),
                send_of(client, b"not compressed", sys_flag=1),
                send_of(client, b"last"),
            ]
            client.send(*sends)
            answers = [await client.answer(send.opaque) for send in sends]
            codes = [answer.code for answer in answers]
            assert codes == [0, 16, 13, 1, 1, 1, 1, 13, 13, 0]
            assert all(answer.ext.keys() == REFUSED_SEND_EXT.keys() for answer in answers[1:-1])
            assert all(answer.remark for answer in answers[1:-1])
            assert "Traceback" not in "".join(answer.remark for answer in answers)

    served_protocol(under_test, scenario)
    assert bodies(under_test) == [b"first", b"last"]


def test_a_batch_is_stored_whole_or_not_at_all(under_test: BrokerUnderTest) -> None:
    """Its sender gets one answer for all of its messages."""
    good = write_batch([BatchItem(0, b"a", b""), BatchItem(7, b"b", b"K\x01V")])
    bad = write_batch([BatchItem(0, b"c", b""), BatchItem(0, b"", b"")])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            sends = [send_of(client, body, is_batch=True) for body in (good, bad, good[:-1])]
            client.send(*sends)
            stored, empty, cut = [await client.answer(send.opaque) for send in sends]
            assert (stored.code, empty.code, cut.code) == (0, 13, 1)
            assert len(stored.ext["msgId"].split(",")) == 2
            assert stored.ext["queueOffset"] == "0"

    served_protocol(under_test, scenario)
    assert bodies(under_test) == [b"a", b"b"]


def test_a_one_way_send_gets_no_answer_stored_or_refused(under_test: BrokerUnderTest) -> None:
    """Java logs a warning for each answer to a request that waits for none."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            one_way = [
                send_of(client, b"stored"),
                send_of(client, b"refused", queue_id=99),
                client.request(9999),
                client.request(38, {"consumerGroup": "nobody"}),
                client.request(14, {}),
            ]
            client.send(*[each._replace(flag=ONE_WAY_FLAG) for each in one_way])
            assert (await client.ask(310, send_of(client).ext, b"the last")).code == 0
            assert (await client.ask(30, {"topic": TOPIC, "queueId": "0"})).ext == {"offset": "2"}
            assert not client.answers

    served_protocol(under_test, scenario)
    assert bodies(under_test) == [b"stored", b"the last"]


def test_an_answer_has_the_opaque_and_the_spelling_of_its_request(
    under_test: BrokerUnderTest,
) -> None:
    """By them the client finds who waits for it, also below zero and in binary headers."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(is_binary=True) as client:
            for opaque in (-(2**31), -1, 0, 2**31 - 1):
                client.send(send_of(client)._replace(opaque=opaque))
                answer = await client.answer(opaque)
                assert (answer.code, answer.is_binary, answer.version) == (0, True, 409)

    served_protocol(under_test, scenario)


def test_no_answer_says_stored_without_saying_where() -> None:
    """For codes 10 to 12 clients read the message's id as for 0: C++ crashes if it is missing."""
    error = FlushFailed("the disk has failed")
    code = refused(Command(310, 1, {}), error, REFUSED_SEND_EXT).code
    assert code == 14
    assert refused(Command(36, 1, {}), error).code == 10


def test_a_disk_that_refuses_refuses_every_send_of_the_append(under_test: BrokerUnderTest) -> None:
    """Nobody may think that a message is stored."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        breaking(under_test, StoreUnavailable("write", "commitlog", "no space"))
        async with protocol.client() as client:
            sends = [send_of(client) for _ in range(3)]
            client.send(*sends)
            answers = [await client.answer(send.opaque) for send in sends]
            assert {answer.code for answer in answers} == {14}

    served_protocol(under_test, scenario)
    queue = under_test.store.queue(TOPIC, 0)
    assert queue is None or queue.max_offset == 0


def test_sends_are_refused_while_the_broker_drains(under_test: BrokerUnderTest) -> None:
    """They are answered, so that the client knows at once that it must send again."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            send = send_of(client)
            client.send(send)
            protocol.server.service.close()
            assert (await client.answer(send.opaque)).code == 14

    served_protocol(under_test, scenario)


def test_a_delayed_send_waits_in_its_level_and_is_answered_with_its_own_queue(
    under_test: BrokerUnderTest,
) -> None:
    """The client remembers the queue of its message, not the one where it waits."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(
                310, send_of(client, queue_id=3, properties="DELAY\x012\x02").ext, b"later"
            )
            assert answer.ext["queueId"] == "3"

    served_protocol(under_test, scenario)
    assert bodies(under_test, 3) == []
    under_test.clock.forward(5_000)
    under_test.deliver()
    assert bodies(under_test, 3) == [b"later"]


def test_what_comes_byte_by_byte_is_stored_as_well(under_test: BrokerUnderTest) -> None:
    """TCP cuts a stream anywhere."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            send = send_of(client, b"slowly")
            for byte in encode(send):
                client.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer(send.opaque)).code == 0

    served_protocol(under_test, scenario)
    assert bodies(under_test) == [b"slowly"]


def test_a_message_of_the_other_face_is_numbered_after_it(under_test: BrokerUnderTest) -> None:
    """Both protocols write into the same queues."""
    under_test.send(Message(TOPIC, b"python"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(310, send_of(client).ext, b"java")
            assert answer.ext["queueOffset"] == "1"

    served_protocol(under_test, scenario)
    assert bodies(under_test) == [b"python", b"java"]

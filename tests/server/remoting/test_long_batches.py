"""Batches of very many small messages: the limit is their bytes, as in RocketMQ.

RocketMQ's clients split batches by size, not by count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.kernel import compiled
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.sends.calls import BATCH_WORK_MAX
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import TABLES_TOPIC
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import BATCH_MESSAGES_MAX
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_BATCH_MESSAGE, SendMessage
from tests.server.remoting.asking import send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FOR_GOOD, FaultyFiles, QuickFiles
from tests.support.messages import TOPIC, create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol

ID: Final = b"UNIQ_KEY\x017F00000100014E0B23A1#\x02WAIT\x01true"
"""The properties that RocketMQ's Java client gives each message of a batch."""
ODD: Final = ID + b"\x02CLUSTER\x01another"
"""With these a message is left to the plain form: it was forwarded with all its properties."""


@pytest.fixture(params=["compiled", "plain"])
def broker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BrokerUnderTest]:
    if request.param == "plain":
        monkeypatch.setattr(compiled, "is_on", False)
    elif not compiled.is_on:
        pytest.skip("this installation has no compiled form")
    under_test = large(tmp_path)
    yield under_test
    under_test.close()


def large(folder: Path, **config: Any) -> BrokerUnderTest:
    """A broker with the default sizes."""
    names = (
        "mapped_file_size_commit_log",
        "mapped_file_size_consume_queue",
        "max_message_bytes",
        "max_hash_slots",
        "max_index_entries",
    )
    sizes = {name: getattr(BrokerConfig(), name) for name in names}
    files = QuickFiles()
    under_test = BrokerUnderTest(folder, **{"files": files, **sizes, **config})
    create_topic(under_test, TOPIC)
    under_test.send(Message(TOPIC, b"before"))
    return under_test


def body_of(count: int, properties: bytes = ID, body: bytes = b"#") -> bytes:
    """A # stands for the number of the message."""
    return write_batch(
        [
            BatchItem(0, body.replace(b"#", b"%d" % n), properties.replace(b"#", b"%012d" % n))
            for n in range(count)
        ]
    )


async def sent(client: LoopClient, body: bytes, topic: str = TOPIC) -> Command:
    asked = SendMessage(topic, "senders", queue_id=0, properties="WAIT\x01true", is_batch=True)
    return await client.ask(SEND_BATCH_MESSAGE, asked, body)


@pytest.mark.parametrize("properties", [ID, ODD], ids=["usual", "odd"])
@pytest.mark.parametrize("count", [501, 5_000])
def test_a_batch_of_many_messages_is_stored_in_order(
    broker: BrokerUnderTest, count: int, properties: bytes
) -> None:
    """All ids come back, and what arrives meanwhile stands before or behind the batch."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client, protocol.client() as other:
            asking = asyncio.create_task(sent(client, body_of(count, properties)))
            for number in range(20):
                alone = send_of(other, b"alone %d" % number, topic=TOPIC)
                other.send(alone)
                assert (await other.answer(alone.opaque)).code == 0
            answer = await asking
            assert answer.code == 0, answer.remark
            ids = answer.ext["msgId"].split(",")
            assert len(set(ids)) == count
            first = int(answer.ext["queueOffset"])
            stored = broker.messages(TOPIC)[first : first + count]
            assert [each.body for each in stored] == [b"%d" % number for number in range(count)]
            assert [each.physical_offset for each in stored] == [int(each[16:], 16) for each in ids]

    served_protocol(broker, scenario)


def test_what_is_too_large_is_refused_with_the_reason(broker: BrokerUnderTest) -> None:
    """With code 13, whose remark Java shows at once; for code 1 it tries three times."""
    odd = BATCH_WORK_MAX + 300
    tries = (
        (body_of(2, b"", bytes(broker.config.max_message_bytes // 2)), "maxMessageSize"),
        (body_of(BATCH_MESSAGES_MAX + 1, b"", b"x"), f"at most {BATCH_MESSAGES_MAX} messages"),
        (body_of(odd, b"CLUSTER\x01another", b"x"), f"at most {BATCH_WORK_MAX} ordinary messages"),
    )

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for body, reason in tries:
                answer = await sent(client, body)
                assert (answer.code, reason in answer.remark) == (13, True), answer.remark

    served_protocol(broker, scenario)
    assert len(broker.messages(TOPIC)) == 1


@pytest.mark.parametrize("properties", [ID, ODD], ids=["usual", "odd"])
def test_a_topic_that_goes_while_its_batch_is_made_gets_nothing_of_it(
    properties: bytes, tmp_path: Path
) -> None:
    """The steps of a long batch leave time for that."""
    broker = large(tmp_path, auto_create_topic=False)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            asking = asyncio.create_task(sent(client, body_of(5_000, properties)))
            send = broker.broker.drafts.send
            steps = 0

            def watched(calls: Any) -> Any:
                nonlocal steps
                making = send(calls)
                while True:
                    try:
                        next(making)
                    except StopIteration as end:
                        return end.value
                    steps += 1
                    if steps == 1:
                        broker.broker.topics.delete(TOPIC)
                    yield

            broker.broker.drafts.send = watched  # type: ignore[method-assign]
            answer = await asking
            assert answer.code == 17, (answer.code, answer.remark)
            assert steps > 1

    end = broker.store.end
    served_protocol(broker, scenario)
    assert all(each.head.topic == TABLES_TOPIC for each in broker.store.walk(end))
    broker.close()


@pytest.mark.parametrize("where", ["commitlog", "consumequeue"])
def test_a_long_batch_is_stored_whole_or_not_at_all(tmp_path: Path, where: str) -> None:
    """It is made in steps, but appended at once: the disk fails, and nothing of it is there."""
    files = FaultyFiles()
    broker = large(tmp_path, files=files)
    count = 5_000
    body = body_of(count)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            files.fail("write", where=lambda path: where in path.parts, times=FOR_GOOD)
            assert (await sent(client, body)).code == 14
            files.heal()
            assert (await sent(client, body)).code == 0

    served_protocol(broker, scenario)
    broker.crash()
    broker.open()
    bodies = [each.body for each in broker.messages(TOPIC)]
    assert bodies == [b"before", *[b"%d" % number for number in range(count)]]
    broker.close()

"""A record, whoever sent it, is a message that each client of RocketMQ 5 can read."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.message import encode_properties
from rmqlite.kernel.words.names import DLQ_PREFIX, RETRY_PREFIX
from rmqlite.protocols.rocketmq_v2.bytes import messages
from rmqlite.protocols.rocketmq_v2.bytes.messages import (
    INFLATED_BYTES_MAX,
    SendRules,
    takes_long_to_read,
    write_message,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from rmqlite.protocols.rocketmq_v2.bytes.rules import timestamp_ms, write_timestamp
from tests.support.brokers import BrokerUnderTest
from tests.support.compressed import COMPRESS, LZ4, UNKNOWN, ZLIB, without_the_extra
from tests.support.rocketmq_v2 import HOST, ID, TOPIC, drafted, message_of, outgoing
from tests.support.steps import done
from tests.support.transactions import checked, end, records

Kind = definition.MessageType


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    made = BrokerUnderTest(tmp_path / "store")
    yield made
    made.crash()


def send(broker: BrokerUnderTest, draft: Draft) -> None:
    (outcome,) = done(broker.broker.drafts.send([DraftCall((draft._replace(queue_id=0),))]))
    if isinstance(outcome, Exception):
        raise outcome
    broker.sync()


def sent(broker: BrokerUnderTest, message: definition.Message) -> None:
    """A client of RocketMQ 5 sends a message."""
    allowed = SendRules(body_bytes_max=4096, delay_ms_max=86_400_000)
    send(broker, drafted(message, allowed, now_ms=broker.clock.now_ms()))


def sent_by_4(broker: BrokerUnderTest, body: bytes, sys_flag: int = 0, **own: str) -> None:
    """A client of RocketMQ 4 sends a message."""
    properties = encode_properties({"WAIT": "true", **own})
    send(broker, Draft(TOPIC, 0, properties, body, 17, HOST, flag=5, sys_flag=sys_flag))


def only(broker: BrokerUnderTest, topic: str = TOPIC) -> Record:
    (record,) = records(broker, topic)
    return record


def read(record: Record, topic: str = TOPIC, **about: Any) -> definition.Message:
    """What a client gets; its digest is right, and it can be sent on the wire."""
    message = message_of(record, topic, **about)
    digest = message.system_properties.body_digest
    assert digest.type == definition.MD5
    assert digest.checksum == hashlib.md5(message.body).hexdigest().upper()
    return definition.Message.FromString(message.SerializeToString())


def test_a_message_arrives_as_it_was_sent(broker: BrokerUnderTest) -> None:
    """All that its sender wrote, and what a client needs to acknowledge it."""
    out = outgoing(
        b"paid",
        {"shop": "Köln"},
        tag="card",
        keys=["order-17", "user-4"],
        born_host="worker-3",
        trace_context="00-ab",
        message_type=Kind.NORMAL,
    )
    write_timestamp(out.system_properties.born_timestamp, 1_600_000_000_123)
    sent(broker, out)
    record = only(broker)
    message = read(record, receipt_handle="handle", attempt=1)
    system = message.system_properties
    assert (message.topic.name, message.body) == (TOPIC, b"paid")
    assert dict(message.user_properties) == {"shop": "Köln"}
    assert (system.tag, list(system.keys), system.message_id) == (
        *("card", ["order-17", "user-4"]),
        ID,
    )
    assert (system.born_host, timestamp_ms(system.born_timestamp)) == (
        "worker-3",
        1_600_000_000_123,
    )
    assert timestamp_ms(system.store_timestamp) == record.head.store_timestamp_ms
    assert system.store_host == "127.0.0.1:10911"
    assert (system.receipt_handle, system.delivery_attempt) == ("handle", 1)
    assert (system.queue_id, system.queue_offset) == (0, 0)
    assert (system.message_type, system.body_encoding) == (Kind.NORMAL, definition.IDENTITY)
    assert system.trace_context == "00-ab"
    absent = ("delivery_timestamp", "message_group", "dead_letter_queue", "invisible_duration")
    assert [name for name in absent if system.HasField(name)] == []


def test_what_is_absent_stays_absent(broker: BrokerUnderTest) -> None:
    """A client shows a tag that is there and empty as one."""
    sent(broker, outgoing())
    system = read(only(broker)).system_properties
    assert not system.HasField("tag")
    assert not system.HasField("receipt_handle")
    assert not system.HasField("trace_context")
    assert system.born_host == "10.0.0.9"
    assert not system.keys


def test_an_attempt_is_never_below_one(broker: BrokerUnderTest) -> None:
    """A push consumer of Python would nack such a message for ever."""
    sent(broker, outgoing())
    for attempt, found in ((0, 1), (1, 1), (7, 7)):
        message = read(only(broker), attempt=attempt)
        assert message.system_properties.delivery_attempt == found


def test_a_message_is_written_into_an_answer_in_the_namespace_of_its_request(
    broker: BrokerUnderTest,
) -> None:
    """A client acknowledges it under the topic that it reads here."""
    sent(broker, outgoing())
    frame = service.ReceiveMessageResponse()
    write_message(frame.message, only(broker), TOPIC, namespace="shop")
    assert frame.message.topic == definition.Resource(name=TOPIC, resource_namespace="shop")


def test_a_message_of_a_group_is_fifo(broker: BrokerUnderTest) -> None:
    """Its consumer hands one after the other to its listener."""
    sent(broker, outgoing(message_type=Kind.FIFO, message_group="user-4"))
    system = read(only(broker)).system_properties
    assert (system.message_type, system.message_group) == (Kind.FIFO, "user-4")


def test_a_delayed_message_says_when_it_was_due(broker: BrokerUnderTest) -> None:
    """To the millisecond: the record has the instant."""
    due_ms = broker.clock.now_ms() + 1_234
    out = outgoing(message_type=Kind.DELAY)
    write_timestamp(out.system_properties.delivery_timestamp, due_ms)
    sent(broker, out)
    assert records(broker, TOPIC) == []
    broker.clock.forward(1_234)
    broker.deliver()
    message = read(only(broker))
    assert message.system_properties.message_type == Kind.DELAY
    assert timestamp_ms(message.system_properties.delivery_timestamp) == due_ms
    assert not message.user_properties


def test_a_message_for_the_past_comes_at_once(broker: BrokerUnderTest) -> None:
    """It is a delayed one still."""
    out = outgoing(message_type=Kind.DELAY)
    write_timestamp(out.system_properties.delivery_timestamp, 5_000)
    sent(broker, out)
    system = read(only(broker)).system_properties
    assert (system.message_type, system.delivery_timestamp.seconds) == (Kind.DELAY, 5)


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        ({"DELAY": "1"}, Kind.DELAY),
        ({"TIMER_DELAY_MS": "500"}, Kind.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, Kind.DELAY),
        ({"DELAY": "0"}, Kind.NORMAL),
        ({"DELAY": "-1"}, Kind.NORMAL),
        ({"__SHARDINGKEY": "a"}, Kind.FIFO),
        ({"__SHARDINGKEY": "a", "DELAY": "1"}, Kind.DELAY),
        ({"TRAN_MSG": "false"}, Kind.NORMAL),
        ({}, Kind.NORMAL),
    ],
    ids=str,
)
def test_a_message_of_rocketmq_4_has_a_type(
    broker: BrokerUnderTest, own: dict[str, str], kind: definition.MessageType
) -> None:
    """Transaction, delay, FIFO, normal: the first that fits."""
    sent_by_4(broker, b"paid", 0, **own)
    broker.clock.forward(2_000)
    broker.deliver()
    system = read(only(broker)).system_properties
    assert system.message_type == kind
    is_timer = "TIMER_DELAY_MS" in own or "TIMER_DELAY_SEC" in own
    assert system.HasField("delivery_timestamp") == is_timer


def test_a_message_of_rocketmq_4_is_read(broker: BrokerUnderTest) -> None:
    """Without a message id of its producer it has that of its place; bad bytes are shown."""
    own = b"KEYS\x01 a  b \x02TAGS\x01t\x02shop\x01K\xf6ln\x02DELAY\x01-1"
    send(broker, Draft(TOPIC, 0, own, b"paid", 17, HOST, flag=5))
    record = only(broker)
    message = read(record)
    system = message.system_properties
    assert system.message_id == record.to_message().offset_message_id
    assert (system.tag, list(system.keys)) == ("t", ["a", "b"])
    assert dict(message.user_properties) == {"shop": "K�ln"}
    assert (system.born_host, timestamp_ms(system.born_timestamp)) == ("10.0.0.9", 17)


def test_a_half_message_is_shown_to_its_producer_and_committed(broker: BrokerUnderTest) -> None:
    """The message of a question is whole; a committed one is of type TRANSACTION."""
    sent(broker, outgoing(b"half", {"shop": "a"}, message_type=Kind.TRANSACTION))
    broker.clock.forward(10_000)
    (question,) = checked(broker, [TOPIC])
    assert end(broker, question, group=TOPIC)
    broker.sync()
    message = read(only(broker))
    assert message.system_properties.message_type == Kind.TRANSACTION
    assert dict(message.user_properties) == {"shop": "a"}


# ---- retries and dead letters


def failed(broker: BrokerUnderTest, record: Record, delay_level: int) -> None:
    request = SendBackRequest("payers", record.head.physical_offset, delay_level, "no money")
    broker.broker.send_back(request)
    broker.sync()
    broker.clock.forward(3_600_000)
    broker.deliver()


def test_a_retry_is_the_message_that_was_sent(broker: BrokerUnderTest) -> None:
    """Its topic, id, queue and type; that it has waited meanwhile is nothing that was sent."""
    sent_by_4(broker, b"other")
    sent_by_4(broker, b"paid", UNIQ_KEY="17", shop="a")
    first = records(broker, TOPIC)[1]
    failed(broker, first, delay_level=2)
    message = read(only(broker, RETRY_PREFIX + "payers"), attempt=2)
    system = message.system_properties
    assert (message.topic.name, message.body) == (TOPIC, b"paid")
    assert (system.message_id, system.message_type) == ("17", Kind.NORMAL)
    assert (system.queue_id, system.queue_offset) == (0, 1)
    assert not system.HasField("delivery_timestamp")
    assert dict(message.user_properties) == {"shop": "a"}


def test_a_retry_without_an_id_has_that_of_its_first_record(broker: BrokerUnderTest) -> None:
    """Otherwise it would look like another message at each attempt."""
    sent_by_4(broker, b"paid")
    first = only(broker)
    failed(broker, first, delay_level=1)
    retried = read(only(broker, RETRY_PREFIX + "payers"))
    assert retried.system_properties.message_id == read(first).system_properties.message_id


def test_a_dead_letter_says_where_it_came_from(broker: BrokerUnderTest) -> None:
    """Its consumer may send it there again, with all properties that it got."""
    sent(broker, outgoing(b"paid", {"shop": "a"}))
    first = only(broker)
    failed(broker, first, delay_level=-1)
    topic = DLQ_PREFIX + "payers"
    message = read(only(broker, topic), topic)
    system = message.system_properties
    assert system.dead_letter_queue.topic == TOPIC
    assert system.dead_letter_queue.message_id == first.to_message().offset_message_id
    assert (system.message_id, system.message_type) == (ID, Kind.NORMAL)
    assert dict(message.user_properties) == {"shop": "a"}


# ---- bodies


CONTENT = b"a body that is long enough to be compressed, " * 20


@pytest.mark.parametrize("sys_flag", sorted(COMPRESS))
def test_a_compressed_body_is_received_inflated(broker: BrokerUnderTest, sys_flag: int) -> None:
    """Clients of RocketMQ 5 know GZIP only, and half of them refuse zlib under that name."""
    sent_by_4(broker, COMPRESS[sys_flag](CONTENT), sys_flag)
    message = read(only(broker))
    assert message.body == CONTENT
    assert message.system_properties.body_encoding == definition.IDENTITY


def test_a_gzip_body_arrives_as_its_content(broker: BrokerUnderTest) -> None:
    """Sent and received by clients of RocketMQ 5; one of RocketMQ 4 inflates it itself."""
    sent(broker, outgoing(gzip.compress(CONTENT), body_encoding=definition.GZIP))
    assert read(only(broker)).body == CONTENT
    (stored,) = broker.messages(TOPIC)
    assert zlib.decompress(stored.body) == CONTENT


def test_a_body_that_is_too_long_to_inflate_is_left_to_the_client(broker: BrokerUnderTest) -> None:
    """It is what RocketMQ's proxy does with all of them."""
    body = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    sent_by_4(broker, body, ZLIB)
    message = read(only(broker))
    assert message.body == body
    assert message.system_properties.body_encoding == definition.GZIP


@pytest.mark.parametrize("sys_flag", [LZ4, UNKNOWN])
def test_a_body_that_cannot_be_inflated_is_received_as_it_is(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, sys_flag: int
) -> None:
    """A client that is told of GZIP would lose all messages of the call with it."""
    sent_by_4(broker, COMPRESS[LZ4](CONTENT), LZ4)
    record = only(broker)
    without_the_extra(monkeypatch)
    other = Record(record.head._replace(sys_flag=sys_flag), record.buffer)
    message = read(other)
    assert message.body == record.body
    assert message.system_properties.body_encoding == definition.IDENTITY


def test_a_gzip_body_in_a_store_of_rocketmq_5_is_gzip(broker: BrokerUnderTest) -> None:
    """Its proxy stores what its clients send."""
    sent_by_4(broker, zlib.compress(CONTENT), ZLIB)
    record = only(broker)
    body = gzip.compress(CONTENT)
    head = record.head._replace(body_position=0, body_end=len(body))
    message = read(Record(head, body))
    assert (message.body, message.system_properties.body_encoding) == (body, definition.GZIP)


def test_long_and_compressed_bodies_are_work_for_another_thread(broker: BrokerUnderTest) -> None:
    """A digest of 4 MiB takes 7 ms, and inflating them 15."""
    sent_by_4(broker, COMPRESS[ZLIB](CONTENT), ZLIB)
    sent_by_4(broker, CONTENT)
    compressed, plain = records(broker, TOPIC)
    assert takes_long_to_read(compressed)
    assert not takes_long_to_read(plain)
    head = plain.head
    long = head._replace(body_end=head.body_position + messages.LONG_BODY_BYTES + 1)
    assert takes_long_to_read(Record(long, plain.buffer))

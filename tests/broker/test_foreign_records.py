"""Records that no client of ours can send: RocketMQ, or an older broker, has written them.

A store keeps them, and they go on: from the schedule to their topic, through every retry to
the dead letters, and back by a redrive.  A property that nothing has to change keeps every
byte, also one that is no UTF-8, that is there twice, or that is no pair at all.
"""

from __future__ import annotations

from typing import Final

import pytest

from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.message import (
    DELAY,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRED,
    REAL_QID,
    REAL_TOPIC,
    REDRIVE_PROPERTIES,
    REDRIVEN_MESSAGE_ID,
    RESCHEDULED_FROM,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    UNIQ_KEY,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, create_topic, save_group, send_back
from tests.support.pending import by_filter, deliver_all
from tests.support.redrives import redrive
from tests.support.stores import new_record

RETRY: Final = retry_topic(GROUP)
DLQ: Final = dlq_topic(GROUP)
OWN: Final = (
    b"note\x01\xff\xfe\x80abc",
    b"na\xefve\x01caf\xe9",
    b"KEYS\x01k-1 k-\xe9",
    b"twice\x01a",
    b"no value\x01",
    b"\x01no key",
    b"no pair",
    b"",
    b"TAGS\x01T\xe4g",
    b"twice\x01\xff",
    b"\xed\xa0\x80\x01surrogate",
    b"two\x01ends\x01here",
)
"""What RocketMQ lets a producer write, or has itself left behind."""
MESSAGE_ID: Final = b"id-\xff"
BROKERS: Final = frozenset(
    [each.encode() for each in (RESERVED_PROPERTIES | REDRIVE_PROPERTIES) - {"KEYS", "TAGS"}]
)


def foreign(topic: str = TOPIC, level: int = 0, body: bytes = b"x") -> NewRecord:
    """A record as it lies in a store; with a level it waits for its delivery to the topic."""
    own = [*OWN, b"UNIQ_KEY\x01" + MESSAGE_ID]
    if level:
        own += [f"{DELAY}\x01{level}".encode(), f"{REAL_TOPIC}\x01{topic}".encode()]
        own += [f"{REAL_QID}\x010".encode()]
        topic = SCHEDULE_TOPIC
    queue_id = level - 1 if level else 0
    return new_record(body, topic, queue_id, properties=b"\x02".join(own))


def stored(broker: BrokerUnderTest, record: NewRecord) -> None:
    """The record is in the store, and everything was written down and read again."""
    create_topic(broker, TOPIC)
    broker.store.append([record])
    broker.restart()


def property_strings(broker: BrokerUnderTest, topic: str) -> list[bytes]:
    """Those of all records of a topic, in the order of the log."""
    walk = broker.store.walk(broker.store.min_offset)
    return [each.properties.encoded for each in walk if each.head.topic == topic]


def users(properties: bytes) -> list[bytes]:
    """The parts of a property string that the broker never writes."""
    parts = properties.split(b"\x02")
    return [each for each in parts if each.partition(b"\x01")[0] not in BROKERS or each == b""]


def pairs_of(properties: bytes) -> dict[bytes, bytes]:
    """Every pair with a key and a value; the last one of a key."""
    parts = [part.partition(b"\x01") for part in properties.split(b"\x02")]
    return {name: value for name, _, value in parts if name and value}


def the_only(broker: BrokerUnderTest, topic: str) -> dict[bytes, bytes]:
    """The pairs of the only record of a topic, which has all that it had before."""
    (properties,) = property_strings(broker, topic)
    assert users(properties) == list(OWN)
    return pairs_of(properties)


def test_a_delivery_keeps_every_byte(under_test: BrokerUnderTest) -> None:
    """The property string is the same; only header, topic and queue change."""
    record = foreign(level=2)
    stored(under_test, record)
    deliver_all(under_test)
    assert property_strings(under_test, TOPIC) == [record.properties.encoded]


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_message_that_fails_to_the_end_keeps_every_byte(
    under_test: BrokerUnderTest, limit: int
) -> None:
    """Each retry, delivered or waiting, and the dead letter at the limit; also after a crash."""
    save_group(under_test, max_reconsume_times=limit)
    stored(under_test, foreign())
    (message,) = under_test.messages(TOPIC)
    for failure in range(limit):
        assert not send_back(under_test, message, reason="b\xf6se").is_dead
        under_test.crash()
        under_test.open()
        deliver_all(under_test)
        waited = property_strings(under_test, SCHEDULE_TOPIC)[failure]
        retried = property_strings(under_test, RETRY)[failure]
        assert retried == waited
        assert users(waited) == list(OWN)
        message = under_test.messages(RETRY)[-1]
    assert send_back(under_test, message, reason="b\xf6se").is_dead
    pairs = the_only(under_test, DLQ)
    assert pairs[UNIQ_KEY.encode()] == MESSAGE_ID
    assert pairs[FAILURE_REASON.encode()] == b"b\xc3\xb6se"
    assert pairs[DLQ_ORIGIN_TOPIC.encode()] == pairs[RETRY_TOPIC.encode()] == TOPIC.encode()


def test_a_dead_letter_at_once_keeps_every_byte(under_test: BrokerUnderTest) -> None:
    """Level -1, and a reason that a property may not hold."""
    stored(under_test, foreign())
    (message,) = under_test.messages(TOPIC)
    assert send_back(under_test, message, delay_level=-1, reason="a\x01b\x02\ud800").is_dead
    assert the_only(under_test, DLQ)[FAILURE_REASON.encode()] == b"a b ?"


def test_an_undeliverable_message_keeps_every_byte(under_test: BrokerUnderTest) -> None:
    """Its topic is gone; the dead letter says which it was."""
    under_test.store.append([foreign("gone", level=1)])
    under_test.restart()
    deliver_all(under_test)
    pairs = the_only(under_test, UNDELIVERABLE_TOPIC)
    assert pairs[DLQ_ORIGIN_TOPIC.encode()] == b"gone"
    assert pairs[UNIQ_KEY.encode()] == MESSAGE_ID


def test_a_rescheduled_message_keeps_every_byte(under_test: BrokerUnderTest) -> None:
    """While it waits anew, and when it is delivered."""
    stored(under_test, foreign(level=2))
    assert by_filter(under_test, ScheduleAction.RESCHEDULE, delay_level=3) == 1
    deliver_all(under_test)
    pairs = the_only(under_test, TOPIC)
    assert (pairs[DELAY.encode()], pairs[RESCHEDULED_FROM.encode()]) == (b"3", b"2")


def test_a_fired_message_keeps_every_byte(under_test: BrokerUnderTest) -> None:
    """Its deliver time is said in one more property."""
    stored(under_test, foreign(level=4))
    assert by_filter(under_test, ScheduleAction.FIRE) == 1
    assert FIRED.encode() in the_only(under_test, TOPIC)


def test_a_cancellation_names_the_message_byte_by_byte(under_test: BrokerUnderTest) -> None:
    """Somebody looks for that id."""
    stored(under_test, foreign(level=4))
    assert by_filter(under_test, ScheduleAction.CANCEL) == 1
    (properties,) = property_strings(under_test, CANCELLED_TOPIC)
    assert pairs_of(properties) == {
        b"UNIQ_KEY": MESSAGE_ID,
        b"REAL_TOPIC": TOPIC.encode(),
        b"REAL_QID": b"0",
        b"DELAY": b"4",
    }


@pytest.mark.parametrize("level", [0, 2])
def test_a_redriven_letter_keeps_every_byte_of_its_producer(
    under_test: BrokerUnderTest, level: int
) -> None:
    """At once or after a delay; and it names the id that its producer knows."""
    stored(under_test, foreign())
    (message,) = under_test.messages(TOPIC)
    send_back(under_test, message, delay_level=-1)
    assert redrive(under_test, to_topic="again", delay_level=level).sent == 1
    deliver_all(under_test)
    pairs = the_only(under_test, "again")
    assert pairs[REDRIVEN_MESSAGE_ID.encode()] == MESSAGE_ID
    assert RETRY_TOPIC.encode() not in pairs


def test_a_reader_is_given_text(under_test: BrokerUnderTest) -> None:
    """What is no UTF-8 is shown as U+FFFD to whoever asks for text; the record stays."""
    stored(under_test, foreign())
    (message,) = under_test.messages(TOPIC)
    assert message.properties["note"] == "\ufffd\ufffd\ufffdabc"
    assert message.properties["twice"] == "\ufffd"
    assert message.message_id == "id-\ufffd"


def test_a_kept_message_without_a_body_goes_through_every_retry_to_the_dead_letters(
    under_test: BrokerUnderTest,
) -> None:
    """Brokers before 0.6 took such messages; what was accepted is never lost."""
    save_group(under_test, max_reconsume_times=2)
    stored(under_test, foreign(level=2, body=b""))
    assert by_filter(under_test, ScheduleAction.RESCHEDULE, delay_level=1) == 1
    deliver_all(under_test)
    (message,) = under_test.messages(TOPIC)
    for _ in range(2):
        assert not send_back(under_test, message).is_dead
        deliver_all(under_test)
        message = under_test.messages(RETRY)[-1]
    assert send_back(under_test, message).is_dead
    (letter,) = under_test.messages(DLQ)
    assert (letter.body, letter.reconsume_times) == (b"", 3)
    assert len(under_test.messages(RETRY)) == 2

"""A store whose log files are shorter than the largest message: what fits, and what becomes of
what RocketMQ wrote there and does not fit into a file once more."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkRequest
from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByFilter, PendingFilter
from rmqlite.features.finding.finding import message_at
from rmqlite.kernel.admission import Room
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.drafts import LEFT_BEHIND
from rmqlite.kernel.records.record import OVERHEAD_BYTES
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    UNIQ_KEY,
    Message,
    encode_properties,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, bodies, create_topic, level_status, send_back
from tests.support.redrives import redrive, redriven_messages
from tests.support.sends import BORN_HOST, sending
from tests.support.steps import done
from tests.support.stores import new_record

LOG_FILE_BYTES = 1 << 18
BODY_BYTES_MAX = LOG_FILE_BYTES - 65_544
LONGEST = "t" * 127
RULE = f"at most {BODY_BYTES_MAX} bytes in a store whose log files have {LOG_FILE_BYTES} bytes"
ROOM = Room(LOG_FILE_BYTES, 4 << 20)


@pytest.fixture
def small(make: Make) -> BrokerUnderTest:
    """As RocketMQ may have begun it: maxMessageSize is 4 MiB, the log files are shorter."""
    return make(mapped_file_size_commit_log=LOG_FILE_BYTES, max_message_bytes=4 << 20)


def put(broker: BrokerUnderTest, topic: str, record_bytes: int, **properties: str) -> int:
    """A record of that length, as RocketMQ wrote it; where it lies."""
    encoded = encode_properties({UNIQ_KEY: "large", **properties})
    body = bytes(record_bytes - OVERHEAD_BYTES - len(topic) - len(encoded))
    queue_id = int(properties[DELAY]) - 1 if topic == SCHEDULE_TOPIC else 0
    (at,) = broker.store.append([new_record(body, topic, queue_id, properties=encoded)])
    if topic == SCHEDULE_TOPIC:
        broker.broker.wait_queues.notice(queue_id + 1, at.queue_offset, at.due_ms)
    broker.sync()
    return at.physical_offset


def wait(broker: BrokerUnderTest, record_bytes: int, topic: str = LONGEST) -> int:
    """A record of that length that waits at level 1 for a topic."""
    create_topic(broker, topic)
    destination = {REAL_TOPIC: topic, REAL_QID: "0"}
    return put(broker, SCHEDULE_TOPIC, record_bytes, **{DELAY: "1"}, **destination)


# ---- what is sent


def test_a_message_that_does_not_fit_is_refused_with_the_rule(small: BrokerUnderTest) -> None:
    """All or none of a call; the route tells the limit."""
    fitting, larger = (
        Message(TOPIC, bytes(BODY_BYTES_MAX)),
        Message(TOPIC, bytes(BODY_BYTES_MAX + 1)),
    )
    before = small.store.end
    with pytest.raises(MessageTooLarge) as caught:
        done(sending(small.broker, (Message(TOPIC, b"x"), larger)))
    error = caught.value
    assert (error.field, error.value, error.rule) == ("body", str(BODY_BYTES_MAX + 1), RULE)
    assert small.store.end == before
    small.send(fitting)
    assert small.broker.route(RouteRequest(TOPIC)).max_message_bytes == BODY_BYTES_MAX


def test_of_a_bulk_call_only_the_message_that_does_not_fit_is_refused(
    small: BrokerUnderTest,
) -> None:
    """The others are stored."""
    answer = done(
        small.broker[Bulk].schedule(
            BulkRequest(
                bodies=(b"one", bytes(BODY_BYTES_MAX + 1), b"three"),
                message_ids=("1", "2", "3"),
                topics=(TOPIC,),
                delay_levels=(1,),
            ),
            BORN_HOST,
        )
    )
    small.sync()
    assert answer.accepted == 2
    (refused,) = answer.refused
    assert (refused.position, refused.refusal.rule) == (1, RULE)


def test_maxMessageSize_is_named_where_it_is_the_limit(make: Make) -> None:
    """The rule says what one can change."""
    broker = make(max_message_bytes=1_000)
    with pytest.raises(MessageTooLarge) as caught:
        done(sending(broker.broker, (Message(TOPIC, bytes(1_001)),)))
    assert caught.value.rule == "at most 1000 bytes (maxMessageSize)"


@pytest.mark.parametrize("topic", [TOPIC, LONGEST])
def test_the_largest_message_has_room_for_a_whole_life(small: BrokerUnderTest, topic: str) -> None:
    """Delayed, delivered, failed, retried, dead and redriven, with properties of any length."""
    body = b"x" * BODY_BYTES_MAX
    note = "n" * 29_900
    small.send(Message(topic, body, delay_level=1, properties={"note": note}))
    small.clock.forward(1_000)
    assert small.deliver() == 1
    (message,) = small.messages(topic)
    for _ in range(2):
        assert send_back(small, message, reason="r" * 1_024).topic != dlq_topic(GROUP)
        small.clock.forward(3_600_000)
        small.deliver()
        message = small.messages(f"%RETRY%{GROUP}")[-1]
        assert message.body == body
        assert message.properties["note"] == note
    assert send_back(small, message, delay_level=-1, reason="r").topic == dlq_topic(GROUP)
    (letter,) = small.messages(dlq_topic(GROUP))
    assert letter.body == body
    assert letter.properties[FAILURE_REASON] == "r"
    assert redrive(small).sent == 1
    (redriven,) = redriven_messages(small)
    assert (redriven.topic, redriven.body) == (f"%RETRY%{GROUP}", body)
    assert redriven.properties[RETRY_TOPIC] == topic


# ---- what is there already


def test_a_scheduled_message_that_fits_exactly_is_delivered(small: BrokerUnderTest) -> None:
    """Its topic's name is no longer than the schedule's."""
    wait(small, ROOM.record_bytes_max, TOPIC)
    small.clock.forward(1_000)
    assert small.deliver() == 1
    assert len(small.messages(TOPIC)) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_scheduled_message_that_does_not_fit_holds_up_nobody(
    small: BrokerUnderTest, again: bool
) -> None:
    """Its topic's name is the longer one: it is a dead letter that says where the body is."""
    offset = wait(small, ROOM.record_bytes_max)
    small.send(Message(TOPIC, b"behind", delay_level=1))
    if again:
        small.crash()
        small.open()
    small.clock.forward(1_000)
    assert small.deliver() == 1
    assert bodies(small) == ["behind"]
    (letter,) = small.messages(UNDELIVERABLE_TOPIC)
    assert letter.body == LEFT_BEHIND.encode()
    assert letter.properties[FAILURE_REASON].startswith("its record would have ")
    assert f"a log file of {LOG_FILE_BYTES} has room for" in letter.properties[FAILURE_REASON]
    origin = message_at(small.broker.parts, letter.properties[DLQ_ORIGIN_MESSAGE_ID]).message
    assert origin.physical_offset == offset
    assert level_status(small, 1).pending == 0
    small.restart()
    small.clock.forward(10_000)
    assert small.deliver() == 0


def test_a_dead_letter_spares_its_story_before_its_body(small: BrokerUnderTest) -> None:
    """There is room for the message, and not for the reason."""
    wait(small, ROOM.record_bytes_max - 20)
    small.clock.forward(1_000)
    small.deliver()
    (letter,) = small.messages(UNDELIVERABLE_TOPIC)
    assert not letter.body.strip(b"\0")
    assert FAILURE_REASON not in letter.properties
    assert letter.properties[REAL_TOPIC] == LONGEST


def test_a_failed_message_that_does_not_fit_is_a_dead_letter(small: BrokerUnderTest) -> None:
    """The consumer's answer is accepted, and its queue goes on; the body stays where it was."""
    create_topic(small, TOPIC)
    offset = put(small, TOPIC, ROOM.record_bytes_max)
    (message,) = small.messages(TOPIC)
    assert send_back(small, message, reason="boom").topic == dlq_topic(GROUP)
    (letter,) = small.messages(dlq_topic(GROUP))
    assert letter.body == LEFT_BEHIND.encode()
    assert letter.properties[FAILURE_REASON] == LEFT_BEHIND
    origin = message_at(small.broker.parts, letter.properties[ORIGIN_MESSAGE_ID]).message
    assert origin.physical_offset == offset
    job = redrive(small)
    assert (job.sent, job.refused) == (0, 1)
    assert job.samples[0].why == LEFT_BEHIND


def test_a_failed_message_with_room_for_itself_alone_keeps_its_body(
    small: BrokerUnderTest,
) -> None:
    """As a dead letter with its own properties and its origin topic, as when these are too long."""
    create_topic(small, TOPIC)
    put(small, TOPIC, ROOM.record_bytes_max - 40)
    (message,) = small.messages(TOPIC)
    assert send_back(small, message, reason="boom").topic == dlq_topic(GROUP)
    (letter,) = small.messages(dlq_topic(GROUP))
    assert letter.body == message.body
    assert letter.properties[DLQ_ORIGIN_TOPIC] == TOPIC
    assert FAILURE_REASON not in letter.properties


def test_a_letter_that_does_not_fit_is_refused_by_a_redrive(small: BrokerUnderTest) -> None:
    """The job goes on with the others."""
    create_topic(small, TOPIC)
    create_topic(small, dlq_topic(GROUP), 1)
    put(small, dlq_topic(GROUP), ROOM.record_bytes_max, RETRY_TOPIC=TOPIC)
    put(small, dlq_topic(GROUP), 500, RETRY_TOPIC=TOPIC)
    job = redrive(small)
    assert (job.sent, job.refused) == (1, 1)
    assert job.samples[0].why.startswith("its record would have ")


@pytest.mark.parametrize("action", [ScheduleAction.FIRE, ScheduleAction.RESCHEDULE])
def test_a_change_that_does_not_fit_is_refused_and_the_message_waits_on(
    small: BrokerUnderTest, action: ScheduleAction
) -> None:
    """It is delivered when it is due."""
    wait(small, ROOM.record_bytes_max, TOPIC)
    change: dict[str, Any] = {"delay_level": 2} if action is ScheduleAction.RESCHEDULE else {}
    with pytest.raises(MessageTooLarge, match="leave no room for"):
        done(small.broker[Changes].by_filter(ChangeByFilter(action, PendingFilter(), **change)))
    assert level_status(small, 1).pending == 1
    small.clock.forward(1_000)
    assert small.deliver() == 1


def test_room_is_what_the_log_takes(small: BrokerUnderTest) -> None:
    """Exactly: a byte more is refused by the log itself."""
    create_topic(small, TOPIC)
    put(small, TOPIC, ROOM.record_bytes_max)
    with pytest.raises(MessageTooLarge, match=f"at most {ROOM.record_bytes_max} bytes as a record"):
        put(small, TOPIC, ROOM.record_bytes_max + 1)
    assert ROOM.record_bytes_max > BODY_BYTES_MAX + OVERHEAD_BYTES + 127 + PROPERTIES_BYTES_MAX


def test_properties_that_are_too_long_cost_no_body(make: Make) -> None:
    """Where the log files have room, a foreign property string is cut, and the body stays."""
    broker = make()
    properties = encode_properties({DELAY: "1", REAL_TOPIC: "gone", REAL_QID: "0"})
    properties += b"\x02note\x01" + b"n" * PROPERTIES_BYTES_MAX
    new = new_record(b"kept", SCHEDULE_TOPIC, 0, properties=properties)
    (at,) = broker.store.append([new])
    broker.broker.wait_queues.notice(1, at.queue_offset, at.due_ms)
    broker.sync()
    broker.clock.forward(1_000)
    broker.deliver()
    (letter,) = broker.messages(UNDELIVERABLE_TOPIC)
    assert letter.body == b"kept"
    assert letter.properties[REAL_TOPIC] == "gone"
    assert "note" not in letter.properties

"""A message that always fails: 17 deliveries, 34 records, one dead letter (reference G9, B.2)."""

from __future__ import annotations

import pytest

from rmqlite.kernel.requests.messages import SendBackResult
from rmqlite.kernel.words.message import (
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    RETRY_TOPIC,
    UNIQ_KEY,
    Message,
    StoredMessage,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TABLES_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, plain, send_back

RETRY = retry_topic(GROUP)
DLQ = dlq_topic(GROUP)


def log_records(broker: BrokerUnderTest) -> list[StoredMessage]:
    """Every record of the log but those of tables, in order."""
    found = [each.to_message() for each in broker.store.walk(0)]
    return [each for each in found if each.topic != TABLES_TOPIC]


def fail_until_dead(broker: BrokerUnderTest, message: StoredMessage) -> list[SendBackResult]:
    answers: list[SendBackResult] = []
    while not (answers and answers[-1].is_dead):
        answers.append(send_back(broker, message, reason=f"attempt {len(answers) + 1}"))
        if not answers[-1].is_dead:
            broker.clock.forward(answers[-1].deliver_at_ms - broker.clock.now_ms())
            assert broker.deliver() == 1
            message = broker.messages(RETRY)[-1]
            assert message.reconsume_times == len(answers)
    return answers


def the_order(broker: BrokerUnderTest) -> StoredMessage:
    """The third message of queue 2."""
    message = Message(TOPIC, b"order", "T", "key", {"colour": "red"}, message_id="ID")
    broker.send(plain("a"), plain("b"), queue_id=2)
    broker.send(message, queue_id=2)
    return broker.messages(TOPIC, 2)[2]


@pytest.mark.parametrize("how", ["in one life", "crashing"])
def test_a_message_fails_seventeen_times_and_is_dead(under_test: BrokerUnderTest, how: str) -> None:
    """Sixteen retries at levels 3 to 18, then the DLQ; a crash in between changes nothing."""
    (result,) = under_test.send(plain("order"))
    started_ms = under_test.clock.now_ms()
    message = under_test.messages(TOPIC)[0]
    for attempt in range(1, 17):
        answer = send_back(under_test, message)
        assert (answer.reconsume_times, answer.delay_level) == (attempt, attempt + 2)
        if how == "crashing":
            under_test.crash()
            under_test.open()
        under_test.clock.forward(answer.deliver_at_ms - under_test.clock.now_ms())
        assert under_test.deliver() == 1
        message = under_test.messages(RETRY)[-1]
        assert message.reconsume_times == attempt
    assert under_test.clock.now_ms() == started_ms + 17_140_000
    last = send_back(under_test, message)
    assert (last.topic, last.reconsume_times, last.is_dead) == (DLQ, 17, True)
    records = log_records(under_test)
    assert len(records) == 34
    hops = [(r.topic, r.queue_id + 1) for r in records if r.topic == SCHEDULE_TOPIC]
    assert hops == [(SCHEDULE_TOPIC, level) for level in range(3, 19)]
    assert [r.topic for r in records[2:33:2]] == [RETRY] * 16
    assert {r.body for r in records} == {b"order"}
    assert {r.properties[UNIQ_KEY] for r in records} == {result.message_id}


def test_a_dead_letter_says_what_happened(under_test: BrokerUnderTest) -> None:
    """Whoever reads the DLQ needs nothing else."""
    origin = the_order(under_test)
    first_ms = under_test.clock.now_ms()
    answers = fail_until_dead(under_test, origin)
    (dead,) = under_test.messages(DLQ)
    assert (dead.queue_id, dead.reconsume_times, len(answers)) == (0, 17, 17)
    expected = {
        RETRY_TOPIC: TOPIC,
        ORIGIN_MESSAGE_ID: origin.offset_message_id,
        DLQ_ORIGIN_TOPIC: TOPIC,
        DLQ_ORIGIN_MESSAGE_ID: origin.offset_message_id,
        ORIGIN_QUEUE_ID: "2",
        ORIGIN_QUEUE_OFFSET: "2",
        FIRST_FAILURE_TIMESTAMP: str(first_ms),
        LAST_FAILURE_TIMESTAMP: str(first_ms + 17_140_000),
        FAILURE_REASON: "attempt 17",
        DELIVERY_ATTEMPTS: "17",
        DELAY: "0",
        UNIQ_KEY: "ID",
        "colour": "red",
    }
    assert {name: dead.properties.get(name) for name in expected} == expected
    assert (dead.tags, dead.keys, dead.body) == ("T", ("key",), b"order")
    assert dead.born_timestamp_ms == origin.born_timestamp_ms
    assert dead.prepared_transaction_offset == 0


def test_a_raised_limit_goes_on_at_the_last_level(under_test: BrokerUnderTest) -> None:
    """Retries beyond the sixteenth are all at level 18."""
    message = the_order(under_test)
    levels = []
    for _ in range(20):
        answer = send_back(under_test, message, max_reconsume_times=100)
        levels.append(answer.delay_level)
        under_test.clock.forward(answer.deliver_at_ms - under_test.clock.now_ms())
        under_test.deliver()
        message = under_test.messages(RETRY)[-1]
    assert levels == [*range(3, 19), 18, 18, 18, 18]
    assert message.reconsume_times == 20


def test_a_retry_is_consumed_like_any_other_message(under_test: BrokerUnderTest) -> None:
    """Success after a failure leaves nothing behind: three records, no dead letter."""
    send_back(under_test, the_order(under_test))
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert len(log_records(under_test)) == 2 + 3
    assert under_test.broker.topics.get(DLQ) is None

"""What a group fails of timers: their retries, dead letters, redrives and imports wait no more."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.changes.requests import ChangeOutcome
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import ImportedDeadLetter, ImportRequest
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.message import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    Message,
    StoredMessage,
    encode_properties,
)
from rmqlite.kernel.words.names import TIMER_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, create_topic, send_back
from tests.support.pending import CANCEL, counts, everything, forward_to, outcome, waiting
from tests.support.redrives import GROUP, redrive, redriven_messages
from tests.support.restarts import WAYS, Restart
from tests.support.timers import send_timer

RETRY, DLQ = retry_topic(GROUP), dlq_topic(GROUP)
DAY_MS = 86_400_000
ASKED: list[dict[str, Any]] = [
    {TIMER_DELIVER_MS: 1_700_000_000_000 + DAY_MS},
    {TIMER_DELAY_MS: DAY_MS},
    {TIMER_DELAY_SEC: DAY_MS // 1_000},
]


def delivered(broker: BrokerUnderTest, asked: dict[str, Any]) -> StoredMessage:
    """A timer of a day, as a consumer gets it."""
    create_topic(broker, TOPIC)
    send_timer(broker, "a", **asked, TAGS="tag", KEYS="k", colour="red")
    broker.clock.forward(DAY_MS)
    assert broker.deliver() == 1
    (message,) = everything(broker, TOPIC)
    return message


def is_no_timer(message: StoredMessage) -> bool:
    """Nothing of the first wait is left, and all that the sender gave is."""
    assert (message.tags, message.keys, message.body) == ("tag", ("k",), b"a")
    assert message.properties["colour"] == "red"
    return not message.properties.keys() & TIMER_PROPERTIES


@pytest.mark.one_of(2)
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked)))
@pytest.mark.parametrize("restart", [None, *WAYS])
def test_retries_of_a_timer_wait_at_levels(
    under_test: BrokerUnderTest, asked: dict[str, Any], restart: Restart | None
) -> None:
    """The level of each attempt, not the day of the timer once more; also after a restart."""
    message = delivered(under_test, asked)
    for times, (level, delay_ms) in enumerate(((3, 10_000), (4, 30_000), (5, 60_000)), 1):
        due_ms = under_test.clock.now_ms() + delay_ms
        answer = send_back(under_test, message, group=GROUP)
        assert (answer.delay_level, answer.reconsume_times) == (level, times)
        if restart:
            restart(under_test)
        (one,) = waiting(under_test)
        assert (one.level, one.deliver_at_ms, one.topic) == (level, due_ms, RETRY)
        assert is_no_timer(under_test.store.read_message(one.physical_offset))
        forward_to(under_test, due_ms - 1)
        assert not under_test.deliver()
        forward_to(under_test, due_ms)
        assert under_test.deliver() == 1
        message = everything(under_test, RETRY)[-1]
        assert is_no_timer(message)
    assert (TIMERS, TOPIC) not in counts(under_test)
    assert outcome(under_test, CANCEL, "a", topic=TOPIC) is ChangeOutcome.ALREADY_DELIVERED


@pytest.mark.parametrize("to_group", [True, False])
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked)))
def test_a_dead_timer_is_redriven_at_once(
    under_test: BrokerUnderTest, asked: dict[str, Any], to_group: bool
) -> None:
    """Back to its group, or to its topic; who fixed the fault does not wait a day for it."""
    send_back(under_test, delivered(under_test, asked), group=GROUP, delay_level=-1)
    (letter,) = under_test.messages(DLQ)
    assert is_no_timer(letter)
    end = under_test.store.end
    assert redrive(under_test, to_group=to_group).sent == 1
    (message,) = redriven_messages(under_test)
    assert message.topic == (RETRY if to_group else TOPIC)
    assert message.physical_offset >= end
    assert is_no_timer(message)
    assert waiting(under_test) == []


@pytest.mark.parametrize("to_topic", ["", TOPIC])
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked)))
def test_an_imported_letter_of_a_timer_is_sent_at_once(
    under_test: BrokerUnderTest, asked: dict[str, Any], to_topic: str
) -> None:
    """Also one of RocketMQ, whose dead letters keep the properties of the timer."""
    send_back(under_test, delivered(under_test, asked), group=GROUP, delay_level=-1)
    (letter,) = under_test.messages(DLQ)
    left = asked | {TIMER_OUT_MS: 1_700_000_000_000 + 3 * DAY_MS, TIMER_EXACT: 1}
    properties = {**letter.properties} | {name: str(value) for name, value in left.items()}
    of_rocketmq = ImportedDeadLetter(
        0, 7, "", letter.store_timestamp_ms, encode_properties(properties), letter.body
    )
    ours = ImportedDeadLetter(
        letter.queue_id,
        letter.queue_offset,
        letter.offset_message_id,
        letter.store_timestamp_ms,
        encode_properties(letter.properties),
        letter.body,
    )
    request = ImportRequest(GROUP, (ours, of_rocketmq), to_topic=to_topic)
    assert under_test.broker[Redrive].imports.run(request).topics[0].count == 2
    under_test.sync()
    messages = list(redriven_messages(under_test))
    assert [each.topic for each in messages] == [to_topic or RETRY] * 2
    assert all(map(is_no_timer, messages))
    assert waiting(under_test) == []
    assert len(under_test.messages(TIMER_TOPIC)) == 1
    again = send_back(under_test, messages[-1], group=GROUP)
    assert again.delay_level == 3


def test_a_forwarded_timer_is_sent_at_once_if_its_instant_is_past(
    under_test: BrokerUnderTest,
) -> None:
    """Who sends a received message on with its own properties names a new instant, or none."""
    message = delivered(under_test, ASKED[0])
    kept = {"TIMER_DELIVER_MS": message.properties[TIMER_DELIVER_MS]}
    send_timer(under_test, "b", **kept)
    assert sorted(each.body for each in everything(under_test, TOPIC)) == [b"a", b"b"]
    under_test.send(Message(TOPIC, b"c", deliver_at=int(kept["TIMER_DELIVER_MS"])))
    assert len(everything(under_test, TOPIC)) == 3

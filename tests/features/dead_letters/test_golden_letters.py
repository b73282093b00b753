"""What RocketMQ 4.9.8 itself has retried and given up, read from its own stores."""

from __future__ import annotations

from pathlib import Path

from rmqlite.features.dead_letters.requests import DeadLetterFilter, EventKind, Purged
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import GROUP, INDEX, Row, rows
from tests.support.letters import dead_letters, groups, kinds, life, purge, reasons, retries
from tests.support.pending import deliver_all, named

DLQ, RETRY = f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"


def of_topic(golden: Path, topic: str) -> list[Row]:
    found = [row for row in rows(golden) if row["topic"] == topic]
    return sorted(found, key=lambda row: int(row["queueOffset"]))


def test_its_dead_letters_are_listed(broker: BrokerUnderTest, golden: Path) -> None:
    """It gives no reason, and no time of a failure but that of the letter."""
    wanted = of_topic(golden, DLQ)
    found = dead_letters(broker, group=GROUP)
    assert [each.message_id for each in found] == [row["properties"]["UNIQ_KEY"] for row in wanted]
    for each, row in zip(found, wanted, strict=True):
        own = row["properties"]
        assert each.origin_topic == own["RETRY_TOPIC"] == "orders"
        assert each.origin_message_id == own["ORIGIN_MESSAGE_ID"]
        assert (each.origin_queue_id, each.origin_queue_offset) == (-1, -1)
        assert (each.tags, " ".join(each.keys)) == (own["TAGS"], own["KEYS"])
        assert each.delivery_attempts == row["reconsumeTimes"] == 1
        assert each.first_failure_ms == each.last_failure_ms == each.store_timestamp_ms
        assert each.reason == ""
        by_key = DeadLetterFilter(key=each.keys[0], tag=each.tags, topic="orders")
        assert dead_letters(broker, by_key, GROUP) == [each]
        by_id = DeadLetterFilter(ids=(each.offset_message_id,))
        assert dead_letters(broker, by_id, "") == [each]
        by_time = DeadLetterFilter(since_ms=each.store_timestamp_ms)
        assert dead_letters(broker, by_time, GROUP)[0] == each
    (mine,) = groups(broker).values()
    assert (mine.group, mine.letters, mine.open) == (GROUP, len(wanted), len(wanted))
    assert reasons(broker, GROUP) == {"(no reason)": len(wanted)}


def test_its_dead_letters_are_purged(broker: BrokerUnderTest) -> None:
    """The files that it will read again stay as they are."""
    count = len(dead_letters(broker, group=GROUP))
    assert purge(broker, GROUP) == Purged(count, count)
    broker.crash()
    broker.open()
    assert dead_letters(broker, group=GROUP) == []
    assert purge(broker, GROUP, restore=True) == Purged(count, count)


def test_its_retries_are_listed(broker: BrokerUnderTest) -> None:
    """What the group has not consumed, and what still waits."""
    broker.broker.offsets._offsets.pop(GROUP, None)
    lying = [
        each for each in retries(broker, group=GROUP) if each.due_ms <= each.store_timestamp_ms
    ]
    assert [each.queue_offset for each in lying] == list(range(len(lying)))
    assert len(lying) == len(broker.messages(RETRY))
    assert {each.origin_topic for each in lying} == {"orders"}
    assert {each.delivery_attempts for each in lying} == {1, 2}


def test_a_life_in_rocketmq_is_told(broker: BrokerUnderTest, golden: Path) -> None:
    """Its deliveries complete nothing, and its letters say only where they came from."""
    for row in of_topic(golden, DLQ):
        assert kinds(broker, row["properties"]["UNIQ_KEY"]) == ["sent", "dead"]
    retry = of_topic(golden, RETRY)[0]
    told = life(broker, retry["properties"]["UNIQ_KEY"])
    assert [hop.kind for hop in told.events[:3]] == [
        *(EventKind.SENT, EventKind.FAILED, EventKind.RETRIED),
    ]
    assert [hop.attempt for hop in told.events[:3]] == [0, 1, 1]
    (delivered, *_) = of_topic(golden, "reminders")
    assert kinds(broker, delivered["properties"]["UNIQ_KEY"]) == ["scheduled", "delivered"]


def test_a_life_that_begins_in_rocketmq_goes_on_here(broker: BrokerUnderTest) -> None:
    """Its store opens, and what waited there comes."""
    broker.send(named("m1", 1))
    deliver_all(broker)
    assert kinds(broker, "m1") == ["scheduled", "delivered"]
    letter = dead_letters(broker, group=GROUP)[0]
    assert kinds(broker, letter.origin_message_id)[-1] == "dead"
    assert INDEX

"""Letters read from their queues: in bulk, from either end, matched by what their records say."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.dead_letters import reading
from rmqlite.features.dead_letters.reading import (
    check_filter,
    described,
    fits,
    slices,
    whole_slices,
)
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.finding.finding import message_at
from rmqlite.features.finding.matching import reason_of
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.record import Head, read_outline
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, received, send_back
from tests.support.stores import new_record

DLQ = dlq_topic(GROUP)


def dead(broker: BrokerUnderTest, body: bytes = b"order", reason: str = "", **more: Any) -> None:
    message = received(broker, body=body, **more)
    send_back(broker, message, delay_level=-1, reason=reason)


def queue_of(broker: BrokerUnderTest, topic: str = DLQ) -> ConsumeQueue:
    queue = broker.store.queue(topic, 0)
    assert queue is not None
    return queue


def heads(broker: BrokerUnderTest, topic: str = DLQ) -> list[Head]:
    queue = queue_of(broker, topic)
    found = []
    for entry in queue.read(0, 1 << 30):
        head = read_outline(broker.store.read, entry.physical_offset, entry.size)
        assert head is not None
        found.append(head)
    return found


def put(
    broker: BrokerUnderTest, properties: dict[str, str], topic: str = DLQ, reconsume_times: int = 0
) -> Head:
    """A record put into a dead-letter topic by hand, as any writer could."""
    record = new_record("letter", topic, properties=properties, reconsume_times=reconsume_times)
    broker.store.append([record])
    broker.sync()
    return heads(broker, topic)[-1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("slice_max", [1, 3, 10])
@pytest.mark.parametrize(("begin", "end"), [(0, 7), (2, 5), (3, 3), (6, 100)])
def test_both_ways_through_a_queue_meet_the_same_letters(
    under_test: BrokerUnderTest, slice_max: int, begin: int, end: int, monkeypatch: Any
) -> None:
    """With bodies and without, small ones and one that is not read as a whole."""
    monkeypatch.setattr(reading, "SLICE_MAX", slice_max)
    bodies = [b"%d" % n * (20_000 if n == 4 else 1) for n in range(7)]
    for body in bodies:
        dead(under_test, body)
    store, queue = under_test.store, queue_of(under_test)
    up = list(slices(store, queue, begin, end))
    down = list(slices(store, queue, begin, end, newest_first=True))
    assert all(1 <= len(each) <= slice_max for each in up + down)
    seen = [each for part in up for each in part]
    assert [each.queue_offset for each in seen] == list(range(begin, min(end, 7)))
    places = [(each.queue_offset, each.head and each.head.physical_offset) for each in seen]
    back = [
        (each.queue_offset, each.head and each.head.physical_offset) for p in down for each in p
    ]
    assert back == places[::-1]
    sizes = [each.head.body_end - each.head.body_position for each in seen if each.head]
    assert sizes == [len(body) for body in bodies[begin:end]]
    found = []
    for part in whole_slices(store, queue, begin, end):
        for _, walked in part:
            assert walked is not None
            found.append(walked.buffer[walked.head.body_position : walked.head.body_end])
    assert found == bodies[begin:end]


@pytest.mark.parametrize("bytes_max", [1, 1_000, 25_000])
def test_a_slice_reads_a_bounded_number_of_bytes(
    under_test: BrokerUnderTest, bytes_max: int, monkeypatch: Any
) -> None:
    """One letter at least: a larger one than that is read, too."""
    monkeypatch.setattr(reading, "SLICE_BYTES_MAX", bytes_max)
    for _ in range(6):
        dead(under_test, bytes(5_000))
    store, queue = under_test.store, queue_of(under_test)
    for sizes in (
        [len(part) for part in slices(store, queue, 0, 6)],
        [len(part) for part in whole_slices(store, queue, 0, 6)],
    ):
        assert sizes == ([4, 2] if bytes_max == 25_000 else [1] * 6)


@pytest.mark.parametrize(
    ("wanted", "is_one"),
    [
        ({}, True),
        ({"topic": TOPIC}, True),
        ({"topic": "bills"}, False),
        ({"tag": "Paid"}, True),
        ({"tag": "Pai"}, False),
        ({"key": "k2"}, True),
        ({"key": "k"}, False),
        ({"ids": ("m1",)}, True),
        ({"ids": ("m",)}, False),
        ({"ids": ("m", "m1", "n" * 32)}, True),
        ({"ids": (f"{GROUP}:0:0",)}, True),
        ({"ids": (f"{DLQ}:0:0",)}, True),
        ({"ids": (f"{GROUP}:0:1", f"{GROUP}:1:0", "other:0:0", f"%RETRY%{GROUP}:0:0")}, False),
        ({"ids": ("\ud800",)}, False),
        ({"failure_kind": "Keine Straße # weit"}, True),
        ({"failure_kind": "Keine Straße"}, False),
        ({"reason": "straße # weit"}, True),
        ({"reason": "(no reason)"}, False),
        ({"job_id": "job-1"}, False),
        ({"reason": "STRASSE"}, True),
        ({"reason": "no such"}, False),
        ({"since_ms": 1, "until_ms": 2}, False),
        ({"topic": TOPIC, "tag": "Paid", "key": "k1", "reason": "straße", "until_ms": 1 << 50}, 1),
        ({"topic": TOPIC, "tag": "Paid", "key": "k3"}, False),
        ({"key": "\ud800"}, False),
    ],
)
def test_a_letter_fits_if_it_fits_every_field(
    under_test: BrokerUnderTest, wanted: dict[str, Any], is_one: bool
) -> None:
    """A key and a tag as a whole, a reason in part and in any case."""
    dead(
        under_test,
        tags="Paid",
        keys=("k1", "k2"),
        message_id="m1",
        reason="Keine Straße 7 weit\nat x.py",
    )
    (head,) = heads(under_test)
    assert fits(head, DeadLetterFilter(**wanted)) == bool(is_one)


def test_a_letter_is_found_by_the_id_of_its_own_record(under_test: BrokerUnderTest) -> None:
    """As RocketMQ's tools name it; in either case."""
    dead(under_test)
    dead(under_test)
    first, second = heads(under_test)
    message_id = described(first).offset_message_id
    for asked in (message_id, message_id.lower()):
        assert fits(first, DeadLetterFilter(ids=(asked,)))
        assert not fits(second, DeadLetterFilter(ids=(asked,)))


def test_the_time_is_that_of_the_last_failure(under_test: BrokerUnderTest) -> None:
    """The end is not in it; a letter that does not say so failed when it was stored."""
    failed_ms = under_test.clock.now_ms() - 5_000
    said = put(under_test, {"LAST_FAILURE_TIMESTAMP": str(failed_ms)})
    silent = put(under_test, {"TAGS": "a"})
    assert fits(said, DeadLetterFilter(since_ms=failed_ms, until_ms=failed_ms + 1))
    assert not fits(said, DeadLetterFilter(until_ms=failed_ms))
    assert not fits(said, DeadLetterFilter(since_ms=failed_ms + 1))
    assert fits(silent, DeadLetterFilter(since_ms=silent.store_timestamp_ms))
    assert not fits(silent, DeadLetterFilter(until_ms=silent.store_timestamp_ms))


def test_rocketmq_takes_along_when_a_message_failed_here(under_test: BrokerUnderTest) -> None:
    """A failure that it counted was later; the reason is the last one that anybody gave."""
    failed_ms = under_test.clock.now_ms() - 5_000
    told = {
        "DELIVERY_ATTEMPTS": "3",
        "FIRST_FAILURE_TIMESTAMP": str(failed_ms - 1),
        "LAST_FAILURE_TIMESTAMP": str(failed_ms),
        "FAILURE_REASON": "timeout",
    }
    ours, its = [put(under_test, told, reconsume_times=failures) for failures in (3, 5)]
    assert described(ours).last_failure_ms == failed_ms
    letter = described(its)
    assert letter.last_failure_ms == its.store_timestamp_ms
    assert (letter.first_failure_ms, letter.delivery_attempts) == (failed_ms - 1, 5)
    assert letter.reason == "timeout"
    assert fits(its, DeadLetterFilter(since_ms=its.store_timestamp_ms, reason="time"))
    assert (reason_of(ours), reason_of(its)) == ("timeout", "")
    undelivered = put(under_test, told, UNDELIVERABLE_TOPIC, 5)
    assert described(undelivered).last_failure_ms == failed_ms
    assert reason_of(undelivered) == "timeout"


@pytest.mark.parametrize("text", ["-1", "1e3", "9" * 19, "9" * 400, "\u0661", "abc"])
def test_a_number_that_is_none_counts_as_missing(under_test: BrokerUnderTest, text: str) -> None:
    """Anybody can write a property; the wire has 64 bits for a time, 32 for a count."""
    names = (
        "FIRST_FAILURE_TIMESTAMP LAST_FAILURE_TIMESTAMP DELIVERY_ATTEMPTS ORIGIN_QUEUE_ID"
        " ORIGIN_QUEUE_OFFSET REDRIVEN_TIMES"
    )
    head = put(under_test, dict.fromkeys(names.split(), text))
    letter = described(head)
    assert letter.first_failure_ms == letter.last_failure_ms == head.store_timestamp_ms
    assert (letter.origin_queue_id, letter.origin_queue_offset) == (-1, -1)
    assert (letter.delivery_attempts, letter.redriven_before) == (0, 0)
    assert described(put(under_test, {"ORIGIN_QUEUE_ID": str(2**31)})).origin_queue_id == -1


@pytest.mark.parametrize(
    ("topic", "properties", "origin"),
    [
        (DLQ, {"DLQ_ORIGIN_TOPIC": "a", "RETRY_TOPIC": "b", "REAL_TOPIC": "c"}, "a"),
        (DLQ, {"RETRY_TOPIC": "b", "REAL_TOPIC": "%RETRY%shop"}, "b"),
        (DLQ, {"REAL_TOPIC": "%RETRY%shop"}, ""),
        (UNDELIVERABLE_TOPIC, {"REAL_TOPIC": "c"}, "c"),
        (UNDELIVERABLE_TOPIC, {"DLQ_ORIGIN_TOPIC": "a", "REAL_TOPIC": "c"}, "a"),
        (UNDELIVERABLE_TOPIC, {}, ""),
        ("%RETRY%shop", {"RETRY_TOPIC": "b", "DLQ_ORIGIN_TOPIC": "a"}, "b"),
        ("%RETRY%shop", {"RETRY_TOPIC": "b", "DLQ_ORIGIN_TOPIC": "%RETRY%shop"}, "%RETRY%shop"),
        ("%RETRY%shop", {}, ""),
        (SCHEDULE_TOPIC, {"REAL_TOPIC": "%RETRY%shop", "RETRY_TOPIC": "b"}, "b"),
        (SCHEDULE_TOPIC, {"REAL_TOPIC": "c", "RETRY_TOPIC": "b"}, "c"),
        ("c", {"RETRY_TOPIC": "b", "DLQ_ORIGIN_TOPIC": "a"}, "c"),
    ],
)
def test_where_a_letter_was_sent_first(
    under_test: BrokerUnderTest, topic: str, properties: dict[str, str], origin: str
) -> None:
    """Ours say it by RocketMQ 5's name, RocketMQ 4 in RETRY_TOPIC, the schedule in REAL_TOPIC."""
    head = put(under_test, properties, topic)
    assert described(head).origin_topic == origin
    assert fits(head, DeadLetterFilter(topic="no-such")) is False


def test_a_letter_is_described_as_it_died(under_test: BrokerUnderTest) -> None:
    """Everything a person asks first."""
    message = received(under_test, tags="Paid", keys=("k1", "k2"), message_id="m1")
    send_back(under_test, message, reason="the first\x1b[2J")
    under_test.clock.forward(10_000)
    under_test.deliver()
    (retry,) = under_test.messages(f"%RETRY%{GROUP}")
    send_back(under_test, retry, delay_level=-1, reason="the last")
    (head,) = heads(under_test)
    letter = described(head, redriven_by="job-1")
    assert (letter.group, letter.topic, letter.queue_id, letter.queue_offset) == (GROUP, DLQ, 0, 0)
    assert (letter.origin_topic, letter.origin_queue_id) == (TOPIC, message.queue_id)
    assert letter.origin_queue_offset == message.queue_offset
    assert letter.origin_message_id == message.offset_message_id
    assert (letter.message_id, letter.tags, letter.keys) == ("m1", "Paid", ("k1", "k2"))
    assert (letter.delivery_attempts, letter.reason, letter.body_size) == (2, "the last", 5)
    assert letter.last_failure_ms - letter.first_failure_ms == 10_000
    assert letter.last_failure_ms == under_test.clock.now_ms()
    assert (letter.redriven_by, letter.redriven_before, letter.due_ms) == ("job-1", 0, 0)
    assert broker_has(under_test, letter.offset_message_id)


def broker_has(broker: BrokerUnderTest, offset_message_id: str) -> bool:
    return message_at(broker.broker.parts, offset_message_id).message.topic == DLQ


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("key", DeadLetterFilter(key="a b")),
        ("until_ms", DeadLetterFilter(since_ms=5, until_ms=5)),
        ("reason", DeadLetterFilter(reason="x" * 1_025)),
        ("ids", DeadLetterFilter(ids=("x",) * 101)),
        ("ids", DeadLetterFilter(ids=("x", ""))),
        ("ids", DeadLetterFilter(ids=("x" * 20_000, "y" * 20_000))),
        ("failure_kind", DeadLetterFilter(failure_kind="x" * 201)),
        ("failure_kind", DeadLetterFilter(failure_kind="order 17")),
        ("job_id", DeadLetterFilter(job_id="x" * 300)),
    ],
)
def test_a_filter_that_nothing_can_fit_is_refused(field: str, wanted: DeadLetterFilter) -> None:
    """It says what is wrong, instead of finding nothing."""
    with pytest.raises(InvalidValue) as raised:
        check_filter(wanted)
    assert raised.value.field == field

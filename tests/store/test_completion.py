"""What ends the wait of a scheduled record, and what is pending, whatever became of the tables."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.records.completion import (
    UNDELIVERABLE_TOPIC,
    Completion,
    completed_queue,
    completion_of,
    topic_ahead,
    waited_for,
)
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import NewRecord, Written, read_head
from rmqlite.kernel.words.message import (
    DELAY,
    FIRED,
    REAL_QID,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    encode_properties,
    find_property,
    property_marker,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, SCHEDULE_TOPIC
from rmqlite.kernel.words.property_string import PropertyString
from tests.support.stores import StoreUnderTest, new_record

PREPARED, COMMITTED, ROLLBACK = 0x4, 0x8, 0xC
AHEAD = {REAL_TOPIC: "orders", REAL_QID: "0"}
TOPICS = ("orders", "bills", "")


@pytest.fixture
def under_test(tmp_path: Path) -> StoreUnderTest:
    return StoreUnderTest(tmp_path / "store")


def level_completed_by(topic: str, completes: int, sys_flag: int, properties: Any) -> int:
    """Of a record as it lies in the log."""
    new = new_record("x", topic, properties=properties, completes=completes, sys_flag=sys_flag)
    data = encode(new, queue_offset=0, physical_offset=0, store_timestamp_ms=1)
    head = read_head(data)
    assert head is not None
    return completed_queue(head, PropertyString(head.properties))


# ---- the table


@pytest.mark.parametrize(
    ("topic", "properties", "what", "ahead"),
    [
        ("orders", {DELAY: "2", **AHEAD}, Completion.DELIVERED, "orders"),
        ("orders", {DELAY: "2", **AHEAD, FIRED: "99"}, Completion.FIRED, "orders"),
        (
            SCHEDULE_TOPIC,
            {DELAY: "5", RESCHEDULED_FROM: "2", **AHEAD},
            Completion.RESCHEDULED,
            "orders",
        ),
        (CANCELLED_TOPIC, {DELAY: "2", **AHEAD}, Completion.CANCELLED, "orders"),
        (UNDELIVERABLE_TOPIC, {DELAY: "2", **AHEAD}, Completion.UNDELIVERABLE, "orders"),
        (UNDELIVERABLE_TOPIC, {DELAY: "2"}, Completion.UNDELIVERABLE, ""),
    ],
)
def test_what_a_record_has_completed_is_told_by_where_it_lies(
    topic: str, properties: dict[str, str], what: Completion, ahead: str
) -> None:
    """The table of the module, line by line: what, of which level, going where."""
    encoded = PropertyString(encode_properties(properties))
    assert completion_of(topic, encoded) is what
    assert level_completed_by(topic, 1_000, 0, properties) == 2
    assert waited_for(topic, encoded) == ahead
    assert level_completed_by(topic, 0, 0, properties) == 0


def test_only_a_delivery_must_not_be_early() -> None:
    """What somebody asked for comes when it is asked for."""
    early = {each for each in Completion if each.may_be_early}
    assert {Completion.FIRED, Completion.CANCELLED, Completion.RESCHEDULED} <= early
    assert Completion.DELIVERED not in early


@pytest.mark.parametrize(
    ("topic", "sys_flag", "properties", "level"),
    [
        # RocketMQ's own: a half message, what it commits, what it rolls back.
        ("RMQ_SYS_TRANS_HALF_TOPIC", PREPARED, {DELAY: "2"}, 0),
        ("orders", COMMITTED, {}, 0),
        ("orders", ROLLBACK, {DELAY: "2"}, 0),
        # What it commits with a delay waits, and completes nothing.
        (SCHEDULE_TOPIC, COMMITTED, {DELAY: "2", **AHEAD}, 0),
        # That message, delivered, fired, cancelled, rescheduled by us.
        ("orders", COMMITTED, {DELAY: "2", **AHEAD}, 2),
        (SCHEDULE_TOPIC, COMMITTED, {DELAY: "5", RESCHEDULED_FROM: "2", **AHEAD}, 2),
        (CANCELLED_TOPIC, 0, {DELAY: "2", **AHEAD}, 2),
        # Numbers that are none.
        ("orders", 0, {DELAY: "-2"}, 0),
        ("orders", 0, {DELAY: "two"}, 0),
        ("orders", 0, {}, 0),
    ],
)
def test_rocketmqs_transactions_are_not_taken_for_completions(
    topic: str, sys_flag: int, properties: dict[str, str], level: int
) -> None:
    """They use the same field of the header, for where their half message begins."""
    assert level_completed_by(topic, 1_000, sys_flag, properties) == level


def test_a_committed_message_completes_nothing_after_a_crash(under_test: StoreUnderTest) -> None:
    """Though its pointer is, by accident, where a scheduled record ends."""
    (waits,) = under_test.append(waiting(2, "orders"))
    end = waits.physical_offset + waits.size
    under_test.append(new_record("committed", sys_flag=COMMITTED, completes=end))
    under_test.append(
        new_record(
            *("committed", SCHEDULE_TOPIC, 2),
            sys_flag=COMMITTED,
            completes=end,
            properties={DELAY: "3", **AHEAD},
        )
    )
    for _ in range(2):
        under_test.crash()
        under_test.open()
        assert under_test.store.progress.delay_offsets() == {}
        assert_counts(under_test)


# ---- what is pending


def waiting(level: int, topic: str) -> NewRecord:
    """A scheduled record; one without a topic does not say where it goes."""
    properties = {DELAY: str(level)}
    if topic:
        properties |= {REAL_TOPIC: topic, REAL_QID: "0"}
    return new_record("later", SCHEDULE_TOPIC, level - 1, properties=properties)


def end_wait(under_test: StoreUnderTest, level: int, each: Written, topic: str, how: int) -> None:
    """Complete a scheduled record in one of five ways, as a broker does."""
    scheduled = under_test.store.read_message(each.physical_offset, each.size)
    properties = dict(scheduled.properties)
    place, queue_id = (topic or UNDELIVERABLE_TOPIC), 0
    if how == 1 and topic:
        properties[FIRED] = "1"
    elif how == 2:
        place = CANCELLED_TOPIC
    elif how == 3:
        place = UNDELIVERABLE_TOPIC
    elif how == 4:
        properties |= {DELAY: "3", RESCHEDULED_FROM: str(level)}
        place, queue_id = SCHEDULE_TOPIC, 2
    end = each.physical_offset + each.size
    under_test.append(new_record("later", place, queue_id, properties=properties, completes=end))
    progress = under_test.store.progress
    progress.complete(level, each.queue_offset, each.queue_offset + 1, {topic: 1})


def busy(under_test: StoreUnderTest, *, persist_at: int = 20) -> None:
    """Two levels, three topics, every kind of end, in and out of turn; persisted in between."""
    written = []
    for number in range(40):
        level, topic = 1 + number % 2, TOPICS[number % 3]
        (at,) = under_test.append(waiting(level, topic))
        written.append((level, at, topic))
        under_test.clock.forward(10_000)
        if number % 4 == 3:
            end_wait(under_test, *written.pop(number % 5), number // 4 % 5)
        if number == persist_at:
            under_test.persist()
    under_test.sync()


def truth(under_test: StoreUnderTest) -> dict[int, Counter[str]]:
    """By level and topic, from the records themselves."""
    store, found = under_test.store, dict[int, Counter[str]]()
    for topic, queue_id in store.queue_keys():
        queue = store.queue(topic, queue_id)
        if topic != SCHEDULE_TOPIC or queue is None:
            continue
        completed = store.progress.of(queue_id + 1)
        for at, entry in enumerate(queue.read(queue.min_offset, 1 << 30), queue.min_offset):
            if completed.next_open(at) == at:
                record = store.read(entry.physical_offset, entry.size)
                head = read_head(record)
                assert head is not None
                found.setdefault(queue_id + 1, Counter())[
                    topic_ahead(PropertyString(head.properties))
                ] += 1
    return found


def assert_counts(under_test: StoreUnderTest) -> None:
    """What the store says is pending is what is pending, and its checker is content."""
    pending = under_test.store.progress.pending
    assert {level: counts for level, counts in pending.items() if counts} == truth(under_test)
    for level, counts in pending.items():
        queue = under_test.store.queue(SCHEDULE_TOPIC, level - 1)
        completed = under_test.store.progress.of(level)
        assert queue is not None
        waits = queue.max_offset - completed.below - completed.count_above
        assert sum(counts.values()) == waits


def test_counts_are_right_while_it_runs(under_test: StoreUnderTest) -> None:
    """After every kind of end, and the store is sound."""
    busy(under_test)
    assert_counts(under_test)
    assert sum(sum(each.values()) for each in truth(under_test).values()) > 20
    under_test.close()
    assert under_test.findings() == []
    under_test.open()


def progress_tables(under_test: StoreUnderTest) -> list[Path]:
    return list((under_test.root / "config").glob("storeProgress.json*"))


def nothing(_: StoreUnderTest) -> None:
    """Leave all as it is."""


def without_progress(under_test: StoreUnderTest) -> None:
    for path in progress_tables(under_test):
        path.unlink()


def with_damaged_progress(under_test: StoreUnderTest) -> None:
    for path in progress_tables(under_test):
        path.write_text("{")


def of_an_older_rmqlite(under_test: StoreUnderTest) -> None:
    """Its table knows what is completed, and has no counts."""
    for path in progress_tables(under_test):
        tree = under_test.table(path.name)
        tree.pop("pending", None)
        under_test.write_table(path.name, tree)


def with_wrong_counts(under_test: StoreUnderTest) -> None:
    for path in progress_tables(under_test):
        tree = under_test.table(path.name)
        tree["pending"] = {"1": {"orders": 1}, "2": {"x": 100}}
        under_test.write_table(path.name, tree)


def with_counts_that_are_none(under_test: StoreUnderTest) -> None:
    for path in progress_tables(under_test):
        tree = under_test.table(path.name)
        tree["pending"] = {"1": ["orders"]}
        under_test.write_table(path.name, tree)


def without_queues(under_test: StoreUnderTest) -> None:
    shutil.rmtree(under_test.root / "consumequeue")


def after_rocketmq(under_test: StoreUnderTest) -> None:
    """It has delivered some, and said so only in its own table."""
    offsets = {level: under_test.store.progress.of(level).below + 3 for level in (1, 2)}
    under_test.write_table("delayOffset.json", {"offsetTable": offsets})


SPOILT: list[Callable[[StoreUnderTest], None]] = [
    nothing,
    without_progress,
    with_damaged_progress,
    of_an_older_rmqlite,
    with_wrong_counts,
    with_counts_that_are_none,
    without_queues,
    after_rocketmq,
]


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("is_clean", [True, False])
def test_counts_are_right_whatever_became_of_the_tables(
    under_test: StoreUnderTest, spoil: Callable[[StoreUnderTest], None], is_clean: bool
) -> None:
    """After a clean stop and a crash, twice, and going on in between."""
    busy(under_test)
    for _ in range(2):
        under_test.close() if is_clean else under_test.crash()
        spoil(under_test)
        under_test.open()
        assert_counts(under_test)
        for topic in TOPICS:
            under_test.append(waiting(2, topic))
        under_test.sync()
        assert_counts(under_test)


def test_counts_do_not_count_what_retention_has_taken(tmp_path: Path) -> None:
    """With the log's first files went what was scheduled there."""
    under_test = StoreUnderTest(tmp_path / "store")
    busy(under_test)
    under_test.persist()
    second = under_test.store.min_offset + 2 * under_test.log_file_bytes
    assert under_test.store.drop_before(second)
    under_test.close()
    for spoil in (nothing, without_progress):
        spoil(under_test)
        under_test.open()
        assert_counts(under_test)
        under_test.close()
    under_test.open()


def test_counts_are_not_counted_anew_when_they_are_right(
    under_test: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """A million pending messages must not be read at every start."""
    busy(under_test)
    caplog.set_level("INFO")
    under_test.restart()
    under_test.crash()
    under_test.open()
    assert not [each for each in caplog.messages if "counted anew" in each]
    of_an_older_rmqlite(under_test)
    under_test.crash()
    under_test.open()
    assert [each for each in caplog.messages if "counted anew" in each]


def test_a_fired_record_bears_the_time_that_it_would_have_had() -> None:
    """And only its own mark counts, not one inside of another value."""
    sneaky = encode_properties({DELAY: "2", **AHEAD, "note": "FIRED=1"})
    assert find_property(sneaky, property_marker(FIRED)) is None
    assert completion_of("orders", PropertyString(sneaky)) is Completion.DELIVERED

"""What a stream reads next, with queues that grow, appear, expire and begin anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidName, InvalidValue, OffsetGone
from rmqlite.spark.arrow.partitions import StorePlace
from rmqlite.spark.options import parse_options
from rmqlite.spark.stream.plan import Offsets, Queue, Ranges, StreamPlan

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


class FakeRanges:
    """Queues as a test says."""

    def __init__(self, **ranges: tuple[int, int]) -> None:
        """Such as a0=(3, 10)."""
        self.found: Ranges = {}
        self.published: list[tuple[str, Offsets]] = []
        self.failure: Exception | None = None
        self.place: StorePlace | None = None
        self.set(**ranges)

    def set(self, **ranges: tuple[int, int]) -> None:
        self.found |= {(name[0], int(name[1:])): each for name, each in ranges.items()}

    def ranges(self, *, is_new: bool) -> Ranges:
        del is_new
        return dict(self.found)

    def offsets_at(self, timestamp_ms: int, queues: Mapping[Queue, object]) -> Offsets:
        return {queue: self.found[queue][0] + timestamp_ms % 1_000 for queue in queues}

    def publish(self, group: str, offsets: Mapping[Queue, int]) -> None:
        if self.failure:
            raise self.failure
        self.published.append((group, dict(offsets)))

    def close(self) -> None:
        """Nothing is open."""


def plan_of(source: FakeRanges, **options: str) -> StreamPlan:
    where = {"endpoint": "127.0.0.1:1"} if "path" not in options else {}
    return StreamPlan(parse_options(where | options), source)


def ranges_in(plan: StreamPlan, start: Offsets, end: Offsets) -> list[tuple[Any, ...]]:
    return [tuple(each) for part in plan.slices(start, end) for each in part]


# ---- where it begins


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, {A0: 10, A1: 5}),
        ({"startingOffsets": "latest"}, {A0: 10, A1: 5}),
        ({"startingOffsets": "earliest"}, {A0: 3, A1: 5}),
        ({"startingOffsets": '{"a": {"0": 7}}'}, {A0: 7, A1: 5}),
        ({"startingOffsets": '{"a": {"0": -1, "1": -2}}'}, {A0: 10, A1: 5}),
        ({"startingOffsets": '{"a": {"7": -1}}'}, {A0: 3, A1: 5}),
        ({"startingTimestamp": "1763632800002"}, {A0: 5, A1: 7}),
    ],
)
def test_a_stream_begins_where_it_is_told(options: dict[str, str], begin: Offsets) -> None:
    """By default at the end, as Kafka's; a queue that never held a record has no offset."""
    assert plan_of(FakeRanges(a0=(3, 10), a1=(5, 5), b0=(0, 0)), **options).initial() == begin


def test_the_beginning_does_not_move() -> None:
    """Spark asks twice; what came in between would be lost."""
    source = FakeRanges(a0=(0, 10))
    plan = plan_of(source)
    assert plan.initial() == {A0: 10}
    source.set(a0=(0, 15))
    end = plan.latest(plan.initial(), None)
    assert ranges_in(plan, plan.initial(), end) == [("a", 0, 10, 15)]


def test_a_queue_that_is_not_read_cannot_be_begun() -> None:
    """It is more likely a slip than a wish."""
    with pytest.raises(InvalidValue, match="queue 0 of topic 'b'"):
        plan_of(FakeRanges(), topic="a", startingOffsets='{"b": {"0": 1}}').initial()


# ---- how far it goes


def test_nothing_new_is_the_same_offset() -> None:
    """Else Spark would make batches without rows for ever."""
    plan = plan_of(FakeRanges(a0=(0, 10), b0=(0, 0)))
    assert plan.latest({A0: 10}, None) == {A0: 10}
    assert plan.latest({A0: 10}, 5) == {A0: 10}
    assert plan.slices({A0: 10}, {A0: 10}) == []


def test_queues_and_topics_that_come_later_are_read_from_their_beginning() -> None:
    """What a stream does not name was not there before."""
    source = FakeRanges(a0=(0, 10))
    plan = plan_of(source)
    start = plan.initial()
    source.set(a1=(0, 2), b0=(0, 3))
    end = plan.latest(start, None)
    assert end == {A0: 10, A1: 2, B0: 3}
    assert ranges_in(plan, start, end) == [("a", 1, 0, 2), ("b", 0, 0, 3)]


def test_only_what_is_asked_for_is_read() -> None:
    """By topic, pattern and queue; looked up with every batch."""
    source = FakeRanges(a0=(0, 10), a1=(0, 4), b0=(0, 3))
    assert plan_of(source, topic="b").latest({}, None) == {B0: 3}
    assert plan_of(source, topicPattern="[a]*", queueIds="1").latest({}, None) == {A1: 4}


def test_a_topic_that_is_not_there_yet_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A dead-letter topic comes with the first dead letter; that it is missing is said."""
    source = FakeRanges(a0=(0, 10))
    plan = plan_of(source, topics="a,%DLQ%g")
    assert plan.initial() == {A0: 10}
    assert "no such topic yet, the stream waits for it topic=%DLQ%g" in caplog.text
    source.found["%DLQ%g", 0] = (0, 1)
    assert plan.latest({A0: 10}, None) == {A0: 10, ("%DLQ%g", 0): 1}


def test_a_batch_is_limited_and_everything_comes_in_the_end() -> None:
    """Batch after batch, each queue in each of them."""
    source = FakeRanges(a0=(0, 1_000), a1=(5, 40), b0=(0, 1))
    plan = plan_of(source, startingOffsets="earliest")
    at, read = plan.initial(), 0
    while (end := plan.latest(at, 100)) != at:
        parts = ranges_in(plan, at, end)
        rows = sum(each[3] - each[2] for each in parts)
        assert rows <= 100
        assert ("a", 0) in [each[:2] for each in parts]
        at, read = end, read + rows
    assert (at, read) == ({A0: 1_000, A1: 40, B0: 1}, 1_036)


def test_available_now_ends_where_the_queues_ended_at_its_start() -> None:
    """Also with a queue that came since, which the next run reads."""
    source = FakeRanges(a0=(0, 10))
    plan = plan_of(source, startingOffsets="earliest")
    plan.prepare_available_now()
    source.set(a0=(0, 99), a1=(0, 5))
    assert plan.latest(plan.initial(), 7) == {A0: 7, A1: 0}
    assert plan.latest({A0: 7, A1: 0}, 7) == {A0: 10, A1: 0}
    assert plan.latest({A0: 10}, 7) == {A0: 10}
    assert plan.latest({A0: 10}, None) == {A0: 10}


def test_a_batch_that_is_run_again_reads_the_same() -> None:
    """What came since is for the next one."""
    source = FakeRanges(a0=(0, 500), a1=(0, 500))
    plan = plan_of(source)
    again = ranges_in(plan, {A0: 7}, {A0: 20, A1: 3})
    assert again == [("a", 0, 7, 20), ("a", 1, 0, 3)]
    assert plan.latest({A0: 20, A1: 3}, None) == {A0: 500, A1: 500}


def test_partitions_are_as_few_as_rows_allow() -> None:
    """Options say how many rows make one, and how many there are at most."""
    source = FakeRanges(a0=(0, 500), a1=(0, 500))
    options = {"startingOffsets": "earliest", "rowsPerPartition": "100", "maxPartitions": "4"}
    plan = plan_of(source, **options)
    assert len(plan.slices({}, {A0: 500, A1: 500})) == 4
    assert len(plan.slices({}, {A0: 50, A1: 49})) == 1


def test_the_newest_offsets_are_those_last_seen() -> None:
    """Reporting them asks nobody."""
    source = FakeRanges(a0=(0, 10), b0=(0, 0))
    plan = plan_of(source)
    assert plan.newest is None
    plan.latest({}, 3)
    source.set(a0=(0, 20))
    assert plan.newest == {A0: 10}


# ---- what is lost


def test_records_that_expired_are_an_error() -> None:
    """With topic, queue, what was asked for and what is kept."""
    source = FakeRanges(a0=(8, 10), a1=(0, 3))
    plan = plan_of(source, startingOffsets="earliest")
    told = "queue 0 of topic 'a'.*: offset 5 is gone, the first one kept is 8"
    with pytest.raises(OffsetGone, match=told):
        plan.latest({A0: 5, A1: 1}, None)
    with pytest.raises(OffsetGone, match=told):
        plan.slices({A0: 5}, {A0: 9})


def test_records_that_expired_are_passed_over_if_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """The stream goes on at the first one that is kept, and says so."""
    plan = plan_of(FakeRanges(a0=(8, 20)), failOnDataLoss="false")
    assert plan.latest({A0: 5}, None) == {A0: 20}
    assert plan.latest({A0: 5}, 4) == {A0: 12}
    assert ranges_in(plan, {A0: 5}, {A0: 12}) == [("a", 0, 8, 12)]
    assert ranges_in(plan, {A0: 5}, {A0: 7}) == []
    assert "queue_offset=5 min_offset=8" in caplog.text


def test_a_new_queue_that_lost_its_beginning_is_an_error_too() -> None:
    """Its first records were never read."""
    source = FakeRanges(a0=(0, 10))
    plan = plan_of(source)
    start = plan.initial()
    source.set(b0=(4, 6))
    with pytest.raises(OffsetGone, match=r"queue 0 of topic 'b'.*offset 0 is gone"):
        plan.latest(start, None)


@pytest.mark.parametrize("ranges", [{"a0": (0, 5)}, {}])
def test_a_store_that_was_replaced_is_noticed(ranges: dict[str, tuple[int, int]]) -> None:
    """Else the stream would wait until the new one is as long, and miss all before."""
    plan = plan_of(FakeRanges(**ranges))
    with pytest.raises(
        InvalidValue, match=r"at most \d, not '\d+': queue 0 of topic 'a' ends there"
    ):
        plan.latest({A0: 23}, None)
    with pytest.raises(InvalidValue, match="the store is not the one"):
        plan.slices({A0: 20}, {A0: 23})


def test_a_store_that_was_replaced_is_read_from_its_beginning_if_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its records are all new."""
    plan = plan_of(FakeRanges(a0=(0, 5)), failOnDataLoss="false")
    assert plan.latest({A0: 23}, None) == {A0: 5}
    assert ranges_in(plan, {A0: 23}, {A0: 5}) == [("a", 0, 0, 5)]
    assert ranges_in(plan, {A0: 3}, {A0: 23}) == [("a", 0, 3, 5)]
    assert "queue_offset=23 max_offset=5" in caplog.text


def test_offsets_of_queues_that_are_no_more_asked_for_stay() -> None:
    """A filter may be narrowed with the same checkpoint, and widened again."""
    plan = plan_of(FakeRanges(a0=(0, 10), b0=(5, 9)), topic="a")
    assert plan.latest({A0: 4, B0: 2}, None) == {A0: 10, B0: 2}
    assert ranges_in(plan, {A0: 4, B0: 1}, {A0: 10, B0: 2}) == [("a", 0, 4, 10)]


def test_a_first_batch_from_a_moving_beginning_is_not_run_again_in_silence() -> None:
    """Where it began is known to nobody: rows would be missing."""
    plan = plan_of(FakeRanges(a0=(0, 57)))
    start = plan.initial()
    with pytest.raises(InvalidValue, match=r"startingOffsets.*read_stream"):
        plan.slices(start, {A0: 6})


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"a": {"0": 2}}'},
        {"startingTimestamp": "1763632800002"},
        {"startingOffsets": "earliest"},
    ],
)
def test_a_first_batch_from_a_known_beginning_is_run_again(options: dict[str, str]) -> None:
    """It reads what it read before."""
    plan = plan_of(FakeRanges(a0=(0, 57)), **options)
    start = plan.initial()
    assert ranges_in(plan, start, {A0: 6}) == [("a", 0, start[A0], 6)]


def test_a_moving_beginning_is_given_up_if_loss_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stream goes on, and says that rows may be missing."""
    plan = plan_of(FakeRanges(a0=(0, 57)), failOnDataLoss="false")
    assert ranges_in(plan, plan.initial(), plan.initial()) == []
    assert "startingOffsets=latest" in caplog.text


# ---- options and progress


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "1763632800005"}, "endingTimestamp"),
        ({"startingPhysicalOffset": "5"}, "startingPhysicalOffset"),
        ({"endingPhysicalOffset": "5"}, "endingPhysicalOffset"),
        ({"path": "/store", "group": "shop"}, "left out without endpoint"),
    ],
)
def test_options_that_a_stream_does_not_have_are_refused(
    options: dict[str, str], said: str
) -> None:
    """By name, before anything is read."""
    with pytest.raises(InvalidValue, match=said):
        plan_of(FakeRanges(), **options)


def test_a_group_needs_a_groups_name() -> None:
    """The broker would refuse it with every batch."""
    with pytest.raises(InvalidName):
        plan_of(FakeRanges(), group="not a group")


def test_progress_is_published_for_a_group() -> None:
    """But for the schedule's own queues, which no group reads."""
    source = FakeRanges()
    plan_of(source, group="shop").publish({A0: 3, ("SCHEDULE_TOPIC_XXXX", 2): 9})
    plan_of(source).publish({A0: 5})
    assert source.published == [("shop", {A0: 3})]


def test_progress_that_cannot_be_published_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It only shows how far the stream is; Spark's checkpoint knows."""
    source = FakeRanges()
    source.failure = BrokerUnreachable("no answer")
    with caplog.at_level(logging.WARNING):
        plan_of(source, group="shop").publish({A0: 3})
    assert "progress is not published group=shop: no answer" in caplog.text

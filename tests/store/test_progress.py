"""Completed queue offsets: ranges and a bitmap that behave as a set."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rmqlite.features.redrive.table_shapes import RedriveJobsTable
from rmqlite.kernel.config.table_shapes import CHUNK_OFFSETS, COMPLETED_SPAN_MAX, validated
from rmqlite.kernel.store.progress import RANGES_MAX, CompletedOffsets, ScheduleProgress
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.json_tree import WrongValue
from tests.support.thinned import part_of

RANGES = some.lists(
    some.tuples(some.integers(0, 40), some.integers(0, 6)).map(lambda each: (each[0], sum(each))),
    max_size=25,
)

END = 4 * CHUNK_OFFSETS
"""Beyond all that the tests of chunks add."""
NEAR_A_BORDER = some.builds(
    lambda chunk, near: max(0, chunk * CHUNK_OFFSETS + near),
    some.integers(0, 3),
    some.integers(-3, 3),
)
LENGTHS = some.one_of(
    some.integers(0, 5),
    some.sampled_from([CHUNK_OFFSETS - 1, CHUNK_OFFSETS, CHUNK_OFFSETS + 1]),
)
LARGE_RANGES = some.lists(
    some.tuples(NEAR_A_BORDER, LENGTHS).map(lambda each: (each[0], min(sum(each), END - 5))),
    max_size=12,
)


def plain_set(ranges: list[tuple[int, int]]) -> set[int]:
    return {n for start, end in ranges for n in range(start, end)}


def stored(completed: CompletedOffsets) -> CompletedOffsets:
    """Written to disk and read again."""
    tree = tables.decode(tables.encode({"completed": completed.to_json()}))
    return CompletedOffsets.from_json(tree["completed"])


@given(RANGES)
def test_ranges_are_the_set_of_what_was_added(added: list[tuple[int, int]]) -> None:
    """Against a plain set, after every addition."""
    completed = CompletedOffsets()
    plain: set[int] = set()
    for start, end in added:
        completed.add(start, end)
        plain |= set(range(start, end))
        below = next(n for n in range(60) if n not in plain)
        assert completed.below == below
        assert completed.count_above == len([n for n in plain if n > below])
        assert {n for a, b in completed.ranges() for n in range(a, b)} == plain


@given(RANGES, some.integers(0, 50), some.integers(0, 60))
def test_open_offsets_are_those_not_in_the_set(
    added: list[tuple[int, int]], queue_offset: int, end: int
) -> None:
    """What delivery asks: where to go on, and how far without a hole."""
    completed = CompletedOffsets(added)
    plain = {n for a, b in added for n in range(a, b)}
    following = next(n for n in range(queue_offset, 200) if n not in plain)
    assert completed.next_open(queue_offset) == following
    end = max(end, following)
    until = next((n for n in range(following, end) if n in plain), end)
    assert completed.open_until(following, end) == until


@given(RANGES)
def test_ranges_are_apart_and_make_the_same_set_again(added: list[tuple[int, int]]) -> None:
    """Neighbours are joined, so that the list stays short."""
    completed = CompletedOffsets(added)
    ranges = completed.ranges()
    assert all(a < b for a, b in ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    assert CompletedOffsets(ranges).ranges() == ranges


def test_progress_survives_the_way_to_disk_and_back() -> None:
    """Every level with its ranges."""
    progress = ScheduleProgress()
    progress.of(1).add(0, 7)
    progress.of(18).add(3, 5)
    progress.of(18).add(9, 10)
    tree = tables.decode(tables.encode({"completed": progress.to_json()}))
    assert ScheduleProgress.from_json(tree["completed"]).to_json() == progress.to_json()


def test_rocketmq_is_told_the_lowest_open_offset() -> None:
    """It knows one number per level, and would rather repeat than lose."""
    progress = ScheduleProgress()
    progress.of(2).add(0, 7)
    progress.of(2).add(9, 10)
    progress.of(3).add(1, 2)
    assert progress.delay_offsets() == {2: 7}


@given(LARGE_RANGES)
@settings(max_examples=part_of(120))
def test_the_borders_of_chunks_are_no_borders_of_the_set(added: list[tuple[int, int]]) -> None:
    """After every addition, where off by one would hide: next to multiples of 8,192."""
    completed = CompletedOffsets()
    plain: set[int] = set()
    for start, end in added:
        completed.add(start, end)
        plain |= set(range(start, end))
        below = next(n for n in range(END) if n not in plain)
        assert completed.below == below
        assert completed.count_above == sum(n > below for n in plain)
        assert plain_set(completed.ranges()) == plain


@given(LARGE_RANGES, NEAR_A_BORDER, NEAR_A_BORDER)
@settings(max_examples=part_of(120))
def test_what_is_asked_of_a_span_is_what_a_set_says(
    added: list[tuple[int, int]], start: int, end: int
) -> None:
    """Open ones and completed ones of a span make up all of it."""
    completed = CompletedOffsets(added)
    plain = plain_set(added)
    assert list(completed.open_between(start, end)) == [
        n for n in range(start, end) if n not in plain
    ]
    assert completed.count_between(start, end) == sum(n in plain for n in range(start, end))
    assert completed.open_flags(start, end) == bytes(n not in plain for n in range(start, end))
    following = next(n for n in range(start, END + 1) if n not in plain)
    assert completed.next_open(start) == following
    end = max(end, following)
    until = next((n for n in range(following, end) if n in plain), end)
    assert completed.open_until(following, end) == until


@given(LARGE_RANGES, LARGE_RANGES, some.booleans())
@settings(max_examples=part_of(100))
def test_a_set_goes_on_after_the_way_to_disk_and_back(
    added: list[tuple[int, int]], later: list[tuple[int, int]], has_many: bool
) -> None:
    """In both forms: few ranges, and the bitmap of very many."""
    completed = CompletedOffsets(added)
    plain = plain_set(added)
    if has_many:
        for n in range(1, 2 * RANGES_MAX + 4, 2):
            completed.add(n, n + 1)
            plain.add(n)
    again = stored(completed)
    assert isinstance(completed.to_json(), dict) == (len(completed.ranges()) > RANGES_MAX)
    assert (again.below, again.count_above) == (completed.below, completed.count_above)
    for start, end in later:
        again.add(start, end)
        plain |= set(range(start, end))
    assert plain_set(again.ranges()) == plain
    assert again.count_above == sum(n > again.below for n in plain)
    assert plain_set(stored(again).ranges()) == plain


@pytest.mark.parametrize(("count", "form"), [(RANGES_MAX, list), (RANGES_MAX + 1, dict)])
@pytest.mark.parametrize("begin", [0, 1])
def test_of_more_ranges_than_the_limit_the_table_holds_the_bitmap(
    count: int, form: type, begin: int
) -> None:
    """A million cancellations here and there must not make a table of megabytes."""
    ranges = [(begin + 2 * n, begin + 2 * n + 1) for n in range(count)]
    completed = CompletedOffsets(ranges)
    assert isinstance(completed.to_json(), form)
    assert stored(completed).ranges() == ranges


def test_the_table_has_a_bound_whatever_is_completed() -> None:
    """Every second one of very many: a bit for each, in hexadecimal digits."""
    completed = CompletedOffsets()
    for number in range(1, 200_000, 2):
        completed.add(number, number + 1)
    assert len(tables.encode({"completed": completed.to_json()})) < 200_000 / 4 + 10_000
    completed.add(0, 200_000)
    assert (completed.to_json(), completed.count_above) == ([(0, 200_000)], 0)


@pytest.mark.parametrize(
    "tree",
    [
        {"below": 0, "above": {"0": "z"}},
        {"below": 0, "above": {"0": "-1"}},
        {"below": 0, "above": {"0": "1" + "0" * (CHUNK_OFFSETS // 4)}},
        {"below": 0, "above": {"first": "1"}},
        {"below": "x", "above": {}},
        {"below": 0},
        {"above": {}},
        [[1]],
        [[0, 1, 2]],
        [[-1, 1]],
        [[0, 2**63]],
        [[5, COMPLETED_SPAN_MAX + 6]],
        [[0, 5], [7, COMPLETED_SPAN_MAX + 6]],
        {"below": 5, "above": {str(COMPLETED_SPAN_MAX // CHUNK_OFFSETS): "1"}},
        {"below": 5, "above": {"1" + "0" * 30: "1"}},
        ["ab"],
        3,
    ],
)
def test_what_is_no_set_is_refused(tree: Any) -> None:
    """The log knows better than a table that was touched."""
    with pytest.raises(WrongValue, match=r"earlier\.topic\.0"):
        validated(RedriveJobsTable, {"earlier": {"topic": {"0": tree}}})


def test_pending_counts_follow_what_is_scheduled_and_completed() -> None:
    """By level and topic; a topic for which nothing waits is not in the table."""
    progress = ScheduleProgress()
    for topic in ("orders", "orders", "bills", ""):
        progress.scheduled(2, topic)
    progress.scheduled(3, "orders")
    progress.complete(2, 1, 3, {"orders": 1, "bills": 1})
    assert progress.pending == {2: Counter({"orders": 1, "": 1}), 3: Counter({"orders": 1})}
    assert progress.of(2).ranges() == [(1, 3)]
    tree = tables.decode(
        tables.encode({"completed": progress.to_json(), "pending": progress.pending_now()})
    )
    again = ScheduleProgress.from_json(tree["completed"], tree["pending"])
    assert again.pending == progress.pending
    assert again.to_json() == progress.to_json()

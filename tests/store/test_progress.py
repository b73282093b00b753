"""Completed queue offsets: ranges that behave as a set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from rmqlite.store import tables
from rmqlite.store.progress import CompletedOffsets, ScheduleProgress

RANGES = some.lists(
    some.tuples(some.integers(0, 40), some.integers(0, 6)).map(lambda each: (each[0], sum(each))),
    max_size=25,
)


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
    progress.level(1).add(0, 7)
    progress.level(18).add(3, 5)
    progress.level(18).add(9, 10)
    tree = tables.decode(tables.encode({"completed": progress.to_json()}))
    assert ScheduleProgress.from_json(tree["completed"]).to_json() == progress.to_json()


def test_rocketmq_is_told_the_lowest_open_offset() -> None:
    """It knows one number per level, and would rather repeat than lose."""
    progress = ScheduleProgress()
    progress.level(2).add(0, 7)
    progress.level(2).add(9, 10)
    progress.level(3).add(1, 2)
    assert progress.delay_offsets() == {2: 7}

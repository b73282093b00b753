"""Offsets of a stream: always the same text, shared out fairly, packed on few partitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.partitions import QueueStretch, packed
from rmqlite.spark.options import to_spark
from rmqlite.spark.stream.plan import from_spark, limited

QUEUES = st.tuples(st.sampled_from(["a", "b", "%RETRY%g"]), st.integers(0, 12))
SIZES = st.dictionaries(QUEUES, st.integers(0, 5_000), max_size=20)


@given(SIZES)
def test_offsets_come_back_as_they_were(offsets: dict[tuple[str, int], int]) -> None:
    """Through Spark's JSON, too."""
    assert from_spark(json.loads(json.dumps(to_spark(offsets)))) == offsets


def test_the_same_offsets_are_the_same_text() -> None:
    """Spark compares text: another order would be a batch without rows."""
    one = to_spark({("b", 1): 3, ("a", 10): 1, ("a", 9): 2})
    other = to_spark({("a", 9): 2, ("b", 1): 3, ("a", 10): 1})
    assert json.dumps(one) == json.dumps(other) == '{"a": {"9": 2, "10": 1}, "b": {"1": 3}}'


@pytest.mark.parametrize("tree", [{"a": 3}, {"a": {"x": 3}}, {"a": {"0": None}}, {"a": {"0": "y"}}])
def test_offsets_of_another_source_are_refused(tree: Any) -> None:
    """A checkpoint belongs to one stream."""
    with pytest.raises(InvalidValue, match="checkpointLocation"):
        from_spark(tree)


@given(SIZES, st.integers(1, 20_000))
def test_a_batch_has_as_many_rows_as_it_may(
    sizes: dict[tuple[str, int], int], rows_max: int
) -> None:
    """Neither more than the limit nor, while there are some, fewer; and none that are not there."""
    shares = limited(sizes, rows_max)
    assert sum(shares.values()) == min(rows_max, sum(sizes.values()))
    assert all(0 < share <= sizes[queue] for queue, share in shares.items())


@given(SIZES, st.integers(20, 20_000))
def test_no_queue_waits_behind_another(sizes: dict[tuple[str, int], int], rows_max: int) -> None:
    """Each that has something is in every batch, if the limit is not below their number."""
    assert set(limited(sizes, rows_max)) == {queue for queue, size in sizes.items() if size}


def test_a_limit_is_shared_by_length() -> None:
    """So that all queues are read up at about the same time."""
    sizes = {("a", 0): 9_001, ("a", 1): 901, ("a", 2): 1, ("a", 3): 0}
    assert limited(sizes, 1_003) == {("a", 0): 911, ("a", 1): 91, ("a", 2): 1}
    assert limited(sizes, 2) == {("a", 0): 1, ("a", 1): 1}


def slices_of(*sizes: int) -> list[QueueStretch]:
    return [QueueStretch("a", number, 100, 100 + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "partitions"),
    [
        ((), []),
        ((0, 0), []),
        ((30,), [[(0, 100, 130)]]),
        ((3, 4, 5), [[(0, 100, 103), (1, 100, 104), (2, 100, 105)]]),
        ((150,), [[(0, 100, 175)], [(0, 175, 250)]]),
        ((60, 0, 60, 60), [[(0, 100, 160), (2, 100, 130)], [(2, 130, 160), (3, 100, 160)]]),
    ],
)
def test_few_partitions_are_made_of_many_queues(
    sizes: tuple[int, ...], partitions: list[list[tuple[int, int, int]]]
) -> None:
    """As many as rows make of them; a long queue is on several."""
    made = packed(slices_of(*sizes), partitions_max=8, rows=100)
    assert [[each[1:] for each in part] for part in made] == partitions


@given(st.lists(st.integers(0, 500), max_size=12), st.integers(1, 8), st.integers(1, 300))
def test_every_record_is_on_one_partition(sizes: list[int], most: int, rows: int) -> None:
    """None twice, none left out, and the partitions about as long."""
    made = packed(slices_of(*sizes), partitions_max=most, rows=rows)
    read = [
        (each.queue_id, offset)
        for part in made
        for each in part
        for offset in range(each.begin, each.end)
    ]
    wanted = [(n, 100 + at) for n, size in enumerate(sizes) for at in range(size)]
    assert sorted(read) == wanted
    assert len(made) <= most
    lengths = [sum(each.end - each.begin for each in part) for part in made]
    assert not lengths or max(lengths) - min(lengths) <= 1

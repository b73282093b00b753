"""Bodies in bulk: neighbours are read together, what lies between is not read for nothing."""

from __future__ import annotations

import dataclasses

import pytest

from rmqlite.cli.dlq.export import message_at, with_messages
from rmqlite.client import RawReader
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import has_letters, record, stored


def runs(broker: FakeBroker) -> list[tuple[int, int]]:
    """The ranges of queue offsets that were asked for; what went on in a range is one."""
    found: dict[int | None, int] = {}
    for each in broker.asked["ReadQueue"]:
        found.setdefault(each.end_queue_offset, each.begin_queue_offset)
    return [(begin, end) for end, begin in found.items() if end is not None]


@pytest.mark.parametrize(
    ("body_bytes", "numbers", "ranges"),
    [
        (10, (0, 1, 2), [(0, 3)]),
        (10, (0, 60, 61), [(0, 62)]),
        (10, (0, 66, 67), [(0, 1), (66, 68)]),
        (200_000, (0, 2), [(0, 3)]),
        (200_000, (0, 3), [(0, 1), (3, 4)]),
    ],
)
def test_letters_that_are_near_each_other_are_read_in_one_go(
    broker: FakeBroker, body_bytes: int, numbers: tuple[int, ...], ranges: list[tuple[int, int]]
) -> None:
    """A call of its own costs as much as some letters, or some hundred kilobytes, too many."""
    records = [record(n, b"x" * body_bytes) for n in numbers]
    letters = has_letters(broker, *records)
    with RawReader(broker.endpoint) as reader:
        # In whatever order they are asked for.
        found = list(with_messages(reader, letters[::-1]))
    assert found == [(each, stored(data)) for each, data in zip(letters, records, strict=True)]
    assert runs(broker) == ranges


def test_a_letter_that_is_gone_is_told_and_the_others_are_read(broker: FakeBroker) -> None:
    """First, last, or between."""
    records = [record(n, b"x") for n in range(5)]
    letters = has_letters(broker, *records)
    has_letters(broker, records[1], records[3])
    with RawReader(broker.endpoint) as reader:
        found = list(with_messages(reader, letters))
        assert [message is None for _, message in found] == [True, False, True, False, True]
        assert message_at(reader, "billing", 0, 3) == stored(records[3])
        assert message_at(reader, "billing", 0, 4) is None


def test_queues_are_read_one_after_the_other(broker: FakeBroker) -> None:
    """A letter of another queue has the same offsets."""
    letters = has_letters(broker, record(0, b"x"))
    elsewhere = dataclasses.replace(letters[0], queue_id=1)
    with RawReader(broker.endpoint) as reader:
        found = list(with_messages(reader, [elsewhere, *letters]))
    assert [each.queue_id for each, _ in found] == [0, 1]
    assert [each.queue_id for each in broker.asked["ReadQueue"]] == [0, 1]

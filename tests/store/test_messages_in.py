"""Raw records become messages again, or it is said where they are damaged."""

from __future__ import annotations

import pytest

from rmqlite.kernel.store.log.raw_records import READ_BYTES_MAX, READ_GAP_BYTES_MAX, neighbours
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.reader import messages_in
from tests.support.fake_dead_letters import record, stored


def test_records_behind_each_other_become_messages() -> None:
    """What the Log service gives of a queue is read without numpy."""
    records = [record(n, b"x" * n) for n in range(3)]
    assert list(messages_in(b"".join(records), "queue")) == [stored(each) for each in records]


@pytest.mark.parametrize("at", [4, 90])
def test_a_damaged_record_is_reported(at: int) -> None:
    """A head that is none, and a body that is not the one that was sent."""
    sound, damaged = record(0, b"body"), bytearray(record(1, b"body"))
    damaged[at] ^= 0xFF
    found = messages_in(sound + bytes(damaged), "queue 0")
    assert next(found) == stored(sound)
    with pytest.raises(StoreDamaged, match="queue 0 is damaged"):
        next(found)


def test_a_read_ends_at_a_wide_gap_a_step_back_a_file_end_and_its_limit() -> None:
    """Each row is in exactly one read; a damaged entry may point anywhere."""
    near, far = READ_GAP_BYTES_MAX, 1 << 20
    rows = [(0, 100), (100 + near, 50), (far, 10), (50, 10), (60, 10), (70, READ_BYTES_MAX)]
    spans = [(begin, end, list(each)) for begin, end, each in neighbours(rows)]
    assert spans == [
        (0, 150 + near, rows[:2]),
        (far, far + 10, rows[2:3]),
        (50, 70, rows[3:5]),
        (70, 70 + READ_BYTES_MAX, rows[5:]),
    ]
    assert [end for _, end, _ in neighbours([(0, 9), (9, 1), (10, 5)], 10)] == [10, 15]

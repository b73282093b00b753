"""Raw records become messages again, or it is said where they are damaged."""

from __future__ import annotations

import pytest

from rmqlite.errors import StoreDamaged
from rmqlite.store.reader import messages_in
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

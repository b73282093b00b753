"""How far two logs are the same, by their terms alone."""

from __future__ import annotations

import pytest

from rmqlite.features.standby.leading import StandbyCall
from rmqlite.features.standby.terms import common_end
from rmqlite.protocols.native.replication import FollowerFrame, LogTerm

A1, A2, A3 = LogTerm(1, 0, "a"), LogTerm(2, 100, "b"), LogTerm(3, 300, "c")
B3 = LogTerm(3, 250, "d")


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "end"),
    [
        # It follows, and is behind, or has all.
        ((A1, A2), 500, (A1, A2), 400, 400),
        ((A1, A2), 500, (A1, A2), 500, 500),
        # The master was started again since, and had lost what lay behind 300.
        ((A1, A2, A3), 500, (A1, A2), 350, 300),
        # The same length, and another history: each has had a term of its own.
        ((A1, A2, A3), 500, (A1, A2, B3), 500, 250),
        # A master that was lost had begun a term that nobody knows.
        ((A1, A2), 500, (A1, A2, B3), 500, 250),
        # The oldest terms are forgotten.
        ((A2, A3), 500, (A1, A2), 350, 300),
        # Nothing says that they have a common beginning.
        ((A1, A2), 500, (), 50, -1),
        ((A1,), 500, (LogTerm(1, 0, "x"),), 500, -1),
    ],
)
def test_two_logs_are_the_same_up_to_the_first_term_of_only_one(
    one: tuple[LogTerm, ...], one_end: int, other: tuple[LogTerm, ...], other_end: int, end: int
) -> None:
    """A byte more would make a log that no broker has ever written."""
    assert common_end(one, one_end, other, other_end) == end
    assert common_end(other, other_end, one, one_end) == end


async def _nowhere(_: bytes) -> None:
    """Writes nothing."""


@pytest.mark.parametrize(("end", "synced_end", "acked"), [(90, 90, 90), (90, 40, 40), (0, 0, 90)])
def test_only_what_is_on_its_disk_counts_when_a_standby_comes_back(
    end: int, synced_end: int, acked: int
) -> None:
    """After a cut connection it may have received what it has not synced."""
    first = FollowerFrame(end=end, synced_end=synced_end)
    assert StandbyCall(first, 90, _nowhere).acked == acked

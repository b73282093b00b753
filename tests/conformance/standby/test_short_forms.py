"""The programs of this folder, each for a few seconds."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.standby import hostile, rounds


def test_losses_under_load(tmp_path: Path) -> None:
    """A wiped disk, then a master that comes back with a longer log: nothing is lost or twice."""
    found = rounds.run(tmp_path, 2, 0.5, 1, ("wipe", "tail"))
    assert (found.rounds, found.faults) == (2, 0)
    assert found.acked


def test_nobody_feels_strangers(tmp_path: Path) -> None:
    """They get nothing, and the standby that may follow keeps its place."""
    assert hostile.run(tmp_path, 50, 1.0) < hostile.ENOUGH_S

"""The programs of this folder, each for a few seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.standby import hangs, hostile, promotions, resyncs, rounds


def test_losses_under_load(tmp_path: Path, is_long: bool) -> None:
    """A master that comes back with a longer log; with --long a wiped disk before.

    Nothing is lost or twice, nor early, although the clock of one machine is an hour ahead.
    """
    kinds = ("wipe", "tail") if is_long else ("tail",)
    found = rounds.run(tmp_path, len(kinds), 0.5, 1, kinds, ahead_ms=3_600_000)
    assert (found.rounds, found.faults) == (len(kinds), 0)
    assert found.acked


def test_nobody_feels_strangers(tmp_path: Path) -> None:
    """They get nothing, and the standby that may follow keeps its place."""
    assert hostile.run(tmp_path, 50, 1.0) < hostile.ENOUGH_S


@pytest.mark.long
def test_a_standby_in_trouble_holds_up_no_send(tmp_path: Path) -> None:
    """Nor do others wait.  On a full disk it calls its master again and again."""
    found = hangs.run(
        tmp_path, {"full": 4, "slow": 0.5, "torn": 0.1, "cut_there": 4, "cut_back": 4}
    )
    for kind in ("full", "cut_there", "cut_back"):
        assert found[kind].refused > 1
    assert max(each.slowest_send_s for each in found.values()) < hangs.ENOUGH_S
    assert max(each.slowest_pull_s for each in found.values()) < hangs.ENOUGH_S


@pytest.mark.long
def test_a_resync_takes_no_offset_back(tmp_path: Path) -> None:
    """By a switch; then a former master has a new disk, follows, and takes over after a loss."""
    resyncs.run(tmp_path, 2)


def test_what_lasts_goes_on_at_a_promoted_standby(tmp_path: Path) -> None:
    """A redrive, a bulk job, a held lease, an open transaction, timers."""
    assert promotions.run(tmp_path, 2_000).first_s < promotions.FIRST_S_MAX

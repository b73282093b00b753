"""rmqlite store handover: what it prints; what it does is tested with the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.golden import unpack_timers
from tests.support.looking import run_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that RocketMQ 5 has written; 26 timers are pending."""
    return unpack_timers(tmp_path, "killed")[0]


def test_a_dry_run_says_what_would_be_done(root: Path) -> None:
    """And writes no file of RocketMQ's."""
    before = (root / "config" / "timercheck").read_bytes()
    result = run_store("handover", root, "--to", "5.3", "--dry-run")
    assert result.exit_code == 0
    head, row, advice = result.stdout.splitlines()
    assert head.split()[:3] == ["TO", "TIMERS", "OVERDUE"]
    assert row.split()[:2] == ["5.3", "26"]
    assert advice == "nothing was handed over: without --dry-run this is done"
    assert (root / "config" / "timercheck").read_bytes() == before


def test_it_says_what_to_do_in_rocketmq_5(root: Path) -> None:
    """The same after each run."""
    said = {run_store("handover", root, "--to", "5.4").stdout.splitlines()[-1] for _ in range(2)}
    assert said == {"keep timerPrecisionMs=1000, and start RocketMQ within a week"}


def test_it_prints_the_levels_for_4_9(root: Path) -> None:
    """To be copied into broker.conf; the second time they are the same."""
    result = run_store("handover", root, "--to", "4.9")
    levels = result.stdout.splitlines()[-1].removeprefix("messageDelayLevel=").split(" ")
    assert len(levels) == 19
    assert int(levels[-1].removesuffix("d")) > 3_000
    again = run_store("handover", root, "--to", "4.9")
    assert again.stdout.splitlines()[-1].removeprefix("messageDelayLevel=").split(" ") == levels
    after = run_store("handover", root, "--to", "5.3")
    assert after.stdout.splitlines()[1].split()[:2] == ["5.3", "26"]


def test_a_program_gets_the_same(root: Path) -> None:
    """Times in milliseconds."""
    tree = json.loads(run_store("handover", root, "--to", "5.5", "--json").stdout)
    assert (tree["to"], tree["pending"], tree["dry_run"]) == ("5.5", 26, False)
    assert tree["first_due_ms"] == 1_795_574_540_191


def test_a_version_that_is_not_known_is_refused(root: Path) -> None:
    """Before anything is opened."""
    result = run_store("handover", root, "--to", "6.0")
    assert result.exit_code != 0
    assert "one of 4.9, 5.3, 5.4, 5.5" in result.stderr

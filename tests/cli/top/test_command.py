"""The command line of top: what it refuses, and the picture as text."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.support.broker_answers import HOSTILE, dead
from tests.support.fake_broker import FakeBroker


def test_once_prints_the_overview_as_text(run: Run) -> None:
    """For a script, a ticket, or a terminal that is none."""
    done = run("top", "--once")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[2] == "warning: 100,000 open dead letters in workers"
    assert lines[3] == ("since the start 1m 40s ago: 1,000 sent, 900 delivered, 17 retried, 1 died")
    assert lines[5] == "levels: 99,100 pending, 1 unused"
    assert lines[9] == "groups: 2, by worst"
    assert [line.split()[0] for line in lines[10:]] == ["GROUP", "workers", "mails"]


def test_once_prints_nothing_hostile(broker: FakeBroker, run: Run) -> None:
    """Names come from clients."""
    broker.answers["ListDeadLetterGroups"] = lambda _: (dead(HOSTILE, 1),)
    assert run("top", "--once").stdout.replace("\n", "").isprintable()


@pytest.mark.usefixtures("broker")
def test_without_a_terminal_it_says_what_to_use_instead(run: Run) -> None:
    """A cron job would hang for ever."""
    done = run("top")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "error: this is no terminal for a full screen: try rmqlite status --json, or top --once"
    ]


@pytest.mark.parametrize("interval", ["0s", "soon", "2h", "-1s", "1.5s"])
def test_an_interval_that_is_none_is_refused(run: Run, interval: str) -> None:
    """One line, and the exit code of a wrong command line."""
    done = run("top", "--once", "--interval", interval)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --interval must be ")


def test_a_broker_that_is_not_there_is_an_error_at_once(broker: FakeBroker, run: Run) -> None:
    """Exit code 3, before any screen is drawn."""
    broker.stop()
    done = run("top", "--once")
    broker.start()
    assert done.exit_code == 3
    assert done.stderr.startswith("error: no answer from the broker")

"""rmqlite levels: what is shown, what is asked, what is refused, and what the broker is told."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace

import pytest

from rmqlite.cli.levels import effect_lines, word
from rmqlite.kernel.requests.broker import (
    DatedTable,
    LevelChange,
    LevelsChange,
    LevelsChanged,
    LevelsInForce,
    LevelStatus,
)
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.levels import parse_levels
from tests.cli.conftest import Run
from tests.support.command_processes import run_command
from tests.support.fake_broker import STATUS, FakeBroker
from tests.support.terminals import all_shown

DUE_MS = 1_700_000_100_500
POLICIES = ", or their group's policy"
IN_FORCE = LevelsInForce("1s 5s", "1s 5s", (DatedTable(0, "1s 5s"),))


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """A broker whose table is "1s 5s 10s", with messages at levels 2 and 3."""

    def change(wanted: LevelsChange) -> LevelsChanged:
        before, after = parse_levels("1s 5s 10s"), parse_levels(wanted.message_delay_level)
        if before.delays_ms == after.delays_ms:
            after = before
        rows = [
            LevelChange(
                n,
                before.name(n) if n <= before.max_level else "",
                after.name(n) if n <= after.max_level else "",
                {2: 7, 3: 1_200}.get(n, 0),
                {2: DUE_MS, 3: DUE_MS + 1}.get(n, 0),
            )
            for n in range(1, max(before.max_level, after.max_level) + 1)
        ]
        return LevelsChanged(before.text, after.text, tuple(rows))

    broker.answers |= {"ChangeLevels": change, "GetLevels": lambda _: IN_FORCE}
    return broker


def answering(broker: FakeBroker, typed: bytes, *args: str) -> subprocess.CompletedProcess[str]:
    """Run with somebody at a terminal who types this, and sees what is on standard error."""
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, typed)
        words = (*args, "--endpoint", broker.endpoint)
        result = run_command(*words, stdin=terminal, stderr=terminal)
        result.stderr = all_shown(keyboard).replace("\r\n", "\n")
        return result
    finally:
        os.close(keyboard)
        os.close(terminal)


def applied(broker: FakeBroker) -> list[str]:
    return [each.message_delay_level for each in broker.asked["ChangeLevels"] if not each.dry_run]


@pytest.mark.parametrize("command", ["levels", "levels show", "levels set"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    """--help is the manual; it fits a terminal."""
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_the_levels_are_shown_with_what_waits(run: Run) -> None:
    """Delay, pending and next due of each level, then where the table is from."""
    lines = run("levels", "show").stdout.splitlines()
    assert lines[0].split() == ["LEVEL", "DELAY", "PENDING", "NEXT", "DUE"]
    assert lines[1].split() == ["1", "1s", "99,100", *local_text(DUE_MS).split()]
    assert lines[2].split() == ["2", "5s", "0", "-"]
    assert lines[3:] == [
        "",
        "the table is broker.conf's messageDelayLevel; there was no other before",
    ]


def test_a_removed_level_is_shown_while_it_holds_something(run: Run, broker: FakeBroker) -> None:
    """Its messages are still to come; an empty one is of no interest."""
    old = LevelStatus(3, "", 1, DUE_MS, 0, 0, 0, 0)
    empty = LevelStatus(4, "", 0, 0, 9, 1, 1, 1)
    broker.answers["GetBrokerStatus"] = lambda _: replace(STATUS, levels=(old, empty))
    lines = run("levels", "show").stdout.splitlines()
    assert lines[1].split()[:3] == ["3", "(removed)", "1"]
    assert lines[2] == ""


def test_a_table_that_was_set_is_told_from_a_configured_one(run: Run, broker: FakeBroker) -> None:
    """Who wonders why broker.conf does not count must read it here."""
    tables = (DatedTable(0, "1s 5s"), DatedTable(DUE_MS, "1s 9s"))
    broker.answers["GetLevels"] = lambda _: LevelsInForce("1s 9s", "1s 5s", tables)
    lines = run("levels", "show").stdout.splitlines()
    assert lines[-3:] == [
        f"the table was set while the broker ran; in force since {local_text(DUE_MS)}",
        "broker.conf says: 1s 5s",
        "it is used again when messageDelayLevel is edited there",
    ]
    history = run("levels", "show", "--history").stdout.splitlines()
    assert [line.split() for line in history[:3]] == [
        ["IN", "FORCE", "FROM", "MESSAGE", "DELAY", "LEVEL"],
        ["-", "1s", "5s"],
        [*local_text(DUE_MS).split(), "1s", "9s"],
    ]
    tree = json.loads(run("levels", "show", "--json").stdout)
    assert tree["configured"] == "1s 5s"
    assert tree["tables"][1] == {"in_force_from_ms": DUE_MS, "message_delay_level": "1s 9s"}
    assert tree["levels"][0] == {
        "level": 1,
        "delay": "1s",
        "pending": 99_100,
        "next_due_ms": DUE_MS,
    }


def test_a_change_is_shown_before_it_is_made(run: Run, broker: FakeBroker) -> None:
    """Level by level, with what waits, and that it keeps its times; 80 columns."""
    result = run("levels", "set", "2s 4s", "--dry-run")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [line.split()[:5] for line in lines[:4]] == [
        ["LEVEL", "NOW", "THEN", "PENDING", "NEXT"],
        ["1", "1s", "2s", "longer", "0"],
        ["2", "5s", "4s", "shorter", "7"],
        ["3", "10s", "-", "removed", "1,200"],
    ]
    assert lines[5:] == [
        "the 1,207 messages that wait keep their times; new ones get the new delays",
        "retries of failed messages change, too: level 2 only, or their group's policy",
        "messages to a level above 2 go to level 2 (4s)",
        'no level is as long as "1s", "5s", "10s" then:',
        'messages that are sent with such a delay, as delay="1s", will be refused',
        "to change nothing for others, keep the levels and add new ones at the end",
    ]
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert applied(broker) == []


def test_a_change_is_made_when_it_is_confirmed(broker: FakeBroker) -> None:
    """Shown, asked, then done."""
    result = answering(broker, b"y\n", "levels", "set", "2s 4s 1h")
    assert result.returncode == 0
    assert "put this table in force now? [y/N]" in result.stderr
    assert result.stdout.splitlines()[-1] == "in force now, and after a restart, too: 2s 4s 1h"
    assert applied(broker) == ["2s 4s 1h"]


def test_a_change_is_not_made_when_it_is_declined(broker: FakeBroker) -> None:
    """No is the answer that a mere return gives."""
    result = answering(broker, b"\n", "levels", "set", "2s 4s 1h")
    assert result.returncode == 1
    assert result.stderr.endswith("nothing was changed\n")
    assert applied(broker) == []


def test_nobody_to_ask_is_a_wrong_command_line(run: Run, broker: FakeBroker) -> None:
    """A script must say that it means it."""
    result = run("levels", "set", "2s")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--yes" in result.stderr
    assert "--dry-run" in result.stderr
    assert not broker.asked["ChangeLevels"]


def test_a_script_says_yes(run: Run, broker: FakeBroker) -> None:
    """Nobody is asked."""
    result = run("levels", "set", "2s 4s", "--yes")
    assert result.exit_code == 0
    assert "put this table" not in result.stdout
    assert applied(broker) == ["2s 4s"]


def test_the_quotes_may_be_left_out(run: Run, broker: FakeBroker) -> None:
    """RocketMQ's mqadmin takes the first word for the whole table then."""
    assert run("levels", "set", "2s", "4s", "1h", "--yes").exit_code == 0
    assert applied(broker) == ["2s 4s 1h"]


def test_the_same_delays_are_told_and_nobody_is_asked(broker: FakeBroker) -> None:
    """However they are spelled."""
    result = answering(broker, b"", "levels", "set", "1s 5s 10s")
    assert result.returncode == 0
    assert result.stdout.strip() == "nothing to change, each level is that long already: 1s 5s 10s"
    assert applied(broker) == []


@pytest.mark.parametrize(("option", "is_applied"), [("--dry-run", False), ("--yes", True)])
def test_a_changes_json(run: Run, option: str, is_applied: bool) -> None:
    """The rows, each with its word, and whether it was done."""
    tree = json.loads(run("levels", "set", "1s 5s 10s 1h", option, "--json").stdout)
    assert (tree["before"], tree["after"]) == ("1s 5s 10s", "1s 5s 10s 1h")
    assert tree["applied"] is is_applied
    assert [row["change"] for row in tree["levels"]] == ["same", "same", "same", "new"]
    assert tree["levels"][1]["pending"] == 7


def test_what_the_broker_refuses_is_one_line(run: Run, broker: FakeBroker) -> None:
    """Exit code 1 for a table that can never be; 3 for a disk that is full now."""
    result = run("levels", "set", "1s  5s", "--yes")
    assert result.exit_code == 1
    assert "one blank too many after '1s'" in result.stderr

    def full(_: LevelsChange) -> LevelsChanged:
        raise StoreUnavailable("replace", "delayLevels.json", "No space left on device")

    broker.answers["ChangeLevels"] = full
    result = run("levels", "set", "1s 9s", "--yes")
    assert result.exit_code == 3
    assert "No space left on device" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        *(("", "1s", "new"), ("1s", "", "removed"), ("", "", "old")),
        *(("60s", "1m", "same"), ("9s", "1m", "longer"), ("1h", "59m", "shorter")),
    ],
)
def test_a_word_for_what_becomes_of_a_level(before: str, after: str, said: str) -> None:
    """Lengths are compared, not spellings."""
    assert word(LevelChange(1, before, after, 0, 0)) == said


def test_a_change_names_the_lengths_that_nobody_can_ask_for_any_more() -> None:
    """delay="10m" is refused without a level of ten minutes; a list of many is cut."""
    many = " ".join([f"{minutes}m" for minutes in range(1, 19)])
    lines = effect_lines(LevelsChanged(many, "1m", ()))
    assert 'no level is as long as "2m", "3m", "4m", "5m", "6m", "7m" and 11 more then:' in lines
    for after in (f"{many} 1h", many.replace("18m", "18m 20m 18m"), "60s " + many[3:]):
        assert not [line for line in effect_lines(LevelsChanged(many, after, ())) if "long" in line]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("1s 5s 10s 2h", ["retries of failed messages change, too: levels 3 to 4" + POLICIES]),
        ("2s 5s 10s 1h", []),
        ("1s 5s 10s", ["retries of failed messages change, too: level 3 only" + POLICIES]),
    ],
)
def test_what_a_change_means_for_retries(after: str, said: list[str]) -> None:
    """They begin at level 3: who changes that must know."""
    row = LevelChange(1, "1s", "2s", 1, DUE_MS)
    lines = effect_lines(LevelsChanged("1s 5s 10s 1h", after, (row,)))
    assert lines[0] == "the 1 message that waits keeps its time; new ones get the new delays"
    assert [line for line in lines if line.startswith("retries")] == said

"""rmqlite group set, and what group show says about retries."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.operating.requests import GroupStatus
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue
from tests.cli.conftest import Run
from tests.support.fake_broker import GROUP, FakeBroker


@pytest.fixture
def groups(broker: FakeBroker) -> dict[str, GroupInfo]:
    """What the fake broker knows of groups; set changes it."""
    known = {"workers": GROUP.info}

    def describe(group: str) -> object:
        if group not in known:
            raise GroupUnknown(group)
        return replace(GROUP, info=known[group])

    def change(wanted: GroupChange) -> GroupInfo:
        if wanted.retry_policy == "soon":
            raise InvalidValue("retry_policy", "soon", "the rule")
        given = {
            name: value
            for name in (
                *("max_reconsume_times", "retry_queues", "can_consume", "retry_policy"),
                "bury_expired",
            )
            if (value := getattr(wanted, name)) is not None
        }
        info = replace(known.get(wanted.group, GroupInfo(wanted.group)), **given)
        known[wanted.group] = info
        return info

    broker.answers |= {"DescribeGroup": describe, "SetGroup": change}
    return known


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_change_is_shown_before_and_now(run: Run, groups: dict[str, GroupInfo]) -> None:
    """And what it comes to, so that a slip of the pen is seen at once."""
    result = run(
        *("group", "set", "workers", "--max-reconsume-times", "3", "--retry-policy", "10s 1m")
    )
    assert result.exit_code == 0
    assert groups["workers"] == GroupInfo("workers", 3, 1, True, "10s 1m")
    shown = lines(result.stdout)
    assert ["max", "reconsume", "times", "16", "3", "changed"] in shown
    assert ["retry", "policy", "RocketMQ's", "10s", "1m", "changed"] in shown
    assert ["retry", "queues", "1", "1"] in shown
    assert "when attempt 4 fails, too, it is a dead letter: 2m 10s after" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--retry-queues=4", "retry_queues", 4),
        ("--no-consume", "can_consume", False),
        ("--consume", "can_consume", True),
        ("--max-reconsume-times=0", "max_reconsume_times", 0),
        ("--retry-policy=", "retry_policy", ""),
        ("--expired=dead-letter", "bury_expired", True),
        ("--expired=skip", "bury_expired", False),
    ],
)
def test_only_what_is_named_is_asked_for(
    run: Run, broker: FakeBroker, groups: dict[str, GroupInfo], option: str, field: str, value: Any
) -> None:
    """Somebody else may be changing the rest; nothing and 0 are settings, too."""
    assert groups
    assert run("group", "set", "workers", option).exit_code == 0
    (asked,) = broker.asked["SetGroup"]
    assert asked == GroupChange("workers", **{field: value})


def test_a_new_group_is_said_to_be_one(run: Run, groups: dict[str, GroupInfo]) -> None:
    """A misspelt name would otherwise look like a change."""
    result = run("group", "set", "wrokers", "--retry-policy", "5")
    assert "the group wrokers is new" in result.stdout
    assert ["retry", "policy", "-", "5"] in lines(result.stdout)
    assert groups["wrokers"].retry_policy == "5"
    tree = json.loads(run("group", "set", "another", "--consume", "--json").stdout)
    assert (tree["before"], tree["after"]["group"]) == (None, "another")


def test_a_change_as_json_has_both(run: Run, groups: dict[str, GroupInfo]) -> None:
    """A script can put it back."""
    assert groups
    tree = json.loads(run("group", "set", "workers", "--retry-policy", "3 5", "--json").stdout)
    assert tree["before"]["retry_policy"] == ""
    assert tree["after"]["retry_policy"] == "3 5"


def test_what_the_broker_refuses_is_said(run: Run, groups: dict[str, GroupInfo]) -> None:
    """Field, value and rule; exit code 1 as everywhere."""
    result = run("group", "set", "workers", "--retry-policy", "soon")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: retry_policy must be the rule, not 'soon'\n"
    assert groups["workers"] == GROUP.info


@pytest.mark.parametrize(
    "arguments",
    [
        ["workers"],
        ["workers", "--max-reconsume-times", "-1"],
        ["workers", "--max-reconsume-times", "9999999999"],
        ["workers", "--retry-queues", "0"],
        ["--consume"],
    ],
)
def test_a_wrong_command_line_asks_nothing(
    run: Run, broker: FakeBroker, groups: dict[str, GroupInfo], arguments: list[str]
) -> None:
    """And ends with 2."""
    assert groups
    assert run("group", "set", *arguments).exit_code == 2
    assert not broker.asked["SetGroup"]


def test_a_group_shows_when_its_retries_come(run: Run, groups: dict[str, GroupInfo]) -> None:
    """Attempt by attempt until the dead letter; a length that no level has is seen."""
    groups["workers"] = GroupInfo("workers", 4, retry_policy="exponential(10s, 2, 1h)")
    shown = run("group", "show", "workers").stdout
    assert "retries by exponential(10s, 2, 1h)" in shown
    rows = lines(shown)
    assert ["2", "10s", "3", "10s", "10s"] in rows
    assert ["4", "40s", "5", "1m", "1m", "40s"] in rows
    assert "when attempt 5 fails, too, it is a dead letter: 3m 40s after" in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80


def test_rocketmqs_levels_are_shown_without_a_policy(
    run: Run, groups: dict[str, GroupInfo]
) -> None:
    """By the table in force."""
    groups["workers"] = GroupInfo("workers", 20)
    shown = run("group", "show", "workers").stdout
    assert "retries by RocketMQ's levels 3, 4, 5 and so on" in shown
    assert ["17", "to", "21", "18", "2h", "12h", "45m", "40s"] in lines(shown)
    groups["workers"] = GroupInfo("workers", 0)
    shown = run("group", "show", "workers").stdout
    assert "a message is a dead letter at its first failure" in shown


def test_the_ladder_is_in_the_json(run: Run, groups: dict[str, GroupInfo]) -> None:
    """As numbers."""
    groups["workers"] = GroupInfo("workers", 2, retry_policy="25s")
    tree = json.loads(run("group", "show", "workers", "--json").stdout)
    assert tree["info"]["retry_policy"] == "25s"
    assert tree["retries"] == [
        {
            "first_attempt": 2,
            "last_attempt": 3,
            "level": 4,
            "delay": "30s",
            "delay_ms": 30_000,
            "asked_ms": 25_000,
            "since_first_failure_ms": 60_000,
            "jitter_ms": 0,
        }
    ]
    assert tree["dead_after_ms"] == 60_000


def test_a_policy_of_a_newer_broker_is_shown_as_it_is(
    run: Run, groups: dict[str, GroupInfo]
) -> None:
    """The rest of the group is still to be seen; nothing of it drives the terminal."""
    groups["workers"] = GroupInfo("workers", 16, retry_policy="tides(\x1b[31m)")
    result = run("group", "show", "workers")
    assert result.exit_code == 0
    assert "does not know the retry policy" in result.stdout
    assert "\x1b[31m" not in result.stdout
    assert json.loads(run("group", "show", "workers", "--json").stdout)["retries"] is None


def test_a_list_has_a_long_policy_in_one_line(run: Run, broker: FakeBroker) -> None:
    """A terminal cuts it or leaves it out; `group show` has its retries."""
    policy = " ".join([f"{n}s" for n in range(1, 40)])
    info = GroupInfo("workers", retry_policy=policy)
    broker.answers["ListGroups"] = lambda _: (info,)
    broker.answers["DescribeGroup"] = lambda _: GroupStatus(info, (), ())
    (row,) = run("group", "list").stdout.splitlines()[1:]
    assert row.split()[-4:] == ["39s", "yes", "no", "1"]


@pytest.mark.parametrize(
    ("buries", "expired", "shown"),
    [
        (False, 0, []),
        (False, 3, ["a message that has expired is skipped: 3 since the broker's start"]),
        (True, 0, ["a message that has expired is a dead letter: 0 since the broker's start"]),
    ],
)
def test_a_group_shows_what_expires(
    run: Run, broker: FakeBroker, buries: bool, expired: int, shown: list[str]
) -> None:
    """Not where nothing does: most groups have no such messages."""
    info = replace(GROUP.info, bury_expired=buries)
    broker.answers["DescribeGroup"] = lambda _: replace(GROUP, info=info, expired=expired)
    said = run("group", "show", "workers").stdout
    assert [line for line in said.splitlines() if "expired" in line] == shown
    tree = json.loads(run("group", "show", "workers", "--json").stdout)
    assert (tree["expired"], tree["info"]["bury_expired"]) == (expired, buries)

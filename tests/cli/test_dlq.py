"""rmqlite dlq list, show, peek: what is asked of the broker and what a person gets to see."""

from __future__ import annotations

import json
import os
import pty
from typing import Any

import pytest

from rmqlite.features.dead_letters.requests import (
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    ReasonCount,
)
from rmqlite.kernel.words.clock import local_text
from tests.cli.conftest import Run
from tests.support.command_processes import run_command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE, NOW_MS, has_letters, record

OLDEST_MS, NEWEST_MS = NOW_MS - 80_000_000, NOW_MS - 60_000
BILLING = DeadLetterGroup(
    group="billing",
    letters=100_000,
    redriven=2_000,
    purged=0,
    oldest_ms=OLDEST_MS,
    newest_ms=NEWEST_MS,
    reasons=(ReasonCount("ledger timed out", 61_000), ReasonCount(HOSTILE, 1)),
    reasons_of=100_000,
)
DONE = DeadLetterGroup("done", 12, 12, 300, OLDEST_MS, NEWEST_MS)


def has_groups(broker: FakeBroker, *groups: DeadLetterGroup) -> None:
    broker.answers["ListDeadLetterGroups"] = lambda _: groups


def asked(broker: FakeBroker) -> DeadLettersQuery:
    query: DeadLettersQuery = broker.asked["ListDeadLetters"][-1]
    return query


# ---- list


def test_groups_are_listed_with_counts_ends_and_reasons(run: Run, broker: FakeBroker) -> None:
    """What an operator asks first: where, how many, since when, why."""
    has_groups(broker, DONE, BILLING)
    result = run("dlq", "list")
    ends = f"{local_text(OLDEST_MS)[:19]} (22h 13m ago) to {local_text(NEWEST_MS)[:19]} (1m 0s ago)"
    assert result.stdout.splitlines() == [
        "GROUP      OPEN  REDRIVEN  PURGED",
        "billing  98,000     2,000       0",
        f"  from {ends}",
        "  61,000   62%  ledger timed out",
        "       1    0%  \\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script>",
    ]
    assert (result.exit_code, result.stderr) == (
        0,
        "groups without open letters: 1; --all lists them\n",
    )


def test_the_group_with_most_to_do_is_first(run: Run, broker: FakeBroker) -> None:
    """And one that is done is last, if it is asked for."""
    small = DeadLetterGroup("a", 1, 0, 0, OLDEST_MS, NEWEST_MS)
    has_groups(broker, small, DONE, BILLING)
    lines = run("dlq", "list", "--all").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == ["billing", "a", "done"]


def test_reasons_of_some_letters_are_not_said_to_be_of_all(run: Run, broker: FakeBroker) -> None:
    """A share of what was counted, and a word about what that was."""
    some = DeadLetterGroup(
        "a", 500_000, 0, 0, OLDEST_MS, NEWEST_MS, (ReasonCount("(no reason)", 50_000),), 100_000
    )
    has_groups(broker, some)
    assert run("dlq", "list").stdout.splitlines()[-2:] == [
        "  reasons of the newest 100,000 dead letters:",
        "  50,000   50%  (no reason)",
    ]


@pytest.mark.parametrize(
    ("kinds", "line"),
    [
        (7, "   500    5%  of 7 other kinds: rmqlite dlq reasons a"),
        (1, "   500    5%  of 1 other kind: rmqlite dlq reasons a"),
        (0, "   500    5%  that cannot be read"),
    ],
)
def test_the_letters_of_other_kinds_have_a_line(
    run: Run, broker: FakeBroker, kinds: int, line: str
) -> None:
    """Whoever adds up the lines gets the open letters."""
    counts = (ReasonCount("no answer within # s", 9_500),)
    ends = (OLDEST_MS, NEWEST_MS)
    has_groups(broker, DeadLetterGroup("a", 10_000, 0, 0, *ends, counts, 10_000, 500, kinds))
    lines = run("dlq", "list").stdout.splitlines()
    assert lines[-2:] == ["  9,500   95%  no answer within # s", f" {line}"]
    tree = json.loads(run("dlq", "list", "--json").stdout)["groups"][0]
    assert (tree["rest_letters"], tree["rest_kinds"]) == (500, kinds)


def test_every_kind_of_reason_can_be_named(run: Run, broker: FakeBroker) -> None:
    """The list has five of each group."""
    counts = tuple([ReasonCount(f"error {chr(97 + n)}", 20 - n) for n in range(12)])
    found = DeadLetterGroup("a", 174, 0, 0, OLDEST_MS, NEWEST_MS, counts, 174)
    broker.answers["ListReasons"] = lambda _: found
    result = run("dlq", "reasons", "a")
    assert (result.exit_code, broker.asked["ListReasons"]) == (0, ["a"])
    lines = result.stdout.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (12, "20   11%  error a", " 9    5%  error l")
    tree = json.loads(run("dlq", "reasons", "a", "--json").stdout)
    assert [each["count"] for each in tree["reasons"]] == [20 - n for n in range(12)]
    broker.answers["ListReasons"] = lambda _: DeadLetterGroup("a", 0, 0, 0, 0, 0)
    assert run("dlq", "reasons", "a").exit_code == 1


def test_groups_as_json(run: Run, broker: FakeBroker) -> None:
    """Every field, called as in Python, and the time that ages are counted from."""
    has_groups(broker, BILLING)
    tree = json.loads(run("dlq", "list", "--json").stdout)
    assert (tree["now_ms"], tree["groups"][0]["open"]) == (NOW_MS, 98_000)
    assert tree["groups"][0]["reasons"][1] == {"reason": HOSTILE, "count": 1}


def test_no_dead_letters_are_said_beside_the_output(run: Run, broker: FakeBroker) -> None:
    """Good news is no failure."""
    has_groups(broker)
    result = run("dlq", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no dead letters\n")


# ---- show


def test_letters_are_shown_with_id_place_and_reason(run: Run, broker: FakeBroker) -> None:
    """The id is whole, the reason is its first line, and nothing reaches the terminal raw."""
    odd: dict[str, Any] = {
        "KEYS": f"k{HOSTILE}",
        "TAGS": f"t{HOSTILE}",
        "FAILURE_REASON": f"{HOSTILE}\nat line 7",
    }
    has_letters(broker, record(0, b"x"), record(1, b"y", **odd))
    result = run("dlq", "show", "billing")
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "FIRST",
        "FAILED",
        "LAST",
        "FAILED",
        "ATTEMPTS",
        *lines[0].split()[5:],
    ]
    first, last = NOW_MS - 3_600_000, NOW_MS - 60_000
    begin = f"{local_text(first)[:19]}  {local_text(last)[11:19]}     17        orders"
    assert lines[1].startswith(begin)
    assert lines[2:4] == [f"  {'0' * 32}  billing:0:0", "  ledger timed out"]
    assert lines[6] == "  \\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script> …"
    assert result.stdout.replace("\n", "").isprintable()
    has_letters(broker, record(0, b"x"))
    assert max(map(len, run("dlq", "show", "billing").stdout.splitlines())) <= 80


def test_a_letter_that_failed_over_midnight_has_both_days(run: Run, broker: FakeBroker) -> None:
    """Of the same day the time is enough."""
    first, last = NOW_MS - 100_000_000, NOW_MS
    has_letters(broker, record(0, b"x"), first_failure_ms=first, last_failure_ms=last)
    line = run("dlq", "show", "billing").stdout.splitlines()[1]
    assert line.startswith(f"{local_text(first)[:19]}  {local_text(last)[:19]}  17")


def test_what_redrives_did_is_said(run: Run, broker: FakeBroker) -> None:
    """That it was sent again, and that it has died before."""
    has_letters(broker, record(0, b"x"), redriven_by=f"job{HOSTILE}", redriven_before=2)
    line = run("dlq", "show", "billing", "--all").stdout.splitlines()[3]
    assert line.startswith("  redriven by job job\\x1b]52")
    assert line.endswith(", had been redriven 2 times before it died")


def test_every_option_is_asked_of_the_broker(run: Run, broker: FakeBroker) -> None:
    """All of them must fit; a length of time is that long ago, on the broker's clock."""
    has_letters(broker, record(0, b"x"))
    run(
        *("dlq", "show", "%DLQ%billing", "--topic", "orders", "--tag", "A", "--key", "k"),
        *("--reason", "Timed Out", "--since", "2h", "--until", str(NOW_MS - 1), "--newest"),
        *("--max", "7", "--cursor", "0"),
    )
    wanted = DeadLetterFilter("orders", "A", "k", "Timed Out", NOW_MS - 7_200_000, NOW_MS - 1)
    assert asked(broker) == DeadLettersQuery("billing", wanted, True, True, "0", 7)
    options = ("--id", "X", "--id", "billing:0:1", "--id", "X", "--job", "job-1")
    run("dlq", "show", "billing", "--all", *options, "--kind", "HTTP 503 after 17 ms")
    found = DeadLetterFilter(
        ids=("X", "billing:0:1"), failure_kind="HTTP 503 after # ms", job_id="job-1"
    )
    assert asked(broker) == DeadLettersQuery("billing", found, max_letters=20)
    said = "id X or billing:0:1, reasons of the kind 'HTTP 503 after # ms', sent by job job-1"
    has_letters(broker)
    assert said in run("dlq", "show", "billing", *options, "--kind", "HTTP 503 after # ms").stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("billing", "--since", "2 days"), "or 2h for two hours ago"),
        (("billing", "--since", "1h", "--until", "2h"), "later than --since"),
        (("billing", "--topic", ""), "--topic is empty"),
        (("billing", "--id", "a", "--id", ""), "--id is empty"),
        (("billing", "--key", "\udcff"), "no UTF-8 text"),
        (("bill/ing",), "only letters, digits"),
        (("billing", "--max", "0"), "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_meant_asks_for_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2, before a letter is looked at."""
    has_letters(broker)
    result = run("dlq", "show", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
    assert not broker.asked["ListDeadLetters"]


def test_the_command_to_go_on_with_is_printed(run: Run, broker: FakeBroker) -> None:
    """Whole, so that it can be pasted, with the options that it began with."""
    has_letters(broker, *[record(n, b"x") for n in range(5)], page=2)
    result = run("dlq", "show", "billing", "--reason", "timed out", "--max", "3", "--all")
    expected = "rmqlite dlq show billing --reason 'timed out' --all --max 3 --cursor 3"
    assert result.stderr == f"5 dead letters, the first 3 of them here\nmore: {expected}\n"
    tree = json.loads(run("dlq", "show", "billing", "--cursor", "3", "--json").stdout)
    assert ([each["place"] for each in tree["letters"]], tree["cursor"]) == (
        ["billing:0:3", "billing:0:4"],
        "",
    )


def test_when_nothing_fits_the_exit_code_is_1(run: Run, broker: FakeBroker) -> None:
    """And it is said what was looked for."""
    has_letters(broker)
    result = run("dlq", "show", "billing", "--tag", "A\x1b")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "no open dead letter of group billing matches: tag A\\x1b\n"


# ---- peek


@pytest.mark.parametrize(
    "name",
    [f"{1:032X}", "0A00000200002A9F00000000000003E8", "billing:0:1", "%DLQ%billing:0:1"],
)
def test_a_letter_is_found_by_any_of_its_names(run: Run, broker: FakeBroker, name: str) -> None:
    """As show prints it, as the log knows it, and as a redriven message remembers it."""
    has_letters(broker, record(0, b"no"), record(1, b"this one"))
    result = run("dlq", "peek", name)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0], lines[-1]) == (0, "dead letter billing:0:1", "this one")
    assert "state         open" in lines
    assert "came from     orders/2@991" in lines
    assert not broker.asked["Pull"]
    assert not broker.asked["CommitOffsets"]


@pytest.mark.parametrize(("topic", "text"), [("orders", "orders"), ("", "-")])
def test_of_a_letter_of_rocketmq_only_the_topic_is_known(
    run: Run, broker: FakeBroker, topic: str, text: str
) -> None:
    """It does not say at which place of the topic a message was; -1 is none."""
    nowhere = {"origin_queue_id": -1, "origin_queue_offset": -1}
    has_letters(broker, record(0, b"x"), origin_topic=topic, **nowhere)
    assert f"came from     {text}" in run("dlq", "peek", "billing:0:0").stdout.splitlines()


def test_everything_of_a_hostile_letter_is_escaped(run: Run, broker: FakeBroker) -> None:
    """Reason, keys, tags, property names and values, and the body."""
    odd: dict[str, Any] = {
        "KEYS": HOSTILE,
        "TAGS": HOSTILE,
        "FAILURE_REASON": f"{HOSTILE}\n  at x",
        HOSTILE: "v",
    }
    has_letters(broker, record(0, f"{HOSTILE}\r\n{HOSTILE * 20}".encode(), **odd))
    result = run("dlq", "peek", "billing:0:0", "--full")
    assert result.stdout.replace("\n", "").isprintable()
    assert "  at x" in result.stdout
    assert "\\x1b]52;c;cm0gLXJm" in result.stdout.splitlines()[-1]


def test_several_letters_of_one_id_are_named_and_none_is_shown(
    run: Run, broker: FakeBroker
) -> None:
    """Two groups have failed the same message: which one is meant is not ours to guess."""
    has_letters(broker, record(1, b"x"), record(1, b"x", group="audit"))
    result = run("dlq", "peek", f"{1:032X}")
    assert (result.exit_code, result.stderr.strip()) == (
        1,
        f"more than one dead letter {1:032X}: name one by its place",
    )
    places = [line.split()[0] for line in result.stdout.splitlines()[1::2]]
    assert places == ["billing:0:1", "audit:0:1"]
    assert run("dlq", "peek", f"{1:032X}", "--group", "audit").exit_code == 0


@pytest.mark.parametrize("name", ["X", "billing:0:7"])
def test_a_letter_that_is_not_there_is_refused(run: Run, broker: FakeBroker, name: str) -> None:
    """Exit code 1, and the name again."""
    has_letters(broker, record(0, b"x"))
    result = run("dlq", "peek", name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert name in result.stderr


def test_a_purged_letter_can_still_be_read_at_its_place(run: Run, broker: FakeBroker) -> None:
    """It is out of sight, not out of the log."""
    has_letters(broker, record(0, b"still here"))
    broker.answers["ListDeadLetters"] = lambda _: DeadLetterPage(())
    lines = run("dlq", "peek", "billing:0:0").stdout.splitlines()
    assert lines[0] == "purged dead letter %DLQ%billing:0:0"
    assert lines[-1] == "still here"
    tree = json.loads(run("dlq", "peek", "billing:0:0", "--json").stdout)
    assert (tree["letter"], tree["message"]["body"]) == (None, "still here")


def test_raw_is_the_body_and_nothing_else(run: Run, broker: FakeBroker) -> None:
    """Every byte, for a file or another program."""
    body = bytes(range(256)) * 3
    has_letters(broker, record(0, body))
    assert run("dlq", "peek", "billing:0:0", "--raw").stdout_bytes == body


def test_raw_is_refused_on_a_terminal(broker: FakeBroker) -> None:
    """Whatever the terminal would do with the bytes, somebody else chose it."""
    has_letters(broker, record(0, HOSTILE.encode()))
    ours, theirs = pty.openpty()
    try:
        env = {"RMQLITE_ENDPOINT": broker.endpoint}
        ran = run_command("dlq", "peek", "billing:0:0", "--raw", stdout=theirs, env=env)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: --raw is for a file or a pipe")


def test_a_letter_as_json(run: Run, broker: FakeBroker) -> None:
    """All of it, ASCII; a body that is no text is hex and says so."""
    has_letters(broker, record(0, b"\xff\x00"))
    result = run("dlq", "peek", "billing:0:0", "--json")
    tree = json.loads(result.stdout)
    assert (tree["message"]["body_encoding"], tree["message"]["body"]) == ("hex", "ff00")
    assert (tree["letter"]["place"], tree["letter"]["delivery_attempts"]) == ("billing:0:0", 17)


def test_ways_to_show_a_body_exclude_each_other(run: Run, broker: FakeBroker) -> None:
    """There is one output."""
    has_letters(broker, record(0, b"x"))
    assert run("dlq", "peek", "billing:0:0", "--raw", "--json").exit_code == 2

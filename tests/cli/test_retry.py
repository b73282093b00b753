"""rmqlite retry list, now, cancel: what is asked, what a person and a program see."""

from __future__ import annotations

import json

import pytest

from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
)
from rmqlite.features.dead_letters.requests import DeadLetterFilter, DeadLettersQuery
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import GroupUnknown
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_retries import RETRY, has_retries, retry
from tests.support.fake_schedule import HOSTILE, NOW_MS, asked_to_change, changes
from tests.support.terminals import on_terminal

CANCEL, FIRE, *_ = ScheduleAction
SHORT_MS, LONG_MS = 250_000, 90_000_000


# ---- list


def test_what_is_retried_is_listed_due_first(run: Run, broker: FakeBroker) -> None:
    """When, for the how many-th time, since when, where from; below it the id and why."""
    later = retry(3, LONG_MS, delivery_attempts=16, tags="", keys=(), reason="")
    has_retries(broker, [retry(1, -5_000), retry(2, SHORT_MS), later])
    result = run("retry", "list", "billing")
    assert (result.exit_code, result.stderr) == (0, "")
    soon, tomorrow = local_text(NOW_MS + SHORT_MS)[11:19], local_text(NOW_MS + LONG_MS)[5:16]
    since = local_text(NOW_MS - 60_000)[11:19]
    assert result.stdout.splitlines() == [
        f"2 retries of billing wait, the next one {soon}, in 4m 10s",
        "1 is due and not consumed yet: billing has 1 member now",
        "NEXT ATTEMPT               ATTEMPT   FAILING SINCE  TOPIC   TAGS  KEYS",
        f"due, waits for a consumer  3 of 17   {since}       orders  paid  order-1",
        f"  {retry(1, 0).message_id}  card declined",
        f"{soon}, in 4m 10s        3 of 17   {since}       orders  paid  order-2",
        f"  {retry(2, 0).message_id}  card declined",
        f"{tomorrow}, in 1d 1h      17 of 17  {since}       orders  -     -",
        f"  {retry(3, 0).message_id}  no reason given",
    ]
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert broker.asked["ListRetries"] == [DeadLettersQuery("billing", max_letters=50)]


def test_a_group_that_nobody_serves_is_said_to_be_so(run: Run, broker: FakeBroker) -> None:
    """It is why nothing goes on; also before the first retry is due."""
    has_retries(broker, [retry(1, -1), retry(2, -1)], members=())
    lines = run("retry", "list", "billing").stdout.splitlines()
    assert (
        lines[0] == "2 retries of billing are due and not consumed yet: billing has no member now"
    )
    has_retries(broker, [retry(1, SHORT_MS)], members=())
    lines = run("retry", "list", "billing").stdout.splitlines()
    assert lines[0].startswith("1 retry of billing waits, due ")
    assert lines[1] == "billing has no member now"
    has_retries(broker, [retry(1, -1)], can_consume=False)
    assert "billing may not consume now" in run("retry", "list", "billing").stdout


def test_the_senders_limit_is_what_an_attempt_is_counted_to(run: Run, broker: FakeBroker) -> None:
    """It goes before the group's."""
    has_retries(broker, [retry(1, SHORT_MS, max_reconsume_times=2), retry(2, SHORT_MS)], [])
    lines = run("retry", "list", "billing").stdout.splitlines()
    assert ["3 of 3 " in lines[2], "3 of 17" in lines[4]] == [True, True]
    tree = json.loads(run("retry", "list", "billing", "--json").stdout)
    assert [each["attempts_max"] for each in tree["letters"]] == [3, 17]


def test_nothing_retried_is_an_answer(run: Run, broker: FakeBroker) -> None:
    """Not a failure: most of the time that is how it should be."""
    has_retries(broker, [])
    result = run("retry", "list", "billing")
    assert (result.exit_code, result.stdout) == (0, "nothing is retried in billing\n")


def test_every_option_of_a_list_reaches_the_broker(run: Run, broker: FakeBroker) -> None:
    """The times are of the last failure: a moment, or how long ago."""
    has_retries(broker, [])
    run(
        *("retry", "list", "billing", "--topic", "orders", "--tag", "paid", "--key", "k"),
        *("--reason", "card", "--since", "2h", "--until", str(NOW_MS), "--max", "1200"),
        *("--cursor", "C0", "--id", "A", "--id", "B", "--kind", "(no reason)", "--job", "J"),
    )
    since_ms = NOW_MS - 7_200_000
    rest = (("A", "B"), "(no reason)", "J")
    wanted = DeadLetterFilter("orders", "paid", "k", "card", since_ms, NOW_MS, *rest)
    assert broker.asked["ListRetries"] == [
        DeadLettersQuery("billing", wanted, False, False, "C0", 1_000)
    ]


def test_pages_of_retries_are_followed_until_there_are_enough(run: Run, broker: FakeBroker) -> None:
    """Also empty ones; the cursor for the rest is said beside the output."""
    has_retries(broker, [retry(1, 1)], [], [retry(2, 2)], [retry(3, 3)])
    result = run("retry", "list", "billing", "--max", "2")
    assert result.stderr == "3 retries, the first 2 of them here\nmore: --cursor C3\n"
    assert [each.max_letters for each in broker.asked["ListRetries"]] == [2, 1, 1, 1_000]
    assert run("retry", "list", "billing", "--cursor", "C3").stderr == ""


def test_a_filter_that_no_retry_fits_says_so_beside_the_whole(run: Run, broker: FakeBroker) -> None:
    """The summary is of the group, whatever was asked for."""
    has_retries(broker, [retry(1, SHORT_MS)], [])
    result = run("retry", "list", "billing", "--cursor", "C1", "--tag", "none")
    assert result.stdout.startswith("1 retry of billing waits, due ")
    assert result.stderr == "no retry matches\n"


def test_retries_as_json(run: Run, broker: FakeBroker) -> None:
    """The group's outlook, and every field of every retry."""
    has_retries(broker, [retry(1, -1), retry(2, SHORT_MS)], [])
    tree = json.loads(run("retry", "list", "billing", "--max", "2", "--json").stdout)
    letters = tree.pop("letters")
    assert tree == {
        "group": "billing",
        "now_ms": NOW_MS,
        "attempts_max": 17,
        "waiting": 1,
        "due": 1,
        "next_due_ms": NOW_MS + SHORT_MS,
        "members": 1,
        "can_consume": True,
        "cursor": "C1",
    }
    assert [(each["attempt"], each["is_due"]) for each in letters] == [(3, True), (3, False)]
    assert letters[1]["offset_message_id"] == retry(2, 0).offset_message_id
    assert letters[1]["reason"] == "card declined"


def test_a_group_that_is_not_there_is_refused(run: Run, broker: FakeBroker) -> None:
    """It has no retries, but it is a slip; nothing is changed."""
    changes(broker)

    def refuse(group: str) -> None:
        raise GroupUnknown(group)

    broker.answers["DescribeGroup"] = refuse
    for command in (("list",), ("now", "A"), ("cancel", "--all", "--yes")):
        verb, *rest = command
        result = run("retry", verb, "biling", *rest)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "biling" in result.stderr
    assert not broker.asked["ChangeByIds"]
    assert not broker.asked["ChangeByFilter"]


def test_a_group_may_be_named_by_its_retry_topic(run: Run, broker: FakeBroker) -> None:
    """That is how other listings name it; what is no name at all is a wrong command line."""
    has_retries(broker, [retry(1, SHORT_MS)])
    changes(broker)
    assert run("retry", "list", RETRY).exit_code == 0
    assert broker.asked["ListRetries"][0].group == "billing"
    assert run("retry", "now", RETRY, "A").exit_code == 0
    assert broker.asked["ChangeByIds"] == [ChangeByIds(FIRE, ("A",), RETRY)]
    for command in ("list", "now", "cancel"):
        for name in ("", HOSTILE):
            result = run("retry", command, name)
            assert result.exit_code == 2
            assert result.stderr.replace("\n", "").isprintable()


def test_nothing_of_a_retry_drives_the_terminal(run: Run, broker: FakeBroker) -> None:
    """Keys, tags, reasons and ids are other people's words."""
    bad = retry(
        *(1, SHORT_MS),
        message_id=HOSTILE,
        reason=f"{HOSTILE}\nline two",
        tags=HOSTILE,
        keys=(HOSTILE,),
        origin_topic=HOSTILE,
    )
    has_retries(broker, [bad])
    for options in ((), ("--json",)):
        result = run("retry", "list", "billing", *options)
        assert "owned" in result.stdout
        assert result.stdout.replace("\n", "").isprintable()


# ---- now and cancel


def test_each_retry_says_what_became_of_it(run: Run, broker: FakeBroker) -> None:
    """In words: what does not wait was given to the group, or cancelled."""
    has_retries(broker, [])
    changes(
        broker,
        B=ChangeOutcome.ALREADY_DELIVERED,
        C=ChangeOutcome.ALREADY_CANCELLED,
        D=ChangeOutcome.NOT_FOUND,
    )
    result = run("retry", "now", "billing", *"ABCD")
    assert result.stdout.splitlines() == [
        "A  done",
        "B  does not wait any more: it was given to billing already",
        "C  does not wait any more: it was cancelled or buried",
        "D  not found: no retry of billing has this message id",
    ]
    assert (result.exit_code, result.stderr) == (1, "1 of 4 retried\n")
    assert broker.asked["ChangeByIds"] == [ChangeByIds(FIRE, tuple("ABCD"), RETRY)]


def test_ids_of_retries_come_from_standard_input_too(run: Run, broker: FakeBroker) -> None:
    """As for schedule; only the group's own retries are meant."""
    has_retries(broker, [])
    changes(broker)
    result = run("retry", "cancel", "billing", "-", "--dry-run", stdin=b"A\nB\n")
    assert result.stdout.splitlines() == ["A  would be cancelled", "B  would be cancelled"]
    assert broker.asked["ChangeByIds"] == [ChangeByIds(CANCEL, ("A", "B"), RETRY, dry_run=True)]


def test_a_filter_takes_the_groups_retries(run: Run, broker: FakeBroker) -> None:
    """Every option arrives; the output is one line."""
    has_retries(broker, [])
    changes(broker, 5_000, 17)
    result = run(
        *("retry", "now", "billing", "--topic", "orders", "--tag", "paid", "--reason", "card"),
        *("--due-from", "1700000000000", "--due-until", "+1h", "--yes"),
    )
    assert (result.exit_code, result.stdout) == (0, "5,017 messages retried\n")
    wanted = PendingFilter(
        (),
        RETRY,
        1_700_000_000_000,
        NOW_MS + 3_600_000,
        origin_topic="orders",
        tag="paid",
        reason="card",
    )
    assert asked_to_change(broker) == [ChangeByFilter(FIRE, wanted, cursor=c) for c in ("", "C1")]


def test_all_retries_of_a_group_are_counted_and_asked_about(broker: FakeBroker) -> None:
    """The question names the group; --json says what was done."""
    has_retries(broker, [])
    changes(broker, 12)
    with on_terminal(broker, b"y\n", "cancel", "billing", "--all", "--json", noun="retry") as seen:
        exit_code, output, shown = seen
        assert "cancel 12 messages: retries of group billing? [y/N]" in shown
    assert exit_code == 0
    assert json.loads(output) == {"action": "cancel", "dry_run": False, "changed": 12}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--yes",),
        ("--all",),
        ("--reason", "x"),
        ("A", "--all"),
        ("A", "--reason", "x"),
        ("--all", "--tag", "x", "--yes"),
        ("--reason", "", "--yes"),
        ("",),
        ("--due-until", "soon", "--yes"),
        ("--due-from", "6", "--due-until", "6", "--yes"),
    ],
)
@pytest.mark.parametrize("verb", ["now", "cancel"])
def test_what_is_not_clear_changes_no_retry(
    run: Run, broker: FakeBroker, verb: str, options: tuple[str, ...]
) -> None:
    """Neither what to change, nor, where no terminal is to ask on, that it is meant."""
    has_retries(broker, [])
    changes(broker, 1)
    result = run("retry", verb, "billing", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not broker.asked["ChangeByFilter"]
    assert not broker.asked["ChangeByIds"]


def test_the_schedule_is_filtered_by_what_is_known_of_retries(run: Run, broker: FakeBroker) -> None:
    """--tag, --origin-topic and --reason, on every command that takes a filter."""
    has_retries(broker, [])
    changes(broker, 1)
    failure = ("--reason", "card", "--kind", "code 7 of 9")
    options = ("--tag", "paid", "--origin-topic", "orders", *failure)
    kind = "code # of #"
    wanted = PendingFilter(tag="paid", origin_topic="orders", reason="card", failure_kind=kind)
    run("schedule", "list", *options)
    assert broker.asked["ListPending"][-1].filter == wanted
    for command in (("cancel",), ("fire",), ("reschedule", "--to", "10m")):
        assert run("schedule", *command, *options, "--yes").exit_code == 0
        assert asked_to_change(broker)[-1].filter == wanted
    changes(broker, 0)
    result = run("schedule", "cancel", *options, "--yes")
    said = "tag paid, sent to topic orders, failed with 'card', failed for reasons of the kind"
    assert result.stderr == f"nothing that waits fits: {said} '{kind}'\n"

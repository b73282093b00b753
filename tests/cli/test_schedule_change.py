"""rmqlite schedule cancel, fire, reschedule: what is asked first, what is done, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.changes.requests import (
    CHANGED_IDS_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
)
from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import BrokerClosing, TopicUnknown
from rmqlite.kernel.words.message import Message
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_schedule import (
    HOSTILE,
    NOW_MS,
    asked_to_change,
    changes,
    has_schedule,
    waiting,
)
from tests.support.terminals import on_terminal

CANCEL, FIRE, RESCHEDULE, _ = ScheduleAction


def failing_at(broker: FakeBroker, call: str, number: int) -> None:
    """The number-th call of this name, counted from 0, fails; those before are answered."""
    answer: Callable[[Any], Any] = broker.answers[call]
    calls = iter(range(1_000))

    def answer_or_fail(request: Any) -> Any:
        if next(calls) == number:
            raise BrokerClosing()
        return answer(request)

    broker.answers[call] = answer_or_fail


# ---- by id


def test_each_id_says_what_became_of_it(run: Run, broker: FakeBroker) -> None:
    """One line each, in their order; exit code 1 because not every one was done."""
    changes(
        broker,
        B=ChangeOutcome.NOT_FOUND,
        C=ChangeOutcome.ALREADY_DELIVERED,
        D=ChangeOutcome.ALREADY_CANCELLED,
        E=ChangeOutcome.UNDELIVERABLE,
    )
    result = run("schedule", "cancel", *"ABCDE")
    assert result.stdout.splitlines() == [
        "A  done",
        "B  not found",
        "C  already delivered",
        "D  already cancelled",
        "E  undeliverable",
    ]
    assert (result.exit_code, result.stderr) == (1, "1 of 5 cancelled\n")
    assert broker.asked["ChangeByIds"] == [ChangeByIds(CANCEL, tuple("ABCDE"))]


def test_when_all_were_done_the_exit_code_is_0(run: Run, broker: FakeBroker) -> None:
    """Of one id there is nothing to sum up."""
    changes(broker)
    result = run("schedule", "fire", "A")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "A  done\n", "")
    assert broker.asked["ChangeByIds"] == [ChangeByIds(FIRE, ("A",))]


@pytest.mark.parametrize("to", ["10m", "14", "600s"])
def test_a_message_is_rescheduled_to_a_level_or_its_delay(
    run: Run, broker: FakeBroker, to: str
) -> None:
    """And it is said when it is due now."""
    changes(broker)
    result = run("schedule", "reschedule", "A", "--to", to)
    assert result.stdout == f"A  done, due {local_text(NOW_MS + 600_000)}\n"
    assert broker.asked["ChangeByIds"] == [ChangeByIds(RESCHEDULE, ("A",), delay_level=14)]


@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        (
            ("--at", "2028-02-29T08:00+01:00"),
            {"deliver_at_ms": 1_835_420_400_000},
            f"to {local_text(1_835_420_400_000)}",
        ),
        (("--after", "1d12h"), {"deliver_after_ms": 129_600_000}, "to 1d12h from now"),
    ],
)
def test_a_message_is_rescheduled_to_an_instant(
    run: Run, broker: FakeBroker, options: tuple[str, str], fields: dict[str, Any], said: str
) -> None:
    """By its id, or all that fits; a length counts by the broker's clock."""
    changes(broker, B=ChangeOutcome.NOT_FOUND)
    result = run("schedule", "reschedule", "A", "B", *options)
    assert result.stderr == f"1 of 2 rescheduled {said}\n"
    assert broker.asked["ChangeByIds"] == [ChangeByIds(RESCHEDULE, ("A", "B"), **fields)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--at", "tomorrow"), "--at must be a time such as"),
        (("--at", "1835420400"), "--at must be milliseconds since 1970"),
        (("--at", "-1"), "--at must be a time such as"),
        (("--after", "-5m"), "--after must be whole numbers and units of d, h, m, s"),
        (("--after", "3651d"), "--after must be more than zero and at most 3650d"),
        (("--after", "1h", "--to", "10m"), "give --to, --at or --after, one of them"),
        (("--level", "timers", "--to", "10m"), "or a delay such as 10m, or timer"),
    ],
)
def test_a_wrong_instant_changes_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2, and the rule."""
    changes(broker)
    ids = () if "--level" in options else ("A",)
    result = run("schedule", "reschedule", *ids, *options, "--yes")
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in " ".join(result.stderr.replace("│", "").split())
    assert not broker.asked["ChangeByIds"]


@pytest.mark.parametrize(
    ("to", "exit_code", "sentence"),
    [
        ("19", 2, "a level of this broker, 1 to 18"),
        ("0", 2, "a level, 1 to 64, or a delay such as 10m"),
        ("soon", 2, "a level, 1 to 64, or a delay such as 10m"),
        ("11m", 1, "no level is exactly that long"),
    ],
)
def test_a_level_that_is_not_there_changes_nothing(
    run: Run, broker: FakeBroker, to: str, exit_code: int, sentence: str
) -> None:
    """A level too high is a slip; the last one is two hours."""
    changes(broker)
    result = run("schedule", "reschedule", "A", "--to", to)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert sentence in result.stderr
    assert not broker.asked["ChangeByIds"]


def test_ids_come_from_standard_input_too(run: Run, broker: FakeBroker) -> None:
    """One a line or several; each once, in the order in which it was first named."""
    changes(broker)
    result = run("schedule", "cancel", "X", "-", "--topic", "orders", stdin=b"A\nB  X\n\nA\n")
    assert result.stdout.splitlines() == ["X  done", "A  done", "B  done"]
    assert broker.asked["ChangeByIds"] == [ChangeByIds(CANCEL, ("X", "A", "B"), "orders")]


def test_no_ids_on_standard_input_are_nothing_to_do(run: Run, broker: FakeBroker) -> None:
    """The end of a pipe that found nothing; certainly not everything."""
    changes(broker)
    result = run("schedule", "cancel", "-", stdin=b"\n")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no message ids were given\n"
    assert not broker.asked


def test_a_group_narrows_ids_down_to_its_retries(run: Run, broker: FakeBroker) -> None:
    """A message that failed in several groups waits once for each."""
    changes(broker)
    run("schedule", "fire", "A", "--group", "workers", "--dry-run")
    assert broker.asked["ChangeByIds"] == [
        ChangeByIds(FIRE, ("A",), "%RETRY%workers", dry_run=True)
    ]


def test_a_dry_run_says_what_would_be(run: Run, broker: FakeBroker) -> None:
    """Never that it was done."""
    changes(broker, B=ChangeOutcome.NOT_FOUND)
    result = run("schedule", "reschedule", "A", "B", "--to", "10m", "--dry-run")
    would = f"A  would be rescheduled, due {local_text(NOW_MS + 600_000)}"
    assert result.stdout.splitlines() == [would, "B  not found"]
    assert result.stderr == "1 of 2 would be rescheduled to level 14 (10m)\n"


def test_outcomes_as_json(run: Run, broker: FakeBroker) -> None:
    """One document for programs."""
    changes(broker, B=ChangeOutcome.ALREADY_DELIVERED)
    result = run("schedule", "reschedule", "A", "B", "--to", "14", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "action": "reschedule",
        "dry_run": False,
        "delay_level": 14,
        "messages": [
            {
                "message_id": "A",
                "outcome": "done",
                "count": 1,
                "deliver_at_ms": NOW_MS + 600_000,
            },
            {
                "message_id": "B",
                "outcome": "already_delivered",
                "count": 0,
                "deliver_at_ms": 0,
            },
        ],
    }


def test_many_ids_go_in_parts_and_an_error_does_not_hide_what_was_done(
    run: Run, broker: FakeBroker
) -> None:
    """The lines of the parts before it are printed, then the error."""
    changes(broker)
    failing_at(broker, "ChangeByIds", 2)
    ids = "\n".join([f"ID{n}" for n in range(3 * CHANGED_IDS_MAX)])
    result = run("schedule", "cancel", "-", stdin=ids.encode())
    assert result.exit_code == 3
    assert len(result.stdout.splitlines()) == 2 * CHANGED_IDS_MAX
    summary, error = result.stderr.splitlines()
    assert summary == "2,000 of 3,000 cancelled"
    assert error.startswith("error: ")


def test_nothing_of_an_id_drives_the_terminal(run: Run, broker: FakeBroker) -> None:
    """It may have been pasted from anywhere."""
    changes(broker)
    for options in ((), ("--json",)):
        result = run("schedule", "cancel", HOSTILE, *options)
        assert "owned" in result.stdout
        assert result.stdout.replace("\n", "").isprintable()


# ---- by filter


def test_a_filter_is_followed_to_the_end(run: Run, broker: FakeBroker) -> None:
    """Every option arrives; the output is one line."""
    changes(broker, 5_000, 0, 17)
    result = run(
        *("schedule", "reschedule", "--to", "2h", "--level", "5", "--level", "1", "--yes"),
        *("--topic", "orders", "--key", "k", "--from", "1700000000005", "--until", "+1h"),
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "5,017 messages rescheduled to level 18 (2h)\n"
    wanted = PendingFilter((1, 5), "orders", 1_700_000_000_005, NOW_MS + 3_600_000, "k")
    expected = [ChangeByFilter(RESCHEDULE, wanted, 18, cursor=each) for each in ("", "C1", "C2")]
    assert asked_to_change(broker) == expected


def test_a_dry_run_of_a_filter_only_counts(run: Run, broker: FakeBroker) -> None:
    """It needs nobody's leave; as JSON it is a number."""
    changes(broker, 10_000, 1)
    result = run("schedule", "cancel", "--group", "workers", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, "10,001 messages would be cancelled\n")
    result = run("schedule", "cancel", "--group", "workers", "--dry-run", "--json")
    assert json.loads(result.stdout) == {"action": "cancel", "dry_run": True, "changed": 10_001}
    assert all(each.dry_run for each in asked_to_change(broker))
    assert {each.filter.topic for each in asked_to_change(broker)} == {"%RETRY%workers"}


def test_everything_has_to_be_said(run: Run, broker: FakeBroker) -> None:
    """--all is the filter without a filter."""
    changes(broker, 3)
    result = run("schedule", "fire", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (0, "3 messages delivered now\n")
    assert asked_to_change(broker) == [ChangeByFilter(FIRE, PendingFilter())]


def test_a_filter_that_takes_nothing_is_exit_code_1(run: Run, broker: FakeBroker) -> None:
    """As an id that is not pending would be; it is said what was looked for."""
    changes(broker, 0)
    result = run("schedule", "cancel", "--group", "g", "-l", "5", "-l", "7", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "nothing that waits fits: retries of group g, levels 5 and 7\n"
    result = run("schedule", "cancel", "--topic", "t", "--yes", "--json")
    assert (result.exit_code, json.loads(result.stdout)["changed"]) == (1, 0)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--dry-run",),
        ("--yes",),
        ("--all", "--topic", "orders", "--yes"),
        ("A", "--all"),
        ("A", "--key", "k"),
        ("A", "--level", "5"),
        ("A", "--until", "now"),
        ("",),
        ("--topic", "", "--yes"),
        ("--topic", "orders", "--key", "", "--yes"),
        ("--topic", "orders", "--group", "workers", "--yes"),
        ("--level", "0", "--yes"),
        ("--topic", "orders"),
        ("--key", "k"),
        ("--all",),
    ],
)
def test_what_is_not_clear_changes_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...]
) -> None:
    """Neither what to change, nor, where no terminal is to ask on, that it is meant."""
    changes(broker, 1)
    result = run("schedule", "cancel", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not broker.asked


def test_reschedule_needs_to_know_where_to(run: Run, broker: FakeBroker) -> None:
    """There is no level that everybody means."""
    changes(broker, 1)
    assert run("schedule", "reschedule", "A").exit_code == 2
    assert not broker.asked


def test_an_interrupted_filter_says_how_far_it_came(run: Run, broker: FakeBroker) -> None:
    """At least: the call that had no answer may have been done."""
    changes(broker, 5_000, 5_000, 5_000)
    failing_at(broker, "ChangeByFilter", 2)
    result = run("schedule", "cancel", "--topic", "orders", "--yes")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("interrupted: at least 10,000 messages cancelled\nerror: ")
    assert len(asked_to_change(broker)) == 3


# ---- by key


@pytest.fixture
def keyed(broker: FakeBroker) -> FakeBroker:
    """A key with one message that waits and one that was delivered."""
    changes(broker, **{"DELIVERED": ChangeOutcome.ALREADY_DELIVERED})
    has_schedule(broker, [], [waiting(1, message_id="PENDING")])
    records = [
        (MessageState.SCHEDULED, "DELIVERED"),
        (MessageState.STORED, "DELIVERED"),
        (MessageState.STORED, "NEVER-DELAYED"),
        (MessageState.SCHEDULED, "PENDING"),
    ]
    found = tuple(
        [FoundMessage(broker.add(Message("t", b"x", message_id=n)), state) for state, n in records]
    )
    broker.answers["QueryMessages"] = lambda _: FoundMessages(found)
    return broker


def test_of_a_key_each_message_says_what_became_of_it(run: Run, keyed: FakeBroker) -> None:
    """With a topic also those that were delivered before: too late is an answer."""
    result = run("schedule", "cancel", "--key", "k", "--topic", "orders", "--yes")
    assert result.stdout.splitlines() == ["DELIVERED  already delivered", "PENDING  done"]
    assert (result.exit_code, result.stderr) == (1, "1 of 2 cancelled\n")
    assert keyed.asked["QueryMessages"] == [
        MessageQuery("orders", "k", max_messages=64, history=True)
    ]
    assert keyed.asked["ChangeByIds"] == [ChangeByIds(CANCEL, ("DELIVERED", "PENDING"), "orders")]


def test_a_key_with_a_long_past_says_that_not_all_of_it_is_told(
    run: Run, keyed: FakeBroker
) -> None:
    """What waits is complete; what was delivered before may be more than is named."""
    keyed.answers["QueryMessages"] = lambda _: FoundMessages((), is_cut=True)
    result = run("schedule", "cancel", "--key", "k", "--topic", "orders", "--yes")
    assert (result.exit_code, result.stdout) == (0, "PENDING  done\n")
    assert result.stderr.startswith("only the newest 64 records with this key")


@pytest.mark.parametrize("place", [(), ("--group", "workers")])
def test_of_a_key_alone_what_waits_is_changed(
    run: Run, keyed: FakeBroker, place: tuple[str, ...]
) -> None:
    """The index is asked by topic; a group's retries come and go."""
    result = run("schedule", "fire", "--key", "k", *place, "--yes")
    assert (result.exit_code, result.stdout) == (0, "PENDING  done\n")
    assert not keyed.asked["QueryMessages"]


def test_a_key_that_nothing_has_is_not_found(run: Run, broker: FakeBroker) -> None:
    """Nor a topic that is not there."""

    def refuse(_: object) -> None:
        raise TopicUnknown("orders")

    changes(broker)
    has_schedule(broker, [])
    broker.answers["QueryMessages"] = refuse
    result = run("schedule", "cancel", "--key", "k", "--topic", "orders", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "nothing that waits fits: topic orders, key k\n"
    result = run("schedule", "cancel", "--key", "k", "--yes", "--json")
    assert (result.exit_code, json.loads(result.stdout)["messages"]) == (1, [])
    assert not broker.asked["ChangeByIds"]


def test_messages_without_an_id_are_changed_by_their_key(run: Run, broker: FakeBroker) -> None:
    """They cannot be named one by one, so they are counted."""
    changes(broker, 2)
    has_schedule(broker, [waiting(1, message_id=""), waiting(2)])
    result = run("schedule", "cancel", "--key", "k", "--yes")
    assert result.stdout == "2 messages cancelled\n"
    assert asked_to_change(broker) == [ChangeByFilter(CANCEL, PendingFilter(key="k"))]


# ---- on a terminal


def test_a_filter_is_counted_and_asked_about(broker: FakeBroker) -> None:
    """The question names number, goal and filter; yes is an answer, and the output stays clean."""
    changes(broker, 10_000, 17)
    args = ("reschedule", "--to", "10m", "--topic", "orders", "--level", "5")
    with on_terminal(broker, b"y\n", *args) as (exit_code, output, shown):
        assert "reschedule 10,017 messages to level 14 (10m): topic orders, level 5?" in shown
    assert (exit_code, output) == (0, "10,017 messages rescheduled to level 14 (10m)\n")
    assert [each.dry_run for each in asked_to_change(broker)] == [True, True, False, False]


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"yup\n", b"\x04"])
def test_whoever_does_not_say_yes_changes_nothing(broker: FakeBroker, answer: bytes) -> None:
    """No, nothing, and the end of the input are all no."""
    changes(broker, 1)
    with on_terminal(broker, answer, "cancel", "--all") as (exit_code, output, shown):
        assert "cancel 1 message: everything that waits?" in shown
    assert (exit_code, output) == (1, "")
    assert [each.dry_run for each in asked_to_change(broker)] == [True]


def test_a_key_is_asked_about_too(keyed: FakeBroker) -> None:
    """It may be a customer's with a thousand orders."""
    args = ("cancel", "--key", f"k{HOSTILE}")
    with on_terminal(keyed, b"n\n", *args) as (exit_code, _, shown):
        assert "cancel 1 message: key k\\x1b]0;owned" in shown
    assert exit_code == 1
    assert not keyed.asked["ChangeByIds"]


def test_nothing_is_asked_about_nothing(broker: FakeBroker) -> None:
    """A question whose yes would change nothing is no question."""
    changes(broker, 0)
    with on_terminal(broker, b"", "cancel", "--topic", "t") as (exit_code, output, shown):
        assert "nothing that waits fits: topic t" in shown
        assert "[y/N]" not in shown
    assert (exit_code, output) == (1, "")

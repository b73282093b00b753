"""rmqlite job: what is shown of bulk and redrive jobs, and what becomes of redrives."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rmqlite.features.bulk.requests import BulkJob, Refusal
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.redrive.requests import (
    NOT_ASKED,
    DeadLetterOutcome,
    JobAction,
    JobChange,
    JobState,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveJobQuery,
    RedriveOutcome,
    RedriveResults,
    RedriveSpec,
)
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import BrokerClosing, JobOver, JobUnknown
from tests.cli.conftest import Run
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE

FIRST_MS, LAST_MS = 1_700_000_000_000, 1_700_000_060_000
REFUSED = Refusal("row\x1b-7", "delay-unknown", "delay must be x, not '11m'", "delay", "11m", "x")
SPEC = RedriveSpec("billing", DeadLetterFilter(reason="timed out"), "orders-2", 14, 500)
LETTERS = (
    DeadLetterOutcome(0, 7, RedriveOutcome.SENT, "orders", "redrive:x"),
    DeadLetterOutcome(0, 8, RedriveOutcome.ALREADY, why="job r0"),
    DeadLetterOutcome(0, 9, RedriveOutcome.REFUSED, why=f"no topic {HOSTILE}"),
)
REDRIVE = RedriveJob(
    job_id="r1",
    spec=SPEC,
    state=JobState.RUNNING,
    letters=100_000,
    looked_at=45_000,
    sent=44_000,
    already=998,
    refused=2,
    created_at_ms=FIRST_MS,
    changed_at_ms=FIRST_MS + 30_000,
    samples=LETTERS[2:],
)
FATES = RedriveResults(True, 43_000, 300, 700, "the log is cut")
JOB = BulkJob("import-7", 1_000_000, 3, 2, 2_001, FIRST_MS, LAST_MS, (REFUSED,))


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """A broker with two bulk jobs and a redrive."""

    def get_redrive(query: RedriveJobQuery) -> RedriveJob:
        if query.job_id != "r1":
            raise JobUnknown(query.job_id)
        results = FATES if query.with_results else NOT_ASKED
        return dataclasses.replace(REDRIVE, results=results)

    def get(job_id: str) -> BulkJob:
        if job_id != "import-7":
            raise JobUnknown(job_id)
        return JOB

    listed = (BulkJob("import-7", 1_000_000, 3, 2, 2_001, FIRST_MS, LAST_MS), BulkJob("b"))
    broker.answers |= {
        "GetBulkJob": get,
        "ListBulkJobs": lambda _: listed,
        "GetRedriveJob": get_redrive,
        "ListRedriveJobs": lambda _: (dataclasses.replace(REDRIVE, samples=()),),
    }
    return broker


@pytest.mark.usefixtures("broker")
def test_jobs_are_listed_with_their_sums(run: Run) -> None:
    """What an operator asks after a night's import."""
    first, below, redrive, below_redrive, *_ = run("job", "list").stdout.splitlines()[1:]
    assert first.split() == [
        "import-7",
        "bulk",
        "-",
        "1,000,000",
        *local_text(LAST_MS)[:19].split(),
    ]
    assert below == "  1,000,000 accepted, 3 duplicates, 2 refused in 2,001 calls"
    assert redrive.split()[:6] == ["r1", "redrive", "running", "45,000", "of", "100,000"]
    counts = "44,000 sent, 998 redriven before, 2 refused"
    assert below_redrive == f"  group billing: {counts}"


@pytest.mark.usefixtures("broker")
def test_a_job_shows_why_messages_were_refused(run: Run) -> None:
    """The id finds the row, the sentence says what to mend; nothing reaches the terminal raw."""
    result = run("job", "show", "import-7")
    assert "1,000,000" in result.stdout
    assert "delay must be x, not '11m'" in result.stdout
    assert "\x1b" not in result.stdout
    assert "the first 1 of 2 refused messages" in result.stderr


@pytest.mark.usefixtures("broker")
def test_programs_get_json(run: Run) -> None:
    """Every field, called as in Python."""
    (first, redrive, _) = json.loads(run("job", "list", "--json").stdout)
    assert (first["kind"], redrive["kind"], redrive["state"]) == ("bulk", "redrive", "running")
    assert (first["job_id"], first["accepted"], first["samples"]) == ("import-7", 1_000_000, [])
    shown = json.loads(run("job", "show", "import-7", "--json").stdout)
    assert shown["samples"][0]["message_id"] == "row\x1b-7"
    shown = json.loads(run("job", "show", "r1", "--json").stdout)
    assert (shown["spec"]["group"], shown["samples"][0]["place"]) == ("billing", "billing:0:9")


@pytest.mark.usefixtures("broker")
def test_a_job_that_is_not_known_is_refused(run: Run) -> None:
    """The same exit code as every other refusal."""
    result = run("job", "show", "other")
    assert result.exit_code == 1
    assert "no job named 'other'" in result.stderr


def test_no_job_is_said_beside_the_output(broker: FakeBroker, run: Run) -> None:
    """The output is for what was asked."""
    broker.answers |= {"ListBulkJobs": lambda _: (), "ListRedriveJobs": lambda _: ()}
    result = run("job", "list")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert "no jobs yet" in result.stderr


# ---- redrive jobs


@pytest.mark.usefixtures("broker")
def test_a_redrive_shows_what_it_was_told_and_has_done(run: Run) -> None:
    """Which letters, where to, how fast, how far; and what was refused, escaped."""
    result = run("job", "show", "r1")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2:11] == [
        "state running",
        "letters group billing: reason with 'timed out'",
        "sent to topic orders-2",
        "delay level 14",
        "rate at most 500 a second",
        "looked at 45,000 of 100,000",
        "outcomes 44,000 sent, 998 redriven before, 2 refused",
        "of these sent 43,000 consumed, 300 waiting again, 700 dead again",
        "of these sent incomplete: the log is cut",
    ]
    assert json.loads(run("job", "show", "r1", "--json").stdout)["fates"]["dead"] == 700
    assert "fates" not in json.loads(run("job", "list", "--json").stdout)[1]
    assert lines[-2:] == ["billing:0:9", "no topic \\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script>"]
    assert result.stderr == "the first 1 of 2 refused letters\n"


@pytest.mark.parametrize(
    ("words", "change", "said"),
    [
        ("pause r1", JobChange("r1", JobAction.PAUSE), "paused"),
        ("resume r1", JobChange("r1", JobAction.RESUME), "running"),
        ("cancel r1", JobChange("r1", JobAction.CANCEL), "cancelled"),
        ("rate r1 500", JobChange("r1", JobAction.SET_RATE, 500), "running"),
    ],
)
def test_a_redrive_is_changed(
    run: Run, broker: FakeBroker, words: str, change: JobChange, said: str
) -> None:
    """One line says what it is now."""
    changed = dataclasses.replace(REDRIVE, state=JobState[said.upper()])
    broker.answers["ChangeRedriveJob"] = lambda _: changed
    result = run("job", *words.split())
    assert result.stdout.startswith(f"job r1: {said}, at most 500 a second\n44,000 sent")
    assert broker.asked["ChangeRedriveJob"] == [change]
    tree = json.loads(run("job", *words.split(), "--json").stdout)
    assert tree["state"] == said


@pytest.mark.parametrize("words", ["pause import-7", "rate import-7 5", "outcomes import-7"])
def test_a_bulk_job_is_its_senders(run: Run, broker: FakeBroker, words: str) -> None:
    """The broker cannot stop what others send; it says who can."""

    def refuse(change: JobChange) -> RedriveJob:
        raise JobUnknown(change.job_id)

    broker.answers["ChangeRedriveJob"] = refuse
    result = run("job", *words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'import-7' is a bulk job: stop the program that sends its messages" in result.stderr


def test_a_job_that_is_over_or_unknown_is_not_changed(run: Run, broker: FakeBroker) -> None:
    """Exit code 1, and the broker's own sentence."""

    def refuse(change: JobChange) -> RedriveJob:
        raise JobOver("r1", "done") if change.job_id == "r1" else JobUnknown(change.job_id)

    broker.answers["ChangeRedriveJob"] = refuse
    for name, sentence in (("r1", "job 'r1' is over: done"), ("no", "no job named 'no'")):
        result = run("job", "pause", name)
        assert result.exit_code == 1
        assert sentence in result.stderr


def has_outcomes(broker: FakeBroker) -> None:
    """Two pages, of which a call takes what is asked for."""

    def answer(query: OutcomesQuery) -> OutcomesPage:
        part = LETTERS[2:] if query.cursor else LETTERS[:2]
        wanted = [each for each in part if each.outcome in (query.outcomes or RedriveOutcome)]
        return OutcomesPage(tuple(wanted), "" if query.cursor else "more")

    broker.answers["ListRedriveOutcomes"] = answer


def test_each_letters_outcome_is_a_line(run: Run, broker: FakeBroker) -> None:
    """Where it lay, and what it is now, or why it is nothing."""
    has_outcomes(broker)
    result = run("job", "outcomes", "r1")
    assert result.stdout.splitlines() == [
        "sent     billing:0:7  orders  redrive:x",
        "already  billing:0:8  job r0",
        "refused  billing:0:9  no topic \\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script>",
    ]
    assert len(run("job", "outcomes", "r1", "--max", "2").stdout.splitlines()) == 2


def test_only_some_outcomes_as_lines_of_json(run: Run, broker: FakeBroker) -> None:
    """For a program that mends what was refused."""
    has_outcomes(broker)
    result = run("job", "outcomes", "r1", "--only", "refused", "--only", "already", "--json")
    trees = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["place"], each["outcome"]) for each in trees] == [
        ("billing:0:8", "already"),
        ("billing:0:9", "refused"),
    ]
    broker.answers["ListRedriveOutcomes"] = lambda _: OutcomesPage(())
    none = run("job", "outcomes", "r1", "--only", "sent")
    assert (none.exit_code, none.stderr) == (1, "no such outcome\n")


def test_a_job_is_followed_until_it_is_over(run: Run, broker: FakeBroker) -> None:
    """Also past a restart of the broker; a refused letter makes the exit code 1."""
    over = dataclasses.replace(
        REDRIVE, state=JobState.DONE, looked_at=100_000, ended_at_ms=FIRST_MS + 60_000
    )
    answers: list[Any] = [REDRIVE, BrokerClosing(), REDRIVE, over]

    def get(_: str) -> RedriveJob:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: RedriveJob = answer
        return found

    broker.answers["GetRedriveJob"] = get
    result = run("job", "show", "r1", "--follow")
    assert (result.exit_code, answers) == (1, [])
    assert result.stdout.startswith("job r1: done after 1m 0s\n44,000 sent")


def test_who_follows_a_paused_job_without_a_bar_is_told(run: Run, broker: FakeBroker) -> None:
    """Else it looks as if it hung."""
    answers = [
        dataclasses.replace(REDRIVE, state=JobState.PAUSED),
        dataclasses.replace(REDRIVE, state=JobState.CANCELLED),
    ]
    broker.answers["GetRedriveJob"] = lambda _: answers.pop(0)
    result = run("job", "show", "r1", "--follow")
    assert result.stderr.startswith("job r1 is paused: rmqlite job resume r1\n")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "job r1: cancelled")

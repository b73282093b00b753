"""rmqlite dlq redrive and purge: what is said and asked first, what is started, how it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqlite.client.admin_client import BEFORE_ALL_MS
from rmqlite.features.dead_letters.requests import DeadLetterFilter, Purged, PurgeRequest
from rmqlite.features.redrive.requests import (
    DeadLetterOutcome,
    JobState,
    ReadersOfTopic,
    RedriveJob,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.requests.broker import LevelsInForce
from rmqlite.kernel.words.errors import GroupUnknown
from tests.cli.conftest import Run
from tests.support.command_processes import Command, started_command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_dead_letters import HOSTILE, NOW_MS
from tests.support.terminals import all_shown

SPEC = RedriveSpec("billing")
REFUSED = DeadLetterOutcome(0, 9, RedriveOutcome.REFUSED, why=f"no topic named {HOSTILE}")
SENT = DeadLetterOutcome(0, 1, RedriveOutcome.SENT, "orders", "redrive:x")
SHOWN = "no topic named \\x1b]52;c;cm0gLXJm\\x07\\x9b31m\\u202e<script>"


def redrives(
    broker: FakeBroker,
    *,
    sent: int = 3,
    already: int = 0,
    refused: int = 0,
    state: JobState = JobState.DONE,
) -> None:
    """The broker previews in two pages, starts a job, and ends it at the second look."""
    counts: dict[str, Any] = {"sent": sent, "already": already, "refused": refused}
    total = sum(counts.values())
    samples = (SENT, *(REFUSED,) * min(1, refused))

    def preview(request: RedrivePreviewRequest) -> RedrivePreview:
        if not request.cursor:
            return RedrivePreview(total, 0, 0, 0, 0, (), (), "more")
        topics = (ReadersOfTopic("orders", sent, ("billing", "mail"), 3),) if sent else ()
        return RedrivePreview(total, total, **counts, topics=topics, samples=samples)

    running: list[RedriveJob] = []

    def start(request: RedriveRequest) -> RedriveJob:
        job = RedriveJob(request.job_id or "r1", request.spec, JobState.RUNNING, total)
        running.append(job)
        return job

    def get(_: str) -> RedriveJob:
        return dataclasses.replace(
            running[-1],
            **counts,
            state=state,
            looked_at=total,
            created_at_ms=NOW_MS,
            ended_at_ms=NOW_MS + 20_000,
            samples=samples[1:],
        )

    broker.answers |= {"PreviewRedrive": preview, "StartRedrive": start, "GetRedriveJob": get}
    broker.answers["GetLevels"] = lambda _: LevelsInForce(broker.levels, broker.levels, ())


def started(broker: FakeBroker) -> RedriveRequest:
    (request,) = broker.asked["StartRedrive"]
    assert isinstance(request, RedriveRequest)
    return request


def purges(broker: FakeBroker, letters: int = 12_000, open_letters: int = 300) -> None:
    broker.answers["PurgeDeadLetters"] = lambda _: Purged(letters, open_letters)


# ---- redrive


def test_a_dry_run_says_what_would_be_sent_where(run: Run, broker: FakeBroker) -> None:
    """And what would not, and why; nothing is started."""
    redrives(broker, sent=97_000, already=2_000, refused=1)
    result = run("dlq", "redrive", "billing", "--dry-run")
    assert result.stdout.splitlines() == [
        "TO TOPIC  WOULD BE SENT",
        "orders    97,000",
        "  for groups billing, mail, 3 more",
        "97,000 would be sent, 2,000 redriven before, 1 refused",
        "REFUSED",
        "billing:0:9",
        f"  {SHOWN}",
    ]
    assert result.stderr == "redriven before: 2,000; --again sends them, too\n"
    assert result.exit_code == 1
    assert not broker.asked["StartRedrive"]


def test_a_dry_run_that_refuses_nothing_is_well(run: Run, broker: FakeBroker) -> None:
    """Exit code 0 is: do it."""
    redrives(broker)
    assert run("dlq", "redrive", "billing", "--dry-run").exit_code == 0
    tree = json.loads(run("dlq", "redrive", "billing", "--dry-run", "--json").stdout)
    assert (tree["dry_run"], tree["sent"], tree["topics"]) == (
        True,
        3,
        [{"topic": "orders", "count": 3, "groups": ["billing", "mail"], "more_groups": 3}],
    )
    assert tree["samples"][0]["outcome"] == "sent"


def test_every_option_is_asked_of_the_broker(run: Run, broker: FakeBroker) -> None:
    """Which letters, where to, when, how fast, and the name of the job."""
    redrives(broker)
    filters = (
        "--topic",
        "orders",
        "--reason",
        "timed out",
        "--since",
        "2h",
        "--id",
        "X",
        "--id",
        "Y",
    )
    how = ("--to-topic", "orders-2", "--delay", "10m", "--rate", "500", "--again")
    run("dlq", "redrive", "billing", *filters, *how, "--job-id", "mine", "--yes")
    wanted = DeadLetterFilter("orders", "", "", "timed out", NOW_MS - 7_200_000, None, ("X", "Y"))
    spec = RedriveSpec("billing", wanted, "orders-2", 14, 500, True)
    assert started(broker) == RedriveRequest(spec, "mine")
    assert not broker.asked["PreviewRedrive"]


def test_the_end_of_a_job_is_told(run: Run, broker: FakeBroker) -> None:
    """Exit code 0 when all that was to be sent is sent."""
    redrives(broker, already=2)
    result = run("dlq", "redrive", "billing", "--yes")
    assert result.stdout == ("job r1: done after 20.0s\n3 sent, 2 redriven before, 0 refused\n")
    assert (result.exit_code, started(broker)) == (0, RedriveRequest(SPEC))


def test_a_job_that_found_nothing_says_so(run: Run, broker: FakeBroker) -> None:
    """A slip in a filter looks like good news otherwise."""
    redrives(broker, sent=0)
    result = run("dlq", "redrive", "billing", "--tag", "A", "--yes")
    assert (result.exit_code, result.stderr) == (
        1,
        "no dead letter matches: group billing: tag A\n",
    )


@pytest.mark.parametrize(
    "ending",
    [
        {"refused": 1},
        {"sent": 0, "already": 5},
        {"state": JobState.CANCELLED},
    ],
)
def test_a_job_that_did_not_send_all_has_exit_code_1(
    run: Run, broker: FakeBroker, ending: dict[str, Any]
) -> None:
    """A script has to know."""
    redrives(broker, **ending)
    result = run("dlq", "redrive", "billing", "--yes", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["state"] == ending.get("state", JobState.DONE).name.lower()


def test_a_detached_job_is_only_started(run: Run, broker: FakeBroker) -> None:
    """Its id is the output, how to go on is said beside it."""
    redrives(broker)
    result = run("dlq", "redrive", "billing", "--yes", "--detach")
    assert (result.exit_code, result.stdout) == (0, "r1\n")
    assert "rmqlite job show r1 --follow" in result.stderr
    assert not broker.asked["GetRedriveJob"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "there is no terminal to ask on: look with --dry-run, then give --yes"),
        (("--yes", "--delay", "10m", "--level", "3"), "give one of them"),
        (("--yes", "--to-topic", ""), "--to-topic is empty"),
        (("--yes", "--key", ""), "--key is empty"),
        (("--yes", "--level", "19"), "a level of this broker, 1 to 18"),
        (("--yes", "--level", "0"), "a level, 1 to 64"),
        (("--yes", "--rate", "-1"), "greater than or equal to 0"),
    ],
)
def test_what_is_not_clear_starts_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2, as for every command line that is wrong."""
    redrives(broker)
    result = run("dlq", "redrive", "billing", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
    assert not broker.asked["StartRedrive"]


# ---- purge


def test_a_purge_is_counted_and_done(run: Run, broker: FakeBroker) -> None:
    """First how many, then the same request in earnest."""
    purges(broker)
    result = run("dlq", "purge", "billing", "--until", "7d", "--yes")
    assert result.stdout == "12,000 dead letters purged, 300 of them open\n"
    wanted = DeadLetterFilter(until_ms=NOW_MS - 7 * 86_400_000)
    asked = PurgeRequest("billing", BEFORE_ALL_MS, filter=wanted)
    assert broker.asked["PurgeDeadLetters"] == [dataclasses.replace(asked, dry_run=True), asked]


def test_a_purge_takes_the_filters_of_a_redrive(run: Run, broker: FakeBroker) -> None:
    """Letters of a mended bug go; an older broker, which knows no filter, would hide none."""
    purges(broker, 2, 2)
    ids = ("--id", "A", "--id", "billing:0:1")
    found = run("dlq", "purge", "billing", "--kind", "no answer within 30 s", *ids, "--yes")
    assert found.stdout == "2 dead letters purged, 2 of them open\n"
    wanted = DeadLetterFilter(ids=("A", "billing:0:1"), failure_kind="no answer within # s")
    assert broker.asked["PurgeDeadLetters"][-1] == PurgeRequest(
        "billing", BEFORE_ALL_MS, filter=wanted
    )
    purges(broker, 0, 0)
    nothing = run("dlq", "purge", "billing", "--tag", "paid", "--yes")
    assert nothing.stderr == "nothing to purge of group billing (tag paid)\n"


def test_purged_letters_are_restored(run: Run, broker: FakeBroker) -> None:
    """The marker moves back."""
    purges(broker, 12, 0)
    result = run("dlq", "purge", "billing", "--restore", "--yes", "--json")
    assert json.loads(result.stdout) == {
        "group": "billing",
        "restore": True,
        "dry_run": False,
        "letters": 12,
        "open": 0,
    }
    assert broker.asked["PurgeDeadLetters"][-1] == PurgeRequest("billing", restore=True)


def test_a_dry_run_of_a_purge_only_counts(run: Run, broker: FakeBroker) -> None:
    """It says would."""
    purges(broker, 1, 0)
    result = run("dlq", "purge", "billing", "--dry-run")
    assert result.stdout == "1 dead letter would be purged, none of them open\n"
    assert broker.asked["PurgeDeadLetters"] == [PurgeRequest("billing", dry_run=True)]


def test_where_there_is_nothing_to_purge_the_exit_code_is_1(run: Run, broker: FakeBroker) -> None:
    """Nor for a group that is not there."""
    purges(broker, 0, 0)
    result = run("dlq", "purge", "billing", "--yes")
    assert (result.exit_code, result.stderr) == (1, "nothing to purge of group billing\n")
    assert len(broker.asked["PurgeDeadLetters"]) == 1

    def unknown(request: PurgeRequest) -> Purged:
        raise GroupUnknown(request.group)

    broker.answers["PurgeDeadLetters"] = unknown
    assert run("dlq", "purge", "billing", "--yes").exit_code == 1


@pytest.mark.parametrize("options", [(), ("--until", "", "--yes"), ("--restore", "--until", "1d")])
def test_a_purge_that_is_not_clear_moves_nothing(
    run: Run, broker: FakeBroker, options: tuple[str, ...]
) -> None:
    """No terminal to ask on, a time that is missing, or both ways at once."""
    purges(broker)
    assert run("dlq", "purge", "billing", *options).exit_code == 2
    assert not broker.asked["PurgeDeadLetters"]


# ---- on a terminal


@contextmanager
def on_terminal(
    broker: FakeBroker, answer: bytes, *args: str
) -> Iterator[tuple[Command, Callable[[], str]]]:
    """A process whose standard input and error are one terminal, and what that has shown."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        env = {"RMQLITE_ENDPOINT": broker.endpoint, "COLUMNS": "80"}
        command = started_command("dlq", *args, stdin=theirs, stderr=theirs, env=env)
        yield command, lambda: all_shown(ours)
    finally:
        os.close(ours)
        os.close(theirs)


def asked_on_terminal(broker: FakeBroker, answer: bytes, *args: str) -> tuple[int, str, str]:
    with on_terminal(broker, answer, *args) as (process, shown):
        output, _ = process.communicate()
        return process.wait(), output, shown()


def test_a_redrive_is_previewed_and_asked_about(broker: FakeBroker) -> None:
    """The question names number, goal, speed and filter; yes starts the job."""
    redrives(broker, sent=97_000)
    args = (
        "redrive",
        "billing",
        "--to-topic",
        "orders",
        "--level",
        "3",
        "--rate",
        "500",
        "--tag",
        f"A{HOSTILE}",
    )
    code, output, shown = asked_on_terminal(broker, b"y\n", *args)
    how = (
        "again to topic orders at level 3 (10s), at most 500 a second: group billing: tag A\\x1b]52"
    )
    assert f"send 97,000 dead letters {how}" in shown
    assert output.splitlines()[-2] == "job r1: done after 20.0s"
    assert output.splitlines()[-1].startswith("97,000 sent")
    assert (code, started(broker).spec.max_per_second) == (0, 500)


def test_whoever_does_not_say_yes_sends_nothing(broker: FakeBroker) -> None:
    """Nor where there is nothing to send: then nothing is asked."""
    redrives(broker)
    code, _, shown = asked_on_terminal(broker, b"n\n", "redrive", "billing")
    assert (code, "nothing was sent" in shown) == (1, True)
    redrives(broker, sent=0)
    code, _, shown = asked_on_terminal(broker, b"y\n", "redrive", "billing")
    assert (code, "nothing to send: group billing" in shown, "[y/N]" in shown) == (1, True, False)
    assert not broker.asked["StartRedrive"]


def test_a_purge_is_asked_about_with_what_it_means(broker: FakeBroker) -> None:
    """How many, how many of them nobody dealt with, and that nothing is deleted."""
    purges(broker)
    code, _, shown = asked_on_terminal(broker, b"n\n", "purge", "billing")
    assert "the letters stay in the log until retention: --restore undoes this" in shown
    assert "purge 12,000 dead letters of group billing, 300 of them open?" in shown
    assert (code, len(broker.asked["PurgeDeadLetters"])) == (1, 1)


def test_an_interrupted_follower_leaves_the_job_running(broker: FakeBroker) -> None:
    """Ctrl-C is about the bar; how to go on is said."""
    redrives(broker)
    request = RedriveRequest(SPEC)
    running = broker.answers["StartRedrive"](request)
    running = dataclasses.replace(running, looked_at=1)
    broker.answers["GetRedriveJob"] = lambda _: running
    with on_terminal(broker, b"", "redrive", "billing", "--yes") as (process, shown):
        broker.until(lambda: len(broker.asked["GetRedriveJob"]) > 1)
        process.send_signal(signal.SIGINT)
        process.communicate()
        said = shown()
    assert process.returncode == 130
    assert "job r1 continues in the broker:" in said
    assert "rmqlite job show r1 --follow" in said
    assert "1 of 3" in said
    assert not broker.asked["ChangeRedriveJob"]

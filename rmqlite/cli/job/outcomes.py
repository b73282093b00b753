"""rmqlite job outcomes: the outcome of each letter of a redrive job."""

from __future__ import annotations

import enum
from itertools import islice
from typing import Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.job.changing import check_redrive
from rmqlite.cli.job.jobs import JobId
from rmqlite.cli.job.redrive_jobs import outcome_tree
from rmqlite.cli.options import DEFAULT_ENDPOINT, NOT_ALL, Endpoint
from rmqlite.cli.output.terminal import note, print_json_line, printable
from rmqlite.cli.output.writing import quiet_when_nobody_reads, to_standard_output
from rmqlite.errors import JobUnknown
from rmqlite.requests.redrive import DeadLetterOutcome, RedriveOutcome


class Only(enum.StrEnum):
    """An outcome, as a user types it."""

    SENT = "sent"
    ALREADY = "already"
    REFUSED = "refused"


_WIDTH = max(map(len, Only))


def outcomes(
    job_id: JobId,
    only: Annotated[
        list[Only] | None, typer.Option("--only", help="Only this outcome; can be repeated.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="At most this many; all by default.")
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per letter.")
    ] = False,
) -> None:
    """Print the outcome of each letter of a redrive job so far, one per line.

    A line has the letter's place, and the topic and id of the new message, or why there is none.
    Exit code 1 if there is nothing to print.
    """
    from rmqlite.client import AdminClient

    wanted = [RedriveOutcome[each.name] for each in only or ()]
    printed = 0
    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin, quiet_when_nobody_reads():
        try:
            group = admin.redrives.job(job_id).spec.group
        except JobUnknown:
            check_redrive(admin, job_id)
            raise
        for each in islice(admin.redrives.outcomes(job_id, *wanted), count):
            printed += 1
            if as_json:
                print_json_line(outcome_tree(group, each))
            else:
                to_standard_output(_line(group, each) + "\n")
    if not printed:
        note("no outcomes yet" if not wanted else "no such outcome")
        raise typer.Exit(NOT_ALL)


def _line(group: str, letter: DeadLetterOutcome) -> str:
    place = f"{group}:{letter.queue_id}:{letter.queue_offset}"
    about = [letter.topic, letter.message_id, letter.why]
    words = [letter.outcome.name.lower().ljust(_WIDTH), place, *[each for each in about if each]]
    return printable("  ".join(words))

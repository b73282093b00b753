"""rmqlite pipeline dlq-redrive: dead letters are sent again, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.options import AsJson, refuse
from rmqlite.cli.pipeline.dead_letters import Groups, OriginTopic, Reason, Since, Until, wanted
from rmqlite.cli.pipeline.options import Conf, Endpoint, Master, StorePath
from rmqlite.cli.pipeline.running import note_snapshot, settings, source
from rmqlite.cli.terminal import note, print_json, print_table, print_two_line_table, printable

_REFUSED: Final = 1


From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="EXPORT",
        help="Take the letters from what dlq-export has written.",
        show_default=False,
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="HOST:PORT",
        help="The broker to send to; that of --endpoint if there is none.",
        show_default=False,
    ),
]
ToTopic = Annotated[
    str, typer.Option("--to-topic", help="Send to this topic, not to where each was sent.")
]
DelayLevel = Annotated[
    int, typer.Option("--delay-level", min=0, help="Let them wait at this level first.")
]
Rate = Annotated[int, typer.Option("--rate", min=0, metavar="N", help="At most so many a second.")]
SkipRedriven = Annotated[
    bool, typer.Option("--skip-redriven", help="Not those that have died again.")
]
CheckLog = Annotated[
    bool,
    typer.Option(
        "--check-log/--no-check-log",
        help="Look in the broker's log for what was redriven before; without it the broker "
        "knows what was sent within its bulkDedupWindow.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")
]
JobId = Annotated[
    str, typer.Option("--job-id", metavar="ID", help="Count under this job at the broker.")
]


def dlq_redrive(
    export: From = "",
    path: StorePath = "",
    endpoint: Endpoint = "",
    to: To = "",
    group: Groups = None,
    topic: OriginTopic = "",
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
    to_topic: ToTopic = "",
    delay_level: DelayLevel = 0,
    rate: Rate = 0,
    skip_redriven: SkipRedriven = False,
    check_log: CheckLog = True,
    dry_run: DryRun = False,
    job_id: JobId = "",
    master: Master = "",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again to where they were sent first, each once however often it runs.

    Exit code 1 if some could not be sent; the reasons are told.
    """
    if export and (path or endpoint):
        refuse("--from", export, "either an export, or --path, or --endpoint")
    if not export:
        source(path, endpoint)
    target = to or endpoint
    if not target:
        refuse("--to", "", "the HOST:PORT of the broker to send to")
    asked, told = wanted(group, topic, reason, since, until), settings(conf)
    from rmqlite.spark.jobs import redrive, redriving

    how: dict[str, Any] = {
        "to_topic": to_topic,
        "delay_level": delay_level,
        "skip_redriven": skip_redriven,
    }
    done = None
    with _letters(export, path, endpoint, asked, master=master, conf=told) as dead:
        known = redriving.sent_to(dead, target) if check_log else None
        rows = redrive.redrive_rows(dead, **how, sent=known).persist()
        plan = redriving.planned(rows)
        if not dry_run and plan.letters:
            done = redriving.redrive(rows, endpoint=target, max_per_second=rate, job_id=job_id)
        rows.unpersist()
    _tell(plan, done, target, as_json=as_json, dry_run=dry_run)
    if plan.refused or (done is not None and done.reasons):
        raise typer.Exit(_REFUSED)


@contextmanager
def _letters(
    export: str, path: str, endpoint: str, asked: dict[str, Any], **how: Any
) -> Iterator[Any]:
    """The dead letters that are asked for, a DataFrame, read once."""
    from rmqlite.spark.jobs import dead_letters as job_of
    from rmqlite.spark.jobs.running import running, running_session

    letters = job_of.Wanted(**asked)
    if export:
        with running_session("dlq-redrive", **how) as spark:
            note(f"reading {export}")
            with _kept(job_of.only(job_of.read_export(spark, export), letters)) as dead:
                yield dead
        return
    with running("dlq-redrive", path=path, endpoint=endpoint, **how) as job:
        note_snapshot(job.snapshot)
        log = job.read(job_of.COLUMNS, **letters.read_options())
        with _kept(job_of.dead_letters(log, letters)) as dead:
            yield dead


@contextmanager
def _kept(table: Any) -> Iterator[Any]:
    """A DataFrame that is computed once."""
    table.persist()
    try:
        yield table
    finally:
        table.unpersist()


def _tell(plan: Any, done: Any, target: str, *, as_json: bool, dry_run: bool) -> None:
    """plan: a Planned; done: a Redriven, None if nothing was sent."""
    if as_json:
        print_json(
            {
                "to": target,
                "dry_run": dry_run,
                "topics": plan.topics,
                "sent_before": plan.sent_before,
                "refused": [*plan.refused, *(done.reasons if done else ())],
                "job": None if done is None else _job_tree(done),
            }
        )
        return
    names = ("topic", "letters", "redriven_before")
    if plan.topics:
        heads = ("TOPIC", "WOULD BE SENT" if dry_run else "LETTERS", "DIED AGAIN")
        print_table(heads, [[row[name] for name in names] for row in plan.topics])
    _print_refused([*plan.refused, *(done.reasons if done else ())])
    if plan.sent_before:
        note(f"{plan.sent_before:,} were redriven before: they are in the log of {target}")
    if done is not None:
        note(
            f"job {done.job_id}: {done.accepted:,} accepted, {done.duplicates:,} sent before,"
            f" {done.refused:,} refused"
        )
    elif not plan.topics:
        note("no dead letters to send")


def _print_refused(reasons: Sequence[dict[str, Any]]) -> None:
    if not reasons:
        return
    typer.echo("")
    rows = [
        ((f"{row['letters']:,}", printable(row["example"] or "-")), printable(row["reason"]))
        for row in reasons
    ]
    print_two_line_table(("REFUSED", "SUCH AS"), rows)


def _job_tree(done: Any) -> dict[str, Any]:
    return {
        "job_id": done.job_id,
        "accepted": done.accepted,
        "duplicates": done.duplicates,
        "refused": done.refused,
    }

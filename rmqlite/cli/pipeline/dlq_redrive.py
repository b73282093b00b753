"""rmqlite pipeline dlq-redrive: dead letters are sent again, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.options import AsJson, refuse
from rmqlite.cli.pipeline.dead_letters import Groups, OriginTopic, Reason, Since, Until, wanted
from rmqlite.cli.pipeline.options import Conf, Endpoint, Master, StorePath
from rmqlite.cli.pipeline.running import note_snapshot, settings, source
from rmqlite.cli.terminal import note, print_json, print_table, print_two_line_table, printable
from rmqlite.names import check_sendable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rmqlite.spark.jobs.dead_letters import Wanted
    from rmqlite.spark.jobs.redriving import Planned, Redriven

_REFUSED: Final = 1


def dlq_redrive(
    export: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="EXPORT",
            help="Take the letters from what dlq-export has written.",
            show_default=False,
        ),
    ] = "",
    path: StorePath = "",
    endpoint: Endpoint = "",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="HOST:PORT",
            help="The broker to send to; that of --endpoint if there is none.",
            show_default=False,
        ),
    ] = "",
    group: Groups = None,
    topic: OriginTopic = "",
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
    to_topic: Annotated[
        str, typer.Option("--to-topic", help="Send to this topic, not to where each was sent.")
    ] = "",
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, help="Let them wait at this level first.")
    ] = 0,
    rate: Annotated[
        int, typer.Option("--rate", min=0, metavar="N", help="At most so many per second.")
    ] = 0,
    skip_redriven: Annotated[
        bool, typer.Option("--skip-redriven", help="Not those that have died again.")
    ] = False,
    check_log: Annotated[
        bool,
        typer.Option(
            "--check-log/--no-check-log",
            help="Look in the broker's log for what was redriven before; without it the broker "
            "knows what was sent within its bulkDedupWindow.",
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")
    ] = False,
    job_id: Annotated[
        str, typer.Option("--job-id", metavar="ID", help="Count under this job at the broker.")
    ] = "",
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
    if to_topic:
        check_sendable(to_topic)
    letters, told = wanted(group, topic, reason, since, until), settings(conf)
    from rmqlite.spark.jobs.redrive import redrive_rows
    from rmqlite.spark.jobs.redriving import planned, redrive, sent_to

    with _letters(export, path, endpoint, letters, master=master, conf=told) as dead:
        known = sent_to(dead, target) if check_log else None
        rows = redrive_rows(
            dead,
            to_topic=to_topic,
            delay_level=delay_level,
            skip_redriven=skip_redriven,
            sent=known,
        ).persist()
        plan = planned(rows)
        done = None
        if not dry_run and plan.letters:
            done = redrive(rows, endpoint=target, max_per_second=rate, job_id=job_id)
        rows.unpersist()
    _tell(plan, done, target, as_json=as_json, dry_run=dry_run)
    if plan.refused or (done is not None and done.reasons):
        raise typer.Exit(_REFUSED)


@contextmanager
def _letters(
    export: str, path: str, endpoint: str, letters: Wanted, **how: Any
) -> Iterator[DataFrame]:
    """The dead letters that are asked for, read once."""
    from rmqlite.spark.jobs import dead_letters as job_of
    from rmqlite.spark.jobs.running import running, running_session

    if export:
        with running_session("dlq-redrive", **how) as spark:
            note(f"reading {export}")
            yield job_of.only(job_of.read_export(spark, export), letters).persist()
        return
    with running("dlq-redrive", path=path, endpoint=endpoint, **how) as job:
        note_snapshot(job.snapshot)
        log = job.read(job_of.COLUMNS, **letters.read_options())
        yield job_of.dead_letters(log, letters).persist()


def _tell(
    plan: Planned, done: Redriven | None, target: str, *, as_json: bool, dry_run: bool
) -> None:
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
            f" {done.refused:,} refused by {target}"
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


def _job_tree(done: Redriven) -> dict[str, Any]:
    return {
        "job_id": done.job_id,
        "accepted": done.accepted,
        "duplicates": done.duplicates,
        "refused": done.refused,
    }

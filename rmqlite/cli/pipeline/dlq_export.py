"""rmqlite pipeline dlq-export: dead letters as Parquet, by group and day."""

from __future__ import annotations

from typing import Annotated, Any, Final

from rmqlite.cli.options import moment_ms, option, refuse, with_options, wrong
from rmqlite.cli.output.documents import fields_of, prints
from rmqlite.cli.output.terminal import note, print_table, shortened
from rmqlite.cli.pipeline.running import (
    Groups,
    SourceOptions,
    answer,
    answered,
    check_source,
    groups_named,
    settings,
    started,
)

_REASON_CHARS: Final = 36

OriginTopic = Annotated[str, option("--topic -t", "Only those originally sent to this topic.")]
Kind = Annotated[str, option("--kind KIND", "Only those with this kind of reason.")]
Reason = Annotated[str, option("--reason TEXT", "Only those with this in the reason or its kind.")]
Since = Annotated[
    str, option("--since TIME", "Died then or later: '2026-11-20 10:00' or epoch ms.")
]
Until = Annotated[str, option("--until TIME", "Died before then.")]


_ANSWER: Final = answered(
    "DlqExport", "known: not new.", "counts", export=str, **fields_of(int, "added known")
)


@prints(lambda: _ANSWER)
@with_options
def dlq_export(
    *,
    options: SourceOptions,
    output: Annotated[
        str,
        option(
            "--output -o PLACE",
            "The export: any folder that Spark can write; its old files stay.",
            show_default=False,
        ),
    ] = "",
    group: Groups = None,
    topic: OriginTopic = "",
    kind: Kind = "",
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
) -> None:
    """Add dead letters to an export of Parquet files, by group and day (UTC).

    Those in the export are not added again, so the same command may run every hour.
    """
    check_source(options)
    if not output:
        wrong("give --output, a folder for the export")
    wanted = _wanted(group, since, until)
    from rmqlite.spark.hadoop import disk_names
    from rmqlite.spark.jobs import dead_letters as job_of

    letters = job_of.LetterFilter(topic=topic, failure_kind=kind, reason=reason, **wanted)
    names = disk_names(output, master=options.master, conf=settings(options.conf))
    job_of.check_names(names or (), output)
    with started("dlq-export", options, letters.check) as job:
        log = job.read(job_of.COLUMNS, **letters.read_options())
        found = job_of.export(job_of.dead_letters(log, letters), output)
    counts = [row | {"day": str(row["day"])} for row in found.counts]
    tree = {"export": found.place, "added": found.added, "known": found.known, "counts": counts}
    added = f"{found.added:,} added to {found.place}, {found.known:,} were there already"
    answer(job, options, _ANSWER, tree, lambda: _print(found.counts, added))


def _print(counts: list[dict[str, Any]], added: str) -> None:
    rows = [
        (
            row["group"],
            str(row["day"]),
            row["dead_letters"],
            row["added"],
            shortened(row["top_kind"], _REASON_CHARS),
        )
        for row in counts
    ]
    if rows:
        print_table(("GROUP", "DAY (UTC)", "LETTERS", "ADDED", "MOST OF THEM"), rows)
    else:
        note("no dead letters")
    note(added)


def _wanted(groups: list[str] | None, since: str, until: str) -> dict[str, Any]:
    """Some options as arguments of DeadLetterFilter; one that is wrong ends the command."""
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        refuse("--until", until, f"later than --since {since!r}")
    return {"groups": groups_named(groups), "since_ms": since_ms, "until_ms": until_ms}

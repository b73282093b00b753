"""rmqlite pipeline dlq-export, retries and redrives: what became of messages that consumers failed.

Dead letters go into Parquet files by group and day.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from rmqlite.cli import completion
from rmqlite.cli.options import moment_ms, option, refuse, with_options, wrong
from rmqlite.cli.output.documents import fields_of, prints
from rmqlite.cli.output.terminal import note, print_table, shortened
from rmqlite.cli.pipeline.running import (
    Groups,
    PlotOptions,
    SourceOptions,
    answer,
    answered,
    check_source,
    groups_named,
    settings,
    started,
    write,
    write_plot,
)
from rmqlite.views.numbers import size_text, span_text, time_text

_REASON_CHARS: Final = 36
OriginTopic = Annotated[str, option("--topic -t", "Only those originally sent to this topic.")]
Kind = Annotated[str, option("--kind KIND", "Only those with this kind of reason.")]
Reason = Annotated[str, option("--reason TEXT", "Only those with this in the reason or its kind.")]
Since = Annotated[
    str, option("--since TIME", "Died then or later: '2026-11-20 10:00' or epoch ms.")
]
Until = Annotated[str, option("--until TIME", "Died before then.")]
_EXPORT: Final = answered(
    "DlqExport", "known: not new.", "counts", export=str, **fields_of(int, "added known")
)
_REASON_CHARS_MAX: Final = 44
_NAME_CHARS_MAX: Final = 16
_NAME_CHARS: Final = 18
_KIND_CHARS: Final = 36
_ALWAYS: Final = ("sent", "consumed", "waiting", "dead")
_SELDOM: Final = ("cancelled", "elsewhere")
_REDRIVES: Final = answered("Redrives", "What became of redriven messages.", "redrives")


@prints(lambda: _EXPORT)
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
    answer(job, options, _EXPORT, tree, lambda: _print_export(found.counts, added))


def _print_export(counts: list[dict[str, Any]], added: str) -> None:
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


class RetryTable(enum.StrEnum):
    """The tables that can be written and drawn."""

    FUNNEL = "funnel"
    COSTS = "costs"


_FUNNEL: Final = answered("RetryFunnel", "What failed.", "groups funnel reasons levels costs")


@prints(lambda: _FUNNEL)
@with_options
def retries(
    *,
    options: PlotOptions,
    group: Groups = None,
    table: Annotated[
        RetryTable, option("--table NAME", "The table for --output and --plot.")
    ] = RetryTable.FUNNEL,
    reasons: Annotated[
        int, option("--reasons N", "Show this many kinds of reasons per group.", min=1)
    ] = 5,
) -> None:
    """Show the retry funnel per group and topic, why messages failed, and what that cost.

    --output has a row for each group, topic and attempt; with --table costs for each group
    and topic.
    """
    groups = groups_named(group)
    from rmqlite.spark.jobs import retries as job_of
    from rmqlite.spark.jobs.committed import committed
    from rmqlite.spark.tables import collected

    with started("retries", options, lambda found: found.check_groups(groups)) as job:
        offsets = committed(job.spark, path=options.path, endpoint=options.endpoint)
        failures = job_of.failures(job.read(job_of.COLUMNS), offsets, groups).persist()
        messages = job_of.messages(failures).persist()
        tables = {
            "groups": collected(job_of.summary(messages)),
            "funnel": collected(job_of.funnel(messages)),
            "reasons": collected(job_of.reasons(failures, most=reasons)),
            "levels": collected(job_of.levels(failures)),
            "costs": collected(job_of.costs(failures)),
        }
        text, is_costs = job.snapshot.text, table is RetryTable.COSTS

        def draw(plot: Any) -> bytes:
            costs = tables["costs"]
            drawn = plot.costs_plot(text, costs) if is_costs else plot.retries_plot(text, tables)
            return bytes(drawn)

        write_plot(draw, options)
        write(job_of.costs(failures) if is_costs else job_of.funnel(messages), options)
        messages.unpersist()
        failures.unpersist()
    answer(job, options, _FUNNEL, tables, lambda: _print_retries(tables))


def _print_retries(tables: dict[str, list[dict[str, Any]]]) -> None:
    from rmqlite.spark.jobs.retries import STATES

    if not tables["groups"]:
        note("no message was failed")
        return
    groups = [
        (
            _cut(row["consumer_group"]),
            _cut(row["origin_topic"]),
            *[row[name] for name in ("messages", *STATES)],
        )
        for row in tables["groups"]
    ]
    columns = ("GROUP", "TOPIC", "FAILED", *map(_title, STATES))
    print_table(columns, groups, "Messages that failed at least once")
    took = [
        (
            _cut(row["consumer_group"]),
            _cut(row["origin_topic"]),
            span_text(round(row["to_success_p50_ms"])),
            span_text(round(row["to_success_p99_ms"])),
        )
        for row in tables["groups"]
        if row["to_success_p50_ms"] is not None
    ]
    if took:
        print_table(("GROUP", "TOPIC", "P50", "P99"), took, "Time from send to success")
    _print_funnel(tables["funnel"])
    reasons = [
        (_cut(row["consumer_group"]), row["failures"], _cut(row["failure_kind"], _REASON_CHARS_MAX))
        for row in _with_rest_named(tables["reasons"])
    ]
    print_table(("GROUP", "FAILURES", "REASON"), reasons, "Reasons, the most frequent first")
    levels = [
        (
            _cut(row["consumer_group"]),
            str(row["delay_level"]),
            row["retries"],
            ", ".join(map(str, row["attempts"])),
        )
        for row in tables["levels"]
    ]
    print_table(("GROUP", "LEVEL", "RETRIES", "OF RETRY"), levels, "Levels at which retries wait")
    costs = [
        (
            _cut(row["consumer_group"]),
            _cut(row["origin_topic"]),
            *[row[name] for name in ("messages", "attempts", "records")],
            size_text(row["record_bytes"]),
            span_text(row["waited_ms"]),
        )
        for row in tables["costs"]
    ]
    head = ("GROUP", "TOPIC", "FAILED", "ATTEMPTS", "RECORDS", "OF THE LOG", "WAITED")
    print_table(head, costs, "What failures cost")


def _print_funnel(rows: list[dict[str, Any]]) -> None:
    """Print a table for each group and topic: REACHED is SUCCEEDED, FAILED and IN HAND."""
    names = ("reached", "succeeded", "failed", "in_hand", "dead", "waiting", "cancelled")
    of_topic: dict[tuple[str, str], list[tuple[object, ...]]] = {}
    for row in rows:
        rate = None if row["success_rate"] is None else 100 * row["success_rate"]
        of_topic.setdefault((row["consumer_group"], row["origin_topic"] or "-"), []).append(
            (row["attempt"], *[row[name] for name in names], rate)
        )
    head = ("RETRY", *map(_title, names), "RATE %")
    for (group, topic), outcomes in of_topic.items():
        print_table(head, outcomes, f"The outcome of each retry: {group}, messages of {topic}")


def _with_rest_named(reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of reasons(), also the one for the rest with a text as its kind."""
    named = []
    for row in reasons:
        rest = f"({row['kinds']:,} other {'kind' if row['kinds'] == 1 else 'kinds'})"
        named.append(row | {"failure_kind": row["failure_kind"] or rest})
    return named


def _cut(text: str | None, width: int = _NAME_CHARS_MAX) -> str:
    """A text cut to the width of a cell."""
    return shortened(" ".join((text or "-").split()), width)


def _title(column: str) -> str:
    return column.replace("_", " ").upper()


@prints(lambda: _REDRIVES)
@with_options
def redrives(
    *,
    options: PlotOptions,
    job: Annotated[str, option("--job JOB_ID", "Only this redrive job.", completion.jobs)] = "",
    group: Groups = None,
    since: Annotated[str, option("--since TIME", "Sent again at this time or later.")] = "",
    until: Annotated[str, option("--until TIME", "Sent again before this time.")] = "",
) -> None:
    """Did redrives work?  Count per job and group what was consumed, waits, or is dead again.

    --output has a row for each message, with the place of its dead letter.
    """
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    groups = groups_named(group)
    from rmqlite.spark.jobs import redrives as job_of
    from rmqlite.spark.jobs.committed import committed
    from rmqlite.spark.tables import collected

    with started("redrives", options, lambda found: found.check_groups(groups)) as run:
        offsets = committed(run.spark, path=options.path, endpoint=options.endpoint)
        every = job_of.redriven(run.read(job_of.COLUMNS), offsets)
        messages = job_of.only(every, job, since_ms, until_ms, groups).persist()
        rows = collected(job_of.summary(messages))
        write_plot(lambda plot: plot.redrives_plot(run.snapshot.text, rows), options)
        write(messages.orderBy("sent_timestamp", "redriven_from", "unique_key"), options)
        messages.unpersist()
    answer(run, options, _REDRIVES, {"redrives": rows}, lambda: _print_redrives(rows))


def _print_redrives(rows: list[dict[str, Any]]) -> None:
    if not rows:
        note("no dead letter was redriven")
        return
    names = [*_ALWAYS, *[name for name in _SELDOM if any(row[name] for row in rows)]]
    cells = [
        (
            *_names(row),
            time_text(row["sent_timestamp_ms"])[:16],
            *[row[name] for name in names],
            None if row["success_rate"] is None else 100 * row["success_rate"],
        )
        for row in rows
    ]
    head = ("JOB", "GROUP", "SINCE", *map(str.upper, names), "OK %")
    print_table(head, cells, "What became of redriven messages")
    dead = [
        (*_names(row), row["dead"], shortened(row["top_kind"], _KIND_CHARS))
        for row in rows
        if row["dead"]
    ]
    if dead:
        print_table(("JOB", "GROUP", "DEAD", "MOST OF THEM"), dead, "Dead again")


def _names(row: dict[str, Any]) -> tuple[str, str]:
    job, group = row["redriven_by"] or "-", row["consumer_group"]
    return shortened(job, _NAME_CHARS), shortened(group, _NAME_CHARS)

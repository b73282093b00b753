"""rmqlite pipeline retries: the outcomes of messages that consumers failed."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from rmqlite.cli.options import option, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_table, shortened
from rmqlite.cli.pipeline.running import (
    Groups,
    PlotOptions,
    answer,
    answered,
    groups_named,
    started,
    write,
    write_plot,
)
from rmqlite.views.numbers import size_text, span_text

_REASON_CHARS_MAX: Final = 44
_NAME_CHARS_MAX: Final = 16


class RetryTable(enum.StrEnum):
    """The tables that can be written and drawn."""

    FUNNEL = "funnel"
    COSTS = "costs"


_ANSWER: Final = answered("RetryFunnel", "What failed.", "groups funnel reasons levels costs")


@prints(lambda: _ANSWER)
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
    answer(job, options, _ANSWER, tables, lambda: _print(tables))


def _print(tables: dict[str, list[dict[str, Any]]]) -> None:
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

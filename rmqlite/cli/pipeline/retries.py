"""rmqlite pipeline retries: the outcomes of messages that consumers failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import option, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_table, shortened
from rmqlite.cli.pipeline.running import PlotOptions, answer, answered, started, write, write_plot
from rmqlite.names import is_retry, retry_topic
from rmqlite.views.times import span_text

_REASON_CHARS_MAX: Final = 44
_NAME_CHARS_MAX: Final = 16


_ANSWER: Final = answered("RetryFunnel", "What failed.", "groups funnel reasons levels")


@prints(lambda: _ANSWER)
@with_options
def retries(
    *,
    options: PlotOptions,
    reasons: Annotated[
        int, option("--reasons N", "Show this many kinds of reasons per group.", min=1)
    ] = 5,
) -> None:
    """Show the retry funnel per group and topic: successes, their times, and failures.

    --output has a row for each group, topic and attempt.
    """
    from rmqlite.spark.jobs import retries as job_of
    from rmqlite.spark.tables import collected

    with started("retries", options) as job:
        committed = job.spark.createDataFrame(
            _committed(options.path, options.endpoint), job_of.COMMITTED_SCHEMA
        )
        failures = job_of.failures(job.read(job_of.COLUMNS), committed).persist()
        messages = job_of.messages(failures).persist()
        tables = {
            "groups": collected(job_of.summary(messages)),
            "funnel": collected(job_of.funnel(messages)),
            "reasons": collected(job_of.reasons(failures, most=reasons)),
            "levels": collected(job_of.levels(failures)),
        }

        write_plot(lambda plot: plot.retries_plot(job.snapshot.text, tables), options)
        write(job_of.funnel(messages), options)
        messages.unpersist()
        failures.unpersist()
    answer(job, options, _ANSWER, tables, lambda: _print(tables))


def _committed(path: str, endpoint: str) -> list[tuple[str, int, int]]:
    """The committed offsets of the retry topics: topic, queue id, queue offset."""
    if path:
        from rmqlite.store.reader import StoreReader

        with StoreReader(Path(path)) as reader:
            lags = reader.overview().lags()
        return [
            (lag.topic, lag.queue_id, lag.committed_offset)
            for lag in lags
            if lag.topic == retry_topic(lag.group)
        ]
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        groups = [admin.group(each.group) for each in admin.list_groups()]
    return [
        (each.queue.topic, each.queue.queue_id, each.committed_offset)
        for group in groups
        for each in group.progress
        if is_retry(each.queue.topic) and each.committed_offset is not None
    ]


def _print(tables: dict[str, list[dict[str, Any]]]) -> None:
    if not tables["groups"]:
        note("no message was failed")
        return
    groups = [
        (
            _cut(row["consumer_group"]),
            _cut(row["origin_topic"]),
            *[row[name] for name in ("messages", "succeeded", "in_hand", "waiting", "dead")],
        )
        for row in tables["groups"]
    ]
    head = ("GROUP", "TOPIC", "FAILED", "SUCCEEDED", "IN HAND", "WAITING", "DEAD")
    print_table(head, groups, "Messages that failed at least once")
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
        (
            _cut(row["consumer_group"]),
            row["failures"],
            _cut(row["failure_kind"], _REASON_CHARS_MAX),
        )
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


def _print_funnel(rows: list[dict[str, Any]]) -> None:
    """Print a table for each group and topic: REACHED is SUCCEEDED, FAILED and IN HAND."""
    names = ("attempt", "reached", "succeeded", "failed", "in_hand", "dead", "waiting")
    of_topic: dict[tuple[str, str], list[tuple[object, ...]]] = {}
    for row in rows:
        rate = None if row["success_rate"] is None else 100 * row["success_rate"]
        of_topic.setdefault((row["consumer_group"], row["origin_topic"] or "-"), []).append(
            (*[row[name] for name in names], rate)
        )
    head = ("RETRY", "REACHED", "SUCCEEDED", "FAILED", "IN HAND", "DEAD", "WAITING", "RATE %")
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

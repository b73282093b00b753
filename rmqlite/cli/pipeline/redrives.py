"""rmqlite pipeline redrives: what became of the dead letters that were sent again."""

from __future__ import annotations

from typing import Annotated, Any, Final

from rmqlite.cli import completion
from rmqlite.cli.options import moment_ms, option, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_table, shortened, time_text
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

_NAME_CHARS: Final = 18
_KIND_CHARS: Final = 36
_ALWAYS: Final = ("sent", "consumed", "waiting", "dead")
_SELDOM: Final = ("cancelled", "elsewhere")


_ANSWER: Final = answered("Redrives", "What became of redriven messages.", "redrives")


@prints(lambda: _ANSWER)
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
    answer(run, options, _ANSWER, {"redrives": rows}, lambda: _print(rows))


def _print(rows: list[dict[str, Any]]) -> None:
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

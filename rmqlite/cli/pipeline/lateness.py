"""rmqlite pipeline lateness: the lateness of deliveries, per level and hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from rmqlite.cli.options import moment_ms, option, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_table, time_text
from rmqlite.cli.pipeline.running import PlotOptions, answer, answered, started, write, write_plot
from rmqlite.views.levels import level_text

_HEAD: Final = ("MESSAGES", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "LATE %", "EARLY")
_HOURS_SHOWN: Final = 24


_ANSWER: Final = answered(
    "Lateness", "Of deliveries.", "all levels hours levels_and_hours", late_ms=int
)


@prints(lambda: _ANSWER)
@with_options
def lateness(
    *,
    options: PlotOptions,
    late_ms: Annotated[
        int, option("--late-ms MS", "A delivery is late after this time.", min=0)
    ] = 100,
    since: Annotated[str, option("--since TIME", "Delivered at this time or later.")] = "",
    until: Annotated[str, option("--until TIME", "Delivered before this time.")] = "",
) -> None:
    """Show the lateness of deliveries per level and hour; --output has a row for each."""
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    from rmqlite.spark.jobs import lateness as job_of
    from rmqlite.spark.tables import collected

    with started("lateness", options) as job:
        counts = job_of.log_counts(
            job.read,
            now_ms=job.snapshot.newest_timestamp_ms,
            since_ms=since_ms,
            until_ms=until_ms,
        )
        tables = {
            name: collected(job_of.lateness(counts, by=by, late_ms=late_ms))
            for name, by in (
                ("all", ()),
                ("levels", ("level",)),
                ("hours", ("hour",)),
                ("levels_and_hours", job_of.BY_LEVEL_AND_HOUR),
            )
        }

        def draw(plot: Any) -> bytes:
            late = collected(counts.where("late_ms IS NOT NULL"))
            return bytes(plot.lateness_plot(job.snapshot.text, late_ms, tables, late))

        write_plot(draw, options)
        write(job_of.lateness(counts, late_ms=late_ms), options)
        counts.unpersist()
    tree = {"late_ms": late_ms, **tables}
    answer(job, options, _ANSWER, tree, lambda: _print(tables, late_ms))


def _print(tables: dict[str, list[dict[str, Any]]], late_ms: int) -> None:
    if not tables["levels"]:
        note("nothing was delivered from the schedule")
        return
    levels = [(level_text(row["level"]), *_cells(row)) for row in tables["levels"]]
    levels += [("all", *_cells(row)) for row in tables["all"]]
    title = f"Delivery - deliver time, per level; late is more than {late_ms} ms"
    print_table(("LEVEL", *_HEAD), levels, title)
    hours = tables["hours"]
    if len(hours) > 1:
        shown = hours[-_HOURS_SHOWN:]
        which = f"the last {_HOURS_SHOWN} of {len(hours)} hours" if shown != hours else "per hour"
        rows = [(time_text(row["hour_ms"])[:16], *_cells(row)) for row in shown]
        print_table(("HOUR", *_HEAD), rows, f"All levels, {which}")


def _cells(row: dict[str, Any]) -> Sequence[object]:
    names = ("messages", "p50_ms", "p90_ms", "p99_ms", "max_ms")
    return (*[row[name] for name in names], 100 * row["late_share"], row["early"])

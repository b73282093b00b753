"""rmqlite bench: start brokers on temporary stores, measure them, print one table.

The broker is a process started here on a temporary store; the load comes from this process.
tests/benchmarks has the large scenarios, made of the same parts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeElapsedColumn

from rmqlite import __version__
from rmqlite.cli.options import option
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import print_table

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCENARIO...", help="send, batch, delayed, drain, lateness; or all."),
]
Flush = Annotated[str, typer.Option(metavar="TYPE", help="SYNC_FLUSH or ASYNC_FLUSH.")]
Seconds = Annotated[
    float, typer.Option(min=0.01, max=600.0, help="How long each case is measured, about.")
]
Folder = Annotated[Path | None, option("--dir DIR", "The disk to measure, for a temporary folder.")]


def bench(
    names: Names = None,
    flush: Flush = "SYNC_FLUSH",
    seconds: Seconds = 5.0,
    folder: Folder = None,
) -> None:
    """Measure a new broker: sends, batches, delayed sends, a backlog's delivery, lateness."""
    from rmqlite.cli.bench.scenarios import COLUMNS, NAMES, measure

    wanted = names or NAMES
    unknown = sorted({*wanted} - {*NAMES})
    if unknown:
        raise typer.BadParameter(f"no scenario {unknown[0]!r}; there are {', '.join(NAMES)}")
    if flush not in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        raise typer.BadParameter("SYNC_FLUSH or ASYNC_FLUSH", param_hint="--flush")
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="rmqlite-bench-", dir=folder) as temporary,
        progress_bar(TimeElapsedColumn()) as progress,
    ):
        for name in wanted:
            progress.add_task(name, total=None)
            rows += list(measure(name, Path(temporary) / "broker", flush, seconds))
    print_table(COLUMNS, rows, title=f"rmqlite {__version__}, {flush}")

"""rmqlite bench: choose scenarios, run them, print a table, write JSON."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import tempfile
from multiprocessing import cpu_count
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TimeElapsedColumn

from rmqlite import __version__
from rmqlite.cli.bench.figures import COLUMNS, Figure, table_rows
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import print_table
from rmqlite.cli.output.writing import written


def bench(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO...",
            help="Any of send, batch, delayed-send, parked, lateness, rates, drain, burst, cancel, "
            "pending, start, memory, recovery, check; all by default.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the figures here; - prints them."),
    ] = None,
    flush: Annotated[
        str, typer.Option(metavar="TYPE", help="SYNC_FLUSH or ASYNC_FLUSH.")
    ] = "SYNC_FLUSH",
    scale: Annotated[
        float, typer.Option(min=0.0001, max=100.0, help="Sizes and durations, times this.")
    ] = 1.0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="The disk to measure: a temporary folder is made here."
        ),
    ] = None,
) -> None:
    """Measure a new broker: rates, latencies, lateness, start and memory."""
    from rmqlite.cli.bench.bench import Bench
    from rmqlite.cli.bench.scenarios import NAMES, measure

    wanted = frozenset(scenarios or NAMES)
    unknown = sorted(wanted - set(NAMES))
    if unknown:
        raise typer.BadParameter(f"no scenario {unknown[0]!r}; there are {', '.join(NAMES)}")
    if flush not in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        raise typer.BadParameter("SYNC_FLUSH or ASYNC_FLUSH", param_hint="--flush")
    with (
        tempfile.TemporaryDirectory(prefix="rmqlite-bench-", dir=folder) as temporary,
        progress_bar(BarColumn(), TimeElapsedColumn()) as progress,
    ):
        figures = list(measure(Bench(Path(temporary), flush, scale, progress), wanted))
    document = _document(figures, flush=flush, scale=scale)
    if json_file == Path("-"):
        sys.stdout.write(document)
        return
    if json_file is not None:
        with written(json_file) as write:
            write(document)
    title = f"rmqlite {__version__}, {flush}, {cpu_count()} CPUs, scale {scale:g}"
    print_table(COLUMNS, table_rows(figures), title=title)


def _document(figures: list[Figure], *, flush: str, scale: float) -> str:
    tree: dict[str, Any] = {
        "version": __version__,
        "flush_disk_type": flush,
        "scale": scale,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": cpu_count(),
        "figures": [dataclasses.asdict(each) for each in figures],
    }
    return json.dumps(tree, indent=2) + "\n"

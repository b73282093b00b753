"""python -m tests.benchmarks: choose scenarios, run them, print a table, write JSON and a plot."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, TimeElapsedColumn

from rmqlite.cli.options import refuse
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import error_line, note, print_lines, print_table
from rmqlite.cli.output.writing import STANDARD_OUTPUT, writing, written_bytes
from rmqlite.extras import check_extra
from rmqlite.kernel.words.errors import RmqliteError
from tests.benchmarks.broker.bench import Bench
from tests.benchmarks.broker.document import Document, differences, document, document_of
from tests.benchmarks.broker.figures import COLUMNS, COMPARED_COLUMNS, compared_rows, table_rows
from tests.benchmarks.broker.plot import png
from tests.benchmarks.broker.scenarios import NAMES, measure

REPEAT_MAX: Final = 25


Scenarios = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCENARIO...",
        help=f"Any of {', '.join(NAMES)}; all by default.",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the figures here; - prints them."),
]
Flush = Annotated[str, typer.Option(metavar="TYPE", help="SYNC_FLUSH or ASYNC_FLUSH.")]
Scale = Annotated[
    float, typer.Option(min=0.0001, max=100.0, help="Sizes and durations, times this.")
]
Repeat = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=REPEAT_MAX,
        help="Run send, batch, delayed-send, drain, consume and timers N times, and print the "
        "median; the others run once.",
    ),
]
Pending = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="timers: also measure beside N timers spread over two years."
    ),
]
Compare = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Print the figures of this earlier --json file, too, and the ratio: above 1 is "
        "better now.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE.png", help='Draw the rates; needs pip install "rmqlite[plot]".'),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="The disk to measure: a temporary folder is made here."
    ),
]


def bench(
    scenarios: Scenarios = None,
    json_file: JsonFile = None,
    flush: Flush = "SYNC_FLUSH",
    scale: Scale = 1.0,
    repeat: Repeat = 5,
    pending: Pending = 0,
    compare: Compare = None,
    plot: Plot = None,
    folder: Folder = None,
) -> None:
    """Measure a new broker: rates, latencies, lateness, start and memory."""
    wanted = frozenset(scenarios or NAMES)
    unknown = sorted(wanted - set(NAMES))
    if unknown:
        raise typer.BadParameter(f"no scenario {unknown[0]!r}; there are {', '.join(NAMES)}")
    if flush not in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        raise typer.BadParameter("SYNC_FLUSH or ASYNC_FLUSH", param_hint="--flush")
    earlier = None if compare is None else _earlier(compare)
    _check_outputs(json_file, plot)
    with (
        tempfile.TemporaryDirectory(prefix="rmqlite-bench-", dir=folder) as temporary,
        progress_bar(BarColumn(), TimeElapsedColumn()) as progress,
    ):
        measured = Bench(Path(temporary), flush, scale, progress, repeat, pending)
        figures = list(measure(measured, wanted))
    now = document(figures, flush=flush, scale=scale, repeat=repeat)
    for each in differences(now, earlier) if earlier else ():
        note(f"warning: {compare} was measured in another way: {each}")
    if plot is not None:
        with written_bytes(plot) as image:
            image.write(png(now, earlier))
    if json_file is not None:
        with writing(json_file) as write:
            write(now.to_json().encode("ascii"))
    if json_file != STANDARD_OUTPUT:
        _print(now, earlier)


def _check_outputs(json_file: Path | None, plot: Path | None) -> None:
    """Refuse what could not be written, before the measurement."""
    if plot is not None:
        if plot.suffix != ".png":
            refuse("--plot", plot, "a name that ends in .png")
        check_extra("plot")
    for option, file in (("--json", json_file), ("--plot", plot)):
        if file is not None and not file.parent.is_dir():
            refuse(option, file, "a file in a folder that exists")


def _earlier(file: Path) -> Document:
    """Read it before the measurement, which takes long."""
    try:
        return document_of(file.read_text("utf-8"))
    except OSError as error:
        refuse("--compare", file, f"a file that can be read: {error.strerror}")
    except ValueError as error:
        refuse("--compare", file, f"a file that --json wrote: {error}")


def _print(now: Document, earlier: Document | None) -> None:
    if earlier is None:
        print_table(COLUMNS, table_rows(now.figures), title=now.title)
    else:
        rows = compared_rows(now.figures, earlier.figures)
        print_table(COMPARED_COLUMNS, rows, title=now.title)
    print_lines(["", *now.caption])
    if earlier is not None:
        print_lines([f"earlier: {earlier.title}"])


def app() -> typer.Typer:
    """The command line."""
    made = typer.Typer(add_completion=False)
    made.command()(bench)
    return made


def main() -> None:
    """Run the command; a failure ends it with one line, like every command of rmqlite."""
    try:
        app()()
    except RmqliteError as error:
        note(error_line(error))
        sys.exit(1)

"""rmqlite store export --format parquet|arrow: columns for programs that read tables."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn

from rmqlite.cli.options import refuse
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.writing import written_bytes
from rmqlite.errors import InvalidValue
from rmqlite.extras import check_extra

if TYPE_CHECKING:
    from rmqlite.config import BrokerConfig
    from rmqlite.store.reader import MessageFilter


class ExportFormat(enum.StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES = {
    ".parquet": ExportFormat.PARQUET,
    ".arrow": ExportFormat.ARROW,
    ".feather": ExportFormat.ARROW,
}
Format = Annotated[
    ExportFormat | None,
    typer.Option(
        "--format",
        "-f",
        help="The format; by default as --output ends, or jsonl. "
        'parquet and arrow need pip install "rmqlite[arrow]".',
        show_default=False,
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="Columns of parquet and arrow, separated by commas; '*' means all.",
    ),
]


def format_of(form: ExportFormat | None, output: Path, columns: str) -> ExportFormat:
    """The format of the options together; a wrong option ends the command."""
    chosen = form or _SUFFIXES.get(output.suffix.lower(), ExportFormat.JSONL)
    if chosen is ExportFormat.JSONL:
        if columns:
            refuse("--columns", columns, "left out unless --format is parquet or arrow")
        return chosen
    if output == Path("-"):
        refuse("--output", output, f"the name of a file, for --format {chosen}")
    return chosen


def check_plain(*, inflate: bool, skip_damaged: bool, form: ExportFormat) -> None:
    """Refuse options that only JSON lines support."""
    for option, is_given in (("--inflate", inflate), ("--skip-damaged", skip_damaged)):
        if is_given:
            refuse(option, "true", f"left out: --format {form} has no such option, jsonl has")


def export_table(
    location: tuple[Path, BrokerConfig | None],
    wanted: MessageFilter,
    output: Path,
    form: ExportFormat,
    *,
    columns: str,
    limit: int | None,
) -> tuple[int, int]:
    """Write a file that appears under its name when it is complete.

    Returns the number of rows and the bytes of their records.  Raises ExtraMissing, and the errors
    of reading a store.
    """
    check_extra("arrow")
    from rmqlite.arrow.columns import columns_named
    from rmqlite.arrow.export import export

    try:
        columns_named(columns)
    except InvalidValue as error:
        refuse("--columns", error.value, error.rule)
    columns_shown = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with progress_bar(*columns_shown) as bar, written_bytes(output) as file:
        task = bar.add_task("reading", total=None)
        found = export(
            file,
            str(location[0]),
            wanted,
            form=form.value,
            columns=columns,
            limit=limit,
            config=location[1],
            advance=lambda done, total: bar.update(task, completed=done, total=total),
        )
    return found.rows, found.record_bytes

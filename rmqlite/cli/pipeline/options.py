"""The options of every job: its source, Spark's master, and the output."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqlite.cli.options import AsJson


class TableFormat(enum.StrEnum):
    """The formats of a table."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


def _option(*names: str, metavar: str | None, help_text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        *names, metavar=metavar, help=help_text, show_default=False
    )
    return found


_MASTER = (
    "Spark's master: local[4], spark://host:7077, yarn; by default spark-submit's, or all cores of "
    "this machine."
)
_OUTPUT = "Also write the table: to a file such as x.csv, or to a folder, as Spark does."
_FORMAT = "The format of the table; by default as the file's name ends, or parquet."
_ARCHIVE = "An archive: its records and those of the log behind it are one table."
_PATH = "Read a store's folder; a broker may be running on it."


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a job reads, and where Spark runs, as it was typed."""

    path: Annotated[str, _option("--path", "-p", metavar="STORE", help_text=_PATH)] = ""
    endpoint: Annotated[
        str,
        _option("--endpoint", "-e", metavar="HOST:PORT", help_text="Read from a broker instead."),
    ] = ""
    archive: Annotated[str, _option("--archive", metavar="PLACE", help_text=_ARCHIVE)] = ""
    master: Annotated[str, _option("--master", metavar="URL", help_text=_MASTER)] = ""
    conf: Annotated[
        list[str] | None,
        _option("--conf", metavar="KEY=VALUE", help_text="A setting of Spark; can be repeated."),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class TableOptions(SourceOptions):
    """Also where the job's table goes."""

    output: Annotated[str, _option("--output", "-o", metavar="PLACE", help_text=_OUTPUT)] = ""
    form: Annotated[TableFormat | None, _option("--format", metavar=None, help_text=_FORMAT)] = None


@dataclass(frozen=True, slots=True)
class PlotOptions(TableOptions):
    """Also a plot."""

    plot: Annotated[
        Path | None, _option("--plot", metavar="FILE.png", help_text="Also draw a plot.")
    ] = None

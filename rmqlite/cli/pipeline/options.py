"""What every job can be told: what it reads, where Spark runs, and where the result goes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


class TableFormat(enum.StrEnum):
    """How a table is written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


StorePath = Annotated[
    str,
    typer.Option(
        "--path",
        "-p",
        metavar="STORE",
        help="Read a store's folder, with a broker running on it or without.",
        show_default=False,
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        "-e",
        metavar="HOST:PORT",
        help="Read from a broker instead.",
        show_default=False,
    ),
]
Archive = Annotated[
    str,
    typer.Option(
        "--archive",
        metavar="PLACE",
        help="Read an archive and what the log has behind it, as one table.",
        show_default=False,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master: local[4], spark://host:7077, yarn; else what spark-submit says, "
        "else all cores of this machine.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given several times."
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="PLACE",
        help="Also write the table: to a file such as x.csv, or to a folder, as Spark does.",
        show_default=False,
    ),
]
Format = Annotated[
    TableFormat | None,
    typer.Option(
        "--format",
        help="How the table is written; else as the file's name says, else parquet.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a job reads, and where Spark runs, as it was typed."""

    path: StorePath = ""
    endpoint: Endpoint = ""
    archive: Archive = ""
    master: Master = ""
    conf: Conf = None


@dataclass(frozen=True, slots=True)
class TableOptions(SourceOptions):
    """Also where the job's table goes."""

    output: Output = ""
    form: Format = None


@dataclass(frozen=True, slots=True)
class ReportOptions(TableOptions):
    """Also a page for people."""

    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Also write a page with plots, and the plots as FILE.png.",
            show_default=False,
        ),
    ] = None

"""The options of every job: its source, Spark's master, and the output."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


class TableFormat(enum.StrEnum):
    """The formats of a table."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


StorePath = Annotated[
    str,
    typer.Option(
        "--path",
        "-p",
        metavar="STORE",
        help="Read a store's folder; a broker may be running on it.",
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
        help="Read an archive and the log behind it as one table.",
        show_default=False,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master: local[4], spark://host:7077, yarn; by default spark-submit's, "
        "or all cores of this machine.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; can be repeated."),
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
        help="The format of the table; by default as the file's name ends, or parquet.",
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

"""The options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

from typing import Annotated, Final

import typer

DEFAULT_ENDPOINT: Final = "127.0.0.1:10911"

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        "-e",
        envvar="RMQLITE_ENDPOINT",
        metavar="HOST:PORT",
        help="Where the broker listens.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of a table for people.")
]

"""rmqlite pipeline: jobs over all records of a store or a broker, run by Spark."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Jobs over all records of a store or a broker, run by Spark: here or on a cluster.",
)

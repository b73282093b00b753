"""rmqlite pipeline: jobs over all records of a store or a broker, run by Spark."""

from __future__ import annotations

import typer

from rmqlite.cli.pipeline.archive import archive
from rmqlite.cli.pipeline.deliveries import lateness, reconcile, slo
from rmqlite.cli.pipeline.failed import dlq_export, redrives, retries
from rmqlite.cli.pipeline.forecast import forecast

app = typer.Typer(
    no_args_is_help=True,
    help="Jobs over all records of a store or a broker, run by Spark: here or on a cluster.",
)
app.command("reconcile")(reconcile)
app.command("lateness")(lateness)
app.command("slo")(slo)
app.command("retries")(retries)
app.command("redrives")(redrives)
app.command("forecast")(forecast)
app.command("dlq-export")(dlq_export)
app.command("archive")(archive)

"""rmqlite dlq: list, read, export, send again and purge dead letters."""

from __future__ import annotations

import typer

from rmqlite.cli.dlq.export import export
from rmqlite.cli.dlq.importing import import_letters
from rmqlite.cli.dlq.listing import list_groups, peek, reasons, show
from rmqlite.cli.dlq.redrive import purge, redrive

app = typer.Typer(no_args_is_help=True, help="See dead letters, read them, send them again.")
app.command("list")(list_groups)
app.command("show")(show)
app.command("reasons")(reasons)
app.command("peek")(peek)
app.command("export")(export)
app.command("import")(import_letters)
app.command("redrive")(redrive)
app.command("purge")(purge)

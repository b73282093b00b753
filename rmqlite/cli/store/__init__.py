"""rmqlite store: look at a store's files, also while a broker runs on them."""

from __future__ import annotations

import typer

from rmqlite.cli.standby import tails
from rmqlite.cli.store import backup, check, export, handover, repair, restore, show

app = typer.Typer(no_args_is_help=True, help="Look at a store's files; no broker is needed.")
app.command("show")(show.show)
app.command("check")(check.check)
app.command("repair")(repair.repair)
app.command("backup")(backup.backup)
app.command("restore")(restore.restore)
app.command("tails")(tails.tails)
app.command("handover")(handover.handover)
app.command("cat")(export.cat)
app.command("export")(export.export)

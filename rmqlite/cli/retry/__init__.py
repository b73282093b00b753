"""rmqlite retry: see and change the retries of failed messages."""

from __future__ import annotations

import typer

from rmqlite.cli.retry.change import cancel, now
from rmqlite.cli.retry.listing import list_retries

app = typer.Typer(no_args_is_help=True, help="See and change retries of failed messages.")
app.command("list")(list_retries)
app.command("now")(now)
app.command("cancel")(cancel)

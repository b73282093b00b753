"""rmqlite retry: see what failed and will be given to its group again, and change that."""

from __future__ import annotations

import typer

from rmqlite.cli.retry.change import cancel, now
from rmqlite.cli.retry.listing import list_retries
from rmqlite.cli.retry.show import show

app = typer.Typer(no_args_is_help=True, help="See failed messages that are retried, and change it.")
app.command("list")(list_retries)
app.command("show")(show)
app.command("now")(now)
app.command("cancel")(cancel)

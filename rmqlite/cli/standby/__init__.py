"""rmqlite standby: two copies of the messages, on two brokers; which one is the master."""

from __future__ import annotations

import typer

from rmqlite.cli.standby import roles

app = typer.Typer(no_args_is_help=True, help="Show the two copies, or change which is the master.")
app.command("show")(roles.show)
app.command("promote")(roles.promote)
app.command("switch")(roles.switch)

"""rmqlite schedule: see and change the waiting messages of a running broker."""

from __future__ import annotations

import typer

from rmqlite.cli.schedule.change import cancel, deliver_now, reschedule
from rmqlite.cli.schedule.listing import count, list_pending, timeline

app = typer.Typer(no_args_is_help=True, help="See and change messages that wait for delivery.")
app.command("list")(list_pending)
app.command("count")(count)
app.command("timeline")(timeline)
app.command("cancel")(cancel)
app.command("deliver-now")(deliver_now)
app.command("fire", hidden=True)(deliver_now)
app.command("reschedule")(reschedule)

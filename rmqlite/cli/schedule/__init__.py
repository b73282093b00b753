"""rmqlite schedule: see what waits in a running broker, and change it."""

from __future__ import annotations

import typer

from rmqlite.cli.schedule import change, count, listing, timeline

app = typer.Typer(no_args_is_help=True, help="See what waits for its delivery, and change it.")
app.command("list")(listing.list_pending)
app.command("count")(count.count)
app.command("timeline")(timeline.timeline)
app.command("cancel")(change.cancel)
app.command("fire")(change.fire)
app.command("reschedule")(change.reschedule)

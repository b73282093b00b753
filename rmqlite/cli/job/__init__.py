"""rmqlite job: the broker's redrive and bulk jobs.

The broker itself runs a redrive job, so it can be paused and cancelled.  Senders drive a bulk job;
the broker only counts, so it can only be looked at.
"""

from __future__ import annotations

import typer

from rmqlite.cli.job.commands import cancel, list_jobs, outcomes, pause, rate, resume, show_job

app = typer.Typer(no_args_is_help=True, help="See redrive and bulk jobs; pause, cancel redrives.")
app.command("list")(list_jobs)
app.command("show")(show_job)
app.command("outcomes")(outcomes)
app.command("pause")(pause)
app.command("resume")(resume)
app.command("cancel")(cancel)
app.command("rate")(rate)

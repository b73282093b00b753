"""A job of either kind by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqlite.cli import completion
from rmqlite.cli.output.terminal import to_tree
from rmqlite.errors import JobUnknown
from rmqlite.requests.bulk import BulkJob
from rmqlite.requests.redrive import RedriveJob

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The job's id, as in job list.", autocompletion=completion.jobs
    ),
]


def job_of(admin: AdminClient, job_id: str, *, with_fates: bool = False) -> RedriveJob | BulkJob:
    """The redrive job or else the bulk job with this id.  Raises JobUnknown."""
    try:
        return admin.redrives.job(job_id, with_fates=with_fates)
    except JobUnknown:
        return admin.job(job_id)


def bulk_tree(job: BulkJob) -> dict[str, Any]:
    """A bulk job for JSON."""
    tree: dict[str, Any] = to_tree(job)
    return tree | {"kind": "bulk"}

"""The shapes of bulkJobs.json and of the records of bulk jobs."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, PlainValidator

from rmqlite.features.bulk.requests import BulkJob
from rmqlite.kernel.config.table_shapes import Offset, TableShape, json_text, validated

TABLE: Final = "bulkJobs.json"


def _bulk_job(text: object) -> BulkJob:
    # Separately, because BulkJob's fields have no camelCase names.
    return validated(BulkJob, json_text(text))


class BulkCallBody(BaseModel):
    """The fields in the body of a bulk job's record beside those of the job."""

    messages: Offset


class BulkJobsTable(TableShape):
    """bulkJobs.json"""

    queue_offset: Offset = 0
    jobs: tuple[Annotated[BulkJob, PlainValidator(_bulk_job)], ...] = ()


SHAPES: Final = {
    TABLE: ("bulk jobs", BulkJobsTable),
}

"""bulk_schedule: schedule the rows of a DataFrame, and return the counts.

The sink does the work, the broker's job record has the sums.  With the same job id the same
rows may be sent again: rows that the broker has already are duplicates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rmqlite.client import BulkJob
from rmqlite.kernel.words.errors import JobUnknown
from rmqlite.spark.options import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rmqlite.client.credentials import Credentials


@dataclass(frozen=True)
class BulkResult:
    """The sums of the job, over all runs with its id.

    refused_rows: with on_invalid="collect" the refused rows of this run, with all their
    columns, then code and reason; else None.
    """

    job_id: str
    accepted: int
    duplicates: int
    refused: int
    refused_rows: DataFrame | None = None


def bulk_schedule(
    df: DataFrame,
    *,
    endpoint: str,
    topic: str = "",
    delay_level: int | None = None,
    delay: str | None = None,
    deliver_at: int | str | None = None,
    match: str = "exact",
    job_id: str = "",
    on_invalid: str = "fail",
    refused_path: str = "",
    dedup_column: str = "",
    max_per_second: int = 0,
    batch_size: int = 500,
    in_flight: int = 4,
    credentials: Credentials | None = None,
) -> BulkResult:
    """Schedule the rows of a DataFrame at the broker at endpoint ("host:port").

    Columns: body, and as needed topic, tags, keys, properties, message_key (the
    deduplication id) and one of delay_level, delay and deliver_at.  The arguments topic,
    delay_level, delay and deliver_at (milliseconds since 1970, or a local time) hold for all
    rows.  refused_path: a folder that driver and executors can reach; on_invalid="collect"
    without it makes one on this machine.  max_per_second: for the whole job, which then sends
    from one task.  credentials: what they lack comes from the environment.  An exception of
    Spark ends with one line of rmqlite's.
    """
    from rmqlite.spark.session import register

    register(df.sparkSession)
    job_id = job_id or uuid4().hex
    is_collecting = on_invalid.lower() == "collect"
    if is_collecting and not refused_path:
        refused_path = tempfile.mkdtemp(prefix="rmqlite-refused-")
    options: dict[str, Any] = {
        "endpoint": endpoint,
        "topic": topic,
        "delayLevel": delay_level,
        "delay": delay,
        "deliverAt": deliver_at,
        "match": match,
        "jobId": job_id,
        "onInvalid": on_invalid,
        "refusedPath": refused_path,
        "dedupColumn": dedup_column,
        "maxPerSecond": max_per_second,
        "batchSize": batch_size,
        "inFlight": in_flight,
        **options_of(credentials),
    }
    # One task keeps the rate exactly, and without a shuffle, which could reorder the rows.
    _send(df.coalesce(1) if max_per_second else df, options)
    job = _job(endpoint, job_id, credentials)
    refused = _refused_rows(df, refused_path, job_id) if is_collecting else None
    return BulkResult(job_id, job.accepted, job.duplicates, job.refused, refused)


def _send(rows: DataFrame, options: Mapping[str, Any]) -> None:
    given = {name: str(value) for name, value in options.items() if value not in (None, "")}
    rows.write.format("rmqlite").mode("append").options(**given).save()


def _refused_rows(df: DataFrame, refused_path: str, job_id: str) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    from rmqlite.spark.sink.sink import CODE_COLUMN, REASON_COLUMN, refused_folder

    reasons = [StructField(name, StringType()) for name in (CODE_COLUMN, REASON_COLUMN)]
    # A folder without refused rows has no file that says what their columns are.
    schema = StructType([*df.schema.fields, *reasons])
    return df.sparkSession.read.schema(schema).parquet(refused_folder(refused_path, job_id))


def _job(endpoint: str, job_id: str, credentials: Credentials | None) -> BulkJob:
    """The broker's counts; all 0 if there was no row."""
    from rmqlite.client.admin_client import AdminClient

    with AdminClient(endpoint, credentials=credentials) as admin:
        try:
            return admin.job(job_id)
        except JobUnknown:
            return BulkJob(job_id)

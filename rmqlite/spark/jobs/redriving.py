"""Sending dead letters again: what was sent before is looked up, the rest goes out in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from rmqlite.spark.bulk import bulk_schedule
from rmqlite.spark.jobs.redrive import SENT_BEFORE, SENT_COLUMNS, SINK_COLUMNS, keys_sent
from rmqlite.spark.reading import read_log
from rmqlite.spark.tables import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOCKS_APART_MS: Final = 3_600_000
"""A letter may come from a broker whose clock was ahead of the other's by so much."""
REASONS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Planned:
    """What a redrive is about to do.

    topics: rows of topic, letters, redriven_before.  refused: rows of reason, letters and an
    example, most first.
    """

    topics: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    sent_before: int

    @property
    def letters(self) -> int:
        return sum(row["letters"] for row in self.topics)

    @property
    def refusals(self) -> int:
        return sum(row["letters"] for row in self.refused)


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of it; accepted, duplicates and refused are those of the job at the broker.

    reasons: as Planned.refused, of what the broker refused.
    """

    job_id: str
    accepted: int
    duplicates: int
    refused: int
    reasons: list[dict[str, Any]]


def sent_to(dead: DataFrame, endpoint: str) -> DataFrame | None:
    """The message keys in a broker's log from the time on when the first of these letters died.

    None when there is no letter.  The log is read as a whole from there on.
    """
    (row,) = dead.agg(F.unix_millis(F.min("store_timestamp")).alias("since_ms")).collect()
    if row.since_ms is None:
        return None
    since_ms = max(0, row.since_ms - CLOCKS_APART_MS)
    log = read_log(
        dead.sparkSession, endpoint=endpoint, columns=SENT_COLUMNS, startingTimestamp=since_ms
    )
    return keys_sent(log)


def planned(rows: DataFrame) -> Planned:
    """What redrive() would do with the rows of redrive_rows()."""
    is_known = F.col("refused") == SENT_BEFORE
    topics = rows.where(F.col("refused").isNull()).groupBy("topic")
    by_topic = topics.agg(
        F.count("*").alias("letters"),
        F.sum((F.col("redriven_before") > 0).cast("bigint")).alias("redriven_before"),
    )
    refused = rows.where(F.col("refused").isNotNull() & ~is_known)
    return Planned(
        collected(by_topic.orderBy("topic")),
        _by_reason(refused, "refused"),
        rows.where(is_known).count(),
    )


def redrive(
    rows: DataFrame, *, endpoint: str, max_per_second: int = 0, job_id: str = ""
) -> Redriven:
    """Send the rows of redrive_rows() that are not refused to the broker at endpoint.

    However often it is run, also after a crash, the broker takes each letter once within its
    bulkDedupWindow.  Raises what the sink raises.
    """
    sent = rows.where(F.col("refused").isNull()).select(*SINK_COLUMNS)
    result = bulk_schedule(
        sent,
        endpoint=endpoint,
        on_invalid="collect",
        max_per_second=max_per_second,
        job_id=job_id,
    )
    reasons = [] if result.refused_rows is None else _by_reason(result.refused_rows, "reason")
    counts = (result.accepted, result.duplicates, result.refused)
    return Redriven(result.job_id, *counts, reasons)


def _by_reason(rows: DataFrame, reason: str) -> list[dict[str, Any]]:
    counted = rows.groupBy(F.col(reason).alias("reason")).agg(
        F.count("*").alias("letters"), F.min("message_key").alias("example")
    )
    return collected(counted.orderBy(F.desc("letters"), "reason").limit(REASONS_MAX))

"""Rows as a reader of the log gives them for dead letters, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmqlite.spark.arrow.columns import columns_of
from rmqlite.spark.arrow.decode import arrow_schema
from rmqlite.spark.jobs.dead_letters import COLUMNS
from rmqlite.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON: Final = 1_763_726_400_000
"""2025-11-21 12:00 UTC."""
DAY_MS: Final = 86_400_000


def letter(queue_offset: int, group: str = "billing", **changes: Any) -> dict[str, Any]:
    """A dead letter of ours, sent to orders; …_timestamp may be given in milliseconds."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
        "topic": f"%DLQ%{group}",
        "queue_id": 0,
        "queue_offset": queue_offset,
        "body": f"body {queue_offset}".encode(),
        "keys": f"key-{queue_offset} all",
        "tags": "paid",
        "unique_key": f"ID{queue_offset}",
        "failure_reason": "card refused",
        "reconsume_times": 17,
        "store_timestamp": NOON + queue_offset,
        "flag": 0,
        "sys_flag": 0,
        "physical_offset": 1_000 * queue_offset,
        "properties": {
            "region": "eu",
            "KEYS": f"key-{queue_offset} all",
            "TAGS": "paid",
            "UNIQ_KEY": f"ID{queue_offset}",
            "CLUSTER": "DefaultCluster",
            "WAIT": "false",
            "DELAY": "0",
            "REAL_TOPIC": f"%RETRY%{group}",
            "REAL_QID": "0",
            "RETRY_TOPIC": "orders",
            "DLQ_ORIGIN_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": "0A000002000000010000000000000000",
            "FAILURE_REASON": "card refused",
            "DELIVERY_ATTEMPTS": "17",
        },
    }
    assert not set(changes) - set(row)
    return row | changes


def table(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """The rows as a reader of the log gives them."""
    moments = [name for name in COLUMNS if name.endswith("_timestamp")]
    cells = []
    for row in rows:
        at = {n: row[n] for n in moments if row[n] is not None}
        dated = {n: datetime.fromtimestamp(ms / 1000, UTC) for n, ms in at.items()}
        cells.append(row | dated | {"properties": [*row["properties"].items()]})
    named = columns_of(COLUMNS)
    found = pa.Table.from_pylist(cells, arrow_schema(named))
    return spark.createDataFrame(found, spark_schema(named))

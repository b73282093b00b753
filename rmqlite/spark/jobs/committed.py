"""The committed offsets of consumer groups: what a group has read, which the log does not say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqlite.kernel.words.errors import GroupUnknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "consumer_group string, topic string, queue_id int, committed_offset bigint"
_CALL_MS_MAX: Final = 5_000


def committed(spark: SparkSession, *, path: str = "", endpoint: str = "") -> DataFrame:
    """A row of SCHEMA for each queue in which a group has committed an offset.

    path or endpoint: a store's folder, or a broker.  Raises InvalidValue, StoreDamaged,
    StoreUnavailable, Unavailable.
    """
    rows = _of_store(Path(path)) if path else _of_broker(endpoint)
    return spark.createDataFrame(rows, SCHEMA)


def _of_store(root: Path) -> list[tuple[str, str, int, int]]:
    from rmqlite.store_tools.reader import StoreReader

    with StoreReader(root) as reader:
        lags = reader.overview().lags()
    return [(lag.group, lag.topic, lag.queue_id, lag.committed_offset) for lag in lags]


def _of_broker(endpoint: str) -> list[tuple[str, str, int, int]]:
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=_CALL_MS_MAX) as admin:
        found = []
        for info in admin.list_groups():
            # It may be deleted meanwhile.
            with suppress(GroupUnknown):
                found.append(admin.group(info.group))
    return [
        (status.info.group, each.queue.topic, each.queue.queue_id, each.committed_offset)
        for status in found
        for each in status.progress
        if each.committed_offset is not None
    ]

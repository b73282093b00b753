"""Writes dead letters as a Parquet file, with a row group per some tens of megabytes.

It has the columns of rmqlite dlq export; times are timestamps, and the body is binary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyarrow import parquet

_TIME: Final = pa.timestamp("ms", "UTC")
_TIMES: Final = {
    "first_failure": "first_failure_ms",
    "last_failure": "last_failure_ms",
    "born_timestamp": "born_timestamp_ms",
    "store_timestamp": "store_timestamp_ms",
}
SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("message_id", pa.string()),
        ("offset_message_id", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_queue_id", pa.int32()),
        ("origin_queue_offset", pa.int64()),
        ("origin_message_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("delivery_attempts", pa.int32()),
        ("first_failure", _TIME),
        ("last_failure", _TIME),
        ("reason", pa.string()),
        ("failure_kind", pa.string()),
        ("born_timestamp", _TIME),
        ("store_timestamp", _TIME),
        ("redriven_before", pa.int32()),
        ("redriven_by", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body_size", pa.int64()),
        ("body_is_compressed", pa.bool_()),
        ("body", pa.binary()),
    ]
)
_GROUP_ROWS: Final = 50_000
_GROUP_BYTES: Final = 32 << 20


class LetterTable:
    """Writes to an open file; leaving the context ends the table, but does not close the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._writer = parquet.ParquetWriter(file, SCHEMA, compression="zstd")
        self._batches: list[pa.RecordBatch] = []

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows in the form that row_of() of the export makes."""
        arrays = [
            pa.array([_value(row, field.name) for row in rows], field.type) for field in SCHEMA
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        if (
            sum([each.num_rows for each in self._batches]) >= _GROUP_ROWS
            or sum([each.nbytes for each in self._batches]) >= _GROUP_BYTES
        ):
            self._flush()

    def __enter__(self) -> LetterTable:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches = []


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name in _TIMES:
        # 0 stands for an unknown time.
        return row[_TIMES[name]] or None
    value = row[name]
    return list(value.items()) if name == "properties" else value

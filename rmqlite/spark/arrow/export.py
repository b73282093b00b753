"""A store's records, or rows of a command, as one Parquet or Arrow file; it needs no Spark.

Topic, queue and time choose records in the same way as options of the Spark source; the other
parts of the filter are applied to whole columns of the resulting batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.words.message import unpack_host
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.spark.arrow.columns import columns_named, columns_of
from rmqlite.spark.arrow.decode import arrow_schema
from rmqlite.spark.arrow.partitions import ReadOptions
from rmqlite.spark.arrow.planning import Look, look_at_store, plan
from rmqlite.spark.arrow.rows import store_rows

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.store_tools.reader import MessageFilter

SLICE_BYTES: Final = 16 << 20
"""Small slices: a progress bar moves, and little is read in vain when a limit is reached."""
ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 32 << 20
COMPRESSION: Final = "zstd"
_ASKED_BY: Final = {
    "topic": "topic",
    "group": "topic",
    "queue_id": "queue_id",
    "from_offset": "queue_offset",
    "to_offset": "queue_offset",
    "key": "keys",
}
_NEEDED: Final = ("topic", "store_size", "real_topic")
_ID_DIGITS: Final = (32, 56)
_MS: Final = pa.timestamp("ms", "UTC")
_ROW_TYPES: Final = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "time": _MS,
    "texts": pa.list_(pa.string()),
    "flag": pa.bool_(),
    "pairs": pa.map_(pa.string(), pa.string()),
    "bytes": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows were written, and the bytes of their records.  warnings: see StoreLayout."""

    rows: int
    record_bytes: int
    warnings: tuple[str, ...]


def export(
    file: IO[bytes],
    root: str,
    wanted: MessageFilter,
    *,
    form: str,
    columns: str = "",
    limit: int | None = None,
    config: BrokerConfig | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """Write the records that match a filter to an open file; form: parquet or arrow.

    advance: called with the number of finished and of all slices.  Raises InvalidValue,
    StoreDamaged, OffsetGone, StoreUnavailable.
    """
    named = columns_named(columns)
    schema = arrow_schema(named)
    options, found = _options(root, wanted), look_at_store(root, config)
    rows = record_bytes = 0
    with TableFile(file, schema, form) as table:
        for batch in _batches(found, options, wanted, schema.names, advance):
            taken = batch if limit is None else batch.slice(0, limit - rows)
            rows += taken.num_rows
            record_bytes += pc.sum(taken.column("store_size")).as_py() or 0
            table.write(taken.select(schema.names))
            if rows == limit:
                break
    return Exported(rows, record_bytes, found.warnings)


class TableFile:
    """Writes batches to an open file, with a row group for many rows or megabytes of them.

    Leaving the context ends the table, but does not close the file.
    """

    def __init__(self, file: IO[bytes], schema: pa.Schema, form: str = "parquet") -> None:
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        if form == "parquet":
            self._writer: Any = parquet.ParquetWriter(file, schema, compression=COMPRESSION)
        else:
            options = ipc.IpcWriteOptions(compression=COMPRESSION)
            self._writer = ipc.new_file(file, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        rows = sum([each.num_rows for each in self._waiting])
        size = sum([each.nbytes for each in self._waiting])
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            self._flush()

    def write_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows by the names of the columns; of a time also with _ms, and 0 is no time."""
        columns = [
            pa.array([_value(row, each) for row in rows], each.type) for each in self._schema
        ]
        self.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting = []


def schema_of_rows(types: Mapping[str, str]) -> pa.Schema:
    """The schema of rows with these columns, whose types are words of _ROW_TYPES."""
    names = [name.removesuffix("_ms") if types[name] == "time" else name for name in types]
    return pa.schema(list(zip(names, [_ROW_TYPES[word] for word in types.values()], strict=True)))


def _value(row: Mapping[str, Any], field: pa.Field) -> Any:
    if field.type == _MS:
        return row[f"{field.name}_ms"] or None
    value = row[field.name]
    return list(value.items()) if isinstance(value, dict) else value


def _batches(
    found: Look,
    options: ReadOptions,
    wanted: MessageFilter,
    names: Sequence[str],
    advance: Callable[[int, int], None],
) -> Iterator[pa.RecordBatch]:
    asked = [field for field in _ASKED_BY if getattr(wanted, field) not in ("", None)]
    extra = {_ASKED_BY[field] for field in asked}
    if wanted.message_id:
        extra |= {"unique_key", "store_host", "physical_offset"}
    every = (*names, *sorted({*extra, *_NEEDED} - set(names)))
    columns_of(every)
    partitions = plan(options, found)
    for number, partition in enumerate(partitions):
        advance(number, len(partitions))
        for batch in store_rows(partition, options, every):
            matching = batch.filter(_mask(batch, wanted))
            if matching.num_rows:
                yield matching
    advance(len(partitions), len(partitions))


def _options(root: str, wanted: MessageFilter) -> ReadOptions:
    """The part of the filter that the source itself applies."""
    topics: tuple[str, ...] = ()
    if wanted.is_scheduled:
        topics = WAIT_TOPICS
    elif wanted.group:
        topics = (retry_topic(wanted.group), dlq_topic(wanted.group))
    if wanted.message_id:
        topics = topics and (*topics, *WAIT_TOPICS)
    has_pattern = bool(wanted.topic) and not topics and not wanted.message_id
    return ReadOptions(
        path=root,
        topics=topics,
        topic_pattern=wanted.topic if has_pattern else "",
        queue_ids=() if wanted.queue_id is None else (wanted.queue_id,),
        starting_timestamp_ms=wanted.since_ms,
        ending_timestamp_ms=wanted.until_ms,
        slice_bytes=SLICE_BYTES,
    )


def _mask(batch: pa.RecordBatch, wanted: MessageFilter) -> pa.Array:
    """The rows that match the filter: the rules of MessageFilter, column by column."""
    topic = batch.column("topic")
    is_scheduled = pc.is_in(topic, pa.array(WAIT_TOPICS))
    target = topic
    if wanted.is_scheduled or wanted.message_id:
        target = pc.if_else(is_scheduled, pc.fill_null(batch.column("real_topic"), ""), topic)
    if wanted.is_of_schedule:
        keep = is_scheduled
    else:
        keep = pc.or_(pc.invert(is_scheduled), bool(wanted.message_id))
    if wanted.topic in WAIT_TOPICS:
        keep = pc.and_(keep, pc.equal(topic, wanted.topic))
    elif wanted.topic:
        keep = pc.and_(keep, _named(target, ReadOptions(topic_pattern=wanted.topic)))
    if wanted.group:
        topics = (retry_topic(wanted.group), dlq_topic(wanted.group))
        keep = pc.and_(keep, _named(target, ReadOptions(topics=topics)))
    if wanted.from_offset is not None:
        offsets = batch.column("queue_offset")
        keep = pc.and_(keep, pc.greater_equal(offsets, wanted.from_offset))
    if wanted.to_offset is not None:
        keep = pc.and_(keep, pc.less(batch.column("queue_offset"), wanted.to_offset))
    if wanted.key:
        keys = pc.binary_join_element_wise("", pc.fill_null(batch.column("keys"), ""), "", " ")
        keep = pc.and_(keep, pc.match_substring(keys, f" {wanted.key} "))
    if wanted.message_id:
        keep = pc.and_(keep, _identified(batch, wanted.message_id))
    return keep


def _named(topics: pa.Array, options: ReadOptions) -> pa.Array:
    names = topics.dictionary_encode()
    takes = [options.takes_topic(name) for name in names.dictionary.to_pylist()]
    return pa.array(takes, pa.bool_()).take(names.indices)


def _identified(batch: pa.RecordBatch, message_id: str) -> pa.Array:
    """The rows with this message id: a producer's id, or a record's offset message id."""
    found = pc.fill_null(pc.equal(batch.column("unique_key"), message_id), False)
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        return found
    if len(message_id) not in _ID_DIGITS:
        return found
    place = int.from_bytes(raw[-8:], "big")
    is_there = pc.equal(batch.column("physical_offset"), pa.scalar(place, pa.uint64()))
    is_host = pc.equal(batch.column("store_host"), unpack_host(raw[:-8]))
    return pc.or_(found, pc.and_(is_there, is_host))

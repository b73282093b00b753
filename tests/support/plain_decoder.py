"""The slow decoder that the fast one is compared with: record by record, with the store's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import completed_queue, completion_of, timer_of, timer_step
from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, wait_queue_of, when_due_ms
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.message import StoredMessage, decode_properties
from rmqlite.kernel.words.names import CANCELLED_TOPIC
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.spark.arrow.columns import COLUMNS
from rmqlite.spark.arrow.planning import look_at_store, plan
from rmqlite.spark.arrow.rows import store_rows
from rmqlite.spark.options import parse_options

Row = dict[str, Any]
_INT_MAX = (1 << 31) - 1
_MS_MAX = (1 << 63) // 1000 - 1


def plain_row(head: Head, data: bytes, due_ms: int) -> Row:
    """Every column of a record; timestamps are milliseconds, a body is bytes."""
    message = record.to_message(head, data)
    pairs = message.properties
    own = PropertyString(head.properties)
    level, step = completed_queue(head, own), timer_step(head, own)
    is_waiting = head.topic in (*WAIT_TOPICS, CANCELLED_TOPIC)
    waiting_for = pairs.get("REAL_TOPIC", "") if is_waiting else head.topic
    is_failed = waiting_for.startswith(("%RETRY%", "%DLQ%"))
    return {
        **_fixed(message, head),
        **_failures(pairs if is_failed else {}),
        "failure_kind": failure_kind(pairs.get("FAILURE_REASON", "")) if is_failed else None,
        "keys": pairs.get("KEYS"),
        "tags": pairs.get("TAGS"),
        "unique_key": pairs.get("UNIQ_KEY"),
        "redriven_from": pairs.get("REDRIVEN_FROM"),
        "redriven_by": pairs.get("REDRIVEN_BY"),
        "delay_level": _number(pairs.get("DELAY"), _INT_MAX),
        "real_topic": pairs.get("REAL_TOPIC"),
        "real_queue_id": _number(pairs.get("REAL_QID"), _INT_MAX),
        "deliver_timestamp": due_ms
        if wait_queue_of(head.topic, head.queue_id) and due_ms <= _MS_MAX
        else None,
        "completes": head.completes if level else None,
        "completed_level": min(level, _INT_MAX) if level else None,
        "completion": completion_of(head.topic, own).value if level else None,
        "timer": timer_of(head, own) if step else None,
        "timer_step": step.value if step else None,
        "properties": decode_properties(head.properties),
    }


def _failures(pairs: Mapping[str, str]) -> Row:
    """What only a retry or a dead letter tells."""
    return {
        "origin_topic": _first(pairs, "CLAIMED_ORIGIN_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"),
        "origin_message_id": _first(
            pairs, "CLAIMED_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"
        ),
        "origin_queue_id": _number(pairs.get("ORIGIN_QUEUE_ID"), _INT_MAX),
        "origin_queue_offset": _number(pairs.get("ORIGIN_QUEUE_OFFSET")),
        "delivery_attempts": _number(pairs.get("DELIVERY_ATTEMPTS"), _INT_MAX),
        "first_failure_timestamp": _number(pairs.get("FIRST_FAILURE_TIMESTAMP"), _MS_MAX),
        "last_failure_timestamp": _number(pairs.get("LAST_FAILURE_TIMESTAMP"), _MS_MAX),
        "failure_reason": pairs.get("FAILURE_REASON"),
    }


def _fixed(message: StoredMessage, head: Head) -> Row:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "body": message.body,
        "born_timestamp": message.born_timestamp_ms,
        "store_timestamp": message.store_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "store_size": message.store_size,
        "body_size": len(message.body),
        "body_crc": head.body_crc,
        "physical_offset": message.physical_offset,
        "end_offset": message.physical_offset + message.store_size,
        "prepared_transaction_offset": message.prepared_transaction_offset,
    }


def _first(pairs: Mapping[str, str], *names: str) -> str | None:
    return next((pairs[name] for name in names if name in pairs), None)


def _number(text: str | None, most: int = (1 << 63) - 1) -> int | None:
    """What a property says as digits, and nothing but digits."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text) if int(text) <= most else None


def plain_rows(root: Path, levels: LevelHistory, queue_file_bytes: int) -> Iterator[Row]:
    """Every record of a store's files that is in a queue, in the order of the log."""
    for path in sorted((root / "commitlog").iterdir()):
        data, position = path.read_bytes(), 0
        while head := record.read_head(data, position):
            position += head.size
            if head.sys_flag & record.TRANSACTION_TYPE in (record.PREPARED, record.ROLLBACK):
                continue
            due_ms = when_due_ms(
                levels, head.topic, head.queue_id, head.store_timestamp_ms, head.properties
            )
            if head.topic in WAIT_TOPICS:
                due_ms = _promised_ms(root, head, queue_file_bytes) or due_ms
            yield plain_row(head, data, due_ms)


def _promised_ms(root: Path, head: Head, queue_file_bytes: int) -> int:
    position = head.queue_offset * ENTRY_BYTES
    start = position - position % queue_file_bytes
    path = root / "consumequeue" / head.topic / str(head.queue_id) / f"{start:020d}"
    if not path.exists():
        return 0
    physical_offset, size, tags_code = ENTRY.unpack_from(path.read_bytes(), position - start)
    is_its = (physical_offset, size) == (head.physical_offset, head.size)
    return tags_code if is_its and tags_code >= 1 << 31 else 0


def decoded_rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """What the fast decoder made, as the plain one writes it."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        arrays = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        cells = [
            [None if cell is None else cell // 1000 for cell in array.to_pylist()]
            if pa.types.is_timestamp(column.type)
            else array.to_pylist(maps_as_pydicts="strict")
            for array, column in zip(arrays, batch.columns, strict=True)
        ]
        names = batch.schema.names
        rows += [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
    return rows


ALL = tuple(column.name for column in COLUMNS)


def read(root: Path, **options: str) -> list[Row]:
    """The rows in the order of the log, with what was planned for them."""
    wanted = parse_options({"path": str(root), **options})
    rows: list[Row] = []
    for partition in plan(wanted, look_at_store(wanted.path)):
        rows += decoded_rows(store_rows(partition, wanted, ALL))
    return sorted(rows, key=lambda row: row["physical_offset"])


def every(root: Path) -> list[Row]:
    place = look_at_store(str(root)).place
    return list(plain_rows(root, place.levels, place.queue_file_bytes))

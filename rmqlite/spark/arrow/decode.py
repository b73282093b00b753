"""Records of the commit log as Arrow batches with the columns of columns.py.

numpy and Arrow copy whole columns at once, never record by record; that is twenty times as
fast as one value after the other.  Only the requested columns are made.  This module never
loads Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    CLAIMED_ORIGIN_TOPIC,
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRST_FAILURE_TIMESTAMP,
    KEYS,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REAL_QID,
    REAL_TOPIC,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
    unpack_host,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, DLQ_PREFIX, RETRY_PREFIX
from rmqlite.spark.arrow import columns as c
from rmqlite.spark.arrow.columns import BY_NAME, ArrowColumn
from rmqlite.spark.arrow.pairs import Pairs, interleaved
from rmqlite.spark.arrow.records import Flags, Longs, RecordArray, UnsoundRecord
from rmqlite.spark.arrow.waits import (
    TIMERS_QUEUE,
    CompletingRows,
    Dues,
    Facts,
    completing,
    completions,
    is_topic,
    is_waiting,
    timer_steps,
    timers,
)

TIME: Final = pa.timestamp("us", tz="UTC")
_ARROW_TYPES: Final = {
    c.TEXT: pa.string(),
    c.INT: pa.int32(),
    c.LONG: pa.int64(),
    c.TIME: TIME,
    c.BYTES: pa.binary(),
    c.PROPERTIES: pa.map_(pa.string(), pa.string()),
}
_US_PER_MS: Final = 1000
_MS_MAX: Final = (1 << 63) // _US_PER_MS - 1
_BAD_TOPICS: Final = ("", ".", "..")
topic_texts: Final = only_in_c("topic_texts")
"""(data, begins, ends) -> the offsets and the text of Arrow's column of the topics there."""
_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "keys": (KEYS,),
    "tags": (TAGS,),
    "unique_key": (UNIQ_KEY,),
    "real_topic": (REAL_TOPIC,),
    "origin_topic": (CLAIMED_ORIGIN_TOPIC, RETRY_TOPIC, DLQ_ORIGIN_TOPIC),
    "origin_message_id": (CLAIMED_ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID),
    "failure_reason": (FAILURE_REASON,),
    "redriven_from": (REDRIVEN_FROM,),
    "redriven_by": (REDRIVEN_BY,),
}
"""Column -> properties: the first one that a record has gives the value.

A claim comes first: beside it RETRY_TOPIC is the retry topic that the letter was sent to.
"""
_NUMBERS: Final = {
    "delay_level": DELAY,
    "real_queue_id": REAL_QID,
    "origin_queue_id": ORIGIN_QUEUE_ID,
    "origin_queue_offset": ORIGIN_QUEUE_OFFSET,
    "delivery_attempts": DELIVERY_ATTEMPTS,
    "first_failure_timestamp": FIRST_FAILURE_TIMESTAMP,
    "last_failure_timestamp": LAST_FAILURE_TIMESTAMP,
}
_OF_FAILURES: Final = frozenset(
    {"origin_topic", "origin_message_id", "origin_queue_id", "origin_queue_offset"}
    | {"delivery_attempts", "first_failure_timestamp", "last_failure_timestamp"}
    | {"failure_reason", "failure_kind"}
)
"""Columns of retries and dead letters: elsewhere somebody has forwarded these properties."""
_HEAD_INTS: Final = ("queue_id", "reconsume_times", "flag", "sys_flag", "body_size", "body_crc")
_HEAD_LONGS: Final = ("queue_offset", "physical_offset", "prepared_transaction_offset")


class Decoder:
    """Makes batches with exactly these columns, in this order."""

    def __init__(self, columns: Sequence[ArrowColumn], dues: Dues) -> None:
        self.names = tuple(column.name for column in columns)
        self.schema = arrow_schema(columns)
        self.dues = dues

    def batch(self, records: RecordArray) -> pa.RecordBatch:
        """One row for each record.  Raises UnsoundRecord."""
        if not len(records):
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        made = _Batch(records, self.dues)
        arrays = [made.column(name) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def arrow_schema(columns: Sequence[ArrowColumn]) -> pa.Schema:
    """The columns with exactly the Arrow types that Spark expects."""
    return pa.schema([pa.field(column.name, _ARROW_TYPES[column.type]) for column in columns])


def topics_of(records: RecordArray) -> pa.Array:
    """The topic of each record.  Raises UnsoundRecord for a topic that no record can have."""
    if not len(records):
        return pa.array([], pa.string())
    quick = topic_texts(records.data, records.topic_begin, records.topic_end)
    if quick is not None:
        buffers = [None, *map(pa.py_buffer, quick)]
        return pa.Array.from_buffers(pa.string(), len(records), buffers)
    pieces, wanted = interleaved(records.data, records.topic_begin, records.topic_end)
    raw = pieces.take(wanted)
    try:
        found = raw.cast(pa.string())
        text = np.frombuffer(raw.buffers()[2] or b"", np.uint8)[: raw.buffers()[2].size]
        lengths = records.topic_end - records.topic_begin
        if int(lengths.min()) > 2 and not bool(((text == 0) | (text == ord("/"))).any()):
            return found
    except pa.ArrowInvalid:
        pass
    for row, name in enumerate(raw.to_pylist()):
        if b"\0" in name or b"/" in name or not _is_name(name):
            raise UnsoundRecord(records.place(row))
    return raw.cast(pa.string())


class _Batch:
    """The columns of some records; parts that several columns need are made once."""

    def __init__(self, records: RecordArray, dues: Dues) -> None:
        self._records = records
        self._dues = dues
        self._count = len(records)

    @cached_property
    def topics(self) -> pa.Array:
        return topics_of(self._records)

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self._records)

    @cached_property
    def is_scheduled(self) -> Flags:
        return is_waiting(self.topics)

    @cached_property
    def is_failed(self) -> pa.Array:
        """Which records lie in a retry or dead-letter topic, or wait for one?"""
        waits = pa.array(self.is_scheduled | is_topic(self.topics, CANCELLED_TOPIC))
        waiting_for = pc.if_else(waits, self.column("real_topic"), self.topics)
        found = [pc.starts_with(waiting_for, prefix) for prefix in (RETRY_PREFIX, DLQ_PREFIX)]
        return pc.fill_null(pc.or_(*found), False)

    def column(self, name: str) -> pa.Array:
        found = self._column(name)
        if name in _OF_FAILURES:
            return pc.if_else(self.is_failed, found, pa.scalar(None, found.type))
        return found

    def _column(self, name: str) -> pa.Array:
        records = self._records
        if name in _HEAD_INTS:
            return _ints(records.ints(name))
        if name in _HEAD_LONGS:
            return _longs(records.longs(name))
        if name in _TEXTS:
            return self._text(_TEXTS[name])
        if name in _NUMBERS:
            return self._number(_NUMBERS[name], _ARROW_TYPES[BY_NAME[name].type])
        if name in ("born_timestamp", "store_timestamp"):
            return _times(records.longs(name))
        if name in ("born_host", "store_host"):
            return _hosts(records, name)
        make: Callable[[_Batch], pa.Array] = _MADE[name]
        return make(self)

    def _text(self, properties: tuple[str, ...]) -> pa.Array:
        found = [self.pairs.texts(*self.pairs.last(name)) for name in properties]
        return pc.coalesce(*found) if len(found) > 1 else found[0]

    def _number(self, name: str, kind: pa.DataType) -> pa.Array:
        pairs, rows = self.pairs.last(name)
        numbers, good = self.pairs.numbers(pairs)
        good &= numbers <= {pa.int32(): INT32_MAX, TIME: _MS_MAX}.get(kind, INT64_MAX)
        return self._sparse(numbers[good], rows[good], kind)

    def _sparse(self, numbers: Longs, rows: Longs, kind: pa.DataType) -> pa.Array:
        """A column with these numbers in these rows, and null in the others."""
        if len(rows) == 0:
            return pa.nulls(self._count, kind)
        mask = np.ones(self._count, bool)
        mask[rows] = False
        found = np.zeros(self._count, np.int32 if kind == pa.int32() else np.int64)
        found[rows] = numbers * _US_PER_MS if kind == TIME else numbers
        if kind == TIME:
            return pa.array(found, pa.int64(), mask=mask).view(TIME)
        return pa.array(found, kind, mask=mask)

    # ---- columns that are more than a field or a property

    def body(self) -> pa.Array:
        pieces, wanted = interleaved(
            self._records.data, self._records.body_begin, self._records.body_end
        )
        return pieces.take(wanted)

    def store_size(self) -> pa.Array:
        return _ints(self._records.ints("size"))

    def end_offset(self) -> pa.Array:
        return _longs(self._records.places + self._records.ints("size"))

    def deliver_timestamp(self) -> pa.Array:
        records, is_timer = self._records, is_topic(self.topics, TIMERS_QUEUE[0])
        rows = np.flatnonzero(self.is_scheduled & ~is_timer)
        due_ms = self._dues.of_levels(records, rows, lambda: self.pairs)
        timers = np.flatnonzero(is_timer & (records.ints("queue_id") == TIMERS_QUEUE[1]))
        if len(timers):
            timers_ms = self._dues.of_timers(records, timers, self.pairs)
            rows, due_ms = np.append(rows, timers), np.append(due_ms, timers_ms)
        is_time = due_ms <= _MS_MAX
        return self._sparse(due_ms[is_time], rows[is_time], TIME)

    def completes(self) -> pa.Array:
        rows = self._completing[0]
        pointers = self._records.longs("prepared_transaction_offset")
        return self._sparse(pointers[rows], rows, pa.int64())

    def completed_level(self) -> pa.Array:
        rows, wait_queues = self._completing
        return self._sparse(np.minimum(wait_queues, INT32_MAX), rows, pa.int32())

    def completion(self) -> pa.Array:
        return completions(self._completing, self._facts)

    def timer(self) -> pa.Array:
        return timers(self._facts)

    def timer_step(self) -> pa.Array:
        return timer_steps(self._facts)

    @cached_property
    def _facts(self) -> Facts:
        return Facts(self._records, self.topics, self.pairs)

    @cached_property
    def _completing(self) -> CompletingRows:
        if not self._records.longs("prepared_transaction_offset").any():
            return CompletingRows(np.empty(0, np.int64), np.empty(0, np.int64))
        return completing(self._facts)

    def failure_kind(self) -> pa.Array:
        reasons = pc.fill_null(self.column("failure_reason"), "").dictionary_encode()
        kinds = [failure_kind(reason) for reason in reasons.dictionary.to_pylist()]
        return pa.array(kinds, pa.string()).take(reasons.indices)

    def properties(self) -> pa.Array:
        return self.pairs.as_map(_ARROW_TYPES[c.PROPERTIES])


_MADE: Final[dict[str, Callable[[_Batch], pa.Array]]] = {
    "topic": lambda made: made.topics,
    "body": _Batch.body,
    "store_size": _Batch.store_size,
    "end_offset": _Batch.end_offset,
    "deliver_timestamp": _Batch.deliver_timestamp,
    "completes": _Batch.completes,
    "completed_level": _Batch.completed_level,
    "completion": _Batch.completion,
    "timer": _Batch.timer,
    "timer_step": _Batch.timer_step,
    "failure_kind": _Batch.failure_kind,
    "properties": _Batch.properties,
}


def _ints(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _longs(values: Longs) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _times(values_ms: Longs) -> pa.Array:
    """Times that no timestamp can hold, as of a wrong clock, become null."""
    good = (values_ms >= -_MS_MAX) & (values_ms <= _MS_MAX)
    if not good.all():
        values_us = np.where(good, values_ms, 0) * _US_PER_MS
        return pa.array(values_us, pa.int64(), mask=~good).view(TIME)
    values_us = values_ms * _US_PER_MS
    return pa.Array.from_buffers(TIME, len(values_us), [None, pa.py_buffer(values_us)])


def _hosts(records: RecordArray, name: str) -> pa.Array:
    """The hosts as text.  Few producers send many messages, so each address is made once."""
    if records.is_v6:
        texts = [unpack_host(records.host_at(row, name)) for row in range(len(records))]
        return pa.array(texts, pa.string())
    codes = pa.array(records.head[name].astype(np.uint64)).dictionary_encode()
    texts = [unpack_host(code.to_bytes(8, "big")) for code in codes.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(codes.indices)


def _is_name(name: bytes) -> bool:
    try:
        return name.decode() not in _BAD_TOPICS
    except UnicodeDecodeError:
        return False

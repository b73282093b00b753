"""Turns rows of an Arrow batch into calls of a bulk sender; it needs no Spark.

Columns stay columns: a message costs 0.4 µs, while a value for each row would cost 5.  A row that
cannot be sent, for example without a body, is refused here, and the broker counts it with its
own refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from rmqlite.features.bulk.requests import BulkRequest, Refusal, property_text
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.spark.sink.options import ID_COLUMN, SinkOptions

CALL_BYTES: Final = 2 << 20
"""About the most bytes of a batch that go into one call."""
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class SinkCall:
    """Some rows of a batch as one call.

    rows: the row in the batch of each message of the request.  refused: the other rows, and the
    reasons.
    """

    batch: pa.RecordBatch
    request: BulkRequest
    rows: range | list[int]
    refused: dict[int, Refusal]


def parts_of(
    batch: pa.RecordBatch, options: SinkOptions, *, job_id: str, id_prefix: str, first_row: int
) -> Iterator[SinkCall]:
    """All rows of a batch in calls.

    id_prefix, first_row: without a column of ids a row's id is the prefix, a colon and the row's
    number, counted from the task's first row.
    """
    size = options.batch_size
    if options.max_per_second:
        # At most the rows of a tenth of a second, so that the rate is even.
        size = min(size, max(1, options.max_per_second // 10))
    if batch.nbytes > CALL_BYTES:
        size = min(size, max(1, batch.num_rows * CALL_BYTES // batch.nbytes))
    for begin in range(0, batch.num_rows, size):
        rows = range(begin, min(begin + size, batch.num_rows))
        piece = batch.slice(begin, len(rows))
        places = [f"{id_prefix}:{first_row + row}" for row in rows]
        yield _part(batch, piece, options, job_id, rows, places)


def _part(
    batch: pa.RecordBatch,
    piece: pa.RecordBatch,
    options: SinkOptions,
    job_id: str,
    rows: range,
    places: list[str],
) -> SinkCall:
    columns = _Columns(piece)
    bodies = columns.values("body", _body)
    id_column = options.dedup_column or (ID_COLUMN if columns.has(ID_COLUMN) else "")
    ids = columns.values(id_column, _text) if id_column else places
    sent: dict[str, list[Any]] = {
        "topics": [options.topic] if options.topic else columns.values("topic", _text),
        "tags": columns.optional("tags", _text, ""),
        "keys": columns.optional("keys", _keys, ""),
        "properties": columns.optional("properties", _properties, ""),
        "delay_levels": _given(options.delay_level)
        or columns.optional("delay_level", _within(_INT32), 0),
        "delays": _given(options.delay) or columns.optional("delay", _text, ""),
        "deliver_at_ms": _given(options.deliver_at_ms)
        or columns.optional("deliver_at", _within(_INT64), 0),
    }
    arguments: dict[str, Any] = {
        "match": options.match,
        "job_id": job_id,
        "born_at_ms": wall_ms(),
    }
    if not columns.errors:
        arguments |= {name: tuple(values) for name, values in sent.items()}
        return SinkCall(batch, BulkRequest(tuple(bodies), tuple(ids), **arguments), rows, {})
    refused = {
        rows[at]: Refusal.of(str(ids[at] if ids[at] is not None else places[at]), error)
        for at, error in sorted(columns.errors.items())
    }
    sendable = [at for at in range(len(rows)) if at not in columns.errors]
    for name, values in sent.items():
        one_each = len(values) == len(rows)
        arguments[name] = tuple(
            [values[at] for at in sendable] if one_each else values if sendable else ()
        )
    request = BulkRequest(
        tuple([bodies[at] for at in sendable]),
        tuple([ids[at] for at in sendable]),
        already_refused=tuple(refused.values()),
        **arguments,
    )
    return SinkCall(batch, request, [rows[at] for at in sendable], refused)


class _Columns:
    """The columns of some rows as lists; errors: row -> why it cannot be sent."""

    def __init__(self, piece: pa.RecordBatch) -> None:
        self._piece = piece
        self._names = set(piece.schema.names)
        self.errors: dict[int, RmqliteError] = {}

    def has(self, name: str) -> bool:
        return name in self._names

    def values(self, name: str, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
        """A column that every row must have."""
        values = self._converted(name, convert)
        if None in values:
            for at, value in enumerate(values):
                if value is None:
                    self.errors.setdefault(at, InvalidValue(name, "null", "a value"))
        return values

    def optional(
        self, name: str, convert: Callable[[pa.Array], list[Any]], missing: Any
    ) -> list[Any]:
        """A column that may be absent: then it is empty.  A null becomes `missing`."""
        if name not in self._names:
            return []
        values = self._converted(name, convert)
        return (
            [missing if value is None else value for value in values] if None in values else values
        )

    def _converted(self, name: str, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
        column = self._piece.column(name)
        try:
            return convert(column)
        except (UnicodeDecodeError, RmqliteError):
            return [self._one(name, column.slice(at, 1), at, convert) for at in range(len(column))]

    def _one(
        self, name: str, value: pa.Array, at: int, convert: Callable[[pa.Array], list[Any]]
    ) -> Any:
        try:
            return convert(value)[0]
        except UnicodeDecodeError:
            self.errors.setdefault(at, InvalidValue(name, "bytes that are no text", "UTF-8 text"))
        except RmqliteError as error:
            self.errors.setdefault(at, error)
        return None


def _body(column: pa.Array) -> list[bytes | None]:
    bodies: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return bodies


def _text(column: pa.Array) -> list[str | None]:
    if pa.types.is_integer(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    texts: list[str | None] = column.to_pylist()
    return texts


def _keys(column: pa.Array) -> list[str | None]:
    if pa.types.is_string(column.type):
        return _text(column)
    return [
        None if tokens is None else " ".join([token for token in tokens if token])
        for token_lists in (column.to_pylist(),)
        for tokens in token_lists
    ]


def _properties(column: pa.Array) -> list[str | None]:
    return [property_text(dict(pairs)) if pairs else None for pairs in column.to_pylist()]


def _within(allowed: range) -> Callable[[pa.Array], list[int | None]]:
    """Reads whole numbers; an instant in microseconds is rounded up to milliseconds."""

    def convert(column: pa.Array) -> list[int | None]:
        values: list[int | None]
        if pa.types.is_timestamp(column.type):
            microseconds = column.cast(pa.int64()).to_pylist()
            # 0 would mean that no instant is given; the broker refuses 1, as any of before 2001.
            values = [None if each is None else -(-each // 1000) or 1 for each in microseconds]
        else:
            values = column.to_pylist()
        for value in values:
            if value is not None and value not in allowed:
                rule = f"{allowed.start} to {allowed.stop - 1}"
                raise InvalidValue("delay_level", value, rule)
        return values

    return convert


def _given(option: Any) -> list[Any]:
    return [option] if option else []

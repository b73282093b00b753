"""Turns rows of an Arrow batch into calls of a bulk sender, as the options say; it needs no Spark.

A wrong name, type or level is found at plan time, before any task runs.  Unknown columns are
refused, not dropped: a misspelt delay would send everything at once.

Columns stay columns: a message costs 0.4 µs, while a value for each row would cost 5.  A row that
cannot be sent, for example without a body, is refused here, and the broker counts it with its
own refusals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmqlite.features.bulk.requests import BulkMatch, BulkRequest, Refusal, property_text
from rmqlite.features.rows import check_job_id
from rmqlite.kernel.words.clock import local_ms, wall_ms
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.levels import LevelTable, instant_ms, parse_delay
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.names import check_sendable
from rmqlite.spark.arrow.partitions import BrokerOptions
from rmqlite.spark.options import (
    CREDENTIALS,
    Option,
    as_it_is,
    credentials_of,
    endpoint_text,
    fields_of,
    hint,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


BATCH_SIZE: Final = 500
IN_FLIGHT: Final = 4
RETRY_MS: Final = 60_000
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "delay_level": _INTEGERS,
    "delay": ("string",),
    "deliver_at": ("timestamp", "bigint"),
    "message_key": ("string", *_INTEGERS),
}
"""The columns of the sink, and the types that each may have."""
ID_COLUMN: Final = "message_key"
DELAY_COLUMNS: Final = ("delay_level", "delay", "deliver_at")
CALL_BYTES: Final = 2 << 20
"""About the most bytes of a batch that go into one call."""
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(BrokerOptions):
    """The options of a writer.

    topic, delay_level, delay, deliver_at_ms: the same for all rows, instead of a column.
    job_id: "" means a new one, or for a stream the query's id.  dedup_column: the column with
    the message ids; "" means message_key, or without that column ids made of the row's place.
    max_per_second: for one task; 0 means no limit.  retry_ms: how long a broker may be away.
    """

    topic: str = ""
    delay_level: int = 0
    delay: str = ""
    deliver_at_ms: int = 0
    match: BulkMatch = BulkMatch.EXACT
    batch_size: int = BATCH_SIZE
    in_flight: int = IN_FLIGHT
    job_id: str = ""
    dedup_column: str = ""
    is_collecting: bool = False
    refused_path: str = ""
    max_per_second: int = 0
    retry_ms: int = RETRY_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options as a value.  Raises InvalidValue."""
        own = {name: text for name, text in options.items() if name.lower() not in _SPARKS_OWN}
        parsed = cls(**fields_of(own, _OPTIONS, "the sink"))
        parsed._check()
        return parsed

    def check_columns(self, schema: StructType) -> None:
        """Raises InvalidValue unless the sink can take these columns."""
        types = {each.name: each.dataType.simpleString() for each in schema.fields}
        extra = {self.dedup_column} - {""}
        for name, kind in types.items():
            if name in extra:
                allowed = COLUMN_TYPES[ID_COLUMN]
            elif name in COLUMN_TYPES:
                allowed = COLUMN_TYPES[name]
            else:
                rule = f"a column of the sink, or the dedupColumn{hint(name, COLUMN_TYPES)}"
                raise InvalidValue("column", name, rule)
            if kind not in allowed:
                raise InvalidValue(f"column {name}", kind, f"of type {' or '.join(allowed)}")
        for name in ("body", *extra):
            if name not in types:
                raise InvalidValue(f"column {name}", "", f"given{hint(name, types)}")
        if not self.topic and "topic" not in types:
            raise InvalidValue("topic", "", "a column topic, or the option topic")
        delays = [name for name in DELAY_COLUMNS if name in types]
        if self.has_delay and delays:
            rule = "left out if the option for all rows is given"
            raise InvalidValue(f"column {delays[0]}", "given", rule)

    def check_levels(self, table: LevelTable) -> None:
        """Raises InvalidValue, DelayUnknown unless the broker's table has the options' level."""
        if not 0 <= self.delay_level <= table.max_level:
            raise InvalidValue(
                "delayLevel", self.delay_level, f"0 for now, or 1 to {table.max_level}"
            )
        if self.delay and self.match is BulkMatch.EXACT:
            table.level_lasting(self.delay)
        elif self.delay and parse_delay(self.delay) > max(table.delays_ms):
            longest = table.delays_ms.index(max(table.delays_ms)) + 1
            rule = f"at most {table.name(longest)}: the longest level"
            raise InvalidValue("delay", self.delay, rule)

    @property
    def has_delay(self) -> bool:
        return bool(self.delay_level or self.delay or self.deliver_at_ms)

    def _check(self) -> None:
        if not self.endpoint:
            raise InvalidValue("endpoint", "", "a broker's host:port")
        waits = dict[str, int | str](delayLevel=self.delay_level, delay=self.delay)
        waits["deliverAt"] = self.deliver_at_ms
        first, *others = [name for name, wait in waits.items() if wait] or [""]
        if others:
            raise InvalidValue(first, waits[first], f"left out if {others[0]} is given")
        if self.is_collecting and not self.refused_path:
            rule = "a folder for the refused rows, which onInvalid=collect needs"
            raise InvalidValue("refusedPath", "", rule)
        if self.refused_path and not self.is_collecting:
            raise InvalidValue("refusedPath", self.refused_path, "empty unless onInvalid=collect")
        credentials_of(self)


def _topic(_name: str, text: str) -> str:
    check_sendable(text)
    return text


def _job_id(_name: str, text: str) -> str:
    if text:
        check_job_id(text)
    return text


def _delay(_name: str, text: str) -> str:
    parse_delay(text)
    return text


def _instant(name: str, text: str) -> int:
    moment = int(text) if re.fullmatch("[0-9]{1,15}", text, re.ASCII) else local_ms(text)
    if moment is None:
        rule = (
            "milliseconds since 1970, or a time such as '2026-11-21 10:00', which is local,"
            " or 2026-11-21T10:00+01:00"
        )
        raise InvalidValue(name, text, rule)
    return instant_ms(name, moment)


def _number(low: int, high: int = INT32_MAX) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,10}", text, re.ASCII) or not low <= int(text) <= high:
            raise InvalidValue(name, text, f"a whole number, {low} to {high}")
        return int(text)

    return read


def _match(name: str, text: str) -> BulkMatch:
    if text.upper() not in BulkMatch.__members__:
        raise InvalidValue(name, text, "exact or longer")
    return BulkMatch[text.upper()]


def _on_invalid(name: str, text: str) -> bool:
    if text.lower() not in ("fail", "collect"):
        raise InvalidValue(name, text, "fail or collect")
    return text.lower() == "collect"


_OPTIONS: Final[dict[str, Option]] = {
    "endpoint": ("endpoint", endpoint_text),
    "topic": ("topic", _topic),
    "delayLevel": ("delay_level", _number(0)),
    "delay": ("delay", _delay),
    "deliverAt": ("deliver_at_ms", _instant),
    "match": ("match", _match),
    "batchSize": ("batch_size", _number(1, 100_000)),
    "inFlight": ("in_flight", _number(1, 64)),
    "jobId": ("job_id", _job_id),
    "dedupColumn": ("dedup_column", as_it_is),
    "onInvalid": ("is_collecting", _on_invalid),
    "refusedPath": ("refused_path", as_it_is),
    "maxPerSecond": ("max_per_second", _number(0)),
    "retryTimeout": ("retry_ms", _number(0)),
    **{name: (field, as_it_is) for name, field in CREDENTIALS.items()},
}
_SPARKS_OWN: Final = ("checkpointlocation", "queryname")
"""Spark's own options of every stream, which Spark passes on."""
assert {name for name, _ in _OPTIONS.values()} == {each.name for each in fields(SinkOptions)}


def option_names() -> tuple[str, ...]:
    """The names of all options of a writer."""
    return tuple(_OPTIONS)


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

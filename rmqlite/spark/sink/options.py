"""Checks the options of a writer and the columns of its rows at plan time.

A wrong name, type or level is found before any task runs.  Unknown columns are refused, not
dropped: a misspelt delay would send everything at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from rmqlite.client import BulkMatch
from rmqlite.features.rows import check_job_id
from rmqlite.kernel.words.clock import local_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LevelTable, instant_ms, parse_delay
from rmqlite.kernel.words.names import check_sendable
from rmqlite.spark.arrow.options import BrokerOptions
from rmqlite.spark.credentials import OPTIONS as CREDENTIALS
from rmqlite.spark.credentials import credentials_of
from rmqlite.spark.options import Option, as_it_is, endpoint_text, fields_of, hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_SIZE: Final = 500
IN_FLIGHT: Final = 4
RETRY_MS: Final = 60_000
_NUMBER_MAX: Final = 2**31 - 1
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


def _number(low: int, high: int = _NUMBER_MAX) -> Callable[[str, str], int]:
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

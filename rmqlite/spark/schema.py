"""The columns of the format "rmqlite": one table for store and broker, batch and stream.

A column is what one record of the commit log says.  What is asked for by name is decoded,
nothing else; without a wish it is the default columns.  Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqlite.errors import InvalidValue

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """A column: its type in Spark's words, and what it says of a record."""

    name: str
    type: str
    is_default: bool
    meaning: str


_TEXT, _INT, _LONG, _TIME, _BYTES = "string", "int", "bigint", "timestamp", "binary"
PROPERTIES_TYPE: Final = "map<string,string>"

COLUMNS: Final = (
    Column("topic", _TEXT, True, "the topic under which it is stored"),
    Column("queue_id", _INT, True, "its queue; of a scheduled record the level - 1"),
    Column("queue_offset", _LONG, True, "its ordinal in the queue"),
    Column("body", _BYTES, True, "as it was sent"),
    Column("keys", _TEXT, True, "KEYS: tokens, one blank between two"),
    Column("tags", _TEXT, True, "TAGS"),
    Column("unique_key", _TEXT, True, "UNIQ_KEY: the message id, the same on every hop"),
    Column("delay_level", _INT, True, "DELAY: the level at which it waits, or waited last"),
    Column("real_topic", _TEXT, True, "REAL_TOPIC: where a scheduled record is going"),
    Column("real_queue_id", _INT, True, "REAL_QID: to which queue of it"),
    Column("deliver_timestamp", _TIME, True, "when a scheduled record is due"),
    Column("born_timestamp", _TIME, True, "when it was sent, by the producer's clock"),
    Column("store_timestamp", _TIME, True, "when it was stored, by the broker's clock"),
    Column("born_host", _TEXT, True, "the producer, ip:port"),
    Column("store_host", _TEXT, True, "the broker, ip:port"),
    Column("reconsume_times", _INT, False, "how often it was failed"),
    Column("flag", _INT, False, "the user's, kept as it is"),
    Column("sys_flag", _INT, False, "RocketMQ's bits: compression, transaction, IPv6"),
    Column("store_size", _INT, False, "bytes of the record"),
    Column("body_size", _INT, False, "bytes of the body"),
    Column("body_crc", _INT, False, "the lowest 31 bits of the body's CRC-32"),
    Column("physical_offset", _LONG, False, "where the record begins in the commit log"),
    Column("end_offset", _LONG, False, "where it ends: physical_offset + store_size"),
    Column("prepared_transaction_offset", _LONG, False, "the header field as it is"),
    Column("completes", _LONG, False, "end_offset of the scheduled record whose wait it ended"),
    Column("completed_level", _INT, False, "the level at which that one waited"),
    Column(
        "completion",
        _TEXT,
        False,
        "how it ended that: delivered, fired, rescheduled, cancelled or undeliverable",
    ),
    Column("origin_topic", _TEXT, False, "of a retry or dead letter: the topic it was sent to"),
    Column("origin_message_id", _TEXT, False, "of these: the offset message id of the first try"),
    Column("origin_queue_id", _INT, False, "of these: the queue of the first try"),
    Column("origin_queue_offset", _LONG, False, "of these: the queue offset of the first try"),
    Column("delivery_attempts", _INT, False, "of a dead letter: how often it was given out"),
    Column("first_failure_timestamp", _TIME, False, "when it was failed first"),
    Column("last_failure_timestamp", _TIME, False, "when it was failed last"),
    Column("failure_reason", _TEXT, False, "what the consumer gave as the reason"),
    Column("properties", PROPERTIES_TYPE, False, "all properties; doubles the time of an export"),
)
BY_NAME: Final = {column.name: column for column in COLUMNS}
DEFAULT_NAMES: Final = tuple(column.name for column in COLUMNS if column.is_default)


def columns_named(text: str) -> tuple[Column, ...]:
    """The columns of a list such as "topic, queue_id"; empty text means the default ones.

    "*" stands for all.  Raises InvalidValue for an unknown or repeated name.
    """
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    if names == ["*"]:
        return COLUMNS
    return columns_of(names or DEFAULT_NAMES)


def columns_of(names: Sequence[str]) -> tuple[Column, ...]:
    """The columns with these names, in this order.  Raises InvalidValue."""
    found: dict[str, Column] = {}
    for name in names:
        column = BY_NAME.get(name)
        if column is None:
            raise InvalidValue("columns", name, f"a column of this format{_hint(name)}")
        if name in found:
            raise InvalidValue("columns", name, "each column once")
        found[name] = column
    return tuple(found.values())


def spark_schema(columns: Sequence[Column]) -> StructType:
    """The columns as Spark's schema; all nullable.  Needs no session."""
    from pyspark.sql import types

    kinds: dict[str, Any] = {
        _TEXT: types.StringType(),
        _INT: types.IntegerType(),
        _LONG: types.LongType(),
        _TIME: types.TimestampType(),
        _BYTES: types.BinaryType(),
        PROPERTIES_TYPE: types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType([types.StructField(c.name, kinds[c.type]) for c in columns])


def _hint(name: str) -> str:
    near = get_close_matches(name, BY_NAME, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; these are {', '.join(BY_NAME)}"

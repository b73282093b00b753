"""The columns of a table of records: one table for store and broker, batch and stream.

A row is one record of the commit log.  Only the columns that the user names are decoded, or the
default ones if the user names none.  Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from rmqlite.errors import InvalidValue


class Column(NamedTuple):
    """A column: its type in Spark's words, and its meaning for a record."""

    name: str
    type: str
    is_default: bool
    meaning: str


TEXT: Final = "string"
INT: Final = "int"
LONG: Final = "bigint"
TIME: Final = "timestamp"
BYTES: Final = "binary"
PROPERTIES: Final = "map<string,string>"
"""The types of columns, in Spark's words."""

COLUMNS: Final = (
    Column("topic", TEXT, True, "the topic under which it is stored"),
    Column("queue_id", INT, True, "its queue; of a scheduled record the level - 1"),
    Column("queue_offset", LONG, True, "its ordinal in the queue"),
    Column("body", BYTES, True, "the bytes as they were sent"),
    Column("keys", TEXT, True, "KEYS: tokens, one blank between two"),
    Column("tags", TEXT, True, "TAGS"),
    Column("unique_key", TEXT, True, "UNIQ_KEY: the message id, the same on every hop"),
    Column("delay_level", INT, True, "DELAY: the level at which it waits, or waited last"),
    Column("real_topic", TEXT, True, "REAL_TOPIC: the topic of a scheduled record's delivery"),
    Column("real_queue_id", INT, True, "REAL_QID: the queue of that topic"),
    Column("deliver_timestamp", TIME, True, "when a scheduled record is due"),
    Column("born_timestamp", TIME, True, "when it was sent, by the producer's clock"),
    Column("store_timestamp", TIME, True, "when it was stored, by the broker's clock"),
    Column("born_host", TEXT, True, "the producer, ip:port"),
    Column("store_host", TEXT, True, "the broker, ip:port"),
    Column("reconsume_times", INT, False, "how often consumers have failed it"),
    Column("flag", INT, False, "the user's flag"),
    Column("sys_flag", INT, False, "RocketMQ's bits: compression, transaction, IPv6"),
    Column("store_size", INT, False, "bytes of the record"),
    Column("body_size", INT, False, "bytes of the body"),
    Column("body_crc", INT, False, "the lowest 31 bits of the body's CRC-32"),
    Column("physical_offset", LONG, False, "where the record begins in the commit log"),
    Column("end_offset", LONG, False, "where it ends: physical_offset + store_size"),
    Column("prepared_transaction_offset", LONG, False, "the header field, unchanged"),
    Column("completes", LONG, False, "end_offset of the scheduled record whose wait it ended"),
    Column("completed_level", INT, False, "the level at which that record waited"),
    Column(
        "completion",
        TEXT,
        False,
        "how the wait ended: delivered, fired, rescheduled, cancelled or undeliverable",
    ),
    Column("origin_topic", TEXT, False, "of a retry or dead letter: the topic it was sent to"),
    Column("origin_message_id", TEXT, False, "of these: the offset message id of the first try"),
    Column("origin_queue_id", INT, False, "of these: the queue of the first try"),
    Column("origin_queue_offset", LONG, False, "of these: the queue offset of the first try"),
    Column("delivery_attempts", INT, False, "of a dead letter: how often a consumer received it"),
    Column("first_failure_timestamp", TIME, False, "when a consumer failed it first"),
    Column("last_failure_timestamp", TIME, False, "when a consumer failed it last"),
    Column("failure_reason", TEXT, False, "the reason that the consumer gave"),
    Column("properties", PROPERTIES, False, "all properties; doubles the time of an export"),
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


def _hint(name: str) -> str:
    near = get_close_matches(name, BY_NAME, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; these are {', '.join(BY_NAME)}"

"""The columns of a table of records: one table for store and broker, batch and stream.

A row is one record of the commit log.  Only the columns that the user names are decoded, or the
default ones if the user names none.  Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.visible import did_you_mean


class Column(NamedTuple):
    """A column: its type in Spark's words; README.md of spark/ has its meaning."""

    name: str
    type: str
    is_default: bool


TEXT: Final = "string"
INT: Final = "int"
LONG: Final = "bigint"
TIME: Final = "timestamp"
BYTES: Final = "binary"
PROPERTIES: Final = "map<string,string>"
"""The types of columns, in Spark's words."""

COLUMNS: Final = (
    Column("topic", TEXT, True),
    Column("queue_id", INT, True),
    Column("queue_offset", LONG, True),
    Column("body", BYTES, True),
    Column("keys", TEXT, True),
    Column("tags", TEXT, True),
    Column("unique_key", TEXT, True),
    Column("delay_level", INT, True),
    Column("real_topic", TEXT, True),
    Column("real_queue_id", INT, True),
    Column("deliver_timestamp", TIME, True),
    Column("born_timestamp", TIME, True),
    Column("store_timestamp", TIME, True),
    Column("born_host", TEXT, True),
    Column("store_host", TEXT, True),
    Column("reconsume_times", INT, False),
    Column("flag", INT, False),
    Column("sys_flag", INT, False),
    Column("store_size", INT, False),
    Column("body_size", INT, False),
    Column("body_crc", INT, False),
    Column("physical_offset", LONG, False),
    Column("end_offset", LONG, False),
    Column("prepared_transaction_offset", LONG, False),
    Column("completes", LONG, False),
    Column("completed_level", INT, False),
    Column("completion", TEXT, False),
    Column("timer", TEXT, False),
    Column("timer_step", TEXT, False),
    Column("origin_topic", TEXT, False),
    Column("origin_message_id", TEXT, False),
    Column("origin_queue_id", INT, False),
    Column("origin_queue_offset", LONG, False),
    Column("delivery_attempts", INT, False),
    Column("first_failure_timestamp", TIME, False),
    Column("last_failure_timestamp", TIME, False),
    Column("failure_reason", TEXT, False),
    Column("failure_kind", TEXT, False),
    Column("redriven_from", TEXT, False),
    Column("redriven_by", TEXT, False),
    Column("properties", PROPERTIES, False),
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
            raise InvalidValue("columns", name, "named once")
        found[name] = column
    return tuple(found.values())


def _hint(name: str) -> str:
    return did_you_mean(name, BY_NAME, f"; these are {', '.join(BY_NAME)}")

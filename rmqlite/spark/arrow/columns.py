"""The columns of a table of records: one table for store and broker, batch and stream.

A row is one record of the commit log.  Only the columns that the user names are decoded, or the
default ones if the user names none.  Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.visible import did_you_mean


class ArrowColumn(NamedTuple):
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
    ArrowColumn("topic", TEXT, True),
    ArrowColumn("queue_id", INT, True),
    ArrowColumn("queue_offset", LONG, True),
    ArrowColumn("body", BYTES, True),
    ArrowColumn("keys", TEXT, True),
    ArrowColumn("tags", TEXT, True),
    ArrowColumn("unique_key", TEXT, True),
    ArrowColumn("delay_level", INT, True),
    ArrowColumn("real_topic", TEXT, True),
    ArrowColumn("real_queue_id", INT, True),
    ArrowColumn("deliver_timestamp", TIME, True),
    ArrowColumn("born_timestamp", TIME, True),
    ArrowColumn("store_timestamp", TIME, True),
    ArrowColumn("born_host", TEXT, True),
    ArrowColumn("store_host", TEXT, True),
    ArrowColumn("reconsume_times", INT, False),
    ArrowColumn("flag", INT, False),
    ArrowColumn("sys_flag", INT, False),
    ArrowColumn("store_size", INT, False),
    ArrowColumn("body_size", INT, False),
    ArrowColumn("body_crc", INT, False),
    ArrowColumn("physical_offset", LONG, False),
    ArrowColumn("end_offset", LONG, False),
    ArrowColumn("prepared_transaction_offset", LONG, False),
    ArrowColumn("completes", LONG, False),
    ArrowColumn("completed_level", INT, False),
    ArrowColumn("completion", TEXT, False),
    ArrowColumn("timer", TEXT, False),
    ArrowColumn("timer_step", TEXT, False),
    ArrowColumn("origin_topic", TEXT, False),
    ArrowColumn("origin_message_id", TEXT, False),
    ArrowColumn("origin_queue_id", INT, False),
    ArrowColumn("origin_queue_offset", LONG, False),
    ArrowColumn("delivery_attempts", INT, False),
    ArrowColumn("first_failure_timestamp", TIME, False),
    ArrowColumn("last_failure_timestamp", TIME, False),
    ArrowColumn("failure_reason", TEXT, False),
    ArrowColumn("failure_kind", TEXT, False),
    ArrowColumn("redriven_from", TEXT, False),
    ArrowColumn("redriven_by", TEXT, False),
    ArrowColumn("properties", PROPERTIES, False),
)
BY_NAME: Final = {column.name: column for column in COLUMNS}
DEFAULT_NAMES: Final = tuple(column.name for column in COLUMNS if column.is_default)


def columns_named(text: str) -> tuple[ArrowColumn, ...]:
    """The columns of a list such as "topic, queue_id"; empty text means the default ones.

    "*" stands for all.  Raises InvalidValue for an unknown or repeated name.
    """
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    if names == ["*"]:
        return COLUMNS
    return columns_of(names or DEFAULT_NAMES)


def columns_of(names: Sequence[str]) -> tuple[ArrowColumn, ...]:
    """The columns with these names, in this order.  Raises InvalidValue."""
    found: dict[str, ArrowColumn] = {}
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

"""A dead letter as a row of an export, rows as lines of JSON or CSV, and a row as a message.

JSON lines hold every value unchanged, in ASCII; only they can be imported.  CSV is for
spreadsheets, so dangerous cells are escaped: a cell that would be a formula gets a ' in front, one
that begins with ' gets another, control characters are written as \\x1b, and a body with some of
them is in hex.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rmqlite.cli.output.terminal import body_text, printable
from rmqlite.compression import is_compressed, readable_message
from rmqlite.errors import InvalidValue
from rmqlite.message import (
    FAILURE_REASON,
    FIRST_ID_PROPERTIES,
    REDRIVE_ID_PREFIX,
    REDRIVE_PROPERTIES,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
    Message,
    StoredMessage,
)
from rmqlite.names import check_group, check_sendable, dlq_topic, group_of
from rmqlite.requests.failure_kinds import failure_kind
from rmqlite.requests.letters import UNREADABLE, Letter

Row = Mapping[str, Any]
COLUMNS: Final = (
    *("group", "queue_id", "queue_offset", "message_id", "offset_message_id"),
    *("origin_topic", "origin_queue_id", "origin_queue_offset", "origin_message_id"),
    *("tags", "keys", "delivery_attempts", "first_failure_ms", "last_failure_ms", "reason"),
    *("failure_kind", "born_timestamp_ms", "store_timestamp_ms", "redriven_before", "redriven_by"),
    *("properties", "body_size", "body_is_compressed", "body_encoding", "body"),
)
_LINE_BYTES_SHOWN: Final = 60
_NOT_THE_USERS: Final = RESERVED_PROPERTIES | REDRIVE_PROPERTIES
_READ: Final = {
    "group": str,
    "queue_id": int,
    "queue_offset": int,
    "origin_topic": str,
    "tags": str,
    "keys": list,
    "redriven_before": int,
    "redriven_by": str,
    "properties": dict,
    "body_is_compressed": bool,
    "body_encoding": str,
    "body": str,
}
"""The columns that row_in() needs, with their types in JSON."""
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]|\r(?!\n)"
)
"""Control characters without tabs and line ends, and characters that turn a line's direction."""
_FORMULA: Final = frozenset("=+-@\t\r'")


def row_of(letter: Letter, message: StoredMessage) -> dict[str, Any]:
    """Every column; body: the bytes of the producer, inflated.

    body_is_compressed: the body could not be inflated and is as it was stored.
    """
    plain, _ = readable_message(message)
    return {
        "group": letter.group,
        "queue_id": letter.queue_id,
        "queue_offset": letter.queue_offset,
        "message_id": letter.message_id,
        "offset_message_id": message.offset_message_id,
        "origin_topic": letter.origin_topic,
        "origin_queue_id": letter.origin_queue_id,
        "origin_queue_offset": letter.origin_queue_offset,
        "origin_message_id": letter.origin_message_id,
        "tags": letter.tags,
        "keys": list(letter.keys),
        "delivery_attempts": letter.delivery_attempts,
        "first_failure_ms": letter.first_failure_ms,
        "last_failure_ms": letter.last_failure_ms,
        "reason": letter.reason,
        "failure_kind": failure_kind(letter.reason),
        "born_timestamp_ms": letter.born_timestamp_ms,
        "store_timestamp_ms": letter.store_timestamp_ms,
        "redriven_before": letter.redriven_before,
        "redriven_by": letter.redriven_by,
        "properties": dict(message.properties),
        "body_size": len(plain.body),
        "body_is_compressed": is_compressed(plain),
        "body_encoding": "",
        "body": plain.body,
    }


def json_lines(rows: Sequence[Row]) -> bytes:
    """One document per line; the body is text or hex, as body_encoding says."""
    lines = []
    for row in rows:
        encoding, body = body_text(row["body"])
        lines.append(json.dumps({**row, "body_encoding": encoding, "body": body}))
    return "".join([f"{line}\n" for line in lines]).encode("ascii")


def row_in(line: bytes) -> Row:
    """The row of a line of json_lines().  Raises InvalidValue."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not row.keys() >= _READ.keys():
        shown = line[:_LINE_BYTES_SHOWN].decode("utf-8", "replace").strip()
        raise InvalidValue("line", shown, "a JSON line as dlq export writes it")
    for name, kind in _READ.items():
        if type(row[name]) is not kind:
            raise InvalidValue(name, row[name], f"{kind.__name__}, as dlq export writes it")
    if not all(isinstance(key, str) for key in row["keys"]):
        raise InvalidValue("keys", row["keys"], "a list of texts, as dlq export writes it")
    return row


def message_of(row: Row, to_topic: str = "") -> Message:
    """The new message of a letter, as a redrive of the broker would send it.

    row: from row_in().  to_topic: instead of the original topic.  Raises Refused.
    """
    topic = to_topic or row["origin_topic"]
    if not topic or group_of(topic) is not None:
        raise InvalidValue("topic", topic, "a topic that users send to: name one with --to-topic")
    check_sendable(topic)
    check_group(row["group"])
    if row["queue_id"] < 0 or row["queue_offset"] < 0:
        raise InvalidValue("queue_offset", row["queue_offset"], "0 or more, as is the queue_id")
    if row["body_is_compressed"]:
        raise InvalidValue("body_is_compressed", True, "a body that dlq export could inflate")
    try:
        text = row["body"]
        body = bytes.fromhex(text) if row["body_encoding"] == "hex" else text.encode()
    except ValueError as error:
        raise InvalidValue("body", text, "text or hex, as body_encoding says") from error
    place = f"{dlq_topic(row['group'])}:{row['queue_id']}:{row['queue_offset']}"
    properties = row["properties"]
    if not row["origin_topic"] and properties.get(FAILURE_REASON) == UNREADABLE:
        raise InvalidValue("body", text, "a message; the content of this letter is lost")
    first_id = next((properties[name] for name in FIRST_ID_PROPERTIES if name in properties), "")
    return Message(
        topic,
        body,
        tags=row["tags"],
        keys=row["keys"],
        properties={
            **{name: value for name, value in properties.items() if name not in _NOT_THE_USERS},
            REDRIVEN_FROM: place,
            REDRIVEN_TIMES: str(row["redriven_before"] + 1),
            **({REDRIVEN_MESSAGE_ID: first_id} if first_id else {}),
        },
        message_id=REDRIVE_ID_PREFIX + place,
    )


def csv_head() -> bytes:
    return _csv([COLUMNS])


def csv_lines(rows: Sequence[Row]) -> bytes:
    """Lines for a spreadsheet; keys are separated by blanks, properties are JSON."""
    return _csv([_cells(row) for row in rows])


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cells(row: Row) -> list[object]:
    encoding, text = body_text(row["body"])
    if encoding == "utf-8" and _UNFIT.search(text):
        encoding, text = "hex", row["body"].hex()
    shown: dict[str, Any] = {
        **row,
        "keys": " ".join(row["keys"]),
        "properties": json.dumps(row["properties"]),
        "body_encoding": encoding,
        "body": text,
    }
    return [_cell(shown[name]) for name in COLUMNS]


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else value
    if _UNFIT.search(value):
        value = _UNFIT.sub(_escaped, value)
    return f"'{value}" if value[:1] in _FORMULA else value


def _escaped(found: re.Match[str]) -> str:
    return printable(found[0])


TEXT_FORMS: Final[Mapping[str, tuple[Callable[[], bytes], Callable[[Sequence[Row]], bytes]]]] = {
    "jsonl": (lambda: b"", json_lines),
    "csv": (csv_head, csv_lines),
}
"""For each format: the beginning of a file, and the bytes of rows."""

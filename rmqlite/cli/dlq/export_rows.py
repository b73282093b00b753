"""A dead letter as a row of an export, rows as lines of JSON or CSV, a row as a letter to import.

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
from rmqlite.client import DeadLetter, ImportedDeadLetter
from rmqlite.kernel.words.compression import is_compressed, readable_message
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import (
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    KEY_SEPARATOR,
    KEYS,
    RESERVED_PROPERTIES,
    TAGS,
    Message,
    StoredMessage,
    decode_properties,
    encode_properties,
)
from rmqlite.kernel.words.names import check_group
from rmqlite.kernel.words.reasons import UNREADABLE, failure_kind

Row = Mapping[str, Any]
COLUMNS: Final = {
    "group": "text",
    "queue_id": "int",
    "queue_offset": "long",
    "message_id": "text",
    "offset_message_id": "text",
    "origin_topic": "text",
    "origin_queue_id": "int",
    "origin_queue_offset": "long",
    "origin_message_id": "text",
    "tags": "text",
    "keys": "texts",
    "delivery_attempts": "int",
    "first_failure_ms": "time",
    "last_failure_ms": "time",
    "reason": "text",
    "failure_kind": "text",
    "born_timestamp_ms": "time",
    "store_timestamp_ms": "time",
    "redriven_before": "int",
    "redriven_by": "text",
    "properties": "pairs",
    "body_size": "long",
    "body_is_compressed": "flag",
    "body_encoding": "text",
    "body": "bytes",
}
"""Each column, and the type that it has in a table (rmqlite/spark/arrow/export.py)."""
_LINE_BYTES_SHOWN: Final = 60
_IN_JSON: Final = {"int": int, "long": int, "time": int, "texts": list, "pairs": dict, "flag": bool}
_NEEDED: Final = (
    *("group", "queue_id", "queue_offset", "offset_message_id", "store_timestamp_ms"),
    *("origin_topic", "tags", "keys", "redriven_by", "properties", "body_is_compressed"),
    *("body_encoding", "body"),
)
_READ: Final = {name: _IN_JSON.get(COLUMNS[name], str) for name in _NEEDED}
"""The columns that row_in() needs, with their types in JSON."""
_MOST: Final = {
    "queue_id": 2**31 - 1,
    "queue_offset": 2**63 - 1,
    "store_timestamp_ms": 2**63 - 1,
}
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]|\r(?!\n)"
)
"""Control characters without tabs and line ends, and characters that turn a line's direction."""
_FORMULA: Final = frozenset("=+-@\t\r'")


def row_of(letter: DeadLetter, message: StoredMessage) -> dict[str, Any]:
    """Every column; body: the bytes of the producer, inflated.

    body_is_compressed: the body could not be inflated and is as it was stored.
    """
    plain, _ = readable_message(message)
    own = {
        "keys": list(letter.keys),
        "failure_kind": failure_kind(letter.reason),
        "properties": dict(message.properties),
        "body_size": len(plain.body),
        "body_is_compressed": is_compressed(plain),
        "body_encoding": "",
        "body": plain.body,
    }
    return {name: own[name] if name in own else getattr(letter, name) for name in COLUMNS}


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
            raise InvalidValue(name, row[name], f"{kind.__name__}: as dlq export writes it")
    if not all(isinstance(key, str) for key in row["keys"]):
        raise InvalidValue("keys", row["keys"], "a list of texts, as dlq export writes it")
    return row


def letter_in(row: Row) -> ImportedDeadLetter:
    """The letter of a row, for an import.  row: from row_in().  Raises Refused."""
    check_group(row["group"])
    for name, most in _MOST.items():
        if not 0 <= row[name] <= most:
            raise InvalidValue(name, row[name], f"0 to {most}")
    if row["body_is_compressed"]:
        raise InvalidValue("body_is_compressed", True, "a body that dlq export could inflate")
    try:
        text = row["body"]
        body = bytes.fromhex(text) if row["body_encoding"] == "hex" else text.encode()
    except ValueError as error:
        raise InvalidValue("body", text, "text or hex, as body_encoding says") from error
    origin, properties = row["origin_topic"], row["properties"]
    if not origin and properties.get(FAILURE_REASON) == UNREADABLE:
        raise InvalidValue("body", text, "a message: the content of this letter is lost")
    # The columns may have been edited; of the properties, only those that have no column.
    named = {DLQ_ORIGIN_TOPIC: origin, TAGS: row["tags"], KEYS: KEY_SEPARATOR.join(row["keys"])}
    others = {name: value for name, value in properties.items() if name not in named}
    # A message checks what a producer may send: a body, texts, keys without blanks.
    own = {name: value for name, value in others.items() if name not in RESERVED_PROPERTIES}
    Message("checked", body, tags=row["tags"], keys=row["keys"], properties=own)
    every = others | {name: value for name, value in named.items() if value}
    try:
        encoded = encode_properties(every)
    except (TypeError, UnicodeEncodeError):
        encoded = b""
    if decode_properties(encoded) != every:
        rule = "text keys and values, none empty, without control characters 0x01 and 0x02"
        raise InvalidValue("properties", str(properties), rule)
    return ImportedDeadLetter(
        row["queue_id"],
        row["queue_offset"],
        row["offset_message_id"],
        row["store_timestamp_ms"],
        encoded,
        body,
    )


def csv_head() -> bytes:
    return _csv([[*COLUMNS]])


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

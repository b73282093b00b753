"""A dead letter as a row of an export, and rows as lines of JSON or CSV.

JSON lines have everything as it is, in ASCII.  CSV is for spreadsheets, so what would act up
there is made harmless: a cell that would be a formula begins with ', one that begins with '
has two, control characters are written as \\x1b, and a body with some of them is in hex.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rmqlite.cli.message_text import inflated
from rmqlite.cli.terminal import body_text, printable
from rmqlite.letter_requests import Letter
from rmqlite.message import StoredMessage

Row = Mapping[str, Any]
COLUMNS: Final = (
    *("group", "queue_id", "queue_offset", "message_id", "offset_message_id"),
    *("origin_topic", "origin_queue_id", "origin_queue_offset", "origin_message_id"),
    *("tags", "keys", "delivery_attempts", "first_failure_ms", "last_failure_ms", "reason"),
    *("born_timestamp_ms", "store_timestamp_ms", "redriven_before", "redriven_by"),
    *("properties", "body_size", "body_is_compressed", "body_encoding", "body"),
)
_COMPRESSED: Final = 0x1
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]|\r(?!\n)"
)
"""Control characters, but for tabs and ends of lines, and what turns a line's direction."""
_FORMULA: Final = frozenset("=+-@\t\r'")


def row_of(letter: Letter, message: StoredMessage) -> dict[str, Any]:
    """Every column; body is the bytes as their producer had them.

    body_is_compressed: they could not be inflated, and are as they were stored.
    """
    plain = inflated(message)
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
        "born_timestamp_ms": letter.born_timestamp_ms,
        "store_timestamp_ms": letter.store_timestamp_ms,
        "redriven_before": letter.redriven_before,
        "redriven_by": letter.redriven_by,
        "properties": dict(message.properties),
        "body_size": len(plain.body),
        "body_is_compressed": bool(plain.sys_flag & _COMPRESSED),
        "body_encoding": "",
        "body": plain.body,
    }


def json_lines(rows: Sequence[Row]) -> bytes:
    """A document a line; the body is text or hex, as body_encoding says."""
    lines = []
    for row in rows:
        encoding, body = body_text(row["body"])
        lines.append(json.dumps({**row, "body_encoding": encoding, "body": body}))
    return "".join([f"{line}\n" for line in lines]).encode("ascii")


def csv_head() -> bytes:
    return _csv([COLUMNS])


def csv_lines(rows: Sequence[Row]) -> bytes:
    """As a spreadsheet reads them; keys are separated by blanks, properties are JSON."""
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
"""What such a file begins with, and how rows are added to it."""

"""rmqlite dlq export: dead letters, with their bodies, as JSON lines, CSV or Parquet.

It works page by page, so memory does not grow with their number; the file is complete or missing.
Nothing is consumed.  A letter's description comes from the broker's list, its body from the raw
log: one call for a megabyte of letters instead of one for each.

JSON lines hold every value unchanged, in ASCII; only they can be imported.  CSV is for
spreadsheets, so dangerous cells are escaped: a cell that would be a formula gets a ' in front, one
that begins with ' gets another, control characters are written as \\x1b, and a body with some of
them is in hex.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import DeadLetterOptions, Group, checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    Endpoint,
    Output,
    format_of,
    format_option,
    option,
    with_options,
)
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.terminal import body_text, note, printable
from rmqlite.cli.output.writing import (
    STANDARD_OUTPUT,
    note_exported,
    quiet_when_nobody_reads,
    writing,
    written_bytes,
)
from rmqlite.client import (
    DEAD_LETTERS_MAX,
    DeadLetter,
    DeadLetterPage,
    DeadLettersQuery,
    ImportedDeadLetter,
)
from rmqlite.extras import check_extra
from rmqlite.features.cursors import pages
from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.records.completion import UNREADABLE
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.compression import is_compressed
from rmqlite.kernel.words.errors import InvalidValue, TopicUnknown
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX
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
from rmqlite.kernel.words.names import check_group, dlq_topic
from rmqlite.views.messages import letters_text, readable_message

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader

_GAP_LETTERS_MAX: Final = 64
_GAP_BYTES_MAX: Final = 256 << 10
"""A gap up to this size is read along with the letters around it: another call costs as much."""
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
    "queue_id": INT32_MAX,
    "queue_offset": INT64_MAX,
    "store_timestamp_ms": INT64_MAX,
}
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]|\r(?!\n)"
)
"""Control characters without tabs and line ends, and characters that turn a line's direction."""
_FORMULA: Final = frozenset("=+-@\t\r'")
_ROWS_MAX: Final = 500
_BYTES_MAX: Final = 8 << 20
"""At most this many rows and bytes of bodies are written at once."""


def message_at(reader: RawReader, group: str, queue_id: int, offset: int) -> StoredMessage | None:
    """The dead letter at a place; None if it is gone, or not there yet.

    Raises TopicUnknown, QueueUnknown, OffsetGone, Unavailable.
    """
    found = _messages(reader, group, queue_id, offset, offset + 1)
    return next((each for each in found if each.queue_offset == offset), None)


def with_messages(
    reader: RawReader, letters: Sequence[DeadLetter]
) -> Iterator[tuple[DeadLetter, StoredMessage | None]]:
    """Each letter with its record, in the order of their queues.

    None if the log no longer has it: retention may have removed it.  Raises the errors of reading.
    """
    for run in _runs(letters):
        waiting = iter(run)
        letter = next(waiting, None)
        first = run[0]
        found = _messages(
            reader, first.group, first.queue_id, first.queue_offset, run[-1].queue_offset + 1
        )
        for message in found:
            while letter is not None and letter.queue_offset < message.queue_offset:
                yield letter, None
                letter = next(waiting, None)
            if letter is not None and letter.queue_offset == message.queue_offset:
                yield letter, message
                letter = next(waiting, None)
        while letter is not None:
            yield letter, None
            letter = next(waiting, None)


def _messages(
    reader: RawReader, group: str, queue_id: int, begin: int, end: int
) -> Iterator[StoredMessage]:
    from rmqlite.store_tools.reader import messages_in

    topic = dlq_topic(group)
    for chunk in reader.queue(topic, queue_id, begin, end):
        yield from messages_in(chunk, f"{topic} queue {queue_id}")


def _runs(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Runs of letters of one queue that are near enough to be read together."""
    run: list[DeadLetter] = []
    for each in sorted(letters, key=lambda each: (each.queue_id, each.queue_offset)):
        if run and not _are_near(run[-1], each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _are_near(first: DeadLetter, second: DeadLetter) -> bool:
    if first.queue_id != second.queue_id:
        return False
    between = second.queue_offset - first.queue_offset - 1
    # The sizes of the letters between are unknown; assume the size of their neighbour.
    return between <= _GAP_LETTERS_MAX and between * second.store_size <= _GAP_BYTES_MAX


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


class LetterFormat(enum.StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@with_options
def export(
    *,
    group: Group,
    output: Output = STANDARD_OUTPUT,
    form: Annotated[LetterFormat | None, format_option("parquet needs")] = None,
    options: DeadLetterOptions,
    only_open: Annotated[
        bool, option("--open/--all", "Only those that are not redriven, or all.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Write the dead letters of GROUP with their bodies; nothing is consumed.

    Exit code 1 if there is none: then the file is empty.
    """
    from rmqlite.client.raw import RawReader

    group = checked_group(group)
    chosen = format_of(form, output, LetterFormat)
    began_s = elapsed_s()
    with (
        connected(endpoint) as admin,
        RawReader(endpoint) as reader,
        quiet_when_nobody_reads(),
    ):
        broker = BrokerView(admin)
        query = DeadLettersQuery(
            group, options.filter(broker), is_open=only_open, max_letters=DEAD_LETTERS_MAX
        )
        done = _Exporting(broker, reader)
        with _writing(chosen, output) as write:
            for rows in _batches(done.rows(query)):
                write(rows)
    note_exported(letters_text(done.count), done.body_bytes, "bodies", output, began_s)
    if done.gone:
        note(f"left out: {letters_text(done.gone)} that retention removed meanwhile")
    if done.compressed:
        which = "body_is_compressed in the file; rmqlite dlq peek names the reason"
        note(f"bodies not inflated: {letters_text(done.compressed)}, {which}")
    if not done.count:
        raise typer.Exit(NOT_ALL)


class _Exporting:
    """Turns letters into rows, with a bar on a terminal, and counts them."""

    def __init__(self, broker: BrokerView, reader: RawReader) -> None:
        self.count = 0
        self.body_bytes = 0
        self.gone = 0
        self.compressed = 0
        self._broker = broker
        self._reader = reader

    def rows(self, query: DeadLettersQuery) -> Iterator[Row]:
        looked_at = 0
        with counting("looked at", self._total(query.group)) as report:
            for page in self._pages(query):
                for letter, message in with_messages(self._reader, page.letters):
                    if message is None:
                        self.gone += 1
                        continue
                    row = row_of(letter, message)
                    self.count += 1
                    self.body_bytes += row["body_size"]
                    self.compressed += row["body_is_compressed"]
                    yield row
                looked_at += page.looked_at
                report(looked_at)

    def _total(self, group: str) -> int | None:
        """The largest possible number of letters: it includes purged ones."""
        try:
            ranges = self._broker.admin.ranges(dlq_topic(group))
        except TopicUnknown:
            return None
        return sum([each.max_offset - each.min_offset for each in ranges])

    def _pages(self, query: DeadLettersQuery) -> Iterator[DeadLetterPage]:
        """The pages; the next one is fetched while one is written."""
        every = pages(self._broker.admin.dead_letters.list_dead, query)
        page = next(every, None)
        with ThreadPoolExecutor(1) as ahead:
            while page is not None:
                following = ahead.submit(next, every, None)
                yield page
                page = following.result()


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row["body_size"]
        if len(batch) == _ROWS_MAX or size >= _BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _writing(form: LetterFormat, output: Path) -> Iterator[Callable[[Sequence[Row]], object]]:
    """A function that writes rows to the output.  Raises ExtraMissing, StoreUnavailable."""
    if form is LetterFormat.PARQUET:
        check_extra("arrow")
        from rmqlite.spark.arrow.export import TableFile, schema_of_rows

        types = {name: word for name, word in COLUMNS.items() if name != "body_encoding"}
        with written_bytes(output) as file, TableFile(file, schema_of_rows(types)) as table:
            yield table.write_rows
        return
    head, lines = TEXT_FORMS[form]
    with writing(output) as write:
        write(head())
        yield lambda rows: write(lines(rows))

"""rmqlite dlq export: dead letters, with their bodies, as JSON lines, CSV or Parquet.

It works page by page, so memory does not grow with their number; the file is complete or missing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.dlq.export_rows import COLUMNS, TEXT_FORMS, Row, row_of
from rmqlite.cli.dlq.records import with_messages
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
from rmqlite.cli.output.terminal import note
from rmqlite.cli.output.writing import (
    STANDARD_OUTPUT,
    note_exported,
    quiet_when_nobody_reads,
    writing,
    written_bytes,
)
from rmqlite.client import DEAD_LETTERS_MAX, DeadLetterPage, DeadLettersQuery
from rmqlite.features.cursors import pages
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import TopicUnknown
from rmqlite.kernel.words.extras import check_extra
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.views.failed_messages import letters_text

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader

_ROWS_MAX: Final = 500
_BYTES_MAX: Final = 8 << 20
"""At most this many rows and bytes of bodies are written at once."""


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

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

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.dlq.export_rows import TEXT_FORMS, Row, row_of
from rmqlite.cli.dlq.records import with_messages
from rmqlite.cli.letter_options import Group, LetterOptions, checked_group
from rmqlite.cli.options import DEFAULT_ENDPOINT, NOT_ALL, Endpoint, refuse, with_options
from rmqlite.cli.output.letter_text import letters_text
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.spans import size_text
from rmqlite.cli.output.terminal import note
from rmqlite.cli.output.writing import (
    STANDARD_OUTPUT,
    bytes_to_standard_output,
    quiet_when_nobody_reads,
    written_bytes,
)
from rmqlite.clock import elapsed_s
from rmqlite.errors import TopicUnknown
from rmqlite.extras import check_extra
from rmqlite.names import dlq_topic
from rmqlite.requests.dead_letters import DEAD_LETTERS_MAX, DeadLetterPage, DeadLettersQuery
from rmqlite.requests.paging import pages

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader

_ROWS_MAX: Final = 500
_BYTES_MAX: Final = 8 << 20
"""At most this many rows and bytes of bodies are written at once."""


class ExportFormat(enum.StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES: Final = {".csv": ExportFormat.CSV, ".parquet": ExportFormat.PARQUET}


@with_options
def export(
    *,
    group: Group,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; - prints to standard output."
        ),
    ] = STANDARD_OUTPUT,
    form: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="The format; by default as --output ends, or jsonl. "
            'parquet needs pip install "rmqlite[arrow]".',
            show_default=False,
        ),
    ] = None,
    options: LetterOptions,
    only_open: Annotated[
        bool, typer.Option("--open/--all", help="Only letters that are not redriven, or all.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Write the dead letters of GROUP with their bodies; nothing is consumed.

    Exit code 1 if there is none: then the file is empty.
    """
    from rmqlite.client import AdminClient
    from rmqlite.client.raw import RawReader

    group = checked_group(group)
    chosen = _format_of(form, output)
    started_s = elapsed_s()
    with (
        AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin,
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
    where = "" if output == STANDARD_OUTPUT else f" to {output}"
    size = size_text(done.body_bytes)
    took = f"{elapsed_s() - started_s:.1f} s"
    note(f"exported {letters_text(done.count)}, {size} of bodies,{where} in {took}")
    if done.gone:
        note(f"left out: {letters_text(done.gone)} that retention removed meanwhile")
    if done.compressed:
        which = "body_is_compressed in the file; rmqlite dlq peek names the reason"
        note(f"bodies not inflated: {letters_text(done.compressed)}, {which}")
    if not done.count:
        raise typer.Exit(NOT_ALL)


def _format_of(form: ExportFormat | None, output: Path) -> ExportFormat:
    chosen = form or _SUFFIXES.get(output.suffix.lower(), ExportFormat.JSONL)
    if output == STANDARD_OUTPUT:
        if chosen is ExportFormat.PARQUET:
            refuse("--output", output, "the name of a file, for --format parquet")
    elif output.name in ("", "..") or output.is_dir():
        refuse("--output", output, "the name of a file")
    return chosen


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
        with counting("looked at", self._total(query.group)) as tell:
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
                tell(looked_at)

    def _total(self, group: str) -> int | None:
        """The largest possible number of letters: it includes purged ones."""
        try:
            ranges = self._broker.admin.ranges(dlq_topic(group))
        except TopicUnknown:
            return None
        return sum([each.max_offset - each.min_offset for each in ranges])

    def _pages(self, query: DeadLettersQuery) -> Iterator[DeadLetterPage]:
        """The pages; the next one is fetched while one is written."""
        every = pages(self._broker.admin.letters.list_dead, query)
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
def _writing(form: ExportFormat, output: Path) -> Iterator[Callable[[Sequence[Row]], None]]:
    """A function that writes rows to the output.  Raises ExtraMissing, StoreUnavailable."""
    if form is ExportFormat.PARQUET:
        check_extra("arrow")
        from rmqlite.arrow.letter_table import LetterTable

        with written_bytes(output) as file, LetterTable(file) as table:
            yield table.write
        return
    head, lines = TEXT_FORMS[form]
    if output == STANDARD_OUTPUT:
        bytes_to_standard_output(head())
        yield lambda rows: bytes_to_standard_output(lines(rows))
        return
    with written_bytes(output) as file:
        file.write(head())

        def write(rows: Sequence[Row]) -> None:
            file.write(lines(rows))

        yield write

"""rmqlite store cat, rmqlite store export: print or export the messages of a store's files.

cat prints lines for people, export writes JSON lines for programs, or a table (see
export_arrow.py); both have the same filters.  An exported file is complete or missing: it is
written under another name and renamed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TimeRemainingColumn

from rmqlite.cli.options import refuse, with_options
from rmqlite.cli.output.message_text import json_of, line_of, page_of
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import note
from rmqlite.cli.output.writing import (
    STANDARD_OUTPUT,
    Write,
    quiet_when_nobody_reads,
    to_standard_output,
    written,
)
from rmqlite.cli.store.export_arrow import (
    Columns,
    ExportFormat,
    Format,
    check_plain,
    export_table,
    format_of,
)
from rmqlite.cli.store.location import (
    ConfigFile,
    StorePath,
    open_store,
    settle_timers,
    store_location,
)
from rmqlite.cli.store.wanted import WantedOptions
from rmqlite.clock import elapsed_s
from rmqlite.compression import is_compressed, readable_message
from rmqlite.errors import StoreDamaged
from rmqlite.message import StoredMessage
from rmqlite.views.counts import size_text

if TYPE_CHECKING:
    from rmqlite.store.reader import MessageFilter, Search, StoreReader, Waiting

    Shape = Callable[[StoredMessage, Waiting | None], str]


@with_options
def cat(
    *,
    path: StorePath = None,
    config: ConfigFile = None,
    options: WantedOptions,
    full: Annotated[
        bool, typer.Option("--full", help="Print every field and the whole body.")
    ] = False,
) -> None:
    """Print the messages of a store, one per line; a broker may be running on it."""
    wanted = options.filter()
    with open_store(path, config) as reader, quiet_when_nobody_reads():
        copying = _Copying(reader, wanted, options, _page if full else line_of)
        copying.run(to_standard_output)
    if not copying.count:
        note("no messages")
    copying.end()


def _page(message: StoredMessage, waiting: Waiting | None) -> str:
    return page_of(message, waiting) + "\n"


@with_options
def export(
    *,
    path: StorePath = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - prints it.")
    ] = STANDARD_OUTPUT,
    config: ConfigFile = None,
    options: WantedOptions,
    inflate: Annotated[
        bool, typer.Option("--inflate", help="Inflate bodies that a producer compressed.")
    ] = False,
    form: Format = None,
    columns: Columns = "",
) -> None:
    """Write the messages of a store as JSON lines, Parquet or Arrow; a broker may run."""
    wanted = options.filter()
    chosen = format_of(form, output, columns)
    started_s = elapsed_s()
    if chosen is not ExportFormat.JSONL:
        check_plain(inflate=inflate, skip_damaged=options.skip_damaged, form=chosen)
        location = store_location(path, config)
        _check_outside(output, location[0])
        done = export_table(location, wanted, output, chosen, columns=columns, limit=options.limit)
        _note_exported(*done, output, elapsed_s() - started_s)
        return
    inflating = _Inflating()
    shape: Shape = inflating.json_of if inflate else json_of
    with open_store(path, config) as reader, quiet_when_nobody_reads():
        copying = _Copying(reader, wanted, options, shape)
        if output == STANDARD_OUTPUT:
            copying.run(to_standard_output)
        else:
            _check_outside(output, reader.root)
            with written(output) as write:
                copying.run(write)
    _note_exported(copying.count, copying.record_bytes, output, elapsed_s() - started_s)
    inflating.end()
    copying.end()


def _note_exported(count: int, record_bytes: int, output: Path, took_s: float) -> None:
    where = "" if output == STANDARD_OUTPUT else f" to {output}"
    messages = "1 message" if count == 1 else f"{count:,} messages"
    size = size_text(record_bytes)
    note(f"exported {messages}, {size} of records,{where} in {took_s:.1f} s")


class _Inflating:
    """Inflates bodies, and counts those that stay as they are stored."""

    def __init__(self) -> None:
        self._left = 0
        self._why = ""

    def json_of(self, message: StoredMessage, waiting: Waiting | None) -> str:
        plain, why = readable_message(message)
        if is_compressed(plain):
            self._left += 1
            self._why = self._why or why
        return json_of(plain, waiting)

    def end(self) -> None:
        if self._left:
            bodies = "1 body is" if self._left == 1 else f"{self._left:,} bodies are"
            note(f"{bodies} not inflated, the first: {self._why}")


class _Copying:
    """Copies messages from a search to an output, with a bar unless that is the terminal."""

    def __init__(
        self,
        reader: StoreReader,
        wanted: MessageFilter,
        options: WantedOptions,
        shape: Shape,
    ) -> None:
        self.count = 0
        self.record_bytes = 0
        self._reader = reader
        self._search = reader.search(wanted, skip_damaged=options.skip_damaged)
        self._is_of_schedule = wanted.is_of_schedule
        self._shape = shape
        self._limit = options.limit
        self._failure: StoreDamaged | None = None

    def run(self, write: Write) -> None:
        if self._is_of_schedule:
            settle_timers(self._reader)
        is_seen = write is to_standard_output and sys.stdout.isatty()
        with _progress(self._search, is_hidden=is_seen) as advance:
            try:
                for batch in self._search.batches():
                    left = None if self._limit is None else self._limit - self.count
                    self._copy(list(islice(batch, left)), write)
                    advance()
                    if self.count == self._limit:
                        break
            except StoreDamaged as error:
                # Keep the sound messages; end() raises the error.
                self._failure = error

    def end(self) -> None:
        """Print what was left out.  Raises StoreDamaged if damage ended the copying."""
        search = self._search
        if search.gone_before:
            note(
                f"retention removed log files meanwhile: nothing before physical offset "
                f"{search.gone_before} is left"
            )
        if search.damaged:
            places = "place" if search.damaged == 1 else "places"
            note(f"continued behind {search.damaged} damaged {places}: {search.first_damage}")
        if self._failure is not None:
            raise self._failure

    def _copy(self, batch: list[StoredMessage], write: Write) -> None:
        if not batch:
            return
        waiting, shape = self._reader.waiting, self._shape
        write("".join([shape(message, waiting(message)) for message in batch]))
        self.count += len(batch)
        self.record_bytes += sum([message.store_size for message in batch])


@contextmanager
def _progress(search: Search, *, is_hidden: bool) -> Iterator[Callable[[], None]]:
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with progress_bar(*columns, is_hidden=is_hidden) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda: bar.update(task, completed=search.done, total=search.total)


def _check_outside(path: Path, root: Path) -> None:
    """Refuse a file in a store's folders: it would count as one of the store's files."""
    if path.name in ("", "..") or path.is_dir():
        refuse("--output", path, "the name of a file")
    if path.resolve().is_relative_to(root.resolve()):
        refuse("--output", path, "a file outside of the store")

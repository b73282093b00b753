"""rmqlite store cat, rmqlite store export: print or export the messages of a store's files.

cat prints lines for people, export writes JSON lines for programs, or a table of columns; both
have the same filters.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rmqlite.cli.options import (
    Output,
    finish,
    format_of,
    format_option,
    option,
    refuse,
    with_options,
    wrong,
)
from rmqlite.cli.output.message_text import json_of, line_of, page_of
from rmqlite.cli.output.progress import reading
from rmqlite.cli.output.terminal import note
from rmqlite.cli.output.writing import (
    STANDARD_OUTPUT,
    note_exported,
    quiet_when_nobody_reads,
    to_standard_output,
    writing,
    written_bytes,
)
from rmqlite.cli.store.options import (
    ConfigFile,
    RecordOptions,
    StorePath,
    open_store,
    settle_timers,
    store_location,
)
from rmqlite.extras import check_extra
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.compression import is_compressed
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.views.messages import readable_message
from rmqlite.views.numbers import counted

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.store_tools.reader import MessageFilter, ScheduledWait, StoreReader

    Shape = Callable[[StoredMessage, ScheduledWait | None], str]


class ExportFormat(enum.StrEnum):
    """The formats of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


Columns = Annotated[
    str,
    option("--columns NAMES", "Columns of parquet and arrow, separated by commas; '*' means all."),
]


@with_options
def cat(
    *,
    path: StorePath = None,
    config: ConfigFile = None,
    options: RecordOptions,
    full: Annotated[bool, option("--full", "Print every field and the whole body.")] = False,
) -> None:
    """Print the messages of a store, one per line; a broker may be running on it."""
    wanted = options.filter()
    with open_store(path, config) as reader, quiet_when_nobody_reads():
        copying = _Copying(reader, wanted, options, _page if full else line_of)
        copying.run(to_standard_output, is_seen=sys.stdout.isatty())
    if not copying.count:
        note("no messages")
    copying.end()


def _page(message: StoredMessage, waiting: ScheduledWait | None) -> str:
    return page_of(message, waiting) + "\n"


@with_options
def export(
    *,
    path: StorePath = None,
    output: Output = STANDARD_OUTPUT,
    config: ConfigFile = None,
    options: RecordOptions,
    inflate: Annotated[
        bool, option("--inflate", "Inflate bodies that a producer compressed.")
    ] = False,
    form: Annotated[ExportFormat | None, format_option("parquet and arrow need")] = None,
    columns: Columns = "",
) -> None:
    """Write the messages of a store as JSON lines, Parquet or Arrow; a broker may run."""
    wanted = options.filter()
    chosen = format_of(form, output, ExportFormat)
    began_s = elapsed_s()
    location = store_location(path, config)
    if output != STANDARD_OUTPUT and output.resolve().is_relative_to(location[0].resolve()):
        # It would count as one of the store's files.
        refuse("--output", output, "a file outside of the store")
    if chosen is not ExportFormat.JSONL:
        for name, is_given in (("--inflate", inflate), ("--skip-damaged", options.skip_damaged)):
            if is_given:
                wrong(f"{name} needs --format jsonl, not {chosen}")
        rows, size, warnings = _export_table(
            location, wanted, output, chosen, columns, options.limit
        )
        note_exported(counted(rows, "message"), size, "records", output, began_s)
        finish(0, warnings)
        return
    if columns:
        wrong("--columns needs --format parquet or arrow")
    inflating = _Inflating()
    shape: Shape = inflating.json_of if inflate else json_of
    with open_store(path, config) as reader, quiet_when_nobody_reads(), writing(output) as write:
        copying = _Copying(reader, wanted, options, shape)
        is_seen = output == STANDARD_OUTPUT and sys.stdout.isatty()
        copying.run(lambda text: write(text.encode("ascii")), is_seen=is_seen)
        copying.check_promises()
    messages = counted(copying.count, "message")
    note_exported(messages, copying.record_bytes, "records", output, began_s)
    inflating.end()
    copying.end()
    finish(0, copying.warnings)


def _export_table(
    location: tuple[Path, BrokerConfig | None],
    wanted: MessageFilter,
    output: Path,
    form: ExportFormat,
    columns: str,
    limit: int | None,
) -> tuple[int, int, tuple[str, ...]]:
    """Write a table.  Returns the number of rows, the bytes of their records, and warnings.

    Raises ExtraMissing, and the errors of reading a store.
    """
    check_extra("arrow")
    from rmqlite.spark.arrow.columns import columns_named
    from rmqlite.spark.arrow.export import export

    try:
        columns_named(columns)
    except InvalidValue as error:
        refuse("--columns", error.value, error.rule)
    root, config = location
    with reading("reading") as advance, written_bytes(output) as file:
        found = export(
            file,
            str(root),
            wanted,
            form=form.value,
            columns=columns,
            limit=limit,
            config=config,
            advance=advance,
        )
    return found.rows, found.record_bytes, found.warnings


class _Inflating:
    """Inflates bodies, and counts those that stay as they are stored."""

    def __init__(self) -> None:
        self._left = 0
        self._why = ""

    def json_of(self, message: StoredMessage, waiting: ScheduledWait | None) -> str:
        plain, why = readable_message(message)
        if is_compressed(plain):
            self._left += 1
            self._why = self._why or why
        return json_of(plain, waiting)

    def end(self) -> None:
        if self._left:
            verb = "is" if self._left == 1 else "are"
            note(f"{counted(self._left, 'body')} {verb} not inflated, the first: {self._why}")


class _Copying:
    """Copies messages from a search to an output, with a bar unless that is the terminal."""

    def __init__(
        self,
        reader: StoreReader,
        wanted: MessageFilter,
        options: RecordOptions,
        shape: Shape,
    ) -> None:
        self.count = 0
        self.record_bytes = 0
        self._reader = reader
        self._search = reader.search(wanted, skip_damaged=options.skip_damaged)
        self._is_of_schedule = wanted.is_of_schedule
        self._shape = shape
        self._limit = options.limit
        self._allows_loss = options.skip_damaged
        self._failure: StoreDamaged | None = None
        self.warnings: tuple[str, ...] = ()

    def run(self, write: Callable[[str], object], *, is_seen: bool) -> None:
        if self._is_of_schedule:
            settle_timers(self._reader)
        with reading("reading", is_hidden=is_seen) as advance:
            try:
                for batch in self._search.batches():
                    left = None if self._limit is None else self._limit - self.count
                    self._copy(list(islice(batch, left)), write)
                    advance(self._search.done, self._search.total)
                    if self.count == self._limit:
                        break
            except StoreDamaged as error:
                # Keep the sound messages; end() raises the error.
                self._failure = error

    def check_promises(self) -> None:
        """Compare the store with its promises; end() raises the error, behind sound messages."""
        try:
            self.warnings = self._reader.check_promises(allow_loss=self._allows_loss)
        except StoreDamaged as error:
            self._failure = self._failure or error

    def end(self) -> None:
        """Print what was left out.  Raises StoreDamaged if damage ended the copying."""
        search = self._search
        if search.gone_before:
            note(
                f"retention removed log files meanwhile: nothing before physical offset "
                f"{search.gone_before} is left"
            )
        if search.damaged:
            places = counted(search.damaged, "damaged place")
            note(f"continued behind {places}: {search.first_damage}")
        if self._failure is not None:
            raise self._failure

    def _copy(self, batch: list[StoredMessage], write: Callable[[str], object]) -> None:
        if not batch:
            return
        waiting, shape = self._reader.waiting, self._shape
        write("".join([shape(message, waiting(message)) for message in batch]))
        self.count += len(batch)
        self.record_bytes += sum([message.store_size for message in batch])

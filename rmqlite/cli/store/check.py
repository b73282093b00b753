"""rmqlite store check: is every byte of a store what it should be?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.progress import BarColumn, TaskProgressColumn
from rich.text import Text

from rmqlite.cli.options import NOT_CLOSED, AsJson
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.progress import progress_bar, text_column
from rmqlite.cli.output.terminal import out, print_json, printable, wrapped
from rmqlite.cli.store.options import ConfigFile, StorePath, store_location
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.views.numbers import counted, size_text

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
    from rmqlite.store_tools.check import Finding, StoreCheck

FINDING: Final = Document(
    "Finding", "Of a store.", "rmqlite.store_tools.check:Finding", path=str, is_leftover=bool
)
_CHECKED: Final = Document(
    "CheckedStore",
    "The result of a check, and every inconsistency; offsets are physical offsets.",
    store=str,
    result=Literal["sound", "not-closed", "inconsistent"],
    **fields_of(bool, "is_live is_closed"),
    **fields_of(int, "log_begin log_end messages log_bytes bytes_without_checksum"),
    seconds=float,
    findings=many(FINDING),
)
FOUND: Final = 1
EXIT_CODES: Final = {"sound": 0, "not-closed": NOT_CLOSED, "inconsistent": FOUND}
"""The exit code of each verdict."""
_LEFTOVERS: Final = {
    "missing-queue": ("queue", " without files"),
    "missing-entry": ("queue entry", " missing at the end of {queues}"),
    "wrong-entry": ("queue entry", " written only in part, in {queues}"),
    "entry-without-record": ("queue entry", " behind the log's end, in {queues}"),
    "unsynced-tail": ("record", " written only in part, at the log's end"),
    "broken-mark": ("synced mark", " written only in part"),
    "file-length": ("file", " without its length"),
    "index-ahead": ("index file", " ahead of the log"),
}
"""Words for each finding: what it is about, and where."""
Line = tuple[str, str]
"""A line, and its style on a terminal."""
OnProgress = Callable[[int, int], None]
Levels = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="The messageDelayLevel, if the store has no record of it; default: --config's.",
    ),
]


@prints(lambda: _CHECKED)
def check(
    path: StorePath = None,
    config: ConfigFile = None,
    levels: Levels = "",
    as_json: AsJson = False,
) -> None:
    """Check every byte and every promise of a store; a broker may be running on it.

    Exit code 1: something is wrong.  Exit code 5: the broker was killed; nothing is damaged, and
    the next start completes the store.
    """
    root, given = store_location(path, config)
    checking = checker(root, given, levels)
    began_s = elapsed_s()
    with reading_bar("checking") as checking.progress:
        found = list(checking.run())
    took_s = elapsed_s() - began_s
    checking.close()
    result = checking.verdict(found)
    if as_json:
        print_json(_tree(root, checking, found, took_s))
    else:
        shown = [] if result is result.NOT_CLOSED else found
        _print(_wrong_lines(root, shown))
        _print(_summary(checking, found, took_s))
    if code := EXIT_CODES[result]:
        raise typer.Exit(code)


def checker(root: Path, given: BrokerConfig | None, levels: str = "") -> StoreCheck:
    """A check of the store at root.

    Raises InvalidValue if there is none, ConfigInvalid if its files have other lengths than given.
    """
    from rmqlite.kernel.words.levels import parse_levels
    from rmqlite.store_tools.check import StoreCheck, is_store

    if not is_store(root):
        raise InvalidValue("store", root, "a folder with a commitlog/ in it")
    return StoreCheck(root, config=given, levels=parse_levels(levels) if levels else None)


@contextmanager
def reading_bar(what: str) -> Iterator[OnProgress]:
    """Show a bar with MB/s on a terminal; yields a function for bytes done and bytes in all."""
    columns = (BarColumn(), TaskProgressColumn(), text_column("{task.fields[rate]}"))
    began_s = elapsed_s()
    with progress_bar(*columns) as bar:
        task = bar.add_task(what, total=None, rate="")

        def report(done: int, total: int) -> None:
            bar.update(
                task, completed=done, total=total, rate=rate_text(done, elapsed_s() - began_s)
            )

        yield report


def finding_lines(root: Path, found: Sequence[Finding]) -> Iterator[str]:
    """Each finding on two lines: place and kind, then the sentence."""
    for each in found:
        yield printable(f"{place_text(root, each.path, each.position)}: {each.what}")
        yield printable(f"  {each.sentence}")


def place_text(root: Path, path: Path, position: int) -> str:
    """A file, relative to the store's folder, and a byte in it."""
    where = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{where} at byte {position}" if position or path.name.isdigit() else str(where)


def finding_tree(found: Finding) -> dict[str, Any]:
    """A finding for --json."""
    return FINDING.tree(found, path=str(found.path), is_leftover=found.is_leftover)


def rate_text(size: int, took_s: float) -> str:
    """Megabytes per second: "183 MB/s"."""
    return f"{size / 1e6 / max(took_s, 1e-9):,.0f} MB/s"


def _wrong_lines(root: Path, found: Sequence[Finding]) -> Iterator[Line]:
    for number, line in enumerate(finding_lines(root, found)):
        yield line, "" if number % 2 else "red"


def _print(lines: Iterable[Line]) -> None:
    """Print lines; on a terminal with styles and wrapped, else unchanged."""
    console = out()
    for line, style in lines:
        if console.is_terminal:
            console.print(Text("\n".join(wrapped(line)), style=style))
        else:
            sys.stdout.write(line + "\n")


def _summary(checking: StoreCheck, found: list[Finding], took_s: float) -> Iterator[Line]:
    result = checking.verdict(found)
    rate = rate_text(checking.log_bytes, took_s)
    size = size_text(checking.log_bytes)
    yield (
        f"checked {counted(checking.messages, 'message')}, {size} in {took_s:.1f} s ({rate}):"
        f" {_result(found if result is result.INCONSISTENT else [])}",
        {"sound": "green", "inconsistent": "bold red"}.get(result, ""),
    )
    if checking.is_live:
        yield (
            f"a running broker holds the store: physical offsets {checking.log_begin:,} to"
            f" {checking.log_end:,} were checked, up to the log's end at that moment; what was"
            " written later was not",
            "",
        )
    if checking.bytes_without_checksum:
        size = size_text(checking.bytes_without_checksum)
        yield (
            f"{size} have no checksum (RocketMQ writes none, and rmqlite's newest bytes have none"
            " yet): of those only bodies were verified",
            "",
        )
    left = sum(each.is_leftover for each in found)
    if left and not checking.is_closed and result is result.INCONSISTENT:
        was, those = ("was", "it") if left == 1 else ("were", "them")
        yield (
            f"{left:,} of them {was} left by a process that was killed, and the next start"
            f" completes {those}",
            "",
        )
    if any(not each.opening_mends for each in found):
        yield "rmqlite store repair says what can be done", ""
    if result is result.NOT_CLOSED:
        yield from _not_closed_lines(checking, found)


def _not_closed_lines(checking: StoreCheck, found: Sequence[Finding]) -> Iterator[Line]:
    """The work that the next start of a broker has to do."""
    left = list(_leftovers(checking, found))
    sentence = "the store was not closed (a kill, or a power cut); nothing is damaged"
    yield f"{sentence}, and the next start completes:" if left else sentence, "yellow"
    for each in left:
        yield f"  {each}", ""


def _leftovers(checking: StoreCheck, found: Sequence[Finding]) -> Iterator[str]:
    for what, (noun, where) in _LEFTOVERS.items():
        those = [each for each in found if each.what == what]
        if those:
            queues = counted(len({each.path.parent for each in those}), "queue")
            count = counted(sum(each.count for each in those), noun)
            yield count + where.format(queues=queues)
    behind = checking.log_end - checking.saved_end if checking.saved_end is not None else 0
    if behind > 0:
        size = size_text(behind)
        yield f"queues, key index and progress for the last {size} of the log"
    if checking.indexed_end is not None:
        yield f"the key index, which ends at the record at physical offset {checking.indexed_end:,}"


def _result(found: list[Finding]) -> str:
    return counted(len(found), "inconsistency") if found else "no inconsistency"


def _tree(root: Path, checking: StoreCheck, found: list[Finding], took_s: float) -> dict[str, Any]:
    return _CHECKED.tree(
        store=str(root),
        result=checking.verdict(found),
        is_live=checking.is_live,
        is_closed=checking.is_closed,
        log_begin=checking.log_begin,
        log_end=checking.log_end,
        messages=checking.messages,
        log_bytes=checking.log_bytes,
        bytes_without_checksum=checking.bytes_without_checksum,
        seconds=round(took_s, 3),
        findings=[finding_tree(each) for each in found],
    )

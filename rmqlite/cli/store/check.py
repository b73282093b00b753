"""rmqlite store check: is every byte of a store what it should be?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn

from rmqlite.cli.options import AsJson
from rmqlite.cli.spans import size_text
from rmqlite.cli.store.location import ConfigFile, StorePath, store_location
from rmqlite.cli.terminal import print_json, printable, progress_console, text_column
from rmqlite.clock import elapsed_s
from rmqlite.errors import InvalidValue

if TYPE_CHECKING:
    from rmqlite.config import BrokerConfig
    from rmqlite.store.check import Finding, StoreCheck

FOUND: Final = 1
OnProgress = Callable[[int, int], None]
Levels = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="The messageDelayLevel of a store that keeps no record of its own; else --config's.",
    ),
]


def check(
    path: StorePath = None,
    config: ConfigFile = None,
    levels: Levels = "",
    as_json: AsJson = False,
) -> None:
    """Check every byte and every promise of a store; a live store is fine.

    Exit code 1 when something is wrong.
    """
    root, given = store_location(path, config)
    checking = checker(root, given, levels)
    began_s = elapsed_s()
    with progress_bar("checking") as checking.progress:
        found = list(checking.run())
    took_s = elapsed_s() - began_s
    checking.close()
    if as_json:
        print_json(_tree(root, checking, found, took_s))
    else:
        for line in finding_lines(root, found):
            sys.stdout.write(line + "\n")
        for line in _summary(checking, found, took_s):
            sys.stdout.write(line + "\n")
    if found:
        raise typer.Exit(FOUND)


def checker(root: Path, given: BrokerConfig | None, levels: str = "") -> StoreCheck:
    """A check of the store at root.  Raises InvalidValue where there is none."""
    from rmqlite.levels import parse_levels
    from rmqlite.store.check import StoreCheck, is_store

    if not is_store(root):
        raise InvalidValue("store", root, "a folder with a commitlog/ in it")
    table = parse_levels(levels) if levels else given.levels if given else None
    return StoreCheck(
        root,
        log_file_bytes=given.mapped_file_size_commit_log if given else None,
        queue_file_bytes=given.mapped_file_size_consume_queue if given else None,
        levels=table,
    )


@contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """A bar with MB/s on a terminal; what it gives is told the bytes done and in all."""
    console = progress_console()
    columns = (text_column("{task.description}"), BarColumn(), TaskProgressColumn())
    began_s = elapsed_s()
    with Progress(
        *columns,
        text_column("{task.fields[rate]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=None, rate="")

        def tell(done: int, total: int) -> None:
            bar.update(
                task, completed=done, total=total, rate=rate_text(done, elapsed_s() - began_s)
            )

        yield tell


def finding_lines(root: Path, found: Sequence[Finding]) -> Iterator[str]:
    """Each finding on two lines: where and what, then the sentence."""
    for each in found:
        yield printable(f"{place_text(root, each.path, each.position)}: {each.what}")
        yield printable(f"  {each.sentence}")


def place_text(root: Path, path: Path, position: int) -> str:
    """A file, as seen from the store's folder, and a byte of it."""
    where = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{where} at byte {position}" if position or path.name.isdigit() else str(where)


def finding_tree(found: Finding) -> dict[str, object]:
    """For --json."""
    return {
        "path": str(found.path),
        "position": found.position,
        "what": found.what,
        "sentence": found.sentence,
        "expected": found.expected,
        "found": found.found,
        "size": found.size,
        "opening_mends": found.opening_mends,
    }


def count_text(number: int, one: str, more: str = "") -> str:
    """A number of things: "1 message", "12,000 messages"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def rate_text(size: int, took_s: float) -> str:
    """Megabytes a second: "183 MB/s"."""
    return f"{size / 1e6 / max(took_s, 1e-9):,.0f} MB/s"


def _summary(checking: StoreCheck, found: list[Finding], took_s: float) -> Iterator[str]:
    if checking.is_live:
        yield "a broker holds the store: checked up to what was on disk at the beginning"
    if checking.bytes_without_checksum:
        size = size_text(checking.bytes_without_checksum)
        yield f"{size} have no checksum, as RocketMQ wrote them: of those only bodies are sure"
    rate = rate_text(checking.log_bytes, took_s)
    size = size_text(checking.log_bytes)
    yield (
        f"checked {count_text(checking.messages, 'message')}, {size} in {took_s:.1f} s ({rate}):"
        f" {_result(found)}"
    )
    if any(not each.opening_mends for each in found):
        yield "rmqlite store repair says what can be done"


def _result(found: list[Finding]) -> str:
    return (
        count_text(len(found), "inconsistency", "inconsistencies") if found else "no inconsistency"
    )


def _tree(
    root: Path, checking: StoreCheck, found: list[Finding], took_s: float
) -> dict[str, object]:
    return {
        "store": str(root),
        "is_live": checking.is_live,
        "messages": checking.messages,
        "log_bytes": checking.log_bytes,
        "bytes_without_checksum": checking.bytes_without_checksum,
        "seconds": round(took_s, 3),
        "findings": [finding_tree(each) for each in found],
    }

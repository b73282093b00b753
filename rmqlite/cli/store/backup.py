"""rmqlite store backup: a whole, checked copy of a store, also while a broker runs on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqlite.cli.options import AsJson
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_json, print_lines, printable
from rmqlite.cli.store.check import FOUND, finding_lines, reading_bar
from rmqlite.cli.store.options import ConfigFile, StorePath, store_location
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.views.numbers import counted, size_text


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup: physical offsets between which it has the log, and what is in it.

    copied_bytes: what was written, without the holes of sparse files.
    """

    store: str
    backup: str
    log_begin: int
    log_end: int
    messages: int
    copied_bytes: int
    seconds: float


@prints(lambda: BackedUp)
def backup(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder to make; it must not exist yet."),
    ],
    path: StorePath = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store as it is at this moment, and check the copy; a broker may be running on it.

    It is DIR.part until it is whole, checked and on disk; what fails is removed.  Exit code 1: the
    copy is not sound.
    """
    from rmqlite.store_tools.moving.backup import Backup

    root, given = store_location(path, config)
    began_s = elapsed_s()
    with Backup(root, target, given) as made:
        with reading_bar("copying") as report:
            made.copy(report)
        with reading_bar("checking") as report:
            checking, found = made.check(report)
        if found:
            for line in finding_lines(made.part, found):
                note(line)
            note(f"no backup was made, see: rmqlite store check {printable(str(root))}")
            raise typer.Exit(FOUND)
        made.keep()
    done = BackedUp(
        str(root),
        str(target),
        checking.log_begin,
        checking.log_end,
        checking.messages,
        made.copied_bytes,
        round(elapsed_s() - began_s, 3),
    )
    if as_json:
        print_json(done)
    else:
        print_lines(_lines(done))


def _lines(done: BackedUp) -> list[str]:
    messages, size = counted(done.messages, "message"), size_text(done.copied_bytes)
    return [
        f"backed up {messages}, {size} in {done.seconds:.1f} s, to {printable(done.backup)}",
        f"it was checked: no inconsistency, up to physical offset {done.log_end:,}",
    ]

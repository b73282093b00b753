"""rmqlite store restore: a store made from its archive, at any moment that the archive has."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rmqlite.cli.options import AsJson, moment_ms, option, refuse
from rmqlite.cli.output.documents import Either, prints
from rmqlite.cli.output.terminal import note, print_json, print_lines, print_table, printable
from rmqlite.cli.store.check import FOUND, finding_lines, reading_bar
from rmqlite.cli.store.options import ConfigFile
from rmqlite.kernel.words.clock import elapsed_s, local_text, wall_ms
from rmqlite.kernel.words.levels import wait_ms
from rmqlite.views.numbers import counted, size_text, span_text

if TYPE_CHECKING:
    from rmqlite.features.archive.restoring import Until
    from rmqlite.kernel.config.config import BrokerConfig

MS_DIGITS: Final = 13
"""A number of so many digits is a time in milliseconds, a shorter one a physical offset."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A store made from an archive: the moment, and what it has.

    at_ms: the broker's time of the moment; log_end: where its log ends.  waiting: messages in the
    schedule, first_due_ms: when the first is due, 0 if none waits; unread: messages behind the
    offsets of their groups.  Both come again, if they came after this moment.  left_out_bytes: of
    the archive's log, which is newer, up to last_at_ms.
    """

    store: str
    at_ms: int
    log_begin: int
    log_end: int
    messages: int
    waiting: int
    first_due_ms: int
    unread: int
    left_out_bytes: int
    last_at_ms: int
    downloaded_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RestorableMoment:
    """at_ms: the broker's time; physical_offset: where the log ended then."""

    at_ms: int
    physical_offset: int


@prints(lambda: Either(Restored, list[RestorableMoment]))
def restore(
    url: Annotated[str, typer.Argument(metavar="URL", help="The broker's archiveUrl.")],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="The folder to make; it must not exist.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str,
        option("--until TIME|OFFSET", "Only records stored before this time or physical offset."),
    ] = "",
    list_moments: Annotated[bool, option("--list", "Show the moments instead.")] = False,
    check: Annotated[
        bool, option("--check", "Restore for a trial, and remove it again; DIR: where.")
    ] = False,
    max_age: Annotated[
        str, option("--max-age AGE", "With --check: exit code 1 if it is older, such as 10m.")
    ] = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a store from the archive of a broker, and check it.

    It is DIR.part until it is whole, checked and on disk; what fails is removed.  Exit code 1: the
    store is not sound.  A broker that goes on with the archive needs --take-over at its start.
    """
    from rmqlite.kernel.config.config import load_config

    age_ms_max = wait_ms("--max-age", max_age) if max_age else None
    if list_moments:
        _list(url, as_json=as_json)
        return
    with ExitStack() as stack:
        if target is None and check:
            scratch = stack.enter_context(TemporaryDirectory(prefix="rmqlite-restore-"))
            target = Path(scratch) / "store"
        if target is None:
            refuse("DIR", "", "the name of a new folder")
        given = load_config(config) if config else None
        done = _restored(url, target, _until(until), given, is_kept=not check)
    if as_json:
        print_json(done)
    else:
        print_lines(_lines(done, is_kept=not check))
    if age_ms_max is not None and wall_ms() - done.at_ms > age_ms_max:
        note(f"the archive is older than {max_age}")
        raise typer.Exit(FOUND)


def _until(text: str) -> Until:
    from rmqlite.features.archive.restoring import EVER, Until

    if text.isascii() and text.isdigit() and len(text) < MS_DIGITS:
        return Until(physical_offset=int(text))
    found = moment_ms("--until", text)
    return Until(time_ms=EVER if found is None else found)


def _restored(
    url: str, target: Path, until: Until, config: BrokerConfig | None, *, is_kept: bool
) -> Restored:
    from rmqlite.features.archive.restoring import download, planned
    from rmqlite.store_tools.moving.new_store import NewStore
    from rmqlite.store_tools.reader import StoreReader

    began_s = elapsed_s()
    plan = planned(url, until)
    with NewStore(target, config) as made:
        made.make_part(plan.log_bytes)
        with reading_bar("downloading") as report:
            end = download(url, plan, made.disk, made.part, report)
        note("the log is downloaded, its queues are made")
        made.complete(plan.state.files, end, plan.state.sizes)
        with reading_bar("checking") as report:
            checking, found = made.check(report)
        if found:
            for line in finding_lines(made.part, found):
                note(line)
            note("no store was made; --until may find an earlier moment that is sound")
            raise typer.Exit(FOUND)
        with StoreReader(made.part, config) as reader:
            overview = reader.overview()
            levels = [level for level in overview.levels() if level.pending]
            unread = sum([lag.lag for lag in overview.lags()])
        if is_kept:
            made.keep()
    return Restored(
        store=str(target),
        at_ms=plan.moment.at_ms,
        log_begin=checking.log_begin,
        log_end=end,
        messages=checking.messages,
        waiting=sum([level.pending for level in levels]),
        first_due_ms=min([level.next_due_ms or 0 for level in levels], default=0),
        unread=unread,
        left_out_bytes=plan.archive_end - end,
        last_at_ms=plan.last.at_ms,
        downloaded_bytes=plan.log_bytes,
        seconds=round(elapsed_s() - began_s, 3),
    )


def _list(url: str, *, as_json: bool) -> None:
    from rmqlite.features.archive.restoring import moments_at

    moments = [RestorableMoment(each.at_ms, each.end) for each in moments_at(url)]
    if as_json:
        print_json(moments)
    else:
        rows = [(local_text(each.at_ms), each.physical_offset) for each in moments]
        print_table(("MOMENT", "LOG END"), rows)


def _lines(done: Restored, *, is_kept: bool) -> list[str]:
    messages, size = counted(done.messages, "message"), size_text(done.downloaded_bytes)
    place = f", to {printable(done.store)}" if is_kept else "; this was a trial"
    age = span_text(max(0, wall_ms() - done.at_ms))
    lines = [
        f"restored {messages}, {size} in {done.seconds:.1f} s{place}",
        f"as of {local_text(done.at_ms)}, {age} ago; it was checked: no inconsistency, up to"
        f" physical offset {done.log_end:,}",
    ]
    if done.left_out_bytes:
        newer = f"{size_text(done.left_out_bytes)} of the log, up to {local_text(done.last_at_ms)}"
        lines.append(f"left out, because it is newer: {newer}")
    if done.waiting:
        waiting = counted(done.waiting, "message")
        lines.append(
            f"{waiting} in the schedule, the first due {local_text(done.first_due_ms)}: what is due"
            " is delivered at the start, again if it was delivered after this moment"
        )
    if done.unread:
        lines.append(
            f"{counted(done.unread, 'message')} not consumed as of this moment: what was consumed"
            " after it is consumed again"
        )
    return lines

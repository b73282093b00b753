"""Checks that each table under config/ is JSON, and has the shape that its reader needs.

Only a fault that would keep a broker from starting, or mislead it, is a finding.  The table of the
timers is compared with their queue; see kernel/store/timer_index.py.  SQLite would make files
beside a table that it opens, so a closed one is opened as what never changes, and a copy of it if
a killed broker has left a journal.  A broker that runs compares its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final

from rmqlite.features.every import table_shapes
from rmqlite.kernel.config.table_shapes import (
    ClockTable,
    ConsumerOffsetsTable,
    DelayOffsetsTable,
    DeletedTopicsTable,
    GroupsTable,
    LevelsTable,
    ProgressTable,
    TopicsTable,
)
from rmqlite.kernel.store.deleted_topics import DELETED_TABLE
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.clock_table import CLOCK_TABLE
from rmqlite.kernel.store.timer_index import (
    FILE_NAME,
    IndexDamaged,
    Indexed,
    RowComparison,
    TimerIndex,
    check_mark,
)
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.queues import QueueCheck

UNREADABLE: Final = "unreadable-table"
_SHAPES: Final[dict[str, tuple[str, type[Any]]]] = {
    "topics.json": ("topics", TopicsTable),
    "subscriptionGroup.json": ("consumer groups", GroupsTable),
    "consumerOffset.json": ("consumer offsets", ConsumerOffsetsTable),
    DELETED_TABLE: ("deleted topics", DeletedTopicsTable),
    CLOCK_TABLE: ("the clock", ClockTable),
    DELAY_OFFSET_TABLE: ("delay offsets", DelayOffsetsTable),
    LEVELS_TABLE: ("delay levels", LevelsTable),
    PROGRESS_TABLE: ("progress", ProgressTable),
    **table_shapes(),
}
WRONG_TABLE: Final = "wrong-timer-index"
_JOURNAL: Final = FILE_NAME + "-wal"


def check_tables(files: Files, root: Path) -> Iterator[Finding]:
    """A finding for every unusable table; a previous generation counts only without a newer one."""
    folder = root / "config"
    names = files.names(folder)
    for table in sorted({name.removesuffix(tables.BACKUP) for name in names}):
        if not table.endswith(".json"):
            continue
        for path in (folder / table, folder / (table + tables.BACKUP)):
            try:
                if _sound(files, path) is not None:
                    break
            except StoreDamaged as error:
                kind = f"a table of {_SHAPES[table][0]}" if table in _SHAPES else "JSON"
                yield Finding(
                    path,
                    error.position,
                    UNREADABLE,
                    f"not {kind}: expected {error.rule}, found {error.found}",
                    error.rule,
                    error.found,
                    # Opening goes on with the wall clock and writes the table anew.
                    opening_mends=table == CLOCK_TABLE,
                )


def load_sound(files: Files, path: Path) -> tables.Tree | None:
    """A table, or its previous generation; None if both are unusable."""
    for candidate in (path, path.with_name(path.name + tables.BACKUP)):
        with suppress(StoreDamaged):
            tree = _sound(files, candidate)
            if tree is not None:
                return tree
    return None


def is_sound(files: Files, path: Path) -> bool:
    """Does a generation of a table exist, and is it usable?"""
    try:
        return _sound(files, path) is not None
    except StoreDamaged:
        return False


def _sound(files: Files, path: Path) -> tables.Tree | None:
    """A generation of a table; None if it is missing or empty.  Raises StoreDamaged."""
    data = files.read_all(path)
    if not data or not data.strip():
        return None
    _, shape = _SHAPES.get(path.name.removesuffix(tables.BACKUP), ("", tables.Tree))
    try:
        tree = tables.decode(data)
        tables.shaped(tree, data, shape)
    except tables.NoTable as error:
        raise error.damage(path) from error
    return tree


def check_timers(
    files: Files, root: Path, queue: QueueCheck, completed: CompletedOffsets
) -> Iterator[Finding]:
    """What is wrong with the table; nothing without one, because a start makes it anew."""
    folder = root / "timers"
    path = folder / FILE_NAME
    if not files.kind(path):
        return
    try:
        if files.size(folder / _JOURNAL) if files.kind(folder / _JOURNAL) else 0:
            with TemporaryDirectory() as copy:
                for name in (FILE_NAME, _JOURNAL):
                    copyfile(folder / name, Path(copy, name))
                _compare(TimerIndex(files, Path(copy)), queue, completed)
        else:
            _compare(TimerIndex(files, folder, is_fixed=True), queue, completed)
    except IndexDamaged as error:
        text = f"{error}; the broker makes the file again while it delivers"
        # It is empty if the broker was killed before it wrote to it.
        is_new = not files.size(path)
        yield Finding(path, 0, WRONG_TABLE, text, opening_mends=True, is_leftover=is_new)


def _compare(index: TimerIndex, queue: QueueCheck, completed: CompletedOffsets) -> None:
    """Raises IndexDamaged, StoreUnavailable."""
    try:
        mark = index.open()
        assert mark is not None
        if queue.first is None or mark.upto <= queue.first:
            # Retention has removed all that it had rows for.
            return
        check_mark(mark, queue.files)
        indexed = Indexed(mark.upto, mark.upto, mark.upto)
        comparison = RowComparison(index, queue.files, completed, indexed)
        while not comparison.is_done:
            comparison.step()
    finally:
        index.close()

"""The table of the timers against their queue; see kernel/store/timer_index.py.

SQLite would make files beside a table that it opens, so a closed one is opened as what never
changes, and a copy of it if a killed broker has left a journal.  A broker that runs compares its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timer_index import (
    FILE_NAME,
    IndexDamaged,
    Indexed,
    RowComparison,
    TimerIndex,
    check_mark,
)
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.queues import QueueCheck

WRONG_TABLE: Final = "wrong-timer-index"
_JOURNAL: Final = FILE_NAME + "-wal"


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

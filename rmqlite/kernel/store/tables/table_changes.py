"""Tables that have changed in memory, and are written by the next sync job.

Whoever changes a table does it in memory, and says here how to make the table and how to take
the change back.  However many changes were made in one turn of the loop, each table is written
once, in the thread that syncs and before the log: so a record on disk never lacks its topic.  If a
table cannot be written, all its changes that are not on disk are taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreUnavailable

K = TypeVar("K")
V = TypeVar("V")
Undo = Callable[[], object]


@dataclass(slots=True)
class _Change:
    """What is not on disk of a table.  undo: in the order of the changes."""

    present: Callable[[], tables.Snapshot]
    undo: list[Undo] = field(default_factory=list)


@dataclass(slots=True)
class TablesJob:
    """Writes tables; runs in any thread.  upto: the number of the last change that it covers."""

    files: Files
    snapshots: Mapping[Path, tables.Snapshot]
    upto: int
    refused: dict[Path, StoreUnavailable] = field(default_factory=dict)
    """The tables that could not be written, and are as before; filled by run()."""

    def run(self) -> None:
        """Raises FlushFailed: a restart may find the old or the new table."""
        for path, snapshot in self.snapshots.items():
            try:
                tables.save(self.files, path, snapshot())
            except StoreUnavailable as error:
                self.refused[path] = error


class TableChanges:
    """The changed tables of one store; used by the thread of the store."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._changed: dict[Path, _Change] = {}
        self._running: dict[Path, _Change] = {}
        self.made = 0
        """The number of changes so far."""
        self.written = 0
        """All changes up to this number are on disk, or were taken back."""
        self.refusals = 0
        """How often a table could not be written."""
        self.refusal: StoreUnavailable | None = None
        """The last reason."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, to start a sync job."""

    def add(self, name: str, present: Callable[[], tables.Snapshot], undo: Undo) -> None:
        """A table under config/ has changed in memory.

        present: makes a snapshot of it as it is then.  undo: takes this change back, if it is
        called before those of earlier changes and after those of later ones.
        """
        self.made += 1
        self._changed.setdefault(self._folder / name, _Change(present)).undo.append(undo)
        self.on_change()

    def begin(self) -> TablesJob | None:
        """A job that writes what has changed; None if nothing has.  The last job has ended."""
        if not self._changed:
            return None
        self._running, self._changed = self._changed, {}
        snapshots = {path: change.present() for path, change in self._running.items()}
        return TablesJob(self._files, snapshots, self.made)

    def ended(self, job: TablesJob) -> None:
        """A job has run: take back the changes of the tables that it could not write."""
        running, self._running = self._running, {}
        for path, error in job.refused.items():
            later = self._changed.pop(path, None)
            for undo in reversed(running[path].undo + (later.undo if later else [])):
                undo()
            self.refusal = error
            self.refusals += 1
        self.written = job.upto if self._changed else self.made


def put_all(rows: dict[K, V], changes: Mapping[K, V | None]) -> dict[K, V | None]:
    """Put rows into a table, or remove those that are None; returns what was there before."""
    before = {key: rows.get(key) for key in changes}
    for key, value in changes.items():
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return before

"""What makes a moment of the store durable: values, run in another thread than the store's.

A job is made when the store is at rest; what is appended meanwhile belongs to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqlite.errors import FlushFailed
from rmqlite.store.files import Files
from rmqlite.store.index.key_index import IndexJob
from rmqlite.store.log.checksums import Point
from rmqlite.store.tables import tables


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Run in any thread: makes everything up to log_end durable."""

    files: Files
    paths: tuple[Path, ...]
    point: Point
    failure: FlushFailed | None = None
    """A sync failed before: none is believed any more."""

    @property
    def log_end(self) -> int:
        return self.point.position

    def run(self) -> None:
        """Raises FlushFailed; the store must not be written to any more then."""
        if self.failure is not None:
            raise self.failure
        for path in self.paths:
            self.files.sync(path)


@dataclass(frozen=True, slots=True)
class PersistJob:
    """Run in any thread: syncs, then replaces the tables that tell how far all is."""

    sync: SyncJob
    folders: frozenset[Path]
    index: IndexJob
    tables: tuple[tuple[Path, tables.Snapshot], ...]
    """Made and encoded by the thread that runs the job: a long one takes a tenth of a second."""
    without_previous: tuple[tuple[Path, bytes], ...]
    appended: int
    """Records appended since the store was opened."""

    def run(self) -> None:
        """The tables never tell more than is synced.

        Raises FlushFailed, which is final, and StoreUnavailable: then the next job covers
        all that this one did.
        """
        self.sync.run()
        for folder in self.folders:
            self.sync.files.sync_folder(folder)
        self.index.run()
        for path, snapshot in self.tables:
            self.sync.files.replace(path, tables.encode(snapshot()), keep_previous=True)
        for path, data in self.without_previous:
            self.sync.files.replace(path, data)

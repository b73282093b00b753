"""Jobs that make the store's state of one moment durable; they run in another thread.

The store's thread makes a job between two appends; later appends belong to the next job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import Descriptor, error_of, flush_failed
from rmqlite.kernel.store.key_index import IndexJob
from rmqlite.kernel.store.log.checksums import Point
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import FlushFailed


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Makes everything up to log_end durable; runs in any thread."""

    files: Files
    paths: tuple[Path, ...]
    point: Point
    failure: FlushFailed | None = None
    """An earlier sync failed: the job raises this, because no later sync can be trusted."""

    @property
    def log_end(self) -> int:
        return self.point.position

    def descriptor(self) -> Descriptor | None:
        """The one file to sync, if that is all there is to do; otherwise run() does it."""
        if self.failure is not None or len(self.paths) != 1:
            return None
        return self.files.descriptor(self.paths[0])

    def failed(self, number: int) -> FlushFailed:
        """What run() would have raised; number: the errno of an fdatasync of descriptor()."""
        return flush_failed(self.paths[0], error_of(number))

    def run(self) -> None:
        """Raises FlushFailed; the store must not be written to any more then."""
        if self.failure is not None:
            raise self.failure
        for path in self.paths:
            self.files.sync(path)


@dataclass(frozen=True, slots=True)
class PersistJob:
    """Syncs, then replaces the tables that record progress; runs in any thread."""

    sync: SyncJob
    folders: frozenset[Path]
    index: IndexJob
    tables: tuple[tuple[Path, tables.Snapshot], ...]
    """The job's thread makes and encodes them: a long table takes a tenth of a second."""
    without_previous: tuple[tuple[Path, bytes], ...]
    appended: int
    """Records appended since the store was opened."""

    def run(self) -> None:
        """Sync first, so that the tables never count more than is on disk.

        Raises FlushFailed, which is final, and StoreUnavailable: then the next job does this
        one's work, too.
        """
        self.sync.run()
        for folder in self.folders:
            self.sync.files.sync_folder(folder)
        self.index.run()
        for path, snapshot in self.tables:
            self.sync.files.replace(path, tables.encode(snapshot()), keep_previous=True)
        for path, data in self.without_previous:
            self.sync.files.replace(path, data)

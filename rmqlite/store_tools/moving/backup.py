"""A copy of a store as it was at one moment, also while a broker writes to it.

The log only grows at its end.  So the tables under config/ and the log's end, read at one
moment, are the whole state: a crash at that moment would have left the same.  Everything
before that end is copied, and made a store (new_store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.commit_log import CHECKSUMS
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import is_zeros, position_name
from rmqlite.kernel.store.dispatch import queue_keys
from rmqlite.kernel.store.opening.adoption import is_foreign_store
from rmqlite.kernel.store.opening.file_sizes import Sizes
from rmqlite.kernel.store.tables.tables import small_files
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import InvalidValue, StoreUnavailable
from rmqlite.store_tools.check import Progress, is_store
from rmqlite.store_tools.moving.new_store import NewStore
from rmqlite.store_tools.reader import LiveFiles, StoreLayout, StoreReader

MOMENTS_MAX: Final = 100
"""Looks at the tables, until none changes during a look."""
COPIED_BYTES: Final = 4 << 20
"""Bytes per read and write of a copy."""
HOLE_BYTES: Final = 64 << 10
"""So many zeros become a hole, too: not every file system says where its holes are."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """The state that is copied: the small files by their names, and where the log ends."""

    tables: dict[str, bytes]
    layout: StoreLayout


class Backup(NewStore):
    """One backup of the store at root.  Call copy(), check() and, if nothing was found, keep()."""

    def __init__(
        self,
        root: Path,
        target: Path,
        config: BrokerConfig | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises InvalidValue for a root that is no store of rmqlite, or is RocketMQ's and in use,
        for a target inside of it, and as NewStore does.
        """
        super().__init__(target, config, files=files, clock=clock)
        self.root = root
        self._source = LiveFiles()
        self.copied_bytes = 0
        """The bytes that were written, without holes."""
        self._check_places()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._source.close()
        super().__exit__(kind, error, trace)

    def copy(self, progress: Progress) -> None:
        """Copy the store as it is now, and complete the copy.

        Raises StoreUnavailable, and StoreDamaged, which names the store's file.
        """
        moment = self._moment()
        self._copy_all(moment.layout, progress)
        layout = moment.layout
        sizes = Sizes(layout.log_file_bytes, layout.queue_file_bytes)
        self.complete(moment.tables, layout.end, sizes, self.root)

    # ---- the moment

    def _moment(self) -> _Moment:
        for _ in range(MOMENTS_MAX):
            before = self._tables()
            with StoreReader(self.root, self._config) as reader:
                layout = reader.layout()
            if self._tables() == before:
                return _Moment(before, layout)
        reason = f"its tables changed during each of {MOMENTS_MAX} looks; try again"
        raise StoreUnavailable("back up", str(self.root), reason)

    def _tables(self) -> dict[str, bytes]:
        return small_files(self._source, self.root)

    # ---- the copy

    def _copy_all(self, layout: StoreLayout, progress: Progress) -> None:
        """Queues and index first: what they say of later records an opening takes away."""
        log = [
            (each, layout.end - start) for start, _ in layout.files for each in _log_names(start)
        ]
        rest = [(each, layout.queue_file_bytes) for each in self._names_in_queues()]
        rest += [(each, 1 << 62) for each in self._names_in(Path("index"))]
        total = sum(self._bytes_of(name, end) for name, end in (*rest, *log))
        self.make_part(total)
        self.disk.make_folder(self.part / CHECKSUMS)

        def report(size: int) -> None:
            self.copied_bytes += size
            progress(self.copied_bytes, max(total, self.copied_bytes))

        for name, end in rest:
            self._copy(name, end, report)
        for name, end in log:
            if not self._copy(name, end, report) and name.parent.name == "commitlog":
                # Retention removed it, and with it every older one.
                self._remove_log()
        for folder in sorted({(self.part / name).parent for name, _ in (*rest, *log)}):
            while folder != self.part.parent:
                self.disk.sync_folder(folder)
                folder = folder.parent

    def _copy(self, name: Path, end: int, report: Callable[[int], None]) -> bool:
        """Copy a file up to a position, without its holes; False if it is gone."""
        source, copy = self.root / name, self.part / name
        size = self._source.size(source)
        if not size:
            return False
        self.disk.create_unsynced(copy, size)
        end, at = min(end, size), self._source.next_data(source, 0)
        while at < end:
            data_end = min(end, self._source.data_end(source, at))
            data = self._source.read(source, at, min(COPIED_BYTES, data_end - at))
            if not data:
                self.disk.remove(copy)
                return False
            for position, part in _without_zeros(data, at):
                self.disk.write(copy, position, part)
                report(len(part))
            at = self._source.next_data(source, at + len(data))
        self.disk.sync(copy)
        return True

    def _remove_log(self) -> None:
        for folder in (self.part / "commitlog", self.part / CHECKSUMS):
            for name in self.disk.names(folder):
                self.disk.remove(folder / name)

    def _names_in_queues(self) -> Iterator[Path]:
        for topic, queue_id in queue_keys(self._source, self.root):
            yield from self._names_in(Path("consumequeue", topic, str(queue_id)))

    def _names_in(self, folder: Path) -> Iterator[Path]:
        return (folder / name for name in self._source.names(self.root / folder))

    def _bytes_of(self, name: Path, end: int) -> int:
        return min(self._source.allocated_bytes(self.root / name), end)

    def _check_places(self) -> None:
        if not is_store(self.root):
            raise InvalidValue("store", self.root, "a folder with a commitlog/ in it")
        is_used = self._source.is_locked(self.root / "lock")
        if is_used and is_foreign_store(self._source, self.root):
            raise InvalidValue("store", self.root, "one that no RocketMQ is running on")
        if self.target.parent.resolve().is_relative_to(self.root.resolve()):
            raise InvalidValue("DIR", self.target, "a folder outside of the store")


def _log_names(start: int) -> tuple[Path, Path]:
    name = position_name(start)
    return Path("commitlog", name), Path(CHECKSUMS, name)


def _without_zeros(data: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """The parts of data, which lies at a position, that are not aligned blocks of zeros."""
    begin = 0
    bounds = [*range(-position % HOLE_BYTES, len(data), HOLE_BYTES), len(data)]
    for start, end in pairwise(bounds):
        if is_zeros(data[start:end]):
            if start > begin:
                yield position + begin, data[begin:start]
            begin = end
    if begin < len(data):
        yield position + begin, data[begin:]

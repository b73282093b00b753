"""A copy of a store as it was at one moment, also while a broker writes to it.

The log only grows at its end.  So the tables under config/ and the log's end, read at one
moment, are the whole state: a crash at that moment would have left the same.  Everything
before that end is copied, and the copy is opened and closed once, as after a crash, which
completes queues, key index and progress.  Then it is checked.  It has the name of a part until
all this is done and on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.commit_log import CHECKSUMS
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.disk.regular_file import FOLDER, REGULAR
from rmqlite.kernel.store.disk.segments import is_zeros, position_name
from rmqlite.kernel.store.dispatch import queue_keys
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.adoption import is_foreign_store
from rmqlite.kernel.words.clock import Clock, SystemClock
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged, StoreUnavailable
from rmqlite.store_tools.check import Finding, Progress, StoreCheck, is_store
from rmqlite.store_tools.moving.handover import config_to_open
from rmqlite.store_tools.reader import LiveFiles, StoreLayout, StoreReader

PART: Final = ".part"
"""The end of a backup's name until it is whole."""
MOMENTS_MAX: Final = 100
"""Looks at the tables, until none changes during a look."""
COPIED_BYTES: Final = 4 << 20
"""Bytes per read and write of a copy."""
HOLE_BYTES: Final = 64 << 10
"""So many zeros become a hole, too: not every file system says where its holes are."""
_TEMPORARY: Final = ".tmp"


@dataclass(frozen=True, slots=True)
class _Moment:
    """The state that is copied: the small files by their names, and where the log ends."""

    tables: dict[Path, bytes]
    layout: StoreLayout


class Backup:
    """One backup of the store at root; leaving its `with` removes what is not whole.

    Call copy(), check() and, if nothing was found, keep().
    """

    def __init__(
        self,
        root: Path,
        target: Path,
        config: BrokerConfig | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """config: the broker's; without it, the store's own levels and lengths of files.

        Raises InvalidValue for a root that is no store of rmqlite, or is RocketMQ's and in use,
        and for a target that exists or whose folder does not.
        """
        self.root, self.target = root, target
        if not target.name:
            raise InvalidValue("DIR", target, "the name of a new folder")
        self.part = target.with_name(target.name + PART)
        self._config = config
        self._source = LiveFiles()
        self._disk = files or SystemFiles()
        self._clock = clock or SystemClock()
        self._is_begun = False
        self.copied_bytes = 0
        """The bytes that were written, without holes."""
        self._check_places()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._source.close()
        if self._is_begun:
            _remove(self._disk, self.part)
        self._disk.close()

    def copy(self, progress: Progress) -> None:
        """Copy the store as it is now, and complete the copy.

        Raises StoreUnavailable, and StoreDamaged, which names the store's file.
        """
        moment = self._moment()
        self._begin()
        self._copy_all(moment.layout, progress)
        for name, data in moment.tables.items():
            self._disk.replace(self.part / name, data)
        # As after a crash: an opening then trusts nothing that is not covered by the tables.
        self._disk.replace(self.part / "abort", b"")
        self._complete(moment.layout.end)

    def check(self, progress: Progress) -> tuple[StoreCheck, list[Finding]]:
        """A check of every byte of the copy, done, and what it has found."""
        checking = StoreCheck(self.part, config=self._config, progress=progress)
        try:
            return checking, list(checking.run())
        finally:
            checking.close()

    def keep(self) -> None:
        """Give the copy its name, durably."""
        self._disk.close()
        self._disk.move(self.part, self.target)
        self._is_begun = False

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

    def _tables(self) -> dict[Path, bytes]:
        """The small files: tables, check point, and the lock's content, which says whose it was."""
        names = [Path("config", each) for each in self._source.names(self.root / "config")]
        names += [Path("checkpoint"), Path("lock")]
        found = {}
        for name in names:
            is_file = self._source.kind(self.root / name) == REGULAR
            data = self._source.read_all(self.root / name) if is_file else None
            if data is not None and not name.name.endswith(_TEMPORARY):
                found[name] = data
        return found

    # ---- the copy

    def _begin(self) -> None:
        self._disk.make_folder(self.part)
        self._is_begun = True
        for name in ("config", "commitlog", CHECKSUMS):
            self._disk.make_folder(self.part / name)

    def _copy_all(self, layout: StoreLayout, progress: Progress) -> None:
        """Queues and index first: what they say of later records an opening takes away."""
        log = [
            (each, layout.end - start) for start, _ in layout.files for each in _log_names(start)
        ]
        rest = [(each, layout.queue_file_bytes) for each in self._names_in_queues()]
        rest += [(each, 1 << 62) for each in self._names_in(Path("index"))]
        total = sum(self._bytes_of(name, end) for name, end in (*rest, *log))
        _, free = self._disk.disk_bytes(self.part)
        if total > free:
            reason = f"it needs {total:,} bytes, and {free:,} are free"
            raise StoreUnavailable("back up to", str(self.target), reason, is_full=True)

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
                self._disk.sync_folder(folder)
                folder = folder.parent

    def _copy(self, name: Path, end: int, report: Callable[[int], None]) -> bool:
        """Copy a file up to a position, without its holes; False if it is gone."""
        source, copy = self.root / name, self.part / name
        size = self._source.size(source)
        if not size:
            return False
        self._disk.create_unsynced(copy, size)
        end, at = min(end, size), self._source.next_data(source, 0)
        while at < end:
            data_end = min(end, self._source.data_end(source, at))
            data = self._source.read(source, at, min(COPIED_BYTES, data_end - at))
            if not data:
                self._disk.remove(copy)
                return False
            for position, part in _without_zeros(data, at):
                self._disk.write(copy, position, part)
                report(len(part))
            at = self._source.next_data(source, at + len(data))
        self._disk.sync(copy)
        return True

    def _complete(self, end: int) -> None:
        """Open and close the copy; the log must end where the store's did."""
        config = config_to_open(self._disk, self.part, self._config)
        try:
            store = MessageStore(config, self._disk, self._clock, is_marked=False)
        except StoreDamaged as error:
            place = self.root / Path(error.path).relative_to(self.part)
            raise StoreDamaged(str(place), error.position, error.rule, error.found) from error
        try:
            if store.end != end:
                reason = f"the copy's log ends at {store.end:,}, not at {end:,}: files have changed"
                raise StoreUnavailable("back up", str(self.root), reason)
            store.close({})
        finally:
            store.release()

    def _remove_log(self) -> None:
        for folder in (self.part / "commitlog", self.part / CHECKSUMS):
            for name in self._disk.names(folder):
                self._disk.remove(folder / name)

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
        folder = self.target.parent
        if not self._disk.is_folder(folder):
            raise InvalidValue("DIR", self.target, "a new name in a folder that exists")
        if folder.resolve().is_relative_to(self.root.resolve()):
            raise InvalidValue("DIR", self.target, "a folder outside of the store")
        for path in (self.target, self.part):
            if self._disk.kind(path):
                raise InvalidValue("DIR", self.target, f"a new name, and {path} exists")


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


def _remove(files: Files, path: Path) -> None:
    """Remove a folder with everything in it."""
    if files.kind(path) == FOLDER:
        for name in files.names(path):
            _remove(files, path / name)
    files.remove(path)

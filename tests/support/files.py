"""Real files that a test makes fail, tear a write, and lose their power.

FaultyFiles counts the calls and fails those that a test names.  ForgetfulFiles also remembers
what was written since a file's last sync, with what stood there before, so that power_cut()
can take it back.  A sync may come from another thread, as in the broker.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final

from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that is not synced, and the bytes that it replaced."""

    path: Path
    position: int
    before: bytes


FOR_GOOD: Final = 1 << 62
"""So many calls fail: all of them, until heal()."""
HALF: Final = -1
"""The first half of a write reaches the file."""


@dataclass(slots=True)
class _Fault:
    where: Callable[[Path], bool]
    calls_until: int
    times: int
    kept_bytes: int
    is_full: bool
    is_done: bool

    def error(self, action: str, path: Path) -> StoreUnavailable:
        return StoreUnavailable(action, str(path), "told to fail", is_full=self.is_full)


def _nothing(_: Path) -> bool:
    return False


def _anywhere(_: Path) -> bool:
    return True


class QuickFiles(SystemFiles):
    """Real files that are never synced: no test takes the machine's own power away."""

    def __del__(self) -> None:
        """Some tests make thousands of stores, and end them without a close, as a crash does."""
        self.close()

    def create(self, path: Path, size: int) -> None:
        path.touch()
        os.truncate(path, size)

    def create_unsynced(self, path: Path, size: int) -> None:
        self.make_folder(path.parent)
        self.create(path, size)

    def sync(self, path: Path) -> None:
        assert path.is_file()

    def sync_folder(self, folder: Path) -> None:
        assert folder.is_dir()

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        size = path.stat().st_size
        kept = path.read_bytes()[size if end is None else end :]
        os.truncate(path, position)
        os.truncate(path, size)
        if kept:
            super().write(path, size - len(kept), kept)

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        if keep_previous and path.exists():
            path.replace(path.with_name(path.name + ".bak"))
        path.write_bytes(data)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def remove(self, path: Path) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


class FaultyFiles(QuickFiles):
    """Files whose calls a test can count and let fail.

    Operations are "read", "read_all", "write", "sync", "create", "cut", "replace", "remove".
    """

    def __init__(self, used_ratio: float | None = None) -> None:
        super().__init__()
        self.used = used_ratio
        """The used share of the disk; None: as it really is."""
        self.free_bytes: int | None = None
        """The free bytes of the disk; None: as it really is."""
        self.calls: Counter[str] = Counter()
        """How often each operation was called, the failed calls included."""
        self.failed: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        """How often each small file was replaced, by its name."""
        self._guard = RLock()
        self._faults: dict[str, _Fault] = {}

    def fail(
        self,
        operation: str,
        *,
        where: Callable[[Path], bool] = _anywhere,
        after: int = 0,
        times: int = 1,
        kept_bytes: int = 0,
        is_full: bool = False,
        is_done: bool = False,
    ) -> None:
        """Let `after` more calls pass, then fail `times`; a write first keeps some bytes.

        where: only calls for such paths count and fail.  is_done: the call fails when its
        work is done.
        """
        self._faults[operation] = _Fault(where, after, times, kept_bytes, is_full, is_done)

    def take_writes(self, number: int) -> None:
        """So many writes more; then each one keeps its first half and fails, until heal()."""
        self.fail("write", after=number, times=FOR_GOOD, kept_bytes=HALF)

    def heal(self) -> None:
        """From now on nothing fails."""
        self._faults.clear()

    def read(self, path: Path, position: int, size: int) -> bytes:
        with self._failing("read", path):
            return super().read(path, position, size)

    def read_all(self, path: Path) -> bytes | None:
        with self._failing("read_all", path):
            return super().read_all(path)

    def create(self, path: Path, size: int) -> None:
        with self._failing("create", path):
            super().create(path, size)

    def write(self, path: Path, position: int, data: bytes) -> None:
        with self._guard:
            fault = self._fault("write", path)
            if fault:
                data = data[: len(data) // 2 if fault.kept_bytes == HALF else fault.kept_bytes]
            self._write(path, position, data)
            if fault:
                raise fault.error("write to", path)

    def sync(self, path: Path) -> None:
        if self._fault("sync", path):
            raise FlushFailed(f"cannot sync {path}: told to fail", field="store", value=path)
        super().sync(path)

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        with self._failing("cut", path):
            super().cut(path, position, end)

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        with self._failing("replace", path):
            super().replace(path, data, keep_previous=keep_previous)
            self.replaced[path.name] += 1

    def remove(self, path: Path) -> None:
        with self._failing("remove", path):
            super().remove(path)

    def used_ratio(self, folder: Path) -> float:
        return super().used_ratio(folder) if self.used is None else self.used

    def disk_bytes(self, folder: Path) -> tuple[int, int]:
        size, free = super().disk_bytes(folder)
        return size, free if self.free_bytes is None else self.free_bytes

    def _write(self, path: Path, position: int, data: bytes) -> None:
        super().write(path, position, data)

    @contextmanager
    def _failing(self, operation: str, path: Path) -> Iterator[None]:
        with self._guard:
            fault = self._fault(operation, path)
            if fault and not fault.is_done:
                raise fault.error(operation, path)
            yield
            if fault:
                raise fault.error(operation, path)

    def _fault(self, operation: str, path: Path) -> _Fault | None:
        with self._guard:
            self.calls[operation] += 1
            fault = self._faults.get(operation)
            if fault is None or not fault.where(path):
                return None
            if fault.calls_until:
                fault.calls_until -= 1
                return None
            fault.times -= 1
            if not fault.times:
                del self._faults[operation]
            self.failed[operation] += 1
            return fault


class ForgetfulFiles(FaultyFiles):
    """Files of which a power cut takes what was not synced."""

    def __init__(self) -> None:
        super().__init__()
        self._unsynced: list[_Write] = []
        self._without_length: set[Path] = set()

    def power_cut(
        self, *, torn_bytes: int = 0, surviving: Callable[[Path], bool] = _nothing
    ) -> None:
        """Lose what was not synced.

        torn_bytes: so many bytes of the lost writes reach the disk all the same, the oldest
        first.  surviving: files whose writes all do.
        """
        with self._guard:
            lost = [each for each in self._unsynced if not surviving(each.path)]
            undo = []
            for each in lost:
                kept = min(torn_bytes, len(each.before))
                torn_bytes -= kept
                undo.append((each.path, each.position + kept, each.before[kept:]))
                if kept:
                    self._without_length.discard(each.path)
            for path, position, before in reversed(undo):
                super()._write(path, position, before)
            for path in self._without_length:
                if not surviving(path):
                    path.write_bytes(b"")
            self._unsynced.clear()
            self._without_length.clear()
            self.heal()
            self.close()

    def create(self, path: Path, size: int) -> None:
        with self._guard:
            super().create(path, size)
            self._without_length.add(path)

    def sync(self, path: Path) -> None:
        with self._guard:
            covered = {id(each) for each in self._unsynced if each.path == path}
        super().sync(path)
        with self._guard:
            self._unsynced = [each for each in self._unsynced if id(each) not in covered]
            self._without_length.discard(path)

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        with self._guard:
            super().cut(path, position, end)
            self._forget(path)

    def remove(self, path: Path) -> None:
        with self._guard:
            super().remove(path)
            self._forget(path)

    def _write(self, path: Path, position: int, data: bytes) -> None:
        before = SystemFiles.read(self, path, position, len(data))
        self._unsynced.append(_Write(path, position, before))
        super()._write(path, position, data)

    def _forget(self, path: Path) -> None:
        self._unsynced = [each for each in self._unsynced if each.path != path]
        self._without_length.discard(path)

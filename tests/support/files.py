"""Real files on a disk that can be told to fail, to tear a write, and to lose its power.

What was written since a file's last sync is remembered with what stood there before, so
that power_cut() can take it back.  A sync may come from another thread, as in the broker.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

from rmqlite.errors import FlushFailed, StoreUnavailable
from rmqlite.store.files import SystemFiles


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that is not synced, and the bytes that it replaced."""

    path: Path
    position: int
    before: bytes


@dataclass(slots=True)
class _Fault:
    calls_until: int
    times: int
    kept_bytes: int


def _nothing(_: Path) -> bool:
    return False


class QuickFiles(SystemFiles):
    """Real files that are never synced: no test takes the machine's own power away."""

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
        path.unlink(missing_ok=True)


class ForgetfulFiles(QuickFiles):
    """The Files protocol; operations to fail are "write", "sync", "create", "cut", "replace"."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = RLock()
        self._unsynced: list[_Write] = []
        self._without_length: set[Path] = set()
        self._faults: dict[str, _Fault] = {}
        self.calls: Counter[str] = Counter()
        """How often each operation was called, the failed calls included."""

    def fail(self, operation: str, *, after: int = 0, times: int = 1, kept_bytes: int = 0) -> None:
        """Let `after` more calls pass, then fail `times`; a write first keeps some bytes."""
        self._faults[operation] = _Fault(after, times, kept_bytes)

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
                super().write(path, position, before)
            for path in self._without_length:
                if not surviving(path):
                    path.write_bytes(b"")
            self._unsynced.clear()
            self._without_length.clear()
            self._faults.clear()
            self.close()

    def create(self, path: Path, size: int) -> None:
        with self._guard:
            if self._fault("create"):
                raise StoreUnavailable("create", str(path), "told to fail")
            super().create(path, size)
            self._without_length.add(path)

    def write(self, path: Path, position: int, data: bytes) -> None:
        with self._guard:
            fault = self._fault("write")
            part = data[: fault.kept_bytes] if fault else data
            before = super().read(path, position, len(part))
            self._unsynced.append(_Write(path, position, before))
            super().write(path, position, part)
            if fault:
                raise StoreUnavailable("write to", str(path), "told to fail")

    def sync(self, path: Path) -> None:
        with self._guard:
            if self._fault("sync"):
                raise FlushFailed(f"cannot sync {path}: told to fail", field="store", value=path)
            covered = {id(each) for each in self._unsynced if each.path == path}
        super().sync(path)
        with self._guard:
            self._unsynced = [each for each in self._unsynced if id(each) not in covered]
            self._without_length.discard(path)

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        with self._guard:
            if self._fault("cut"):
                raise StoreUnavailable("cut", str(path), "told to fail")
            super().cut(path, position, end)
            self._forget(path)

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        with self._guard:
            if self._fault("replace"):
                raise StoreUnavailable("replace", str(path), "told to fail")
        super().replace(path, data, keep_previous=keep_previous)

    def remove(self, path: Path) -> None:
        with self._guard:
            super().remove(path)
            self._forget(path)

    def _forget(self, path: Path) -> None:
        self._unsynced = [each for each in self._unsynced if each.path != path]
        self._without_length.discard(path)

    def _fault(self, operation: str) -> _Fault | None:
        self.calls[operation] += 1
        fault = self._faults.get(operation)
        if fault is None:
            return None
        if fault.calls_until:
            fault.calls_until -= 1
            return None
        fault.times -= 1
        if not fault.times:
            del self._faults[operation]
        return fault

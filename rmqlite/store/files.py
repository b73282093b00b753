"""Every call to the operating system: append, read, sync, cut, replace, lock.

All of the store runs on the Files protocol, so that a test can put a disk beneath it that
tears writes or forgets what was not synced.  Reading is pread, not a memory map: an I/O
error or a file cut short is then an exception and never a signal that kills the broker,
and a scanned backlog does not count as the broker's memory.  OSError ends here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, NoReturn, Protocol

from rmqlite.errors import FlushFailed, StoreLocked, StoreUnavailable

OPEN_FILES_MAX: Final = 512
"""How many data files are kept open; the least recently used is closed first."""


class Lock(Protocol):
    """Held until release(); releasing again does nothing."""

    def release(self) -> None: ...


class Files(Protocol):
    """The file operations of the store.  All raise StoreUnavailable, sync raises FlushFailed."""

    def create(self, path: Path, size: int) -> None:
        """Make a file of zeros at its full length, its folder durable; sparse."""
        ...

    def write(self, path: Path, position: int, data: bytes) -> None:
        """Write all of data at a position; after an error any part of it may be there."""
        ...

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Up to size bytes; fewer at the end of the file."""
        ...

    def sync(self, path: Path) -> None:
        """Return when the file's bytes are on disk.  May be called from another thread."""
        ...

    def cut(self, path: Path, position: int) -> None:
        """Make everything from a position on read as zeros; the length stays."""
        ...

    def next_data(self, path: Path, position: int) -> int:
        """The first position at or after this one that is not in a hole; the size if none."""
        ...

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        """Replace a small file atomically and durably; its last content may stay as `.bak`."""
        ...

    def read_all(self, path: Path) -> bytes | None:
        """A small file's content; None when there is no such file."""
        ...

    def size(self, path: Path) -> int: ...

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; empty when there is none."""
        ...

    def is_folder(self, path: Path) -> bool: ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, durably."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, or an empty folder; nothing happens when there is none."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, milliseconds since 1970."""
        ...

    def used_ratio(self, folder: Path) -> float:
        """Used share of the file system that holds a folder, 0 to 1."""
        ...

    def lock(self, path: Path) -> Lock:
        """Lock a file for this process.  Raises StoreLocked when another one holds it."""
        ...

    def close(self) -> None:
        """Close what is open; the next call opens it again."""
        ...


class SystemFiles:
    """The real disk."""

    _open_flags = os.O_RDWR | os.O_CLOEXEC

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._removals = 0
        self._of_thread = threading.local()

    def create(self, path: Path, size: int) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)
            _sync_folder(path.parent)
        except OSError as error:
            raise _unavailable("create", path, error) from error

    def write(self, path: Path, position: int, data: bytes) -> None:
        try:
            written = os.pwrite(self._fd(path), data, position)
            while written < len(data):
                written += os.pwrite(self._fd(path), data[written:], position + written)
        except OSError as error:
            raise _unavailable("write to", path, error) from error

    def read(self, path: Path, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd(path), size, position)
            while 0 < len(data) < size:
                more = os.pread(self._fd(path), size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _unavailable("read", path, error) from error
        return data

    def sync(self, path: Path) -> None:
        try:
            os.fdatasync(self._own_fd(path))
        except OSError as error:
            raise FlushFailed(
                f"cannot sync {path}: {error.strerror}", field="store", value=path
            ) from error

    def cut(self, path: Path, position: int) -> None:
        try:
            fd = self._fd(path)
            size = os.fstat(fd).st_size
            os.ftruncate(fd, position)
            os.ftruncate(fd, size)
            os.fdatasync(fd)
        except OSError as error:
            raise _unavailable("cut", path, error) from error

    def next_data(self, path: Path, position: int) -> int:
        fd = self._fd(path)
        try:
            return os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return os.fstat(fd).st_size
            raise _unavailable("read", path, error) from error

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            if keep_previous:
                _link_previous(path)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _unavailable("replace", path, error) from error

    def read_all(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable("read", path, error) from error

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            raise _unavailable("read", path, error) from error

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable("list", folder, error) from error

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        try:
            self.make_folder(path.parent)
            path.mkdir(exist_ok=True)
            _sync_folder(path.parent)
        except OSError as error:
            raise _unavailable("create", path, error) from error

    def remove(self, path: Path) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)
        self._removals += 1
        try:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            _sync_folder(path.parent)
        except OSError as error:
            raise _unavailable("remove", path, error) from error

    def modified_ms(self, path: Path) -> int:
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise _unavailable("read", path, error) from error

    def used_ratio(self, folder: Path) -> float:
        try:
            usage = os.statvfs(folder)
        except OSError as error:
            raise _unavailable("measure", folder, error) from error
        return 1.0 - usage.f_bavail / max(1, usage.f_blocks)

    def lock(self, path: Path) -> Lock:
        return _FileLock(path)

    def close(self) -> None:
        while self._open:
            _, fd = self._open.popitem()
            os.close(fd)

    def _own_fd(self, path: Path) -> int:
        """A descriptor for the calling thread alone: the loop may close the shared one.

        Kept from call to call, as it is nearly always the same file, and each system call
        more is another wait for the interpreter's lock.
        """
        key = (path, self._removals)
        if getattr(self._of_thread, "key", None) != key:
            self._of_thread.descriptor = _Descriptor(path)
            self._of_thread.key = key
        descriptor: _Descriptor = self._of_thread.descriptor
        return descriptor.fd

    def _fd(self, path: Path) -> int:
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        while len(self._open) >= OPEN_FILES_MAX:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        try:
            fd = os.open(path, self._open_flags)
        except OSError as error:
            raise _unavailable("open", path, error) from error
        self._open[path] = fd
        return fd


class ReadOnlyFiles(SystemFiles):
    """The real disk, for looking: no call changes a byte, a name or a time."""

    _open_flags = os.O_RDONLY | os.O_CLOEXEC

    def create(self, path: Path, size: int) -> None:
        """Nothing: a file that never got its length stays empty and reads as such."""

    def _refuse(self, *_args: object, **_options: object) -> NoReturn:
        raise AssertionError("who only looks does not write")

    write = sync = cut = replace = make_folder = remove = lock = _refuse


class _Descriptor:
    """Closed when nobody refers to it any more, at the latest with its thread."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class _FileLock:
    """RocketMQ's lock (reference §3): the file holds the text `lock`, byte 0 is locked."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unavailable("open", path, error) from error
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            os.pwrite(self._fd, b"lock", 0)
        except OSError as error:
            os.close(self._fd)
            raise StoreLocked(str(path.parent)) from error

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _link_previous(path: Path) -> None:
    backup = path.with_name(path.name + ".bak")
    link = path.with_name(path.name + ".bak.tmp")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except FileNotFoundError:
        return
    os.replace(link, backup)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(operation: str, path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(operation, str(path), error.strerror or str(error))

"""Every call to the operating system: append, read, sync, cut, replace, lock.

The store runs on the Files protocol, and Files on a System: the module os, or a test's disk
that tears writes and forgets unsynced bytes.  Reading is pread, not a memory map: then an I/O
error or a shortened file is an exception, never a signal that kills the broker, and a scanned
backlog does not count as the broker's memory.  OSError is translated here.  Only regular
files are accepted (regular_file.py).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Protocol

from rmqlite.kernel.store.disk.regular_file import (
    FOLDER_MODE,
    SIGNATURE,
    SMALL_FILE_BYTES_MAX,
    Descriptor,
    FileLock,
    Lock,
    Status,
    System,
    check_regular,
    kind_of,
    made_anew,
    open_regular,
    opened,
    read_small,
    translated,
    unavailable,
)
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

__all__ = ["SIGNATURE", "Files", "Lock", "ReadOnlyFiles", "SystemFiles"]

OPEN_FILES_MAX: Final = 512
"""The most open data files; the least recently used one is closed first."""
CUT_BYTES: Final = 1 << 20
"""Bytes that a cut reads and zeroes at a time."""


class Files(Protocol):
    """The file operations of the store.  All raise StoreUnavailable, a sync FlushFailed.

    They raise StoreDamaged for a path that is no regular file but should be one.
    """

    def create(self, path: Path, size: int) -> None:
        """Make a sparse file of zeros with its full length; its name is durable."""

    def create_unsynced(self, path: Path, size: int) -> None:
        """Make a file and missing folders; sync_folder() makes each folder's names durable."""

    def write(self, path: Path, position: int, data: bytes) -> None:
        """Write all of data at a position; after an error any part of it may be written."""

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Up to size bytes; fewer at the end of the file."""

    def will_read(self, path: Path, position: int, size: int) -> None:
        """Let the disk fetch these bytes, and do not wait.  Raises nothing."""

    def sync(self, path: Path) -> None:
        """Return when the file's bytes are on disk.  May be called from another thread."""

    def descriptor(self, path: Path) -> Descriptor | None:
        """The open file, if an fdatasync of it is all that sync() does."""

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in a folder are on disk.  May be called from another thread."""

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        """Write zeros from a position up to end, durably; the length stays."""

    def next_data(self, path: Path, position: int) -> int:
        """The first position at or after this one that is not in a hole; the size if none."""

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        """Replace a small file atomically and durably; keep_previous: the old one is `.bak`."""

    def read_all(self, path: Path) -> bytes | None:
        """A small file's content; None when there is no such file.

        Raises StoreDamaged for one of more than SMALL_FILE_BYTES_MAX.
        """

    def size(self, path: Path) -> int: ...
    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; empty when there is none."""

    def kind(self, path: Path) -> str:
        """The kind of a path in words, like REGULAR and FOLDER; empty if it does not exist.

        A symbolic link is not followed.
        """

    def is_folder(self, path: Path) -> bool:
        """Is it a folder, or a link to one?"""

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, durably."""

    def remove(self, path: Path) -> None:
        """Remove a file, a link, or an empty folder; nothing happens when there is none."""

    def move(self, path: Path, to: Path) -> None:
        """Rename a file or a folder durably, in its folder; nothing may have the new name."""

    def modified_ms(self, path: Path) -> int:
        """The time of the last write to the file, milliseconds since 1970."""

    def used_ratio(self, folder: Path) -> float:
        """Used share of the file system that holds a folder, 0 to 1."""

    def disk_bytes(self, folder: Path) -> tuple[int, int]:
        """Bytes of the file system that holds a folder, and how many of them are free."""

    def lock(self, path: Path) -> Lock:
        """Lock a file for this process.  Raises StoreLocked when another one holds it."""

    def is_locked(self, path: Path) -> bool:
        """Does another process hold the lock?  False if there is no such file.

        The process that holds the lock must not call it: the call would release the lock.
        """

    def close(self) -> None:
        """Close all open files; the next call opens them again."""


class SystemFiles:
    """Files on a System: the real disk, or a test's."""

    _open_flags = os.O_RDWR

    def __init__(self, system: System = os) -> None:
        self._system = system
        self._owner = threading.get_ident()
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._half_made: set[Path] = set()
        """Existing folders whose names may not be on disk."""
        self._removals = 0
        self._of_thread = threading.local()

    def create(self, path: Path, size: int) -> None:
        with translated("create", path):
            with opened(self._system, path, os.O_RDWR | os.O_CREAT) as fd:
                self._system.ftruncate(fd, size)
            self._sync_folder(path.parent)

    def create_unsynced(self, path: Path, size: int) -> None:
        missing = [path.parent]
        while not self.is_folder(missing[-1]):
            missing.append(missing[-1].parent)
        with translated("create", path):
            for folder in reversed(missing[:-1]):
                self._system.mkdir(folder, FOLDER_MODE)
            with opened(self._system, path, os.O_RDWR | os.O_CREAT) as fd:
                self._system.ftruncate(fd, size)

    def write(self, path: Path, position: int, data: bytes) -> None:
        try:
            written = self._system.pwrite(self._fd(path), data, position)
            while written < len(data):
                at, rest = position + written, data[written:]
                written += self._system.pwrite(self._fd(path), rest, at)
        except OSError as error:
            raise unavailable("write to", path, error) from error

    def read(self, path: Path, position: int, size: int) -> bytes:
        try:
            data = self._system.pread(self._fd(path), size, position)
            while 0 < len(data) < size:
                more = self._system.pread(self._fd(path), size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise unavailable("read", path, error) from error
        return data

    def will_read(self, path: Path, position: int, size: int) -> None:
        with suppress(OSError, StoreUnavailable, StoreDamaged):  # read() raises them
            fd = self._fd(path)
            self._system.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)

    def sync(self, path: Path) -> None:
        with translated("sync", path):
            self._system.fdatasync(self._own(path).fd)

    def descriptor(self, path: Path) -> Descriptor | None:
        is_plain = self._system is os and type(self).sync is SystemFiles.sync
        with suppress(OSError, StoreDamaged):  # sync() raises them
            return self._own(path) if is_plain else None
        return None

    def sync_folder(self, folder: Path) -> None:
        with translated("sync", folder):
            self._sync_folder(folder)

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        # Not by two calls of ftruncate: a crash in between would leave a file of a wrong
        # length, which does not open.
        with translated("cut", path):
            fd = self._fd(path)
            end = self._system.fstat(fd).st_size if end is None else end
            at = self._next_data(fd, position)
            while at is not None and at < end:
                hole = min(end, self._system.lseek(fd, at, os.SEEK_HOLE))
                data = self._system.pread(fd, min(CUT_BYTES, hole - at), at)
                # Write the first bytes even if they are zeros: after a failed sync perhaps
                # only the cache has zeros.
                if data != bytes(len(data)) or at < position + CUT_BYTES:
                    self._write_all(fd, bytes(len(data)), at)
                at = self._next_data(fd, at + len(data))
        self.sync(path)

    def next_data(self, path: Path, position: int) -> int:
        with translated("read", path):
            fd = self._fd(path)
            found = self._next_data(fd, position)
            return self._system.fstat(fd).st_size if found is None else found

    def data_end(self, path: Path, position: int) -> int:
        """Where the data at a position ends: the next hole, or the file's end."""
        with translated("read", path):
            return self._system.lseek(self._fd(path), position, os.SEEK_HOLE)

    def replace(self, path: Path, data: bytes, *, keep_previous: bool = False) -> None:
        temporary = path.with_name(path.name + ".tmp")
        if len(data) > SMALL_FILE_BYTES_MAX:
            reason = f"{len(data)} bytes are more than {SMALL_FILE_BYTES_MAX}"
            raise StoreUnavailable("replace", str(path), reason)
        with translated("replace", path):
            with made_anew(self._system, temporary) as fd:
                self._write_all(fd, data, 0)
                self._system.fsync(fd)
            if keep_previous:
                self._link_previous(path)
            self._system.replace(temporary, path)
            self._sync_folder(path.parent)

    def read_all(self, path: Path) -> bytes | None:
        with translated("read", path), suppress(FileNotFoundError):
            return read_small(self._system, path)
        return None

    def size(self, path: Path) -> int:
        return self._status(path).st_size

    def names(self, folder: Path) -> list[str]:
        with translated("list", folder), suppress(FileNotFoundError):
            return sorted(self._system.listdir(folder))
        return []

    def kind(self, path: Path) -> str:
        with translated("read", path), suppress(FileNotFoundError, NotADirectoryError):
            return kind_of(self._system.lstat(path).st_mode)
        return ""

    def is_folder(self, path: Path) -> bool:
        with translated("read", path), suppress(FileNotFoundError, NotADirectoryError):
            return stat.S_ISDIR(self._system.stat(path).st_mode)
        return False

    def make_folder(self, path: Path) -> None:
        if self.is_folder(path) and path not in self._half_made:
            return
        self.make_folder(path.parent)
        with translated("create", path):
            if path in self._half_made:
                # A name whose sync has failed may look clean without being on disk: make it anew.
                with suppress(OSError):
                    self._system.rmdir(path)
            with suppress(FileExistsError):
                self._system.mkdir(path, FOLDER_MODE)
            self._half_made.add(path)
            self._sync_folder(path.parent)
            self._half_made.remove(path)

    def remove(self, path: Path) -> None:
        fd = self._open.pop(path, None)
        self._removals += 1
        with translated("remove", path):
            if fd is not None:
                self._system.close(fd)
            with suppress(FileNotFoundError):
                is_folder = stat.S_ISDIR(self._system.lstat(path).st_mode)
                (self._system.rmdir if is_folder else self._system.unlink)(path)
            self._sync_folder(path.parent)

    def move(self, path: Path, to: Path) -> None:
        with translated("rename", path):
            self._system.replace(path, to)
            self._sync_folder(to.parent)

    def modified_ms(self, path: Path) -> int:
        return self._status(path).st_mtime_ns // 1_000_000

    def used_ratio(self, folder: Path) -> float:
        with translated("measure", folder):
            usage = self._system.statvfs(folder)
        # As df counts: blocks reserved for root or by a quota are neither used nor free.
        used = usage.f_blocks - usage.f_bfree
        return used / max(1, used + usage.f_bavail)

    def disk_bytes(self, folder: Path) -> tuple[int, int]:
        with translated("measure", folder):
            usage = self._system.statvfs(folder)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: Path) -> Lock:
        return FileLock(self._system, path)

    def is_locked(self, path: Path) -> bool:
        is_locked = False
        with (
            translated("read", path),
            suppress(FileNotFoundError),
            opened(self._system, path, os.O_RDONLY) as fd,
        ):
            try:
                self._system.lockf(fd, os.F_TEST, 1)
            except (PermissionError, BlockingIOError):
                is_locked = True
        return is_locked

    def close(self) -> None:
        while self._open:
            _, fd = self._open.popitem()
            self._system.close(fd)

    def _own(self, path: Path) -> Descriptor:
        """A descriptor for the calling thread alone: the loop may close the shared one.

        It stays open for the next call, which is nearly always for the same file: each
        further system call is another wait for the interpreter's lock.
        """
        key = (path, self._removals)
        found: tuple[object, Descriptor] | None = getattr(self._of_thread, "found", None)
        if found is None or found[0] != key:
            found = self._of_thread.found = key, Descriptor(self._system, path)
        return found[1]

    def _fd(self, path: Path) -> int:
        if threading.get_ident() != self._owner:
            # The owner may close a shared one, and its number may then be another file's.
            return self._own(path).fd
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        while len(self._open) >= OPEN_FILES_MAX:
            _, oldest = self._open.popitem(last=False)
            self._system.close(oldest)
        with translated("open", path):
            fd = open_regular(self._system, path, self._open_flags)
        self._open[path] = fd
        return fd

    def _write_all(self, fd: int, data: bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            written = self._system.pwrite(fd, view, position)
            view, position = view[written:], position + written

    def _next_data(self, fd: int, position: int) -> int | None:
        """The next position outside of a hole; None if there is none."""
        try:
            return self._system.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def _link_previous(self, path: Path) -> None:
        backup = path.with_name(path.name + ".bak")
        link = path.with_name(path.name + ".bak.tmp")
        with suppress(FileNotFoundError):
            self._system.unlink(link)
        with suppress(FileNotFoundError):
            # Anything but a regular file is replaced without a backup.
            if stat.S_ISREG(self._system.lstat(path).st_mode):
                self._system.link(path, link)
                self._system.replace(link, backup)

    def _sync_folder(self, folder: Path) -> None:
        fd = self._system.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._system.fsync(fd)
        finally:
            self._system.close(fd)

    def _status(self, path: Path) -> Status:
        """The status of a regular file."""
        with translated("read", path):
            status = self._system.lstat(path)
        check_regular(path, status.st_mode)
        return status


class ReadOnlyFiles(SystemFiles):
    """The real disk, read-only: no call changes a byte, a name or a time."""

    _open_flags = os.O_RDONLY

    def create(self, path: Path, size: int) -> None:
        """Do nothing: a file that never got its length stays empty and reads as such."""

    def _refuse(self, *_args: object, **_options: object) -> NoReturn:
        raise AssertionError("these files are read-only")

    create_unsynced = write = sync = sync_folder = cut = _refuse
    replace = make_folder = remove = move = lock = _refuse

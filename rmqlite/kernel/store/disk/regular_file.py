"""Opens the files of a store; only regular files are accepted.

A store may come from somebody else.  A symbolic link in it could point at any file of the
machine, and a named pipe or a device has no end.  So the last name of a path is never
followed, opening never waits, and the type of an open file is checked before a byte is read
or written.  The folders above may be links: an operator puts commitlog/ on another disk so.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from rmqlite.kernel.words.errors import FlushFailed, StoreDamaged, StoreLocked, StoreUnavailable

REGULAR: Final = "a regular file"
FOLDER: Final = "a folder"
FILE_MODE: Final = 0o600
"""Mode of a new file: only the broker's user reads messages.  The umask may only narrow it."""
FOLDER_MODE: Final = 0o700
SIGNATURE: Final = b"rmql"
"""Content of the lock's file: no RocketMQ has started on this store since rmqlite did."""
SMALL_FILE_BYTES_MAX: Final = 64 << 20
"""A larger table is neither read nor written.  The offsets of 100,000 groups in 16 queues each
take 45 MB at most, and in memory a table is twenty times as large."""
_READ_BYTES: Final = 1 << 20
_CAREFULLY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOT_OPENED: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors from opening a link, a socket or pipe, and a folder."""
_KINDS: Final = {
    stat.S_IFREG: REGULAR,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str:
    """The kind of a file in words, by its st_mode."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def check_regular(path: Path, mode: int) -> None:
    """Raises StoreDamaged unless st_mode is that of a regular file."""
    if not stat.S_ISREG(mode):
        raise StoreDamaged(str(path), 0, REGULAR, kind_of(mode))


def open_regular(system: System, path: Path, flags: int) -> int:
    """A descriptor of a regular file.  Raises StoreDamaged for anything else, and OSError."""
    try:
        fd = system.open(path, flags | _CAREFULLY, FILE_MODE)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            check_regular(path, system.lstat(path).st_mode)
        raise
    try:
        check_regular(path, system.fstat(fd).st_mode)
    except BaseException:
        system.close(fd)
        raise
    return fd


@contextmanager
def opened(system: System, path: Path, flags: int) -> Iterator[int]:
    """open_regular(), closed at the end."""
    fd = open_regular(system, path, flags)
    try:
        yield fd
    finally:
        system.close(fd)


@contextmanager
def made_anew(system: System, path: Path) -> Iterator[int]:
    """A new file, open for writing; an old file with this name is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        fd = open_regular(system, path, flags)
    except FileExistsError:
        system.unlink(path)
        fd = open_regular(system, path, flags)
    try:
        yield fd
    finally:
        system.close(fd)


def read_small(system: System, path: Path) -> bytes:
    """All of a file.  Raises StoreDamaged for more than SMALL_FILE_BYTES_MAX, and OSError."""
    with opened(system, path, os.O_RDONLY) as fd:
        size = system.fstat(fd).st_size
        _check_small(path, size)
        data = system.pread(fd, size, 0)
        while more := system.pread(fd, _READ_BYTES, len(data)):
            data += more
            _check_small(path, len(data))
    return data


def _check_small(path: Path, size: int) -> None:
    if size > SMALL_FILE_BYTES_MAX:
        rule = f"at most {SMALL_FILE_BYTES_MAX} bytes"
        raise StoreDamaged(str(path), SMALL_FILE_BYTES_MAX, rule, f"{size} bytes")


class Descriptor:
    """A file descriptor that is closed with its last reference, at the latest with its thread."""

    def __init__(self, system: System, path: Path) -> None:
        self._system = system
        self.fd = open_regular(system, path, os.O_RDWR)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self._system.close(self.fd)


class Lock(Protocol):
    """A lock that holds until release(); another release() does nothing."""

    def sign(self) -> None:
        """Write SIGNATURE into the file; RocketMQ overwrites it when it starts."""

    def release(self) -> None: ...


class FileLock:
    """RocketMQ's lock (reference §3): byte 0 of a small file is locked."""

    def __init__(self, system: System, path: Path) -> None:
        self._system = system
        self._path = path
        with translated("lock", path):
            self._fd = open_regular(system, path, os.O_RDWR | os.O_CREAT)
            try:
                system.lockf(self._fd, os.F_TLOCK, 1)
            except OSError as error:
                self.release()
                if isinstance(error, PermissionError | BlockingIOError):
                    raise StoreLocked(str(path.parent)) from error
                raise

    def sign(self) -> None:
        with translated("write to", self._path):
            self._system.pwrite(self._fd, SIGNATURE, 0)

    def release(self) -> None:
        if self._fd >= 0:
            self._system.close(self._fd)
        self._fd = -1


@contextmanager
def translated(operation: str, path: Path) -> Iterator[None]:
    """OSError becomes StoreUnavailable, or FlushFailed where the operation is "sync"."""
    try:
        yield
    except OSError as error:
        if operation == "sync":
            raise flush_failed(path, error) from error
        raise unavailable(operation, path, error) from error


def error_of(number: int) -> OSError:
    """The error that Python would have raised for an errno."""
    return OSError(number, os.strerror(number))


def flush_failed(path: Path, error: OSError) -> FlushFailed:
    return FlushFailed(f"cannot sync {path}: {error.strerror}", field="store", value=path)


def unavailable(operation: str, path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(operation, str(path), error.strerror or str(error))


class Status(Protocol):
    """The fields of an os.stat_result that the store reads."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_blocks(self) -> int: ...


class Usage(Protocol):
    """The fields of an os.statvfs_result that the store reads."""

    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bfree(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...
    @property
    def f_frsize(self) -> int: ...


class System(Protocol):
    """The functions of the module os that the store calls, with the names and arguments of os.

    So the module itself is one System, and a test's disk that loses its power is another.  All
    raise OSError.  Several threads may use one descriptor.
    """

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, length: int, offset: int, /) -> bytes: ...
    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int: ...
    def posix_fadvise(self, fd: int, offset: int, length: int, advice: int, /) -> None: ...
    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def lseek(self, fd: int, position: int, whence: int, /) -> int: ...
    def fsync(self, fd: int) -> None: ...
    def fdatasync(self, fd: int) -> None: ...
    def fstat(self, fd: int) -> Status: ...
    def lockf(self, fd: int, command: int, length: int, /) -> None: ...
    def stat(self, path: Path) -> Status: ...
    def lstat(self, path: Path) -> Status: ...
    def statvfs(self, path: Path) -> Usage: ...
    def listdir(self, path: Path) -> list[str]: ...
    def mkdir(self, path: Path, mode: int = 0o777) -> None: ...
    def rmdir(self, path: Path) -> None: ...
    def link(self, src: Path, dst: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def replace(self, src: Path, dst: Path) -> None: ...

"""The real disk: errors are ours, small files are replaced whole, looking writes nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from rmqlite.kernel.store.disk.files import CUT_BYTES, OPEN_FILES_MAX, ReadOnlyFiles, SystemFiles
from rmqlite.kernel.store.disk.regular_file import System
from rmqlite.kernel.words.errors import FlushFailed, StoreLocked, StoreUnavailable
from tests.support.files import ForgetfulFiles


def test_an_error_of_the_system_is_ours(tmp_path: Path) -> None:
    """OSError ends here; the sentence names the path."""
    files, missing = SystemFiles(), tmp_path / "missing" / "file"
    with pytest.raises(StoreUnavailable, match="missing"):
        files.write(missing, 0, b"x")
    with pytest.raises(StoreUnavailable, match="missing"):
        files.create(missing, 10)
    with pytest.raises(StoreUnavailable, match="missing"):
        files.replace(missing, b"x")
    with pytest.raises(StoreUnavailable, match="missing"):
        files.size(missing)
    with pytest.raises(FlushFailed, match="missing"):
        files.sync(missing)
    with pytest.raises(FlushFailed, match="missing"):
        files.sync_folder(missing)
    assert not files.is_folder(missing)
    assert not files.is_locked(missing)
    assert files.read_all(missing) is None
    assert files.names(missing) == []


def test_a_made_file_has_its_length_and_takes_no_room(tmp_path: Path) -> None:
    """Sparse: a 1 GiB file of an empty store costs nothing."""
    files, path = SystemFiles(), tmp_path / "file"
    files.create(path, 1 << 30)
    assert files.size(path) == 1 << 30
    assert path.stat().st_blocks * 512 < 1 << 20
    assert files.read(path, (1 << 30) - 5, 10) == bytes(5)


def test_a_cut_keeps_the_length(tmp_path: Path) -> None:
    """RocketMQ does not load a file of another length."""
    files, path = SystemFiles(), tmp_path / "file"
    files.create(path, 100)
    files.write(path, 0, b"x" * 100)
    files.cut(path, 30)
    assert path.read_bytes() == b"x" * 30 + bytes(70)


def test_a_cut_leaves_holes_as_they_are(tmp_path: Path) -> None:
    """Zeros take room, and the rest of a file may be a gigabyte."""
    files, path = SystemFiles(), tmp_path / "file"
    files.create(path, 1 << 30)
    for position in (0, CUT_BYTES + 5_000, 1 << 29):
        files.write(path, position, b"x" * 5_000)
    files.cut(path, 30)
    assert files.read(path, 0, 5_000) == b"x" * 30 + bytes(4_970)
    assert not any(files.read(path, 5_000, 2 * CUT_BYTES))
    assert files.read(path, 1 << 29, 5_000) == bytes(5_000)
    assert path.stat().st_blocks * 512 < 1 << 20
    assert files.next_data(path, 1 << 20) < 1 << 29
    assert files.next_data(path, (1 << 29) + (1 << 20)) == files.size(path)


def test_more_files_than_may_be_open_are_served(tmp_path: Path) -> None:
    """A store may have thousands of queues; the process has a limit."""
    files = SystemFiles()
    paths = [tmp_path / str(number) for number in range(OPEN_FILES_MAX + 20)]
    for path in paths:
        path.write_bytes(bytes(4))
        files.write(path, 0, path.name.encode()[:4])
    for path in paths:
        assert files.read(path, 0, 4).rstrip(b"\0") == path.name.encode()[:4]
    files.close()


def test_who_only_looks_cannot_write(tmp_path: Path) -> None:
    """The checker cannot do harm by mistake."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    files = ReadOnlyFiles()
    writes: list[Callable[[], object]] = [
        lambda: files.write(path, 0, b"y"),
        lambda: files.cut(path, 0),
        lambda: files.replace(path, b"y"),
        lambda: files.remove(path),
        lambda: files.lock(path),
        lambda: files.make_folder(tmp_path / "new"),
        lambda: files.sync_folder(tmp_path),
    ]
    for write in writes:
        with pytest.raises(AssertionError):
            write()
    files.create(tmp_path / "new", 10)
    assert files.read(path, 0, 9) == b"x"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_may_be_released_twice(tmp_path: Path) -> None:
    """The second time would close whatever file has its number by then."""
    lock = SystemFiles().lock(tmp_path / "lock")
    lock.release()
    with (tmp_path / "other").open("w") as other:
        lock.release()
        other.write("still open")


def test_who_looks_sees_whether_another_process_has_the_lock(tmp_path: Path) -> None:
    """A tool that mends a store must not do it under a running broker, nor leave a file."""
    path = tmp_path / "lock"
    files = ReadOnlyFiles()
    assert not files.is_locked(path)
    assert list(tmp_path.iterdir()) == []
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path\n"
            "from rmqlite.kernel.store.disk.files import SystemFiles\n"
            "lock = SystemFiles().lock(Path(sys.argv[1])); print('held', flush=True); input()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert files.is_locked(path)
    with pytest.raises(StoreLocked):
        SystemFiles().lock(path)
    holder.communicate("\n")
    assert not files.is_locked(path)


class FullDisk:
    """The system's own, with no room for another byte."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """It ends by itself when there is room again, and a lock that it refuses is not another's."""
    files = SystemFiles(cast(System, FullDisk()))
    files.create(tmp_path / "file", 10)
    lock = files.lock(tmp_path / "lock")
    operations: tuple[Callable[[], None], ...] = (
        lambda: files.write(tmp_path / "file", 0, b"x"),
        lambda: files.replace(tmp_path / "table", b"x"),
        lock.sign,
    )
    for operation in operations:
        with pytest.raises(StoreUnavailable, match="No space left") as caught:
            operation()
        assert caught.value.is_full


class BrokenDisk:
    """The system's own, but that nothing reaches the disk."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fdatasync(self, _: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_cut_whose_sync_fails_is_a_failed_sync(tmp_path: Path) -> None:
    """It covers what others have written to the file, too: none of that is believed any more."""
    files = SystemFiles(cast(System, BrokenDisk()))
    files.create(tmp_path / "file", 10)
    files.write(tmp_path / "file", 0, b"0123456789")
    with pytest.raises(FlushFailed, match="Input/output"):
        files.cut(tmp_path / "file", 4)


def test_a_forgetful_disk_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """The tests of power cuts stand on this."""
    files, path = ForgetfulFiles(), tmp_path / "file"
    files.create(path, 10)
    files.power_cut()
    assert path.read_bytes() == b""
    files.create(path, 10)
    files.write(path, 0, b"aaaa")
    files.sync(path)
    files.write(path, 2, b"bbbb")
    files.write(path, 4, b"cc")
    files.power_cut(torn_bytes=3)
    assert path.read_bytes() == b"aabbb" + bytes(5)
    files.fail("write", after=1, kept_bytes=1)
    files.write(path, 0, b"d")
    with pytest.raises(StoreUnavailable):
        files.write(path, 5, b"ee")
    files.write(path, 9, b"f")
    assert path.read_bytes() == b"dabbbe" + bytes(3) + b"f"

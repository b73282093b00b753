"""A store's files are regular files: nothing else is followed, waited for, or written to."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.kernel.store.disk.files import Files, ReadOnlyFiles, SystemFiles
from rmqlite.kernel.store.disk.regular_file import FOLDER, REGULAR, SMALL_FILE_BYTES_MAX
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

VICTIM = b"root:x:0:0"


def link(path: Path) -> None:
    path.with_name("victim").write_bytes(VICTIM)
    path.symlink_to("victim")


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


ODD: dict[str, Callable[[Path], None]] = {
    "a symbolic link": link,
    "a named pipe": os.mkfifo,
    "a socket": bind_socket,
    "a folder": Path.mkdir,
}
USES: dict[str, Callable[[Files, Path], object]] = {
    "read": lambda files, path: files.read(path, 0, 4),
    "read_all": lambda files, path: files.read_all(path),
    "write": lambda files, path: files.write(path, 0, b"x"),
    "create": lambda files, path: files.create(path, 100),
    "cut": lambda files, path: files.cut(path, 0),
    "sync": lambda files, path: files.sync(path),
    "next_data": lambda files, path: files.next_data(path, 0),
    "size": lambda files, path: files.size(path),
    "modified_ms": lambda files, path: files.modified_ms(path),
    "lock": lambda files, path: files.lock(path),
    "is_locked": lambda files, path: files.is_locked(path),
}
LOOKS = ("read", "read_all", "next_data", "size", "modified_ms", "is_locked")


@pytest.fixture(params=sorted(ODD))
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A path that is no regular file, and what it is."""
    path = tmp_path / "file"
    ODD[request.param](path)
    return path, request.param


def assert_victim_is_unchanged(path: Path) -> None:
    victim = path.with_name("victim")
    assert not victim.exists() or victim.read_bytes() == VICTIM


@pytest.mark.parametrize("use", sorted(USES))
def test_what_is_no_regular_file_is_refused(odd: tuple[Path, str], use: str) -> None:
    """A pipe would be waited for without end, and a link's target read, locked or overwritten."""
    path, kind = odd
    every: list[Files] = [SystemFiles()]
    if use in LOOKS:
        every.append(ReadOnlyFiles())
    for files in every:
        with pytest.raises(StoreDamaged, match=f"{path}.*expected a regular file, found {kind}"):
            USES[use](files, path)
    assert_victim_is_unchanged(path)


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    """/dev/zero has no end."""
    path = tmp_path / "topics.json"
    path.symlink_to("/dev/zero")
    with pytest.raises(StoreDamaged, match="found a symbolic link"):
        SystemFiles().read_all(path)


@pytest.mark.parametrize("odd", ["a symbolic link", "a named pipe", "a socket"], indirect=True)
def test_what_is_no_regular_file_may_be_replaced_and_removed(odd: tuple[Path, str]) -> None:
    """Only its name goes: a table takes its place, and the odd thing is no generation before."""
    path, _ = odd
    files = SystemFiles()
    files.replace(path, b"table", keep_previous=True)
    assert path.read_bytes() == b"table"
    assert not files.kind(path.with_name("file.bak"))
    path.unlink()
    ODD["a named pipe"](path)
    files.remove(path)
    assert not files.kind(path)
    assert_victim_is_unchanged(path)


def test_a_new_table_is_not_written_through_a_link(tmp_path: Path) -> None:
    """The name of the new content is known before it is made."""
    link(tmp_path / "table.tmp")
    SystemFiles().replace(tmp_path / "table", b"new")
    assert (tmp_path / "table").read_bytes() == b"new"
    assert_victim_is_unchanged(tmp_path / "table")


def test_a_link_to_a_folder_is_removed_without_what_is_in_it(tmp_path: Path) -> None:
    """It is somebody else's."""
    files = SystemFiles()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(VICTIM)
    path = tmp_path / "link"
    path.symlink_to("other")
    assert (files.is_folder(path), files.kind(path)) == (True, "a symbolic link")
    assert files.names(path) == ["file"]
    files.remove(path)
    assert (tmp_path / "other" / "file").read_bytes() == VICTIM
    assert not files.kind(path)


def test_a_kind_is_said_in_words(tmp_path: Path) -> None:
    """Sentences are made of it."""
    (tmp_path / "file").touch()
    files = SystemFiles()
    assert (files.kind(tmp_path), files.kind(tmp_path / "file")) == (FOLDER, REGULAR)
    assert files.kind(tmp_path / "none") == files.kind(tmp_path / "file" / "below") == ""
    assert files.kind(Path("/dev/null")) == "a device"


def test_a_small_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """A terabyte of zeros takes no room on the disk, and would take all of the memory."""
    path = tmp_path / "topics.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(StoreDamaged, match=f"at most {SMALL_FILE_BYTES_MAX} bytes.*{1 << 40}"):
        SystemFiles().read_all(path)


def test_a_table_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker would not start with it again."""
    monkeypatch.setattr("rmqlite.kernel.store.disk.files.SMALL_FILE_BYTES_MAX", 3)
    files, path = SystemFiles(), tmp_path / "topics.json"
    files.replace(path, b"old")
    with pytest.raises(StoreUnavailable, match=r"topics\.json: 4 bytes are more than 3"):
        files.replace(path, b"more")
    assert path.read_bytes() == b"old"


def test_what_is_made_is_nobody_elses(tmp_path: Path) -> None:
    """Messages may hold anything, and other users of the machine read what they may."""
    before = os.umask(0)
    try:
        files = SystemFiles()
        files.make_folder(tmp_path / "a" / "b")
        files.create(tmp_path / "a" / "log", 10)
        files.replace(tmp_path / "a" / "table", b"x")
        files.lock(tmp_path / "a" / "lock").release()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").iterdir()}
    assert modes == {"b": 0o700, "log": 0o600, "table": 0o600, "lock": 0o600}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """An operator may have given it to a group."""
    path = tmp_path / "log"
    path.touch()
    path.chmod(0o640)
    files = SystemFiles()
    files.create(path, 10)
    files.write(path, 0, b"x")
    files.lock(path).release()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

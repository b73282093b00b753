"""The simulated disk: what it loses, what it keeps, and how it fails.

Every test of crashes stands on it, so what a strict reading of POSIX and Linux allows is
pinned here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import FlushFailed, StoreDamaged, StoreLocked, StoreUnavailable
from tests.support.disk import LOSSES, PAGE_BYTES, ROOT, SECTOR_BYTES, Loss, SimulatedDisk
from tests.support.stores import contents

PATH = ROOT / "folder" / "file"
RANDOM = Random(1)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def files(disk: SimulatedDisk) -> SystemFiles:
    """A file of zeros, its name and its length on disk."""
    files = SystemFiles(disk)
    files.make_folder(PATH.parent)
    files.create(PATH, 2 * PAGE_BYTES)
    files.sync(PATH)
    return files


def after_power_cut(disk: SimulatedDisk, loss: Loss, path: Path = PATH) -> bytes | None:
    return SystemFiles(disk.fork_power_cut(RANDOM, loss)).read_all(path)


def test_it_does_what_the_system_does(tmp_path: Path, disk: SimulatedDisk) -> None:
    """The same calls on a real disk leave the same bytes and names, and give the same answers."""

    def work(files: SystemFiles, root: Path) -> list[object]:
        answers: list[object] = []
        folder, path, table = root / "a" / "b", root / "a" / "b" / "file", root / "a" / "table"
        lost = root / "a" / "none" / "file"
        calls: list[Callable[[], object]] = [
            lambda: files.make_folder(folder),
            lambda: files.create(path, 5 * PAGE_BYTES),
            lambda: files.write(path, 3 * PAGE_BYTES - 1, b"ab"),
            lambda: files.next_data(path, 0),
            lambda: files.next_data(path, 3 * PAGE_BYTES + 7),
            lambda: files.next_data(path, 4 * PAGE_BYTES),
            lambda: files.read(path, 3 * PAGE_BYTES - 2, 4),
            lambda: files.read(path, 5 * PAGE_BYTES - 2, 4),
            lambda: files.cut(path, 3 * PAGE_BYTES),
            lambda: files.sync(path),
            lambda: files.sync_folder(folder),
            lambda: files.size(path),
            lambda: files.replace(table, b"one", keep_previous=True),
            lambda: files.replace(table, b"the second", keep_previous=True),
            lambda: files.replace(table, b"3", keep_previous=True),
            lambda: files.read_all(table),
            lambda: files.read_all(root / "a" / "table.bak"),
            lambda: files.names(root / "a"),
            lambda: files.names(root / "none"),
            lambda: files.is_folder(folder),
            lambda: files.is_folder(path),
            lambda: files.is_folder(path / "below"),
            lambda: files.kind(folder),
            lambda: files.kind(path),
            lambda: files.kind(path / "below"),
            lambda: files.kind(lost),
            lambda: files.remove(folder),
            lambda: files.remove(path),
            lambda: files.remove(path),
            lambda: files.remove(folder),
            lambda: files.read_all(lost),
            lambda: files.size(lost),
            lambda: files.write(lost, 0, b"x"),
            lambda: files.sync(lost),
            lambda: files.create(lost, 10),
            lambda: files.read(table, 0, 10),
            lambda: files.sync(root / "a"),
        ]
        for call in calls:
            try:
                answers.append(call())
            except (StoreDamaged, StoreUnavailable, FlushFailed) as error:
                answers.append(str(error).replace(str(root), ""))
        return answers

    assert work(SystemFiles(disk), ROOT) == work(SystemFiles(), tmp_path)
    disk.export(tmp_path / "exported")
    assert (tmp_path / "exported" / "a" / "table.bak").read_bytes() == b"the second"
    exported, real = contents(tmp_path / "exported" / "a"), contents(tmp_path / "a")
    assert exported == real


def test_what_is_synced_is_there_and_the_rest_may_be(
    disk: SimulatedDisk, files: SystemFiles
) -> None:
    """A killed process leaves the cache; a power cut leaves the disk."""
    files.write(PATH, 0, b"synced")
    files.sync(PATH)
    files.write(PATH, 0, b"cached")
    assert SystemFiles(disk.fork_killed()).read(PATH, 0, 6) == b"cached"
    assert after_power_cut(disk, "none") == b"synced".ljust(2 * PAGE_BYTES, b"\0")
    assert after_power_cut(disk, "all") == b"cached".ljust(2 * PAGE_BYTES, b"\0")


def test_sectors_reach_the_disk_in_any_order(disk: SimulatedDisk, files: SystemFiles) -> None:
    """The second without the first, and each as it was at some moment, but never half."""
    for letter in (b"a", b"b"):
        for sector in range(2):
            files.write(PATH, sector * SECTOR_BYTES + 100, letter * 300)
    seen = set()
    for _ in range(200):
        data = after_power_cut(disk, "sectors")
        assert data is not None
        sectors = data[:SECTOR_BYTES], data[SECTOR_BYTES : 2 * SECTOR_BYTES]
        assert all(each[100:400] in (b"a" * 300, b"b" * 300, bytes(300)) for each in sectors)
        seen.add(bytes(each[100] for each in sectors))
    assert len(seen) == 9


def test_a_write_is_torn_at_any_byte_and_what_was_before_it_is_whole(
    disk: SimulatedDisk, files: SystemFiles
) -> None:
    """As when the machine stops in the middle of it."""
    files.write(PATH, 0, b"aaaa")
    files.write(PATH, 4, b"bbbb")
    seen = {(after_power_cut(disk, "prefix") or b"")[:8].rstrip(b"\0") for _ in range(300)}
    assert seen == {b"aaaabbbb"[:length] for length in range(9)}


def test_of_several_files_only_some_survive(disk: SimulatedDisk, files: SystemFiles) -> None:
    """The queues without the log, or the log without the queues."""
    other = PATH.with_name("other")
    files.create(other, 4)
    files.sync(other)
    files.write(PATH, 0, b"log")
    files.write(other, 0, b"q")
    seen = set()
    for _ in range(100):
        after = SystemFiles(disk.fork_power_cut(RANDOM, "files"))
        seen.add((after.read(PATH, 0, 3), after.read(other, 0, 1)))
    assert seen == {(log, q) for log in (b"log", bytes(3)) for q in (b"q", bytes(1))}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_sync_of_a_file_does_not_keep_its_name(disk: SimulatedDisk, loss: Loss) -> None:
    """That takes a sync of the folder."""
    disk.mkdir(PATH.parent)
    fd = disk.open(PATH, os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, b"data", 0)
    disk.fsync(fd)
    seen = {after_power_cut(disk, loss) for _ in range(50)}
    assert seen == {"none": {None}, "all": {b"data"}}.get(loss, {None, b"data"})
    for folder in (PATH.parent, ROOT):
        disk.fsync(disk.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    assert {after_power_cut(disk, loss) for _ in range(20)} == {b"data"}


def test_what_happens_to_names_survives_in_its_order(
    disk: SimulatedDisk, files: SystemFiles
) -> None:
    """So a table that is replaced is the old one or the new one, and never gone."""
    folder = PATH.parent
    for name in ("one", "two", "three"):
        disk.open(folder / name, os.O_RDWR | os.O_CREAT)
    disk.unlink(folder / "one")
    disk.replace(folder / "two", folder / "three")
    for loss in LOSSES:
        for _ in range(50):
            names = SystemFiles(disk.fork_power_cut(RANDOM, loss)).names(folder)
            assert [name for name in names if name != "file"] in (
                [],
                ["one"],
                ["one", "two"],
                ["one", "three", "two"],
                ["three", "two"],
                ["three"],
            )
    assert files.names(folder) == ["file", "three"]


def test_a_removed_name_may_come_back(disk: SimulatedDisk, files: SystemFiles) -> None:
    """Until its folder is synced."""
    disk.unlink(PATH)
    assert after_power_cut(disk, "none") == bytes(2 * PAGE_BYTES)
    files.sync_folder(PATH.parent)
    assert after_power_cut(disk, "none") is None


@pytest.mark.parametrize("failing", ["open", "fsync"])
def test_a_folder_whose_name_could_not_be_synced_is_made_again(
    disk: SimulatedDisk, failing: str
) -> None:
    """It is there, and a second sync says that all is well; but a power cut would take it, and
    every file in it with what was answered."""
    files = SystemFiles(disk)
    disk.fail(failing)
    with pytest.raises((StoreUnavailable, FlushFailed)):
        files.make_folder(PATH.parent)
    assert files.is_folder(PATH.parent)
    files.make_folder(PATH.parent)
    files.create(PATH, SECTOR_BYTES)
    files.sync(PATH)
    for loss in LOSSES:
        assert after_power_cut(disk, loss) == bytes(SECTOR_BYTES)


def test_a_length_that_was_not_synced_is_lost_with_what_lies_behind(disk: SimulatedDisk) -> None:
    """A file that was made and never synced is empty."""
    fd = disk.open(ROOT / "file", os.O_RDWR | os.O_CREAT)
    disk.fsync(disk.open(ROOT, os.O_RDONLY | os.O_DIRECTORY))
    disk.ftruncate(fd, 2_000)
    disk.pwrite(fd, b"x" * 2_000, 0)
    lengths = {len(after_power_cut(disk, "sectors", ROOT / "file") or b"") for _ in range(50)}
    assert lengths == {2_000}
    assert after_power_cut(disk, "none", ROOT / "file") == b""
    disk.fdatasync(fd)
    disk.ftruncate(fd, 10)
    assert len(after_power_cut(disk, "none", ROOT / "file") or b"") == 2_000


def test_a_failed_sync_leaves_clean_pages_that_are_not_on_disk(
    disk: SimulatedDisk, files: SystemFiles
) -> None:
    """As Linux does: the next sync says that all is well.  Only writing again helps."""
    half = b"x" * (SECTOR_BYTES // 2)
    files.write(PATH, 0, half)
    disk.fail("fdatasync")
    with pytest.raises(FlushFailed, match="Input/output error"):
        files.sync(PATH)
    files.sync(PATH)
    assert files.read(PATH, 0, 1) == b"x"
    on_disk = {(after_power_cut(disk, loss) or b"")[:1] for loss in LOSSES}
    assert on_disk in ({b"\0"}, {b"x"})
    files.write(PATH, len(half), half)
    files.sync(PATH)
    assert after_power_cut(disk, "none") == (half + half).ljust(2 * PAGE_BYTES, b"\0")


def test_the_nth_call_fails_and_a_write_keeps_some_bytes(
    disk: SimulatedDisk, files: SystemFiles
) -> None:
    """A disk that is full in the middle of a write."""
    disk.fail("pwrite", after=1, error=errno.ENOSPC, kept_bytes=2)
    files.write(PATH, 0, b"aaaa")
    with pytest.raises(StoreUnavailable, match="No space left"):
        files.write(PATH, 4, b"bbbb")
    assert not disk.heal()
    assert files.read(PATH, 0, 8) == b"aaaabb\0\0"
    disk.fail(times=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            files.read(PATH, 0, 8)
    disk.fail("replace", times=1_000)
    with pytest.raises(StoreUnavailable):
        files.replace(PATH, b"")
    assert disk.heal()
    files.replace(PATH, b"")


def test_a_crash_can_be_tried_after_each_change_and_within_a_write(disk: SimulatedDisk) -> None:
    """Every state that the disk goes through is seen once."""
    files = SystemFiles(disk)
    told: list[tuple[str, bytes | None]] = []

    def look(call: str, _path: str) -> None:
        told.append((call, SystemFiles(disk.fork_killed()).read_all(ROOT / "table")))

    disk.after_each = look
    files.replace(ROOT / "table", b"four")
    calls = [call for call, _ in told]
    assert calls == ["open", "pwrite", "pwrite", "fsync", "replace", "fsync"]
    assert [content for _, content in told] == [None] * 4 + [b"four"] * 2
    files.read_all(ROOT / "table")
    assert len(told) == 6


def test_forks_go_their_own_ways(disk: SimulatedDisk, files: SystemFiles) -> None:
    """What is done to one is not seen by another."""
    files.write(PATH, 0, b"common")
    fork = SystemFiles(disk.fork_killed())
    fork.write(PATH, 0, b"forked")
    files.write(PATH, 0, b"parent")
    fork.remove(PATH)
    assert files.read(PATH, 0, 6) == b"parent"
    assert fork.names(PATH.parent) == []


def test_a_lock_is_held_until_its_holder_is_gone(disk: SimulatedDisk) -> None:
    """A second broker is kept out; a killed one keeps nobody out."""
    first, second = SystemFiles(disk), SystemFiles(disk)
    lock = first.lock(ROOT / "lock")
    assert second.is_locked(ROOT / "lock")
    with pytest.raises(StoreLocked):
        second.lock(ROOT / "lock")
    assert not SystemFiles(disk.fork_killed()).is_locked(ROOT / "lock")
    lock.release()
    assert not second.is_locked(ROOT / "lock")
    second.lock(ROOT / "lock")


def test_what_is_forgotten_is_gone_for_good(disk: SimulatedDisk, files: SystemFiles) -> None:
    """As when somebody removes a folder by hand."""
    disk.forget(PATH.parent)
    assert not files.is_folder(PATH.parent)
    assert after_power_cut(disk, "none") is None

"""A backup is the store of one moment, whatever its broker does meanwhile; half of one is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged, StoreUnavailable, Unavailable
from rmqlite.store_tools.moving.backup import HOLE_BYTES, Backup, _without_zeros
from rmqlite.store_tools.moving.new_store import PART
from tests.support.files import FOR_GOOD, FaultyFiles, QuickFiles
from tests.support.golden import unpack_golden
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, contents, findings

Done = Callable[[int, int], None]


def nothing(done: int, total: int) -> None:
    """Progress that nobody looks at."""
    assert 0 <= done <= total


def backed_up(
    store: StoreUnderTest, target: Path, during: Done = nothing, files: Files | None = None
) -> None:
    """Make a whole backup; during: runs with each file that is copied."""
    with Backup(store.root, target, files=files or QuickFiles(), clock=store.clock) as backup:
        backup.copy(during)
        _, found = backup.check(nothing)
        assert found == []
        backup.keep()


def view_of(root: Path, store: StoreUnderTest) -> dict[str, object]:
    """What a broker sees of the store at root."""
    copy = StoreUnderTest(root, clock=store.clock)
    seen = copy.view()
    copy.close()
    return seen


@pytest.fixture
def filled(under_test: StoreUnderTest) -> StoreUnderTest:
    """An open store of several files; its last records are in no table yet."""
    under_test.fill()
    under_test.persist()
    under_test.send(*"abcdefgh")
    under_test.sync()
    return under_test


def test_a_backup_is_the_store_and_changes_nothing_in_it(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """Queues, keys, what waits and what was delivered: all as in the open store."""
    before = contents(filled.root)
    backed_up(filled, tmp_path / "copy")
    assert contents(filled.root) == before
    assert view_of(tmp_path / "copy", filled) == filled.view()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "store"]


def test_a_backup_of_a_closed_store_was_closed_too(filled: StoreUnderTest, tmp_path: Path) -> None:
    """Its next opening has nothing to complete, and a check nothing to say."""
    filled.close()
    backed_up(filled, tmp_path / "copy")
    assert findings(tmp_path / "copy") == []
    assert "abort" not in contents(tmp_path / "copy")
    filled.open()


def test_what_is_stored_during_the_copy_is_not_in_it(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """Neither records nor progress: the copy is that of the moment when it began."""
    before = filled.view()
    sent: list[int] = []

    def go_on(done: int, total: int) -> None:
        nothing(done, total)
        sent.append(len(filled.send(*"xyz")))
        filled.clock.forward(1)
        filled.sync()
        filled.persist()

    backed_up(filled, tmp_path / "copy", go_on)
    assert len(sent) > 5
    assert view_of(tmp_path / "copy", filled) == before


def test_files_that_retention_removes_during_the_copy_are_missing_in_it(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """The copy's log begins later then, without a gap."""

    def expire(done: int, total: int) -> None:
        nothing(done, total)
        if (tmp_path / f"copy{PART}" / "commitlog" / f"{0:020d}").exists():
            filled.store.drop_before(2 * LOG_FILE_BYTES)

    backed_up(filled, tmp_path / "copy", expire)
    names = sorted(each.name for each in (tmp_path / "copy" / "commitlog").iterdir())
    assert int(names[0]) == 2 * LOG_FILE_BYTES
    assert view_of(tmp_path / "copy", filled)["end"] == filled.store.end


def allocated_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


def test_holes_stay_holes(tmp_path: Path) -> None:
    """Also right behind the data: a store of 1.2 MiB became 482."""
    store = StoreUnderTest(
        tmp_path / "store", log_file_bytes=64 << 20, queue_file_bytes=20 * 300_000
    )
    store.fill()
    store.close()
    backed_up(store, tmp_path / "copy", files=SystemFiles())
    # Two of the log's files, of each queue's and of the index' have 64 KiB at the most.
    assert allocated_bytes(tmp_path / "copy") <= allocated_bytes(store.root) + (64 << 10)


def test_zeros_become_holes() -> None:
    """Not every file system says where its holes are."""
    data = bytes(HOLE_BYTES - 100) + b"data" + bytes(4 * HOLE_BYTES) + b"more"
    copy = bytearray(len(data))
    written = 0
    for position, part in _without_zeros(data, 100):
        copy[position - 100 : position - 100 + len(part)] = part
        written += len(part)
    assert copy == data
    assert written < 3 * HOLE_BYTES


def test_tables_that_change_during_a_look_are_looked_at_again(
    filled: StoreUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a table could know more than the log."""
    looks: list[dict[str, bytes]] = []
    tables = Backup._tables

    def changing(backup: Backup) -> dict[str, bytes]:
        if len(looks) < 4:
            filled.send("more")
            filled.sync()
            filled.persist()
        looks.append(tables(backup))
        return looks[-1]

    monkeypatch.setattr(Backup, "_tables", changing)
    backed_up(filled, tmp_path / "copy")
    assert len(looks) == 6
    assert view_of(tmp_path / "copy", filled) == filled.view()


def test_tables_that_always_change_end_the_backup(
    filled: StoreUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a named number of looks."""
    looks: list[int] = []

    def changing(_: Backup) -> dict[str, bytes]:
        looks.append(1)
        return {"x": b"%d" % len(looks)}

    monkeypatch.setattr(Backup, "_tables", changing)
    with pytest.raises(StoreUnavailable, match="try again"):
        backed_up(filled, tmp_path / "copy")
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("operation", ["write", "sync", "replace", "create_unsynced", "move"])
def test_a_failed_backup_leaves_nothing(
    filled: StoreUnderTest, tmp_path: Path, operation: str
) -> None:
    """Neither under its name nor as a part."""

    class Failing(FaultyFiles):
        def create_unsynced(self, path: Path, size: int) -> None:
            with self._failing("create_unsynced", path):
                super().create_unsynced(path, size)

        def move(self, path: Path, to: Path) -> None:
            with self._failing("move", path):
                super().move(path, to)

    files = Failing()
    files.fail(operation, times=FOR_GOOD)
    with pytest.raises(Unavailable, match="told to fail"):
        backed_up(filled, tmp_path / "copy", files=files)
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_a_disk_without_room_is_known_before_the_copy(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """Not an hour later."""
    files = FaultyFiles()
    files.free_bytes = 1_000
    with (
        pytest.raises(StoreUnavailable, match="bytes, and 1,000 are free"),
        Backup(filled.root, tmp_path / "copy", files=files) as backup,
    ):
        backup.copy(nothing)
    assert files.calls["write"] == 0


def test_a_damaged_log_is_named_where_it_is(filled: StoreUnderTest, tmp_path: Path) -> None:
    """Not in the copy, which is gone.  A byte of a header: only the checksums see it."""
    filled.close()
    log = filled.log_files()[-2]
    data = log.read_bytes()
    log.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with (
        pytest.raises(StoreDamaged, match="damaged at byte") as caught,
        Backup(filled.root, tmp_path / "copy", files=QuickFiles()) as backup,
    ):
        backup.copy(nothing)
    assert caught.value.path == str(log)
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
    log.write_bytes(data)
    filled.open()


def test_damage_that_an_opening_does_not_see_is_found(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """The check reads what no opening reads: there is no backup then."""
    filled.write_table("topics.json", {"topicConfigTable": 5})
    with Backup(filled.root, tmp_path / "copy", files=QuickFiles()) as backup:
        backup.copy(nothing)
        _, found = backup.check(nothing)
    assert [each.path.name for each in found] == ["topics.json"]
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
    (filled.root / "config" / "topics.json").unlink()


def test_names_that_would_overwrite_something_are_refused(
    filled: StoreUnderTest, tmp_path: Path
) -> None:
    """Also those of a part, and places inside of the store."""
    (tmp_path / f"other{PART}").mkdir()
    (tmp_path / "file").touch()
    for target in ("store", "file", "other", "store/copy", "nowhere/copy", "file/copy"):
        with pytest.raises(InvalidValue, match="DIR must be a "):
            Backup(filled.root, tmp_path / target)
    with pytest.raises(InvalidValue, match="DIR must be the name of a new folder"):
        Backup(filled.root, Path(""))
    with pytest.raises(InvalidValue, match="a folder with a commitlog/"):
        Backup(tmp_path / f"other{PART}", tmp_path / "copy")


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_store_of_rocketmq_is_taken_over_in_its_copy(tmp_path: Path, name: str) -> None:
    """RocketMQ's own files stay as they are."""
    root = unpack_golden(tmp_path) / name
    before = contents(root)
    with Backup(root, tmp_path / "copy", files=QuickFiles()) as backup:
        backup.copy(nothing)
        checking, found = backup.check(nothing)
        backup.keep()
    assert (contents(root) == before, found) == (True, [])
    assert checking.messages > 100

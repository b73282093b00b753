"""A store that has less than it promised says so before anybody counts what is left."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.tables.tables import decode
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.moving.backup import Backup
from rmqlite.store_tools.reader import StoreReader
from tests.support.golden import unpack_golden, unpack_own, unpack_timers
from tests.support.repairs import overwrite
from tests.support.stores import StoreUnderTest, new_record, scheduled

PARTS = 12
"""The places at which a file is cut off."""


def warnings(root: Path) -> tuple[str, ...]:
    """What a reading is warned of.  Raises StoreDamaged."""
    with StoreReader(root) as reader:
        return reader.layout().warnings


def missing(root: Path) -> tuple[str, int]:
    """Where a reading finds that records are missing: the file's name, and the byte."""
    with pytest.raises(StoreDamaged) as caught:
        warnings(root)
    with StoreReader(root) as reader:
        assert str(caught.value) in reader.layout(allow_loss=True).warnings
    return str(Path(caught.value.path).relative_to(root)), caught.value.position


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def end_of(root: Path) -> int:
    with StoreReader(root) as reader:
        return reader.layout().end


def queue_file(root: Path, topic: str, queue_id: int, number: int = 0) -> Path:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def write_offsets(root: Path, table: str, offsets: dict[str, Any]) -> None:
    """Add offsets to a table of config/."""
    path = root / "config" / table
    tree = decode(path.read_bytes()) if path.exists() else {"offsetTable": {}}
    path.write_text(json.dumps({"offsetTable": tree["offsetTable"] | offsets}))


@pytest.fixture
def store(tmp_path: Path) -> StoreUnderTest:
    """Several log files, waits, and a queue with several files."""
    made = StoreUnderTest(tmp_path / "store")
    made.fill()
    made.send(*[f"bill {number}" for number in range(25)], topic="bills")
    made.send(*["x" * 500 for _ in range(5)], queue_id=1)
    return made


@pytest.fixture
def closed(store: StoreUnderTest) -> Path:
    store.close()
    assert warnings(store.root) == ()
    return store.root


@pytest.fixture
def killed(store: StoreUnderTest) -> Path:
    """Killed a moment after a persist."""
    store.sync()
    store.persist()
    store.send(*"abcdefgh", queue_id=1)
    store.append(scheduled("later", 1), new_record("new", "invoices"))
    store.sync()
    store.crash()
    assert warnings(store.root) == ()
    return store.root


# ---- the log


def test_a_cut_last_file_of_a_closed_store_is_found_wherever_it_is_cut(
    closed: Path, tmp_path: Path
) -> None:
    """387 of 2,071 records were gone, and an audit said that the promises held."""
    name = log_files(closed)[-1].name
    used = end_of(closed) - int(name)
    for part in range(PARTS):
        root = tmp_path / f"{part}"
        shutil.copytree(closed, root)
        size = max(1, used * part // PARTS)
        os.truncate(root / "commitlog" / name, size)
        path, position = missing(root)
        assert path == f"commitlog/{name}"
        assert position <= size
    # Bytes behind the last record are no records.
    os.truncate(closed / "commitlog" / name, used + 8)
    assert warnings(closed) == ()


def test_a_removed_last_file_is_found(closed: Path) -> None:
    """The file before it ends in a blank, as every full file does."""
    last = log_files(closed)[-1]
    last.unlink()
    assert missing(closed) == (f"commitlog/{last.name}", 0)


def test_a_removed_last_file_is_found_without_the_table_of_progress(closed: Path) -> None:
    """The queues' entries still say where its records were."""
    for path in (closed / "config").glob("storeProgress.json*"):
        path.unlink()
    last = log_files(closed)[-1]
    last.unlink()
    assert missing(closed) == (f"commitlog/{last.name}", 0)


def test_a_removed_file_in_the_middle_is_found(closed: Path) -> None:
    """Nothing after a gap may be read as if it followed."""
    log_files(closed)[1].unlink()
    with pytest.raises(StoreDamaged, match=r"commitlog is damaged at byte 8192.*a gap"):
        warnings(closed)


def test_what_a_killed_store_had_synced_is_not_explained_by_the_kill(
    killed: Path, tmp_path: Path
) -> None:
    """A kill shortens no file, and takes nothing that the table of progress counts."""
    name = log_files(killed)[-1].name
    used = end_of(killed) - int(name)
    for part in range(PARTS):
        root = tmp_path / f"{part}"
        shutil.copytree(killed, root)
        os.truncate(root / "commitlog" / name, max(1, used * part // PARTS))
        path, _ = missing(root)
        assert path == f"commitlog/{name}"


def test_records_that_a_power_cut_took_are_a_warning(store: StoreUnderTest) -> None:
    """They were never acknowledged; but their queue entries reached the disk."""
    store.sync()
    store.persist()
    end = store.store.end
    store.send("unsynced", "too")
    store.crash()
    last = log_files(store.root)[-1]
    overwrite(last, end - int(last.name), bytes(300))
    (warning,) = warnings(store.root)
    assert f"{last} is damaged at byte {end - int(last.name)}" in warning
    assert f"a record at {end}, as orders queue 0 says" in warning


# ---- queues


def test_zeros_at_the_head_of_a_queue_are_found(closed: Path) -> None:
    """The first sound entry behind them looked like the queue's first: 55 of 60 rows."""
    file = queue_file(closed, "bills", 0)
    overwrite(file, 0, bytes(5 * ENTRY_BYTES))
    assert missing(closed) == (str(file.relative_to(closed)), 4 * ENTRY_BYTES)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_removed_file_of_a_queue_is_told(closed: Path, number: int) -> None:
    """The first: as if retention had removed its records.  The last: the log has them all."""
    file = queue_file(closed, "bills", 0, number)
    file.unlink()
    if number == 2:
        (warning,) = warnings(closed)
        assert f"{file} is damaged at byte 80" in warning
    elif number == 1:
        with pytest.raises(StoreDamaged, match="a gap"):
            warnings(closed)
    else:
        path, position = missing(closed)
        assert (path, position) == (str(file.relative_to(closed)), 180)


def test_removed_queues_are_told_and_the_log_has_their_records(closed: Path) -> None:
    """An opening makes them again, so nothing is lost; but somebody was at the store."""
    shutil.rmtree(closed / "consumequeue" / "bills")
    (warning,) = warnings(closed)
    assert "the entry of bills queue 0, queue offset 0, found no file" in warning


# ---- tables


def test_a_group_that_is_ahead_of_its_queue_is_found(closed: Path) -> None:
    """It consumed records that the log does not have."""
    write_offsets(closed, "consumerOffset.json", {"bills@payers": {"0": 25}})
    assert warnings(closed) == ()
    write_offsets(closed, "consumerOffset.json", {"bills@payers": {"0": 26}})
    assert missing(closed) == ("config/consumerOffset.json", 0)


def test_a_level_that_is_delivered_farther_than_its_queue_goes_is_found(closed: Path) -> None:
    """The log has lost scheduled records, and perhaps their deliveries."""
    write_offsets(closed, "delayOffset.json", {"1": 7_000})
    assert missing(closed) == ("config/delayOffset.json", 0)


# ---- stores that lack nothing


def test_rocketmqs_stores_and_old_ones_lack_nothing(tmp_path: Path) -> None:
    """A false alarm would stop every audit of a migration."""
    golden = unpack_golden(tmp_path)
    stores = [golden / "clean", golden / "killed"]
    stores += [unpack_timers(tmp_path, which)[0] for which in ("clean", "killed")]
    stores += [unpack_own(tmp_path, "0.6.0", which) for which in ("clean", "killed")]
    for root in stores:
        assert warnings(root) == (), root


def test_a_backup_of_an_open_store_lacks_nothing(store: StoreUnderTest, tmp_path: Path) -> None:
    """It is made of tables and files that were read one after the other."""
    store.sync()
    store.persist()
    store.send("later")
    store.sync()
    with Backup(store.root, tmp_path / "copy", files=SystemFiles(), clock=store.clock) as backup:
        backup.copy(lambda _done, _total: None)
        backup.keep()
    assert warnings(tmp_path / "copy") == ()


def test_a_writer_that_goes_on_during_a_look_is_no_loss(store: StoreUnderTest) -> None:
    """Queues, marks and tables are read a moment after the log's end, which has moved on.

    New files of log and queues, a persist, a retention: each was once ahead of that end.
    """
    store.sync()
    store.persist()
    with StoreReader(store.root) as reader:
        for number in range(40):
            store.send(f"order {number}" * 20, topic="bills" if number % 2 else "orders")
            store.sync()
            assert reader.check_promises() == ()
        store.persist()
        write_offsets(store.root, "consumerOffset.json", {"bills@payers": {"0": 45}})
        assert reader.check_promises() == ()
        store.store.drop_before(2 * store.log_file_bytes)
        assert reader.check_promises() == ()
    store.crash()
    assert warnings(store.root) == ()


def test_queue_files_that_retention_removed_are_no_loss(store: StoreUnderTest) -> None:
    """Their records are gone from the log, too; the next persist says so."""
    store.sync()
    store.persist()
    store.store.drop_before(store.log_file_bytes * 2)
    store.close()
    assert warnings(store.root) == ()


# ---- RocketMQ's


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return unpack_golden(tmp_path) / "clean"


def test_a_log_of_rocketmqs_that_ends_early_is_found(clean: Path, tmp_path: Path) -> None:
    """It has no mark and no table of progress: the queues' entries are all that tell."""
    name = log_files(clean)[-1].name
    used = end_of(clean) - int(name)
    for part in range(PARTS):
        root = tmp_path / f"{part}"
        shutil.copytree(clean, root)
        kept = used * part // PARTS
        overwrite(root / "commitlog" / name, kept, bytes(used - kept))
        path, position = missing(root)
        assert path == f"commitlog/{name}"
        assert position <= kept
        (root / "abort").touch()
        assert any(f"{path} is damaged at byte {position}" in each for each in warnings(root))

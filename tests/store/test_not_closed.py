"""A killed process leaves a store incomplete, not damaged; a running one goes on writing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.store_tools.check import Finding, StoreCheck, Verdict
from rmqlite.store_tools.checking.file_layer import FileLayer
from rmqlite.store_tools.checking.log import READ_BYTES
from tests.support.brokers import small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.golden import unpack_golden
from tests.support.repairs import overwrite
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, new_record, scheduled

LAST_RECORDS = 30
"""How many of a log's records have no entries yet."""
GOLDEN_MESSAGES = 2_624
GOLDEN_FILE_BYTES = 1 << 20


def checked(root: Path, *, is_live: bool = False, files: FileLayer | None = None) -> Looked:
    """is_live: as if a broker held it."""
    checking = StoreCheck(root, files=files)
    if is_live:
        checking.is_live = checking.is_closed = True
    found = list(checking.run())
    checking.close()
    return Looked(checking, found)


class Looked:
    def __init__(self, checking: StoreCheck, found: list[Finding]) -> None:
        self.checking = checking
        self.found = found
        self.verdict = checking.verdict(found)


def queue_files(root: Path) -> Iterator[Path]:
    return (path for path in sorted((root / "consumequeue").rglob("*")) if path.is_file())


def entries_of(root: Path) -> list[tuple[int, Path, int]]:
    """Physical offset, file and position of every queue entry, in the order of the log."""
    return sorted(
        (physical_offset, path, number * ENTRY_BYTES)
        for path in queue_files(root)
        for number, (physical_offset, size, _) in enumerate(ENTRY.iter_unpack(path.read_bytes()))
        if size
    )


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """RocketMQ 4.9.8's, killed before its last records were entered into their queues."""
    root = unpack_golden(tmp_path) / "killed"
    for _, path, position in entries_of(root)[-LAST_RECORDS:]:
        overwrite(path, position, bytes(ENTRY_BYTES))
    return root


@pytest.fixture
def ours(tmp_path: Path) -> StoreUnderTest:
    """Killed with records behind what was persisted, one of them in a new topic."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.persist()
    each.send("a" * 300, "b" * 300)
    each.append(scheduled("later", 1), new_record("new", "invoices"))
    each.sync()
    each.crash()
    assert checked(each.root).verdict is Verdict.NOT_CLOSED
    return each


def open_once(root: Path) -> None:
    config = small_config(root).model_copy(
        update={
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_consume_queue": 4_000,
            "max_hash_slots": 1_000,
            "max_index_entries": 8_000,
        }
    )
    MessageStore(config, SystemFiles(), FakeClock()).close({})


def test_rocketmq_killed_in_mid_send_is_not_closed_and_opening_completes_it(killed: Path) -> None:
    """It enters records into queues a moment after it has written them to the log."""
    looked = checked(killed)
    assert looked.verdict is Verdict.NOT_CLOSED
    assert {(each.what, each.is_leftover) for each in looked.found} == {("missing-entry", True)}
    assert sum(each.count for each in looked.found) == LAST_RECORDS
    open_once(killed)
    looked = checked(killed)
    assert (looked.verdict, looked.found) == (Verdict.SOUND, [])


def test_a_hole_among_the_entries_of_a_killed_store_is_damage(killed: Path) -> None:
    """RocketMQ enters records in the order of the log: it lacks the last ones or none."""
    _, path, position = entries_of(killed)[-5 * LAST_RECORDS]
    overwrite(path, position, bytes(ENTRY_BYTES))
    looked = checked(killed)
    assert looked.verdict is Verdict.INCONSISTENT
    (hole,) = (each for each in looked.found if not each.is_leftover)
    assert (hole.path, hole.position, hole.what) == (path, position, "missing-entry")


def test_missing_entries_of_one_queue_are_damage_if_others_have_later_ones(killed: Path) -> None:
    """Also at the end of a queue."""
    queue = killed / "consumequeue" / "orders" / "0"
    lost = [each for each in entries_of(killed) if each[1].parent == queue][-20:]
    for _, path, position in lost:
        overwrite(path, position, bytes(ENTRY_BYTES))
    looked = checked(killed)
    assert looked.verdict is Verdict.INCONSISTENT
    assert {each.path.parent for each in looked.found if not each.is_leftover} == {queue}


def test_a_hole_in_the_log_of_a_killed_store_is_damage(killed: Path) -> None:
    """Records follow: no process that is killed leaves that."""
    overwrite(killed / "commitlog" / f"{0:020d}", 100_000, bytes(1_000))
    looked = checked(killed)
    assert looked.verdict is Verdict.INCONSISTENT
    assert "damaged-record" in {each.what for each in looked.found}


def test_what_a_killed_process_lacks_is_wrong_in_a_store_that_was_closed(killed: Path) -> None:
    """Closing completes everything."""
    (killed / "abort").unlink()
    assert checked(killed).verdict is Verdict.INCONSISTENT


def lose_entries(ours: StoreUnderTest) -> None:
    for _, path, position in entries_of(ours.root)[-3:]:
        overwrite(path, position, bytes(ENTRY_BYTES))


def lose_a_queue(ours: StoreUnderTest) -> None:
    folder = ours.root / "consumequeue" / "invoices" / "0"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def tear_the_tail(ours: StoreUnderTest) -> None:
    overwrite(ours.log_files()[-1], ours.store.end % LOG_FILE_BYTES, b"torn")


def tear_an_entry(ours: StoreUnderTest) -> None:
    _, path, position = entries_of(ours.root)[-1]
    overwrite(path, position, bytes(8))


def enter_what_the_log_has_not(ours: StoreUnderTest) -> None:
    _, path, position = entries_of(ours.root)[-1]
    overwrite(path, position + ENTRY_BYTES, ENTRY.pack(ours.store.end, 100, 0))


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (lose_entries, "missing-entry"),
        (lose_a_queue, "missing-queue"),
        (tear_the_tail, "unsynced-tail"),
        (tear_an_entry, "wrong-entry"),
        (enter_what_the_log_has_not, "entry-without-record"),
    ],
)
def test_what_we_leave_when_killed_is_completed_by_opening(
    ours: StoreUnderTest, leave: object, what: str
) -> None:
    """Behind what was persisted the log alone counts."""
    assert callable(leave)
    leave(ours)
    looked = checked(ours.root)
    assert what in {each.what for each in looked.found}
    assert looked.verdict is Verdict.NOT_CLOSED
    assert (looked.checking.saved_end or 0) < looked.checking.log_end
    ours.open()
    ours.close()
    looked = checked(ours.root)
    assert (looked.verdict, looked.found) == (Verdict.SOUND, [])


def test_an_entry_that_was_persisted_is_not_missing_because_of_a_kill(ours: StoreUnderTest) -> None:
    """It was on disk."""
    _, path, position = entries_of(ours.root)[3]
    overwrite(path, position, bytes(ENTRY_BYTES))
    assert checked(ours.root).verdict is Verdict.INCONSISTENT


def test_a_lost_tail_is_no_leftover(ours: StoreUnderTest) -> None:
    """Opening cuts it, but messages that were on disk are gone."""
    ours.open()
    ours.persist()
    last = ours.log_files()[-1]
    begin = entries_of(ours.root)[-1][0] % LOG_FILE_BYTES
    overwrite(last, begin, bytes(LOG_FILE_BYTES - begin))
    ours.crash()
    looked = checked(ours.root)
    assert "lost-tail" in {each.what for each in looked.found if each.opening_mends}
    assert looked.verdict is Verdict.INCONSISTENT


# ---- while somebody writes


def test_a_store_that_rocketmq_holds_is_looked_at_up_to_the_logs_end(killed: Path) -> None:
    """It has no mark of ours; and what it has not entered yet it is about to enter."""
    looked = checked(killed, is_live=True)
    assert (looked.verdict, looked.found) == (Verdict.SOUND, [])
    assert looked.checking.messages == GOLDEN_MESSAGES
    assert looked.checking.log_end == checked(killed).checking.log_end


def test_damage_in_a_live_log_of_rocketmqs_is_found(killed: Path) -> None:
    """Up to there it was reported as sound."""
    overwrite(killed / "commitlog" / f"{0:020d}", 100_000, bytes(1_000))
    looked = checked(killed, is_live=True)
    assert looked.verdict is Verdict.INCONSISTENT


def test_entries_that_come_while_the_check_runs_are_not_missing(killed: Path) -> None:
    """The queue is compared once more, with the files that are there by then."""
    _, path, position = entries_of(killed)[-5 * LAST_RECORDS]
    there = path.read_bytes()[position : position + ENTRY_BYTES]
    overwrite(path, position, bytes(ENTRY_BYTES))

    class Entering(FileLayer):
        def names(self, folder: Path) -> list[str]:
            if reads:
                overwrite(path, position, there)
            return super().names(folder)

        def read(self, at: Path, position: int, size: int) -> bytes:
            if at == path:
                reads.append(at)
            return super().read(at, position, size)

    reads: list[Path] = []
    assert checked(killed, is_live=True, files=Entering()).found == []


def test_a_live_store_is_looked_at_beyond_its_mark(tmp_path: Path) -> None:
    """What was appended since the last sync is whole, too; what is being written is no finding."""
    each = StoreUnderTest(tmp_path / "store", files=QuickFiles())
    each.fill()
    each.send("not synced")
    end = each.store.end
    overwrite(each.log_files()[-1], end % LOG_FILE_BYTES, b"\0\0\1\0" + b"torn")
    looked = checked(each.root, is_live=True)
    assert (looked.found, looked.checking.log_end) == ([], end)
    each.crash()


def test_a_record_that_is_being_written_is_where_the_look_ends(tmp_path: Path) -> None:
    """Half of it was read, then its writer went on: that is no damage with records behind it."""
    root = unpack_golden(tmp_path) / "killed"
    begin, _, _ = entries_of(root)[-10]
    log = root / "commitlog" / f"{GOLDEN_FILE_BYTES:020d}"
    half = begin % GOLDEN_FILE_BYTES + 40

    class Writing(FileLayer):
        """The walk comes to the record when half of it is there."""

        def read(self, path: Path, position: int, size: int) -> bytes:
            data = super().read(path, position, size)
            if path == log and size == READ_BYTES and position <= half < position + size:
                return data[: half - position].ljust(len(data), b"\0")
            return data

    looked = checked(root, is_live=True, files=Writing())
    assert (looked.found, looked.checking.log_end) == ([], begin)

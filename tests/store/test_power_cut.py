"""Full disks, failing disks, and power that goes: nothing acknowledged is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from rmqlite.kernel.records.record import Written
from rmqlite.kernel.store.log.checksums import MARK_BYTES, decode_mark, mark_position
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable
from tests.support.files import ForgetfulFiles
from tests.support.stores import (
    LOG_FILE_BYTES,
    StoreUnderTest,
    contents,
    new_record,
    scheduled,
    tagged,
)
from tests.support.thinned import Thinned, by_turns


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


@pytest.fixture
def under_test(tmp_path: Path, files: ForgetfulFiles) -> Iterator[StoreUnderTest]:
    """A fresh store on a disk that forgets; when the test is over it must be sound."""
    each = StoreUnderTest(tmp_path / "store", files=files)
    yield each
    each.store.release()
    assert each.findings() == []


def cut_power(under_test: StoreUnderTest, files: ForgetfulFiles, torn_bytes: int = 0) -> None:
    under_test.store.release()
    files.power_cut(torn_bytes=torn_bytes)


def log_contents(under_test: StoreUnderTest) -> dict[str, bytes]:
    """Every file's bytes before its mark."""
    place = mark_position(LOG_FILE_BYTES)
    return {path.name: path.read_bytes()[:place] for path in under_test.log_files()}


def test_what_is_synced_survives_and_what_is_not_may_go(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """P1: an acknowledgement waits for the sync."""
    under_test.send("synced")
    under_test.sync()
    assert under_test.store.durable_end == under_test.store.end
    under_test.send("not synced")
    assert under_test.store.durable_end < under_test.store.end
    cut_power(under_test, files)
    under_test.open()
    assert under_test.bodies() == [b"synced"]


def test_what_is_appended_during_a_sync_is_not_covered_by_it(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """The sync runs in another thread while the loop goes on appending."""
    under_test.send("one")
    job = under_test.store.begin_sync()
    (two,) = under_test.send("two")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(job.run).result()
    under_test.store.synced(job)
    assert under_test.store.durable_end == two.physical_offset
    job = under_test.store.begin_sync()
    assert job.paths, "the file was written again and must be synced again"
    job.run()
    cut_power(under_test, files)
    under_test.open()
    assert under_test.bodies() == [b"one", b"two"]


@pytest.mark.seeds(6, 40)
def test_nothing_acknowledged_is_lost_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Random work, then the power goes: the log's synced part and more is there, in order.

    Of the lost writes some bytes reach the disk all the same; so may the queues' writes,
    though the records they tell of did not.
    """
    chance = random.Random(seed)
    files = ForgetfulFiles()
    under_test = StoreUnderTest(tmp_path / "store", files=files)
    sent: list[Written] = []
    waiting: list[Written] = []
    for _ in range(chance.randrange(5, 40)):
        step = chance.random()
        if step < 0.5:
            size = chance.randrange(900)
            bodies = [b"%d" % chance.randrange(10**9) * (size // 9) for _ in range(3)]
            sent += under_test.append(*(tagged(body, "t", queue_id=size % 2) for body in bodies))
        elif step < 0.65:
            waiting += under_test.append(scheduled("later" * chance.randrange(50), 1))
        elif step < 0.75 and waiting:
            under_test.clock.forward(1_000)
            sent += under_test.deliver(1, *waiting)
            waiting = []
        elif step < 0.9:
            under_test.sync()
        else:
            under_test.persist()
    durable_end = under_test.store.durable_end
    kept = {
        each.physical_offset: under_test.store.read_message(each.physical_offset).body
        for each in sent
        if each.physical_offset + each.size <= durable_end
    }
    queues_survive = chance.random() < 0.5
    under_test.store.release()
    files.power_cut(
        torn_bytes=chance.choice([0, 1, 50, 400, 3_000]),
        surviving=lambda path: queues_survive and "consumequeue" in path.parts,
    )
    found = under_test.findings()
    tables = [each for each in found if each.path.parent.name == "config"]
    assert tables == [], "a table tells of what the log does not have"
    assert [str(each) for each in found if not each.is_leftover] == []
    under_test.open()
    assert under_test.store.end >= durable_end
    for physical_offset, body in kept.items():
        assert under_test.store.read_message(physical_offset).body == body
    under_test.crash()
    assert under_test.findings() == []


@pytest.mark.parametrize("operation", ["sync", "replace"])
@pytest.mark.parametrize("after", range(5))
def test_a_persist_that_fails_half_way_leaves_tables_that_are_true(
    under_test: StoreUnderTest, files: ForgetfulFiles, operation: str, after: int
) -> None:
    """They are replaced only after all that they tell of is synced."""
    under_test.fill()
    under_test.persist()
    under_test.fill()
    assert under_test.store.durable_end == under_test.store.end
    before = under_test.view()
    files.fail(operation, after=after)
    with suppress(FlushFailed, StoreUnavailable):
        under_test.persist()
    cut_power(under_test, files)
    assert [each for each in under_test.findings() if each.path.parent.name == "config"] == []
    under_test.open()
    assert under_test.view() == before


def test_a_failed_sync_acknowledges_nothing(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """The bytes may be gone although a second sync would say that all is well."""
    under_test.send("one")
    under_test.sync()
    under_test.send("two")
    durable_end = under_test.store.durable_end
    files.fail("sync")
    with pytest.raises(FlushFailed):
        under_test.sync()
    assert under_test.store.durable_end == durable_end
    cut_power(under_test, files)
    under_test.open()
    assert under_test.bodies() == [b"one"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("kept_bytes", [0, 10, 50])
def test_an_append_that_fails_leaves_everything_as_it_was(
    under_test: StoreUnderTest, files: ForgetfulFiles, after: int, kept_bytes: int
) -> None:
    """The log's write or any queue's: a full disk is an error, and nothing was kept."""
    under_test.send("before")
    under_test.send("before", queue_id=1)
    before = under_test.view()
    log = log_contents(under_test)
    queues = contents(under_test.root / "consumequeue")
    batch = [new_record("x", queue_id=n) for n in range(3)]
    files.fail("write", after=after, kept_bytes=kept_bytes)
    with pytest.raises(StoreUnavailable):
        under_test.append(*batch)
    assert under_test.view() == before
    assert log_contents(under_test) == log
    left = contents(under_test.root / "consumequeue")
    assert {name: data for name, data in left.items() if data is not None} == {
        name: data for name, data in queues.items() if data is not None
    }
    written = under_test.append(*batch)
    assert [each.queue_offset for each in written] == [1, 1, 0]
    under_test.crash()
    under_test.open()
    assert under_test.bodies() == [b"before", b"x"]


def test_a_disk_that_stays_full_refuses_until_there_is_room(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """P1 and design 4.1: an error, not a signal; then work goes on."""
    files.fail("create", times=3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            under_test.send("x")
    assert under_test.send("y")[0].physical_offset == 0
    assert under_test.bodies() == [b"y"]


def test_a_failed_batch_that_cannot_be_cut_at_once_is_cut_before_the_next(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """Its records are as long as the next ones: they would line up and come back."""
    under_test.send("before")
    files.fail("write", after=1)
    files.fail("cut", times=3)
    with pytest.raises(StoreUnavailable):
        under_test.send("failed", "failed")
    with pytest.raises(StoreUnavailable):
        under_test.send("failed again")
    files.fail("cut", after=1_000)
    under_test.send("behind")
    under_test.crash()
    under_test.open()
    assert under_test.bodies() == [b"before", b"behind"]


def test_an_entry_that_could_not_be_taken_back_is_gone_before_the_next(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """Or a power cut brings it back below the next one, with its deliver time."""
    under_test.append(scheduled("before", 1))
    files.fail("write", after=2)
    files.fail("cut", times=2)
    with pytest.raises(StoreUnavailable):
        under_test.append(scheduled("failed", 1), new_record("x", queue_id=1))
    files.fail("cut", after=1_000)
    queue = under_test.root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}"
    assert any(queue.read_bytes()[20:40])
    under_test.clock.forward(700)
    under_test.append(scheduled("behind", 1))
    cut_power(under_test, files)
    assert not any(queue.read_bytes()[20:])
    under_test.open()


def test_a_torn_write_is_cut_at_every_byte(tmp_path: Path, thinned: Thinned) -> None:
    """The bytes of one batch reach the disk up to anywhere; queues have theirs already."""
    size = sum(each.size for each in batch_of_two(tmp_path / "measured", ForgetfulFiles()))
    for torn_bytes in thinned(range(0, size + 60), 9):
        files = ForgetfulFiles()
        root = tmp_path / f"torn-{torn_bytes}"
        batch_of_two(root, files)
        files.power_cut(torn_bytes=torn_bytes, surviving=lambda path: "orders" in path.parts)
        under_test = StoreUnderTest(root, files=files)
        count = len(under_test.bodies())
        assert under_test.bodies() == [b"synced", b"one" * 30, b"two" * 30][:count]
        assert count >= 1
        under_test.crash()
        assert under_test.findings() == []


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("torn_bytes", "is_killed_first"), by_turns(range(1, 2 * MARK_BYTES, 5), [False, True])
)
def test_the_last_mark_of_a_full_file_may_be_torn_behind_the_persisted_end(
    under_test: StoreUnderTest, files: ForgetfulFiles, torn_bytes: int, is_killed_first: bool
) -> None:
    """It is written when the file is on disk: the table, written before, says so already."""
    under_test.send(*["x" * 900] * (3 * LOG_FILE_BYTES // 1_000))
    assert len(under_test.log_files()) >= 3
    under_test.persist()
    if is_killed_first:
        # The process that opens finds sound marks, of which none is on disk.
        under_test.crash()
        under_test.open()
    before = under_test.view()
    cut_power(under_test, files, torn_bytes)
    under_test.open()
    assert under_test.view() == before


def test_a_persist_makes_the_last_marks_durable(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """Opening looks at no older ones, so none of them may be left to be torn."""
    for _ in range(3):
        under_test.send(*["x" * 900] * (LOG_FILE_BYTES // 1_000))
        under_test.persist()
    marked_end = int(under_test.table("storeProgress.json")["markedOffset"])
    assert LOG_FILE_BYTES < marked_end < under_test.store.end
    cut_power(under_test, files, torn_bytes=5)
    full = [path for path in under_test.log_files() if int(path.name) + LOG_FILE_BYTES < marked_end]
    for path in full:
        mark = decode_mark(path.read_bytes()[mark_position(LOG_FILE_BYTES) :][:MARK_BYTES])
        assert mark is not None
        assert mark.is_sure
    under_test.open()


def test_the_last_mark_of_a_full_file_is_written_again_if_that_failed(
    under_test: StoreUnderTest, files: ForgetfulFiles
) -> None:
    """A failed write may have torn it, and the store goes on."""
    under_test.send(*["x" * 900] * (2 * LOG_FILE_BYTES // 1_000))
    job = under_test.store.begin_sync()
    job.run()
    files.fail("write", kept_bytes=20)
    under_test.store.synced(job)
    under_test.sync()
    under_test.persist()


def batch_of_two(root: Path, files: ForgetfulFiles) -> list[Written]:
    under_test = StoreUnderTest(root, files=files)
    under_test.send("synced")
    under_test.sync()
    written = under_test.send("one" * 30, "two" * 30)
    under_test.crash()
    return written

"""Opening a store after a crash: a prefix of the log, or a refusal that says where."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.store.log.checksums import mark_position
from rmqlite.kernel.words.errors import StoreDamaged
from tests.support.clock import FakeClock
from tests.support.repairs import overwrite
from tests.support.stores import (
    LOG_FILE_BYTES,
    StoreUnderTest,
    contents,
    findings,
    new_record,
    scheduled,
    tagged,
)
from tests.support.thinned import Thinned


def copy_of(root: Path, name: str) -> Path:
    target = root.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target)
    return target


def forget_progress(root: Path) -> None:
    for path in (root / "config").glob("storeProgress.json*"):
        path.unlink()


def test_a_closed_store_opens_as_it_was(under_test: StoreUnderTest) -> None:
    """Queues, completed offsets, the end of the log."""
    under_test.fill()
    before = under_test.view()
    under_test.restart()
    assert under_test.view() == before
    assert under_test.store.recovered == 0


def test_a_killed_store_opens_as_it_was(under_test: StoreUnderTest) -> None:
    """P1, P4: all is in the log, and only what came since the last persist is walked."""
    under_test.fill()
    under_test.persist()
    under_test.send("one", "two")
    waiting = under_test.append(scheduled("soon", 3))
    under_test.clock.forward(10_000)
    under_test.deliver(3, *waiting)
    before = under_test.view()
    under_test.crash()
    under_test.open()
    assert under_test.view() == before
    assert under_test.store.recovered == 4


@pytest.mark.parametrize("how", ["crash", "close"])
def test_opening_twice_changes_nothing(under_test: StoreUnderTest, how: str) -> None:
    """A broker that is restarted in a loop does no harm."""
    under_test.fill()
    under_test.crash()
    under_test.open()
    getattr(under_test, how)()
    before = contents(under_test.root)
    for _ in range(2):
        under_test.open()
        getattr(under_test, how)()
    after = contents(under_test.root)
    changed = {name for name in after if after[name] != before.get(name)}
    # The first opening after a crash replaces the tables: then all generations are equal.
    assert {name for name in changed if not name.endswith(".bak")} == set()
    assert set(before) <= set(after)


def test_a_second_broker_is_kept_out(under_test: StoreUnderTest) -> None:
    """One writer; the lock goes with the process."""
    script = (
        "import sys; from pathlib import Path\n"
        "from rmqlite.kernel.store.disk.files import SystemFiles\n"
        "SystemFiles().lock(Path(sys.argv[1])).release()"
    )
    command = [sys.executable, "-c", script, str(under_test.root / "lock")]
    assert "StoreLocked" in subprocess.run(command, capture_output=True, text=True).stderr
    under_test.crash()
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("is_synced", [True, False])
def test_a_log_cut_at_any_byte_opens_with_a_prefix(
    tmp_path: Path, is_padded: bool, is_synced: bool, thinned: Thinned
) -> None:
    """P10: what is torn is dropped, what is whole is kept, and the store works on.

    Cut off with zeros behind, or in its length; whether or not it was on disk once.
    """
    original = StoreUnderTest(tmp_path / "original")
    original.send("before")
    original.persist()
    begin = original.store.end
    written = original.append(tagged("first", "a"), scheduled("second", 2))
    original.clock.forward(5_000)
    written += original.deliver(2, written[1])
    written += original.send("fourth")
    if is_synced:
        original.sync()
        original.persist()
    original.crash()
    last = original.log_files()[-1]
    start = int(last.name)
    ends = [each.physical_offset + each.size for each in written]
    end = original.store.end
    whole = last.read_bytes()
    # Each of the four cases cuts at other bytes, and with --long at all of them.
    for cut in thinned(range(begin, end + 1), 44, 22 * is_padded + 11 * is_synced):
        root = copy_of(original.root, "copy")
        copied = root / "commitlog" / last.name
        data = whole[: cut - start]
        copied.write_bytes(data.ljust(LOG_FILE_BYTES, b"\0") if is_padded else data)
        torn = StoreUnderTest(root)
        assert copied.read_bytes()[: torn.store.end - start] == whole[: torn.store.end - start]
        assert torn.store.end >= max([begin, *(each for each in ends if each <= cut)])
        sent = torn.send("next")[0]
        assert torn.bodies()[-1] == b"next"
        torn.crash()
        assert findings(root) == [], cut
        torn.open()
        assert torn.store.read_message(sent.physical_offset).body == b"next"
        torn.crash()


def test_a_torn_delivery_is_delivered_again_and_a_whole_one_is_not(
    tmp_path: Path, thinned: Thinned
) -> None:
    """P4: exactly what the log holds is completed, at every byte of the delivered record."""
    original = StoreUnderTest(tmp_path / "original")
    (waiting,) = original.append(scheduled("soon", 1))
    original.persist()
    original.clock.forward(1_000)
    (delivered,) = original.deliver(1, waiting)
    original.crash()
    (last,) = original.log_files()
    whole = last.read_bytes()
    for length in (*thinned(range(delivered.size), 5), delivered.size - 1, delivered.size):
        root = copy_of(original.root, "copy")
        data = whole[: delivered.physical_offset + length]
        (root / "commitlog" / last.name).write_bytes(data.ljust(LOG_FILE_BYTES, b"\0"))
        torn = StoreUnderTest(root)
        torn.crash()
        is_whole = length == delivered.size
        assert torn.store.progress.of(1).below == int(is_whole)
        assert torn.bodies() == ([b"soon"] if is_whole else [])


GUARDED = {
    "size": range(4),
    "magic": range(4, 8),
    "body CRC": range(8, 12),
    "physical offset": range(28, 36),
    "body length": range(84, 88),
    "body": range(88, 102),
    "topic length": range(102, 103),
    "properties length": range(109, 111),
}
FOLLOWED = {"queue id": range(12, 16), "queue offset": range(20, 28), "topic": range(103, 109)}


@pytest.fixture
def middle(tmp_path: Path) -> tuple[StoreUnderTest, Path, int]:
    """A killed store, the file of a record amid others, and its position there."""
    killed = StoreUnderTest(tmp_path / "store")
    killed.fill()
    at = killed.append(tagged("the middle one", "some-tag"))[0].physical_offset
    killed.send("after", "that")
    killed.crash()
    forget_progress(killed.root)
    start = at - at % LOG_FILE_BYTES
    return killed, killed.root / "commitlog" / f"{start:020d}", at - start


def test_a_stray_file_in_the_log_stays_as_it_is(under_test: StoreUnderTest) -> None:
    """The opening refuses its name, and the look for a cut-off log file leaves it alone."""
    under_test.fill()
    under_test.close()
    stray = under_test.root / "commitlog" / "notes.txt"
    stray.write_text("mine\n")
    with pytest.raises(StoreDamaged, match=r"notes\.txt"):
        under_test.open()
    assert stray.read_text() == "mine\n"
    stray.unlink()
    under_test.open()


@pytest.mark.parametrize("part", GUARDED)
def test_a_flipped_byte_in_the_middle_is_damage(
    middle: tuple[StoreUnderTest, Path, int], part: str
) -> None:
    """P10: reported with file and offset; nothing is skipped, nothing on disk has changed."""
    killed, path, at = middle
    whole = path.read_bytes()
    for byte in GUARDED[part]:
        overwrite(path, at + byte, bytes([whole[at + byte] ^ 0x41]))
        before = contents(killed.root)
        with pytest.raises(StoreDamaged) as caught:
            killed.open()
        assert (caught.value.path, caught.value.position) == (str(path), at), byte
        assert contents(killed.root) == before
        assert any(f.path == path and f.position == at for f in killed.findings()), byte
        path.write_bytes(whole)
    killed.open()
    killed.crash()


@pytest.mark.parametrize("part", FOLLOWED)
def test_a_record_in_the_wrong_queue_or_place_is_damage(
    middle: tuple[StoreUnderTest, Path, int], part: str
) -> None:
    """No CRC covers the header; its queue's next record gives it away.  Mended, all is there."""
    killed, path, at = middle
    whole = path.read_bytes()
    view = killed.view()
    for byte in FOLLOWED[part]:
        overwrite(path, at + byte, bytes([whole[at + byte] ^ 0x41]))
        with pytest.raises(StoreDamaged):
            killed.open()
        path.write_bytes(whole)
        killed.open()
        assert killed.view() == view, byte
        killed.crash()
        forget_progress(killed.root)


def test_a_flipped_byte_in_the_last_record_is_a_torn_tail(under_test: StoreUnderTest) -> None:
    """Nothing valid follows: it may be what a power cut left, and nothing else was lost."""
    under_test.send("one", "two")
    under_test.persist()
    last = under_test.send("three")[0]
    under_test.crash()
    overwrite(under_test.log_files()[0], last.physical_offset + 88, b"!")
    under_test.open()
    assert under_test.bodies() == [b"one", b"two"]
    assert under_test.send("four")[0].physical_offset == last.physical_offset
    under_test.sync()


def test_what_was_cut_never_comes_back(under_test: StoreUnderTest) -> None:
    """Records of one size line up with the leftovers of the torn tail (reference §4.2)."""
    under_test.send("keep")
    under_test.persist()
    torn, *others = under_test.send(*["lost"] * 5)
    under_test.crash()
    (path,) = under_test.log_files()
    # A tail of which no record is whole: each lost its body's first byte.
    for each in (torn, *others):
        overwrite(path, each.physical_offset + 88, b"!")
    under_test.open()
    under_test.send("new")
    under_test.crash()
    under_test.open()
    assert under_test.bodies() == [b"keep", b"new"]
    end = mark_position(LOG_FILE_BYTES)
    assert not path.read_bytes()[under_test.store.end : end].strip(b"\0")


def test_what_rocketmq_left_behind_its_tail_never_comes_back(under_test: StoreUnderTest) -> None:
    """RocketMQ cuts a tail without zeroing it: whole older records lie behind newer ones."""
    under_test.send("keep")
    under_test.send(*["stale"] * 5)
    end = under_test.store.end
    under_test.crash()
    (path,) = under_test.log_files()
    stale = path.read_bytes()
    for name in ("storeProgress.json", "storeProgress.json.bak"):
        (under_test.root / "config" / name).unlink(missing_ok=True)
    # As if RocketMQ had cut behind "keep", then appended one record of another size.
    keep_size = int.from_bytes(stale[:4], "big")
    new = new_record("appended after the cut")
    data = encode(
        new,
        queue_offset=1,
        physical_offset=keep_size,
        store_timestamp_ms=under_test.clock.now_ms() + 10_000,
    )
    overwrite(path, keep_size, data)
    under_test.open()
    assert under_test.bodies() == [b"keep", b"appended after the cut"]
    assert under_test.store.end == keep_size + len(data) < end
    under_test.send("x" * 400)
    under_test.crash()
    under_test.open()
    assert under_test.bodies()[2:] == [b"x" * 400]


@pytest.mark.parametrize("left", [8, 9, 20, 31, 32, 33, 60])
def test_the_rest_of_a_mark_that_rocketmq_wrote_over_is_not_cut_off_loudly(
    under_test: StoreUnderTest, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records reach up to a file's last eight bytes; nothing is lost behind them."""
    under_test.send("ours")
    under_test.close()
    (path,) = under_test.log_files()
    end = int.from_bytes(path.read_bytes()[:4], "big")
    size = LOG_FILE_BYTES - left - end
    place = {"queue_offset": 1, "physical_offset": end, "store_timestamp_ms": FakeClock().now_ms()}
    empty = len(encode(new_record(""), **place))
    body = "x" * (size - empty)
    overwrite(path, end, encode(new_record(body), **place))
    assert "unsynced-tail" not in [each.what for each in under_test.findings()]
    caplog.clear()
    under_test.open()
    assert under_test.bodies() == [b"ours", body.encode()]
    assert under_test.store.end == LOG_FILE_BYTES - left
    assert [each for each in caplog.messages if "cut off" in each] == []


def test_a_missing_first_file_is_retention_and_a_missing_middle_one_is_damage(
    under_test: StoreUnderTest,
) -> None:
    """RocketMQ deletes from the front; nobody deletes from the middle."""
    under_test.send(*["x" * 900] * 20)
    under_test.close()
    first, _, third, *_ = under_test.log_files()
    first.unlink()
    under_test.open()
    assert under_test.store.min_offset == LOG_FILE_BYTES
    assert under_test.bodies() == [b"x" * 900] * 16
    under_test.crash()
    data = third.read_bytes()
    third.unlink()
    with pytest.raises(StoreDamaged, match="a gap"):
        under_test.open()
    third.write_bytes(data)
    under_test.open()


def test_the_clock_starts_behind_the_newest_record(under_test: StoreUnderTest) -> None:
    """P2: a wall clock set back while the broker was down makes nothing early or out of order."""
    under_test.clock.forward(60_000)
    under_test.send("one")
    newest = under_test.store.newest_timestamp_ms
    under_test.crash()
    under_test.clock = FakeClock(newest - 60_000)
    under_test.open()
    assert under_test.send("two")[0].store_timestamp_ms > newest

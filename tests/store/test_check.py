"""The checker: it finds what is wrong, says where, and touches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.records.record import NewRecord, Written
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.log.checksums import BLOCK_BYTES, MARK_BYTES, mark_position
from rmqlite.kernel.words.errors import ConfigInvalid
from rmqlite.store_tools.check import StoreCheck, check
from rmqlite.store_tools.checking.file_layer import FileLayer
from tests.support.clock import FakeClock, FakeMachine
from tests.support.repairs import overwrite
from tests.support.stores import (
    LOG_FILE_BYTES,
    StoreUnderTest,
    contents,
    findings,
    new_record,
    scheduled,
    tagged,
    timed,
)

QUEUE_FILE = f"{0:020d}"
COMMITTED = 0x8


@pytest.fixture
def closed(tmp_path: Path) -> StoreUnderTest:
    """A sound store of several files, closed."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.close()
    assert each.findings() == []
    return each


def merged(tree: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The tree with what the change names put in place; an empty table clears one."""
    together = dict(tree)
    for key, value in change.items():
        is_table = isinstance(value, dict) and value and isinstance(tree.get(key), dict)
        together[key] = merged(tree[key], value) if is_table else value
    return together


def sentences(root: Path) -> list[str]:
    return [finding.sentence for finding in findings(root)]


def test_looking_changes_nothing(closed: StoreUnderTest) -> None:
    """Not a byte, not a name; also where opening the store would mend something."""
    last = closed.log_files()[-1]
    (last.parent / f"{int(last.name) + LOG_FILE_BYTES:020d}").touch()
    overwrite(last, closed.store.end % LOG_FILE_BYTES, b"torn")
    overwrite(closed.root / "consumequeue" / "orders" / "0" / QUEUE_FILE, 0, b"\1" * 20)
    before = contents(closed.root)
    times = {path: path.stat().st_mtime_ns for path in closed.root.rglob("*")}
    assert closed.findings()
    assert contents(closed.root) == before
    assert {path: path.stat().st_mtime_ns for path in closed.root.rglob("*")} == times


def test_a_missing_store_is_not_made(tmp_path: Path) -> None:
    """Looking at a wrong path leaves no folder behind."""
    assert list(check(tmp_path / "nothing")) == []
    assert list(tmp_path.iterdir()) == []


def test_file_sizes_are_what_the_files_say(closed: StoreUnderTest) -> None:
    """A store is checked without its configuration."""
    assert list(check(closed.root)) == []
    checking = StoreCheck(closed.root, config=BrokerConfig())
    assert list(checking.run()) == []
    checking.close()
    with pytest.raises(ConfigInvalid, match="mappedFileSizeCommitLog"):
        StoreCheck(closed.root, config=BrokerConfig(mapped_file_size_commit_log=1 << 30))


def test_a_flipped_byte_of_a_body_is_found_where_its_record_begins(closed: StoreUnderTest) -> None:
    """And the walk goes on behind it: two damages are two findings."""
    path = closed.log_files()[0]
    second = closed.store.read_message(0).store_size
    records = [0, second + closed.store.read_message(second).store_size]
    for record in records:
        overwrite(path, record + 90, b"~")
    found = [f for f in closed.findings() if f.path.parent.name == "commitlog"]
    said = [(f.path, f.position, "CRC" in f.sentence) for f in found]
    assert said == [(path, record, True) for record in records]


@pytest.mark.parametrize(
    ("position", "said"),
    [(0, "lengths"), (4, "neither"), (35, "says it is at"), (86, "lengths"), (90, "CRC")],
)
def test_what_is_wrong_with_a_record_is_said(
    closed: StoreUnderTest, position: int, said: str
) -> None:
    """Layout, magic, place or body."""
    path = closed.log_files()[0]
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x41]))
    first = closed.findings()[0]
    assert (first.path, first.position) == (path, 0)
    assert said in first.sentence


def test_a_wrong_blank_is_found(closed: StoreUnderTest) -> None:
    """It must reach to the file's end."""
    path = closed.log_files()[0]
    at = path.read_bytes().rindex(bytes.fromhex("cbd43194")) - 4
    overwrite(path, at + 3, b"\1")
    first = closed.findings()[0]
    assert (first.path, first.position) == (path, at)
    assert "a blank of" in first.sentence


def test_a_torn_tail_is_found(closed: StoreUnderTest) -> None:
    """Opening the store would cut it."""
    overwrite(closed.log_files()[-1], closed.store.end % LOG_FILE_BYTES, b"torn")
    assert ["opening the store cuts it" in each for each in sentences(closed.root)] == [True]


ENTRY_FAULTS: dict[str, tuple[Callable[[int, int, int], tuple[int, int, int]], str]] = {
    "missing": (lambda *_: (0, 0, 0), "no entry for the record"),
    "elsewhere": (lambda at, size, code: (at + 1, size, code), "points at"),
    "size": (lambda at, size, code: (at, size + 1, code), "bytes, its record has"),
    "tags": (lambda at, size, code: (at, size, code + 1), "has tags code"),
}


@pytest.mark.parametrize("fault", ENTRY_FAULTS)
def test_a_wrong_queue_entry_is_found(closed: StoreUnderTest, fault: str) -> None:
    """Each entry is compared with what its record promises."""
    change, said = ENTRY_FAULTS[fault]
    path = closed.root / "consumequeue" / "orders" / "1" / QUEUE_FILE
    entry = ENTRY.unpack_from(path.read_bytes(), 2 * ENTRY_BYTES)
    overwrite(path, 2 * ENTRY_BYTES, ENTRY.pack(*change(*entry)))
    (finding,) = closed.findings()
    assert (finding.path, finding.position) == (path, 2 * ENTRY_BYTES)
    assert "orders queue 1, queue offset 2" in finding.sentence
    assert said in finding.sentence


def test_a_wrong_deliver_time_is_found(closed: StoreUnderTest) -> None:
    """P5: store timestamp and the delay that the level had then."""
    path = closed.root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2" / QUEUE_FILE
    entry = ENTRY.unpack_from(path.read_bytes())
    overwrite(path, 0, ENTRY.pack(entry[0], entry[1], 2598919))
    (said,) = sentences(closed.root)
    assert "deliver time 2598919" in said


def test_a_wrong_instant_of_a_timer_is_found(closed: StoreUnderTest) -> None:
    """The record says it; a hash in its place is damage in a queue that is ours."""
    path = closed.root / "consumequeue" / "rmq_sys_wheel_timer" / "0" / QUEUE_FILE
    entry = ENTRY.unpack_from(path.read_bytes())
    for wrong in (entry[2] + 1, 77):
        overwrite(path, 0, ENTRY.pack(entry[0], entry[1], wrong))
        (said,) = sentences(closed.root)
        assert f"deliver time {wrong}, its record {entry[2]}" in said


def test_a_timer_that_was_delivered_early_or_twice_is_found(closed: StoreUnderTest) -> None:
    """P2, P4: by its record; carried or rescheduled it may be before its time."""
    closed.open()
    due_ms = closed.clock.now_ms() + 5_000
    first, second, third = (closed.append(timed("t", due_ms))[0] for _ in range(3))
    closed.append(timed("t", due_ms)._replace(completes=third.physical_offset + third.size))
    closed.complete(TIMERS, third.queue_offset)
    closed.clock.forward(4_999)
    closed.deliver(TIMERS, first)
    closed.clock.forward(1)
    closed.deliver(TIMERS, second)
    closed.deliver(TIMERS, second)
    closed.close()
    early, again = sentences(closed.root)
    assert "delivered 1 ms early" in early
    assert f"completes queue offset {second.queue_offset} of the timers again" in again


def test_an_entry_without_a_record_is_found(closed: StoreUnderTest) -> None:
    """Behind a queue's end there are only zeros."""
    queue = closed.store.queue("orders", 1)
    assert queue is not None
    path, position = queue.place_of(queue.max_offset)
    overwrite(path, position, ENTRY.pack(0, 100, 7))
    (finding,) = closed.findings()
    assert (finding.path, finding.position) == (path, position)
    assert "no such record" in finding.sentence


def test_missing_queues_are_told_once_each(closed: StoreUnderTest) -> None:
    """Not once per entry: a queue may have had a hundred million."""
    shutil.rmtree(closed.root / "consumequeue")
    said = [each for each in sentences(closed.root) if "no files for" in each]
    assert len(said) == 7


def test_a_gap_between_queue_files_is_found(closed: StoreUnderTest) -> None:
    """As opening would refuse it."""
    closed.open()
    closed.send(*["x"] * 40)
    closed.close()
    (closed.root / "consumequeue" / "orders" / "0" / f"{400:020d}").unlink()
    assert any("a gap" in each for each in sentences(closed.root))


def schedule_one(closed: StoreUnderTest, after_ms: int) -> Written:
    closed.open()
    (waiting,) = closed.append(scheduled("soon", 1))
    closed.clock.forward(after_ms)
    return waiting


def test_a_record_delivered_twice_is_found(closed: StoreUnderTest) -> None:
    """P4."""
    waiting = schedule_one(closed, 1_000)
    closed.deliver(1, waiting)
    closed.deliver(1, waiting)
    closed.close()
    assert sentences(closed.root) == [
        f"completes queue offset {waiting.queue_offset} of level 1 again"
    ]


def test_a_record_delivered_early_is_found(closed: StoreUnderTest) -> None:
    """P2: one millisecond is too early."""
    waiting = schedule_one(closed, 999)
    closed.deliver(1, waiting)
    closed.close()
    assert sentences(closed.root) == ["delivered 1 ms early"]


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_delivery_of_nothing_is_found(closed: StoreUnderTest, shift: int) -> None:
    """A pointer back must point at the end of a scheduled record."""
    waiting = schedule_one(closed, 1_000)
    end = waiting.physical_offset + waiting.size
    closed.append(new_record("x", properties={"DELAY": "1"}, completes=end + shift))
    closed.close()
    assert sentences(closed.root) == [f"completes {end + shift}, where no record of level 1 ends"]


def test_a_retry_of_a_committed_message_is_checked_like_any_delivery(
    closed: StoreUnderTest,
) -> None:
    """It keeps the transaction's type, and its pointer back is ours."""
    waiting = schedule_one(closed, 999)
    retry = new_record(
        "soon",
        sys_flag=COMMITTED,
        properties={"DELAY": "1"},
        completes=waiting.physical_offset + waiting.size,
    )
    closed.append(retry, retry)
    closed.complete(1, waiting.queue_offset)
    closed.close()
    again = f"completes queue offset {waiting.queue_offset} of level 1 again"
    assert sentences(closed.root) == ["delivered 1 ms early", "delivered 1 ms early", again]


@pytest.mark.parametrize(
    "committed",
    [
        new_record("at once", sys_flag=COMMITTED),
        new_record("at once", sys_flag=COMMITTED, properties={"DELAY": "0"}),
        scheduled("later", 1)._replace(sys_flag=COMMITTED),
    ],
)
def test_what_points_to_a_half_message_is_no_delivery(
    closed: StoreUnderTest, committed: NewRecord
) -> None:
    """RocketMQ's own use of the field, here with a half message right behind what waits."""
    waiting = schedule_one(closed, 1)
    half = waiting.physical_offset + waiting.size
    closed.append(committed._replace(completes=half))
    closed.persist()
    before = closed.store.progress.delay_offsets()
    closed.crash()
    (closed.root / "config" / "storeProgress.json").unlink()
    assert sentences(closed.root) == []
    closed.open()
    assert closed.store.progress.delay_offsets() == before
    closed.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"physicalOffset": 1 << 40}, "says the log reaches"),
        ({"queues": {"orders": {"0": [0, 99]}}}, "orders queue 0 reaches 99"),
        ({"queues": {"unknown": {"0": [0, 1]}}}, "unknown queue 0 reaches 1"),
        ({"completed": {"1": [[0, 99]]}}, "is completed up to 99"),
        ({"queues": {"orders": {"0": [1, 8]}}}, "has 7 entries from 1 on, the log has 13 from 0"),
        ({"queues": {"orders": {"0": [0, 7]}}}, "has 7 entries from 0 on, the log has 13 from 0"),
        ({"queues": {"orders": {}}}, "orders queue 1 has 0 entries from 0 on, the log has 6"),
        ({"completed": {"2": [[0, 1]]}}, "does not say that 2 to 2 of level 2 are delivered"),
        ({"queues": 7}, "not a table of progress"),
    ],
)
def test_a_progress_that_says_something_else_than_the_log_is_found(
    closed: StoreUnderTest, change: dict[str, object], said: str
) -> None:
    """It is a place to begin: ahead of the log it hides what comes, behind it what is there."""
    closed.write_table("storeProgress.json", merged(closed.table("storeProgress.json"), change))
    finding = closed.findings()[-1]
    assert finding.path == closed.root / "config" / "storeProgress.json"
    assert said in finding.sentence


def test_a_delay_offset_beyond_its_queue_is_found(closed: StoreUnderTest) -> None:
    """RocketMQ and we would clamp it."""
    closed.write_table("delayOffset.json", {"offsetTable": {"2": 99}})
    (said,) = sentences(closed.root)
    assert "is delivered up to 99" in said


def test_expired_records_are_no_finding(closed: StoreUnderTest) -> None:
    """Queues still point to what retention took."""
    closed.open()
    closed.send(*["x" * 900] * 20)
    closed.store.drop_before(3 * LOG_FILE_BYTES)
    closed.close()
    assert closed.findings() == []
    closed.log_files()[0].unlink()
    assert closed.findings() == []


@pytest.fixture
def blocks(tmp_path: Path) -> StoreUnderTest:
    """A sound store of several blocks of 64 KiB, in two files."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=4 * BLOCK_BYTES)
    for number in range(220):
        store.append(tagged(f"{number}" * 600, "tag", queue_id=number % 3))
    store.close()
    assert store.findings() == []
    return store


def test_a_change_that_only_the_checksum_tells_is_found(blocks: StoreUnderTest) -> None:
    """Born host of a record in the second block: file, range, both checksums."""
    path = blocks.log_files()[0]
    at = path.read_bytes().index(b"orders", BLOCK_BYTES + 5_000) + 200
    begin = path.read_bytes().rindex(bytes.fromhex("daa320a7"), 0, at) - 4
    overwrite(path, begin + 49, b"\x7f")
    (finding,) = blocks.findings()
    assert (finding.path, finding.position, finding.size) == (path, BLOCK_BYTES, BLOCK_BYTES)
    assert finding.what == "checksum"
    assert finding.expected != finding.found
    assert "65536 bytes, up to byte 131072, have changed since they were written" in str(finding)


def test_a_damaged_record_is_told_and_not_its_block(blocks: StoreUnderTest) -> None:
    """The nearest that can be said, once; other blocks of the file are told on their own."""
    path = blocks.log_files()[0]
    data = path.read_bytes()
    begin = data.index(bytes.fromhex("daa320a7"), BLOCK_BYTES) - 4
    overwrite(path, begin + 100, b"!!")
    other = data.index(bytes.fromhex("daa320a7"), 3 * BLOCK_BYTES) - 4
    overwrite(path, other + 49, b"\x7f")
    whats = [(each.what, each.position) for each in blocks.findings()]
    assert whats[0] == ("damaged-record", begin)
    assert ("checksum", 3 * BLOCK_BYTES) in whats
    assert [what for what, _ in whats].count("checksum") == 1


def test_what_has_no_checksum_is_counted(blocks: StoreUnderTest) -> None:
    """Bodies are compared with their own CRC all the same."""
    shutil.rmtree(blocks.root / "checksums")
    for path in blocks.log_files():
        overwrite(path, mark_position(4 * BLOCK_BYTES), bytes(MARK_BYTES))
    for path in (blocks.root / "config").glob("storeProgress.json*"):
        path.unlink()
    checking = StoreCheck(blocks.root)
    assert list(checking.run()) == []
    checking.close()
    assert checking.messages == 220
    first = blocks.log_files()[0].read_bytes()
    blank = first.rindex(bytes.fromhex("cbd43194")) - 4
    unused = 4 * BLOCK_BYTES - blank - 8
    assert checking.bytes_without_checksum == checking.log_bytes - unused
    overwrite(blocks.log_files()[0], 100, b"!!")
    assert blocks.findings()[0].what == "damaged-record"


def test_everything_has_a_checksum_here(blocks: StoreUnderTest) -> None:
    """Nothing is left out in a store that only rmqlite wrote."""
    checking = StoreCheck(blocks.root)
    assert list(checking.run()) == []
    checking.close()
    assert checking.bytes_without_checksum == 0


def test_the_check_goes_on_past_a_foreign_and_a_missing_file(blocks: StoreUnderTest) -> None:
    """All that is wrong, not only what an opening would stop at."""
    blocks.open()
    blocks.append(*[tagged("x" * 900, "tag")] * 600)
    blocks.close()
    first, second, *_ = blocks.log_files()
    (first.parent / "NOTES").touch()
    second.unlink()
    overwrite(first, 100, b"!!")
    overwrite(blocks.log_files()[2], 100, b"!!")
    found = [(each.what, each.path.name) for each in blocks.findings() if each.path != second]
    assert ("foreign-file", "NOTES") in found
    assert ("missing-file", second.name) in [(e.what, e.path.name) for e in blocks.findings()]
    damaged = [name for what, name in found if what == "damaged-record"]
    assert damaged == [first.name, blocks.log_files()[2].name]


def test_a_lost_tail_is_no_torn_one(closed: StoreUnderTest) -> None:
    """Below the synced mark nothing may be missing."""
    last = closed.log_files()[-1]
    end = closed.store.end % LOG_FILE_BYTES
    overwrite(last, end - 40, bytes(40))
    found = closed.findings()[0]
    assert (found.what, found.opening_mends) == ("lost-tail", False)
    assert "nothing sound follows, though" in found.sentence


TABLE_FAULTS = {
    "topics.json": '{"topicConfigTable":{"a":{"topicName":7}}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{"g":{}}}',
    "consumerOffset.json": '{"offsetTable":{"a@g":{"0":"x"}}}',
    "delayOffset.json": '{"offsetTable":[]}',
    "delayLevels.json": '{"tables":[]}',
    "storeProgress.json": '{"physicalOffset":1}',
    "consumerFilter.json": "{",
}


@pytest.mark.parametrize("name", TABLE_FAULTS)
def test_a_table_that_a_broker_would_stumble_over_is_found(
    closed: StoreUnderTest, name: str
) -> None:
    """Both generations: a shape that its reader does not expect."""
    for generation in (name, name + ".bak"):
        (closed.root / "config" / generation).write_text(TABLE_FAULTS[name])
    found = [each.path.name for each in closed.findings() if each.what == "unreadable-table"]
    assert found == [name, name + ".bak"]


def test_a_retry_policy_that_no_broker_can_read_is_found(closed: StoreUnderTest) -> None:
    """It would not open the store; the finding names the group."""
    row = {"groupName": "shop", "rmqliteRetryPolicy": "jitter(5s)"}
    closed.write_table("subscriptionGroup.json", {"subscriptionGroupTable": {"shop": row}})
    (found,) = [each for each in closed.findings() if each.what == "unreadable-table"]
    assert "subscriptionGroupTable.shop.rmqliteRetryPolicy: retry_policy must be" in found.sentence
    assert "not 'jitter(5s)'" in found.sentence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"uptimeMillis": 7}, "numbers that fit each other"),
        ({"origin": "sundial"}, "sundial"),
        ({"bootId": None, "offsetNanos": "soon"}, "bootId: text, found None"),
        (None, "not a table of the clock"),
    ],
)
def test_a_damaged_clock_is_found_and_opening_mends_it(
    tmp_path: Path, change: dict[str, object] | None, said: str
) -> None:
    """It goes on with the wall clock, and writes that down."""
    each = StoreUnderTest(tmp_path / "store", clock=FakeClock(machine=FakeMachine()))
    each.fill()
    each.close()
    tree = each.table("clock.json")
    each.write_table("clock.json", {} if change is None else {**tree, **change})
    (found,) = each.findings()
    assert (found.path.name, found.what) == ("clock.json", "unreadable-table")
    assert found.opening_mends
    assert said in found.sentence
    each.open()
    each.crash()
    assert each.findings() == []


def test_a_previous_generation_may_be_anything_while_there_is_a_current_one(
    closed: StoreUnderTest,
) -> None:
    """Nobody reads it."""
    (closed.root / "config" / "storeProgress.json.bak").write_text("{")
    assert closed.findings() == []


def test_progress_is_told_in_bytes(blocks: StoreUnderTest) -> None:
    """For a bar: never more than all, and all at the end."""
    told: list[tuple[int, int]] = []
    assert list(check(blocks.root, progress=lambda done, total: told.append((done, total)))) == []
    assert told == sorted(told)
    assert all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1] > 3 * BLOCK_BYTES


class CountedFiles(FileLayer):
    """Counts what is read of a store's files."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def read(self, path: Path, position: int, size: int) -> bytes:
        data = super().read(path, position, size)
        self.bytes_read += len(data)
        return data


def test_a_check_costs_what_the_data_is_not_what_the_files_could_hold(tmp_path: Path) -> None:
    """A queue's file has its full length from the first entry on: 6 MB for each topic."""
    costs = []
    for queue_file_bytes in (2_000_000, 20_000_000):
        store = StoreUnderTest(tmp_path / str(queue_file_bytes), queue_file_bytes=queue_file_bytes)
        for number in range(20):
            store.send("one", topic=f"topic-{number}")
        store.close()
        files = CountedFiles()
        checking = StoreCheck(store.root, files=files)
        assert list(checking.run()) == []
        checking.close()
        costs.append(files.bytes_read)
    assert costs[0] == costs[1]


def test_a_stray_entry_is_found_behind_any_hole(tmp_path: Path) -> None:
    """Holes are passed over, and what lies between them is not; a hole ends within an entry."""
    queue_file_bytes = 2_000_000
    store = StoreUnderTest(tmp_path / "store", queue_file_bytes=queue_file_bytes)
    store.send("one")
    store.close()
    for queue_offset in (1, 30_001, queue_file_bytes // ENTRY_BYTES - 1):
        path = store.root / "consumequeue" / "orders" / "0" / QUEUE_FILE
        overwrite(path, queue_offset * ENTRY_BYTES, ENTRY.pack(1 << 40, 100, 7))
        (found,) = check(store.root)
        assert (found.position, found.what) == (queue_offset * ENTRY_BYTES, "entry-without-record")
        overwrite(path, queue_offset * ENTRY_BYTES, bytes(ENTRY_BYTES))

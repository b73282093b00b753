"""Delayed messages across the end of a process: each is delivered exactly once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, retry_topic
from rmqlite.store_tools.check import check
from rmqlite.store_tools.repair import plan_repair, repair
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles, ForgetfulFiles, QuickFiles
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    delayed,
    level_status,
    plain,
    scheduled_entry,
    send_back,
)
from tests.support.restarts import (
    WAYS,
    Restart,
    clean,
    crash,
    crash_after_persist,
    scheduled,
)
from tests.support.sends import sending
from tests.support.steps import done
from tests.support.stores import new_record

COMMITTED = 0x8
"""A sys flag: of RocketMQ's transactions."""


@pytest.mark.parametrize("restart", WAYS)
def test_what_waits_keeps_its_time(under_test: BrokerUnderTest, restart: Restart) -> None:
    """A restart is no reason to be early, nor late."""
    results = under_test.send(delayed("a", 1), delayed("b", 2), delayed("c", 18))
    restart(under_test)
    for result, seen in zip(results, (["a"], ["a", "b"], ["a", "b", "c"]), strict=True):
        under_test.clock.forward(result.deliver_at_ms - 1 - under_test.clock.now_ms())
        assert under_test.deliver() == 0
        under_test.clock.forward(1)
        assert under_test.deliver() == 1
        assert bodies(under_test) == seen


@pytest.mark.parametrize("restart", WAYS)
def test_what_was_delivered_stays_delivered(under_test: BrokerUnderTest, restart: Restart) -> None:
    """RocketMQ delivers again whatever its last persist did not know."""
    under_test.send(*[delayed(str(number), 1) for number in range(4)], delayed("later", 2))
    under_test.clock.forward(1_000)
    under_test.deliver()
    for _ in range(2):
        restart(under_test)
        assert under_test.deliver() == 0
        assert level_status(under_test, 1).pending == 0
        assert level_status(under_test, 2).pending == 1
    under_test.clock.forward(4_000)
    under_test.deliver()
    assert bodies(under_test) == ["0", "1", "2", "3", "later"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_retry_of_a_committed_message_is_delivered_once(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """It keeps the type of RocketMQ's transaction, whose own pointers back are no deliveries."""
    under_test.send(plain("before"))
    committed = new_record("order", TOPIC, sys_flag=COMMITTED, completes=under_test.store.end)
    under_test.store.append([committed])
    under_test.sync()
    send_back(under_test, under_test.messages(TOPIC)[1])
    under_test.clock.forward(10_000)
    assert under_test.deliver() == 1
    for _ in range(2):
        restart(under_test)
        assert under_test.deliver() == 0
    (retry,) = under_test.messages(retry_topic(GROUP))
    assert (retry.sys_flag, retry.reconsume_times) == (COMMITTED, 1)


@pytest.mark.parametrize("code", [tags_hash("paid"), 0])
def test_a_tags_hash_for_a_deliver_time_delivers_nothing_early(
    under_test: BrokerUnderTest, code: int
) -> None:
    """RocketMQ's abnormal recovery leaves it below what our progress table calls known."""
    under_test.send(delayed("a", 1), delayed("b", 3), delayed("c", 3), plain("d"))
    promised = scheduled_entry(under_test, 3, 1)
    under_test.close()
    path = under_test.config.store_path / "consumequeue" / SCHEDULE_TOPIC / "2" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    ENTRY.pack_into(data, ENTRY_BYTES, promised.physical_offset, promised.size, code)
    path.write_bytes(data)
    # As RocketMQ does when it starts.
    (under_test.config.store_path / "lock").write_bytes(b"lock")
    under_test.open()
    assert scheduled_entry(under_test, 3, 1) == promised
    assert under_test.deliver() == 0
    under_test.clock.forward(promised.tags_code - 1 - under_test.clock.now_ms())
    assert under_test.deliver() == 1
    under_test.clock.forward(1)
    assert under_test.deliver() == 2
    assert bodies(under_test) == ["d", "a", "b", "c"]


class CountingFiles(QuickFiles):
    """Counts the bytes that are read of the levels' queues."""

    count = 0

    def read(self, path: Path, position: int, size: int) -> bytes:
        self.count += size * (SCHEDULE_TOPIC in path.parts)
        return super().read(path, position, size)


@pytest.mark.parametrize("restart", [clean, crash_after_persist])
def test_a_start_does_not_read_what_waits(make: Make, restart: Restart) -> None:
    """Else it would take longer the more waits; a changed table leaves two parts in due order."""
    files = CountingFiles()
    broker = make(files=files)
    for levels in ("2s", "1s"):
        broker.store.change_levels(parse_levels(levels))
        broker.send(*[delayed(f"{levels} {number}", 1) for number in range(500)])
    restart(broker)
    files.count = 0
    restart(broker)
    assert files.count < 100 * ENTRY_BYTES
    broker.send(delayed("last", 1))
    broker.clock.forward(1_000)
    assert broker.deliver() == 501
    assert bodies(broker) == [*[f"1s {number}" for number in range(500)], "last"]
    restart(broker)
    broker.clock.forward(1_000)
    assert broker.deliver() == 500


def test_a_table_that_calls_what_waits_sorted_is_checked_and_mended(make: Make) -> None:
    """Else a message would be late by as much as one before it waits."""
    broker = make()
    for levels in ("2s", "1s"):
        broker.store.change_levels(parse_levels(levels))
        broker.send(delayed(levels, 1))
    broker.close()
    root = broker.config.store_path
    table = root / "config" / "storeProgress.json"
    assert [*check(root)] == []
    tree = tables.decode(table.read_bytes())
    assert tree["runEnds"] == {"1": [1, 2]}
    table.write_text(json.dumps(tree | {"runEnds": {"1": [2]}}))
    (found,) = check(root)
    assert "says that 0 to 1 of level 1 are in the order of their times" in found.sentence
    repair(plan_repair(root), clock=broker.clock)
    assert [*check(root)] == []
    broker.open()
    broker.clock.forward(1_000)
    assert broker.deliver() == 1
    assert bodies(broker) == ["1s"]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("restart", WAYS)
@pytest.mark.parametrize("slices", [0, 1, 2, 3])
def test_a_delivery_goes_on_where_it_was_cut_off(make: Make, restart: Restart, slices: int) -> None:
    """Between any two slices: nothing twice, nothing lost, the order kept."""
    broker = make(deliver_batch_max=3)
    broker.send(*[delayed(str(number), 1) for number in range(8)])
    broker.persist()
    broker.clock.forward(1_000)
    for _ in range(slices):
        broker.deliver_slice()
    broker.sync()
    restart(broker)
    assert level_status(broker, 1).pending == max(0, 8 - 3 * slices)
    broker.deliver()
    assert bodies(broker) == [str(number) for number in range(8)]


@pytest.mark.parametrize("restart", WAYS)
def test_a_restart_may_come_between_any_two_deliveries(make: Make, restart: Restart) -> None:
    """One message per slice, a restart after each."""
    broker = make(deliver_batch_max=1)
    broker.send(*[delayed(str(number), 1 + number % 2) for number in range(6)])
    broker.clock.forward(5_000)
    for _ in range(3):
        broker.deliver_slice()
        restart(broker)
        broker.deliver_slice()
        restart(broker)
    assert broker.deliver() == 0
    assert sorted(bodies(broker)) == [str(number) for number in range(6)]


@pytest.mark.parametrize("restart", WAYS)
def test_a_restart_changes_nothing_in_the_log(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """Opening is looking."""
    under_test.send(delayed("a", 1), plain("b"))
    end = under_test.store.end
    restart(under_test)
    assert under_test.store.end == end
    (later,) = under_test.send(delayed("c", 1))
    assert later.queue_offset == 1


def test_what_was_late_while_the_broker_was_down_comes_at_once(
    under_test: BrokerUnderTest,
) -> None:
    """A day off is no reason to lose anything."""
    under_test.send(delayed("a", 1), delayed("b", 18))
    under_test.close()
    under_test.clock.forward(86_400_000)
    under_test.open()
    assert under_test.deliver() == 2
    assert level_status(under_test, 18).lateness_max_ms == 86_400_000 - 7_200_000


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "1", "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": TOPIC},
        {"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "zero"},
        {"DELAY": "1", "REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
        {"no": "routing"},
    ],
)
@pytest.mark.parametrize("restart", [clean, crash])
def test_a_record_without_a_destination_blocks_nobody(
    under_test: BrokerUnderTest, properties: dict[str, str], restart: Restart
) -> None:
    """RocketMQ tries such a record for ever, and its level stands still."""
    under_test.send(delayed("before", 1))
    scheduled(under_test, b"astray", properties)
    under_test.send(delayed("behind", 1))
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 2
    assert under_test.broker.schedule.undeliverable == 1
    assert bodies(under_test) == ["before", "behind"]
    restart(under_test)
    assert under_test.deliver() == 0
    assert bodies(under_test) == ["before", "behind"]


def test_an_undeliverable_record_alone_does_not_come_back_at_once(
    under_test: BrokerUnderTest,
) -> None:
    """Else delivery would turn in circles."""
    scheduled(under_test, b"astray", {"DELAY": "1"})
    under_test.clock.forward(1_000)
    assert under_test.deliver_slice() is None
    assert level_status(under_test, 1).pending == 0


@pytest.mark.parametrize("is_running", [True, False])
def test_a_vanished_record_does_not_block_its_level(make: Make, is_running: bool) -> None:
    """Its log file is gone, and its queue file with it: what is left is delivered."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 10)
    for number in range(600):
        broker.send(delayed(f"{number:03d}" + "x" * 1_000, 1))
    second = broker.store.queue(SCHEDULE_TOPIC, 0)
    assert second is not None
    gone = broker.store.drop_before(scheduled_entry(broker, 1, 500).physical_offset)
    assert any("consumequeue" in str(path) for path in gone)
    kept = 600 - second.min_offset
    assert 100 <= kept < 400
    if not is_running:
        broker.restart()
    broker.clock.forward(1_000)
    assert broker.deliver() == kept
    assert level_status(broker, 1).pending == 0
    assert bodies(broker)[-1][:3] == "599"


@pytest.mark.parametrize("writes", range(4))
def test_a_failing_append_is_tried_again(make: Make, writes: int) -> None:
    """A full disk delays a delivery; it neither loses, repeats nor reorders anything."""
    disk = FaultyFiles()
    broker = make(files=disk, deliver_batch_max=10)
    for number in range(8):
        broker.send(delayed(str(number), 1), queue_id=number % 2)
    # The first pull makes the group.
    assert bodies(broker) == []
    broker.clock.forward(1_000)
    end = broker.store.end
    disk.take_writes(writes)
    if writes < 3:
        with pytest.raises(StoreUnavailable):
            broker.deliver_slice()
        assert (broker.store.end, broker.broker.schedule.delivered) == (end, 0)
        assert (bodies(broker), bodies(broker, queue_id=1)) == ([], [])
        assert broker.broker.wait_queues.next_due_ms(1) == scheduled_entry(broker, 1).tags_code
    disk.heal()
    broker.deliver()
    crash(broker)
    assert broker.deliver() == 0
    assert bodies(broker) == ["0", "2", "4", "6"]
    assert bodies(broker, queue_id=1) == ["1", "3", "5", "7"]


def test_a_crash_after_a_failed_append_delivers_once(make: Make) -> None:
    """What a failed write left behind in the files is not taken for a delivery."""
    disk = FaultyFiles()
    broker = make(files=disk)
    broker.send(delayed("a", 1), delayed("b", 1))
    broker.clock.forward(1_000)
    disk.take_writes(1)
    with pytest.raises(StoreUnavailable):
        broker.deliver_slice()
    disk.heal()
    crash(broker)
    assert level_status(broker, 1).pending == 2
    assert broker.deliver() == 2
    assert bodies(broker) == ["a", "b"]


@pytest.mark.parametrize("level", [0, 1])
def test_a_large_message_survives_a_crash(make: Make, level: int) -> None:
    """Larger than what a walk reads at a time, and the first that it meets."""
    settings = {"mapped_file_size_commit_log": 8 << 20, "max_message_bytes": 3 << 20}
    broker = make(**settings)
    for n in (1, 2):
        broker.send(Message(TOPIC, bytes([n]) * (3 << 20), delay_level=level))
    crash(broker)
    broker.clock.forward(1_000)
    broker.deliver()
    assert [message.body[0] for message in broker.messages(TOPIC)] == [1, 2]


def test_what_a_recovery_found_survives_a_power_cut(make: Make) -> None:
    """It was written but not synced when the process died; since then it may be read."""
    disk = ForgetfulFiles()
    broker = make(files=disk)
    messages = (delayed("a", 1), delayed("b", 1), plain("c"))
    done(sending(broker.broker, messages, queue_id=0))
    crash(broker)
    assert bodies(broker) == ["c"]
    broker.crash()
    disk.power_cut()
    broker.open()
    assert bodies(broker) == ["c"]
    broker.clock.forward(2_000)
    assert broker.deliver() == 2
    assert bodies(broker) == ["c", "a", "b"]


def test_what_a_recovery_found_in_older_files_survives_a_power_cut(make: Make) -> None:
    """The unsynced bytes may lie in another file than the log's last."""
    disk = ForgetfulFiles()
    settings = {"mapped_file_size_commit_log": 1 << 17, "max_message_bytes": 40_000}
    broker = make(files=disk, **settings)
    messages = tuple(plain(f"{number}" + "x" * 30_000) for number in range(9))
    done(sending(broker.broker, messages, queue_id=0))
    crash(broker)
    broker.crash()
    disk.power_cut()
    broker.open()
    assert [body[0] for body in bodies(broker)] == [str(number) for number in range(9)]


def test_queue_entries_that_a_recovery_found_survive_a_power_cut(make: Make) -> None:
    """The progress table counts on all of them, however few files the disk kept."""
    disk = ForgetfulFiles()
    broker = make(files=disk)
    broker.send(*[delayed(str(number), 1) for number in range(450)])
    crash(broker)
    broker.crash()
    disk.power_cut(surviving=lambda path: path.name == f"{8_000:020d}")
    broker.open()
    broker.clock.forward(2_000)
    assert broker.deliver() == 450

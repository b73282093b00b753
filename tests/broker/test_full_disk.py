"""A disk that fills up: sends are refused in time, what was accepted stays (reference §11)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.retention import MEASURE_BYTES, Pin
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import DiskFull, InvalidValue, MessageTooLarge, StoreUnavailable
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FOR_GOOD, FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    delayed,
    level_status,
    plain,
    send_back,
)
from tests.support.sends import sending
from tests.support.steps import done

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
SEGMENT = 1 << 17
SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "max_message_bytes": 40_000,
    "disk_warning_ratio": 90,
}


class SizedDisk(SystemFiles):
    """As full as it is told to be, or as the log's files make it."""

    def __init__(self) -> None:
        super().__init__()
        self.percent: float = 50
        self.percent_a_log_file: float = 0

    def used_ratio(self, folder: Path) -> float:
        files = len(self.names(folder / "commitlog"))
        return (self.percent + files * self.percent_a_log_file) / 100


@pytest.fixture
def disk() -> SizedDisk:
    return SizedDisk()


@pytest.fixture
def broker(make: Make, disk: SizedDisk) -> BrokerUnderTest:
    """Files of 128 KiB on a disk half full, at RocketMQ's thresholds; no hour is deleteWhen."""
    return make(files=disk, **SETTINGS)


def fill(broker: BrokerUnderTest, files: int) -> None:
    """Plain messages, until so many files more are behind the newest one."""
    until = (broker.store.end // SEGMENT + files) * SEGMENT
    while broker.store.end <= until:
        broker.send(plain("x" * 30_000))
    # So that retention need not wait for the next round.
    broker.store.carry_tables(broker.store.end)
    broker.persist()


def set_age(broker: BrokerUnderTest, hours: float) -> None:
    for path in (broker.config.store_path / "commitlog").iterdir():
        then_ns = int((NOW_MS - hours * HOUR_MS) * 1_000_000)
        os.utime(path, ns=(then_ns, then_ns))


def first_file(broker: BrokerUnderTest) -> int:
    return broker.store.min_offset // SEGMENT


def measure(broker: BrokerUnderTest, disk: SizedDisk, percent: float) -> bool:
    disk.percent = percent
    broker.broker.retention.measure()
    return broker.broker.retention.is_disk_full


# ---- refusing


def test_sends_are_refused_from_one_threshold_until_below_the_other(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """RocketMQ's 90 and 85 %: at one threshold alone every deleted file let a few sends in."""
    course = [(89.9, False), (90, True), (87, True), (85, True), (84.9, False), (89.9, False)]
    assert [(percent, measure(broker, disk, percent)) for percent, _ in course] == course


def test_the_refusal_names_how_full_it_is_and_the_keys(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """And nothing is stored, not even the topic."""
    measure(broker, disk, 91.25)
    with pytest.raises(DiskFull) as raised:
        broker.send(plain("x"))
    assert str(raised.value) == "the disk is 91.2% full: sends are refused"
    assert (raised.value.field, raised.value.value) == ("diskSpaceWarningLevelRatio", "90")
    assert broker.store.end == 0
    assert broker.broker.topics.get(TOPIC) is None
    assert broker.broker.status(0).is_disk_full
    assert broker.broker.status(0).disk_used_ratio == pytest.approx(0.9125)
    measure(broker, disk, 50)
    broker.send(plain("x"))
    assert not broker.broker.status(0).is_disk_full


def test_a_small_disk_is_measured_as_it_fills(broker: BrokerUnderTest, disk: SizedDisk) -> None:
    """A second is enough to fill it, and nothing would be left for what was accepted."""
    disk.percent, disk.percent_a_log_file = 80, 1
    with pytest.raises(DiskFull):
        fill(broker, 30)
    assert first_file(broker) == 0
    assert broker.store.end <= 10 * SEGMENT + MEASURE_BYTES


def test_what_can_never_work_is_said_first(broker: BrokerUnderTest, disk: SizedDisk) -> None:
    """Or a producer would try again, all the time that the disk is full."""
    broker.send(plain("a"))
    measure(broker, disk, 99)
    with pytest.raises(MessageTooLarge):
        broker.send(plain("x" * 40_001))
    (error,) = done(broker.broker.drafts.send([DraftCall(())]))
    assert isinstance(error, InvalidValue)


def test_what_was_accepted_goes_on_while_sends_are_refused(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """The last tenth of the disk is kept for promises: deliveries, retries, offsets, new groups."""
    broker.send(plain("failed"), delayed("promised", 1))
    (failed,) = broker.messages(TOPIC)
    measure(broker, disk, 95)
    broker.clock.forward(1_000)
    assert broker.deliver() == 1
    assert bodies(broker) == ["failed", "promised"]
    assert send_back(broker, failed).delay_level == 3
    assert level_status(broker, 3).pending == 1
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 2}))
    broker.persist()
    query = OffsetsQuery(GROUP, (Queue(TOPIC, 0),))
    assert broker.broker.query_offsets(query) == {Queue(TOPIC, 0): 2}
    dead = send_back(broker, failed, delay_level=-1)
    assert dead.is_dead


def test_a_store_opens_on_a_full_disk(make: Make) -> None:
    """Only an open one is consumed, and cleaned, so that there is room again."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(plain("kept"), delayed("promised", 1))
    assert bodies(broker) == ["kept"]
    broker.persist()
    persisted_end = broker.store.persisted_end
    broker.send(plain("newer"))
    files.fail("replace", where=lambda path: path.suffix == ".json", times=FOR_GOOD, is_full=True)
    broker.crash()
    broker.open()
    assert broker.store.persisted_end == persisted_end
    broker.clock.forward(1_000)
    assert broker.deliver() == 1
    assert bodies(broker) == ["kept", "newer", "promised"]
    with pytest.raises(StoreUnavailable, match="told to fail"):
        broker.persist()
    broker.crash()
    files.heal()
    broker.open()
    assert broker.deliver() == 0
    assert bodies(broker) == ["kept", "newer", "promised"]
    assert broker.store.persisted_end == broker.store.end


def test_a_store_that_cannot_be_written_for_another_reason_does_not_open(make: Make) -> None:
    """A disk that fails gets no better by waiting."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(plain("kept"))
    broker.crash()
    files.fail("replace", where=lambda path: path.suffix == ".json")
    with pytest.raises(StoreUnavailable, match="told to fail"):
        broker.open()


# ---- cleaning


def test_under_pressure_old_files_go_at_any_hour(broker: BrokerUnderTest, disk: SizedDisk) -> None:
    """Above diskMaxUsedSpaceRatio, and not at it."""
    fill(broker, 3)
    set_age(broker, 73)
    disk.percent = 75
    assert broker.broker.retention.clean(NOW_MS) == 0
    disk.percent = 75.1
    assert broker.broker.retention.clean(NOW_MS) == 3
    assert first_file(broker) == 3


def test_young_files_stay_until_the_disk_is_fuller_still(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """fileReservedTime is kept as long as that is possible."""
    fill(broker, 3)
    set_age(broker, 1)
    disk.percent = 85
    assert broker.broker.retention.clean(NOW_MS) == 0
    disk.percent = 85.1
    assert broker.broker.retention.clean(NOW_MS) == 3


def test_forced_cleaning_takes_no_file_more_than_it_needs(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """Oldest first, and it measures after each; RocketMQ takes ten at once."""
    fill(broker, 6)
    set_age(broker, 1)
    disk.percent, disk.percent_a_log_file = 80, 1
    assert broker.broker.retention.clean(NOW_MS) == 2
    assert first_file(broker) == 2
    assert broker.broker.status(0).disk_used_ratio == pytest.approx(0.85)


def test_old_files_go_before_young_ones_are_looked_at(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """When the old ones are enough, no young one goes."""
    fill(broker, 6)
    set_age(broker, 1)
    old_ns = int((NOW_MS - 73 * HOUR_MS) * 1_000_000)
    for path in sorted((broker.config.store_path / "commitlog").iterdir())[:2]:
        os.utime(path, ns=(old_ns, old_ns))
    disk.percent, disk.percent_a_log_file = 80, 1
    assert broker.broker.retention.clean(NOW_MS) == 2
    assert broker.broker.retention.clean(NOW_MS) == 0


def test_forced_cleaning_can_be_switched_off(make: Make, disk: SizedDisk) -> None:
    """Then nothing goes before its time, and sends are refused instead."""
    broker = make(files=disk, **SETTINGS, clean_forcibly=False)
    fill(broker, 3)
    set_age(broker, 1)
    disk.percent = 99
    assert broker.broker.retention.clean(NOW_MS) == 0
    assert broker.broker.retention.is_disk_full


def test_ten_files_go_in_a_round_at_most(broker: BrokerUnderTest, disk: SizedDisk) -> None:
    """As in RocketMQ: a round holds up the loop."""
    fill(broker, 14)
    set_age(broker, 73)
    disk.percent = 99
    assert broker.broker.retention.clean(NOW_MS) == 10
    assert broker.broker.retention.clean(NOW_MS) == 4
    assert broker.broker.retention.clean(NOW_MS) == 0


def test_no_pressure_takes_what_is_still_to_be_delivered(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """P9 holds on the fullest disk: then the broker refuses sends, and waits."""
    fill(broker, 1)
    broker.send(delayed("promised", 18))
    fill(broker, 3)
    set_age(broker, 73)
    disk.percent = 99
    assert broker.broker.retention.clean(NOW_MS) == 1
    assert broker.broker.retention.clean(NOW_MS) == 0
    assert first_file(broker) == 1
    broker.clock.forward(2 * HOUR_MS)
    assert broker.deliver() == 1
    broker.persist()
    assert broker.broker.retention.clean(NOW_MS) == 3
    assert bodies(broker)[-1] == "promised"


def test_room_made_by_cleaning_lets_sends_in_again(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """Nobody has to restart anything: the broker's own log was what filled the disk."""
    fill(broker, 6)
    set_age(broker, 1)
    disk.percent, disk.percent_a_log_file = 83.5, 1
    assert measure(broker, disk, 83.5)
    with pytest.raises(DiskFull):
        broker.send(plain("x"))
    assert broker.broker.retention.clean(NOW_MS) == 6
    assert not broker.broker.retention.is_disk_full
    broker.send(plain("x"))


def test_a_file_that_a_running_sync_may_open_stays(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """The sync would find it missing, and take that for a failed disk."""
    fill(broker, 3)
    set_age(broker, 1)
    job = broker.store.begin_sync()
    while broker.store.end < 4 * SEGMENT:
        done(sending(broker.broker, (plain("x" * 30_000),), queue_id=0))
    broker.store.carry_tables(4 * SEGMENT)
    job.run()
    broker.store.synced(job)
    job = broker.store.begin_sync()
    broker.persist()
    assert broker.store.persisted_end == broker.store.end
    disk.percent = 99
    assert broker.broker.retention.clean(NOW_MS) == 3
    job.run()
    broker.store.synced(job)
    assert broker.broker.retention.clean(NOW_MS) == 1


def test_a_delivery_that_a_power_cut_can_undo_still_keeps_its_file(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """Written is not on disk: if the file went now and the power too, nobody would deliver it."""
    broker.send(delayed("promised", 1))
    fill(broker, 3)
    set_age(broker, 73)
    disk.percent = 80
    broker.clock.forward(1_000)
    broker.deliver_slice()
    assert broker.store.end > broker.store.durable_end
    assert broker.broker.retention.clean(NOW_MS) == 0
    broker.sync()
    assert broker.broker.retention.clean(NOW_MS) == 3


def test_sends_that_never_pause_do_not_keep_old_files(
    broker: BrokerUnderTest, disk: SizedDisk
) -> None:
    """What was delivered and synced counts, although there is always something newer."""
    broker.send(delayed("promised", 1))
    fill(broker, 3)
    set_age(broker, 73)
    disk.percent = 80
    broker.clock.forward(1_000)
    broker.deliver()
    gone = []
    for _ in range(2):
        broker.sync()
        done(sending(broker.broker, (plain("newer"),), queue_id=0))
        assert broker.store.end > broker.store.durable_end
        gone.append(broker.broker.retention.clean(NOW_MS))
    assert gone == [0, 3]


# ---- what keeps old files


def test_what_keeps_old_files_is_told_with_how_much(broker: BrokerUnderTest) -> None:
    """Level, due time, place and bytes; nothing as long as no file stays beyond its time."""
    fill(broker, 1)
    (sent,) = broker.send(delayed("promised", 18))
    fill(broker, 3)
    set_age(broker, 71)
    broker.broker.retention.clean(NOW_MS)
    assert broker.broker.status(0).pinned_bytes == 0
    set_age(broker, 73)
    broker.broker.retention.clean(NOW_MS)
    status = broker.broker.status(0)
    assert (status.pinned_by_level, status.pinned_bytes) == (18, 3 * SEGMENT)
    assert status.pinned_deliver_at_ms == sent.deliver_at_ms
    assert status.pinned_physical_offset == sent.physical_offset
    broker.clock.forward(2 * HOUR_MS)
    broker.deliver()
    broker.persist()
    set_age(broker, 73)
    broker.broker.retention.clean(NOW_MS)
    assert broker.broker.status(0).pinned_bytes == 0
    assert broker.broker.retention.pin == Pin()

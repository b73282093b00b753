"""The broker's rounds: a refused write is tried again, a failed sync ends the broker."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.process.upkeep import LOOK_S, PIN_WARNING_S, Upkeep
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import DiskFull, FlushFailed, StoreUnavailable
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.files import ForgetfulFiles
from tests.support.loops import AtOnce, run_with
from tests.support.scrape import watch_of
from tests.support.sends import sending
from tests.support.steps import done
from tests.support.timers import send_timer

SEGMENT = 1 << 17
HOUR_MS = 3_600_000
INTERVAL_S = 5
"""flushConsumerOffsetInterval, in seconds."""


class Disk(ForgetfulFiles):
    """A disk with a given use; measuring and cleaning it can also fail."""

    def __init__(self) -> None:
        super().__init__()
        self.ratio = 0.5
        self.refuses: set[str] = set()

    def used_ratio(self, folder: Path) -> float:
        if "measure" in self.refuses:
            raise StoreUnavailable("measure", str(folder), "told to fail")
        return self.ratio

    def remove(self, path: Path) -> None:
        if "remove" in self.refuses:
            raise StoreUnavailable("remove", str(path), "told to fail")
        super().remove(path)


class Held(ThreadPoolExecutor):
    """A persister whose job takes for ever."""

    def submit(self, *_args: Any, **_keywords: Any) -> Future[Any]:
        return Future()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def broker(tmp_path: Path, disk: Disk) -> Iterator[BrokerUnderTest]:
    under_test = BrokerUnderTest(
        tmp_path,
        files=disk,
        mapped_file_size_commit_log=SEGMENT,
        max_message_bytes=40_000,
        disk_warning_ratio=90,
    )
    yield under_test
    under_test.store.release()


def run(
    broker: BrokerUnderTest,
    scenario: Callable[[Upkeep], Awaitable[None]],
    persister: type[ThreadPoolExecutor] = AtOnce,
) -> None:
    """Run a scenario beside both loops, on a loop whose time is the fake clock."""

    async def main() -> None:
        upkeep = Upkeep(broker.config, broker.broker, persister(1), watch_of(broker), lambda: None)
        tasks = [asyncio.create_task(upkeep.persist()), asyncio.create_task(upkeep.look())]
        work = asyncio.ensure_future(scenario(upkeep))
        try:
            await asyncio.wait([*tasks, work], return_when=asyncio.FIRST_COMPLETED)
            for each in (*tasks, work):
                if each.done():
                    each.result()
        finally:
            for each in (*tasks, work):
                each.cancel()
                with suppress(asyncio.CancelledError, FlushFailed):
                    await each

    run_with(broker.clock, main())


async def until(is_so: Callable[[], bool]) -> None:
    """Let time pass, at most a minute."""
    for _ in range(120):
        if is_so():
            return
        await asyncio.sleep(0.5)
    raise AssertionError("not within a minute")


def send(broker: BrokerUnderTest, body: bytes = b"x", level: int = 0) -> None:
    message = Message("orders", body, delay_level=level)
    done(sending(broker.broker, (message,), queue_id=0))


def fill(broker: BrokerUnderTest, files: int, age_hours: float) -> None:
    """Send until so many more log files lie before the newest one; give all files this age."""
    end = (broker.store.end // SEGMENT + files) * SEGMENT
    while broker.store.end <= end:
        send(broker, b"x" * 30_000)
    broker.sync()
    broker.persist()
    then_ns = int((wall_ms() - age_hours * HOUR_MS) * 1_000_000)
    for path in (broker.config.store_path / "commitlog").iterdir():
        os.utime(path, ns=(then_ns, then_ns))


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


def test_what_a_persist_could_not_write_is_written_by_a_later_one(
    broker: BrokerUnderTest,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk must not kill the broker, nor make it forget what it had to sync."""
    caplog.set_level(logging.INFO)
    send(broker, level=1)
    send(broker)
    broker.sync()
    broker.pull("orders", group="shop")
    broker.broker.commit_offsets(OffsetsCommit("shop", {Queue("orders", 0): 1}))
    disk.fail("replace", times=3)

    async def scenario(_: Upkeep) -> None:
        await until(lambda: broker.store.persisted_end == broker.store.end)

    run(broker, scenario)
    assert len(lines(caplog, "cannot be written")) == 1
    assert lines(caplog, "written again") == [
        "offsets and progress are written again failed_attempts=3"
    ]
    before = done(broker.broker.queue_ranges("orders"))
    broker.crash()
    disk.power_cut()
    broker.open()
    assert broker.store.recovered == 0
    assert done(broker.broker.queue_ranges("orders")) == before
    assert broker.broker.offsets.of("shop") == {Queue("orders", 0): 1}


def test_a_persist_that_fails_waits_for_the_next_interval(
    broker: BrokerUnderTest, disk: Disk
) -> None:
    """Even if much is unpersisted: a disk that refuses is not tried all the time."""
    disk.fail("replace", times=1_000_000)
    calls = disk.calls["replace"]

    async def scenario(_: Upkeep) -> None:
        broker.store.persisted_end = -(1 << 40)
        await asyncio.sleep(0.6 + 4 * INTERVAL_S)

    run(broker, scenario)
    assert 4 <= disk.calls["replace"] - calls <= 6


def test_a_persist_whose_sync_fails_ends_the_broker(broker: BrokerUnderTest, disk: Disk) -> None:
    """The pages may be gone: a second sync that succeeds proves nothing."""
    send(broker)
    disk.fail("sync")

    async def scenario(_: Upkeep) -> None:
        await asyncio.sleep(60)

    with pytest.raises(FlushFailed, match="told to fail"):
        run(broker, scenario)


def test_a_full_disk_is_noticed_within_a_second_and_so_is_room(
    broker: BrokerUnderTest,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is logged once: an operator reads it; there is no line for every refused send."""
    caplog.set_level(logging.INFO)

    async def scenario(_: Upkeep) -> None:
        disk.ratio = 0.93
        await asyncio.sleep(LOOK_S + 0.1)
        with pytest.raises(DiskFull):
            send(broker)
        await asyncio.sleep(30)
        disk.ratio = 0.5
        await asyncio.sleep(LOOK_S + 0.1)
        send(broker)

    run(broker, scenario)
    (line,) = lines(caplog, "disk full")
    assert line.startswith(
        "disk full, sends are refused used_ratio=0.930 diskSpaceWarningLevelRatio=90 disk_bytes="
    )
    # What holds the space: the log, or something else.
    assert line.endswith(" log_bytes=0")
    assert lines(caplog, "accepted again") == ["sends are accepted again used_ratio=0.500"]


def test_old_files_go_at_the_cleaning_interval(
    broker: BrokerUnderTest,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """cleanResourceInterval, 10 s."""
    caplog.set_level(logging.INFO)
    fill(broker, 2, age_hours=73)

    async def scenario(_: Upkeep) -> None:
        disk.ratio = 0.8
        await asyncio.sleep(9)
        assert broker.store.min_offset == 0
        await until(lambda: broker.store.min_offset == 2 * SEGMENT)

    run(broker, scenario)
    assert lines(caplog, "removed") == ["log files removed count=2"]


def test_timers_are_carried_before_their_files_go(
    broker: BrokerUnderTest,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody is told that they keep old files: they do not for long."""
    caplog.set_level(logging.INFO)
    send_timer(broker, "a", TIMER_DELAY_MS=365 * 24 * HOUR_MS)
    fill(broker, 2, age_hours=73)

    async def scenario(_: Upkeep) -> None:
        disk.ratio = 0.8
        await until(lambda: broker.store.min_offset == 2 * SEGMENT)

    run(broker, scenario)
    assert lines(caplog, "carried") == ["pending timers carried to the log's end count=1"]
    assert not lines(caplog, "keeps expired")
    assert broker.broker.wait_queues[TIMERS].pending == 1


@pytest.mark.parametrize(
    ("refused", "begin", "end"),
    [
        ("measure", "use cannot be measured", "use is measured again"),
        ("remove", "files cannot be removed", "files are removed again"),
    ],
)
def test_a_disk_that_cannot_be_measured_or_cleaned_ends_nothing(
    refused: str,
    begin: str,
    end: str,
    broker: BrokerUnderTest,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Members still expire; the files go when it works again."""
    caplog.set_level(logging.INFO)
    fill(broker, 2, age_hours=73)

    async def scenario(_: Upkeep) -> None:
        broker.broker.heartbeat(HeartbeatRequest("shop", "silent", ()))
        disk.ratio = 0.8
        disk.refuses.add(refused)
        await asyncio.sleep(125)
        assert broker.broker.membership.members("shop") == ()
        assert broker.store.min_offset == 0
        disk.refuses.clear()
        await until(lambda: broker.store.min_offset == 2 * SEGMENT)

    run(broker, scenario)
    assert len(lines(caplog, begin)) == len(lines(caplog, end)) == 1


def test_nothing_is_removed_while_a_persist_runs(broker: BrokerUnderTest, disk: Disk) -> None:
    """The persist job may be about to sync the file, and would report a failed disk."""
    fill(broker, 2, age_hours=73)
    disk.ratio = 0.8

    async def scenario(_: Upkeep) -> None:
        await asyncio.sleep(60)

    run(broker, scenario, Held)
    assert broker.store.min_offset == 0


def test_what_keeps_old_files_is_said_once_an_hour(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who wonders why the disk fills up finds level, time and bytes in the log."""
    send(broker, level=18)
    fill(broker, 2, age_hours=73)

    async def scenario(_: Upkeep) -> None:
        await asyncio.sleep(1.5 * PIN_WARNING_S)

    run(broker, scenario)
    said = lines(caplog, "keeps expired log files")
    assert len(said) == 2
    assert f"bytes={2 * SEGMENT} level=18 due=20" in said[0]
    queue = broker.store.queue("SCHEDULE_TOPIC_XXXX", 17)
    entry = queue.entry(0) if queue else None
    assert entry is not None
    assert said[0].endswith(f"physical_offset={entry.physical_offset}")


def test_the_clocks_are_looked_at_every_second(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """The log reports a step soon, while its author is still at the keyboard."""

    async def scenario(_: Upkeep) -> None:
        broker.clock.machine.step_wall(-HOUR_MS)
        await asyncio.sleep(LOOK_S + 0.1)
        assert len(lines(caplog, "the wall clock stepped")) == 1
        broker.clock.machine.suspend(HOUR_MS)
        await asyncio.sleep(LOOK_S + 0.1)
        assert len(lines(caplog, "the machine was suspended")) == 1
        await asyncio.sleep(60)

    run(broker, scenario)
    assert len(lines(caplog, "the ")) == 2

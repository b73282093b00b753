"""A real broker on a disk that is too full, or truly full: nothing accepted is lost or doubled."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.kernel.words.errors import DiskFull, StoreUnavailable, Unavailable
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker, free_port
from tests.support.eventually import eventually

TOPIC = "orders"
DISK_BYTES = 16 << 20
PERCENT_MIN = 10
"""The lowest that diskMaxUsedSpaceRatio can be."""


def used_percent(folder: Path) -> float:
    disk = os.statvfs(folder)
    used = disk.f_blocks - disk.f_bfree
    return 100 * used / max(1, used + disk.f_bavail)


def consumed(endpoint: str) -> Counter[str]:
    """All that the topic holds, however often."""
    found: Counter[str] = Counter()
    with PullConsumer(endpoint, "counters") as consumer, AdminClient(endpoint) as admin:
        for each in admin.ranges(TOPIC):
            offset = each.min_offset
            while offset < each.max_offset:
                result = consumer.pull(TOPIC, each.queue.queue_id, offset)
                found.update(message.keys[0] for message in result.messages)
                offset = result.next_offset
    return found


def order(number: int, *, delay_level: int = 0, size: int = 100) -> Message:
    return Message(TOPIC, b"x" * size, keys=(f"order-{number}",), delay_level=delay_level)


def test_a_disk_above_the_threshold_refuses_sends_and_keeps_promises(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The thresholds are below what this machine's disk uses anyway."""
    if used_percent(tmp_path) < PERCENT_MIN:
        pytest.skip("the disk is nearly empty")
    broker = start_broker(messageDelayLevel="3s")
    with Producer(broker.endpoint, "senders") as producer:
        producer.send_batch([order(number, delay_level=1) for number in range(10)])
    broker.stop()
    thresholds = (
        *("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio"),
        "diskSpaceWarningLevelRatio",
    )
    broker = start_broker(messageDelayLevel="3s", **dict.fromkeys(thresholds, PERCENT_MIN))
    with (
        Producer(broker.endpoint, "senders", retries=0) as producer,
        AdminClient(broker.endpoint) as admin,
    ):
        with pytest.raises(DiskFull) as refused:
            producer.send(order(10))
        assert refused.value.field == "diskSpaceWarningLevelRatio"
        assert f"diskSpaceWarningLevelRatio={PERCENT_MIN}" in refused.value.rule
        status = admin.broker_status()
        assert status.is_disk_full
        assert status.disk_used_ratio * 100 >= PERCENT_MIN
        # Some may have come before the first broker had stopped.
        eventually(lambda: not admin.schedule.count_pending(), "all are delivered")
    assert consumed(broker.endpoint) == Counter([f"order-{number}" for number in range(10)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Until not one byte more has room."""
    for size in (1 << 16, 1):
        with suppress(OSError), (disk / "ballast").open("ab", buffering=0) as ballast:
            while True:
                ballast.write(b"b" * size)


def test_a_truly_full_disk_loses_and_doubles_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Due while it is full, killed while it is full, started while it is full, then room."""
    keys = {
        "grpcPort": str(free_port()),
        "storePathRootDir": str(small_disk / "store"),
        "messageDelayLevel": "8s",
        "mappedFileSizeCommitLog": str(1 << 20),
        "maxMessageSize": str(1 << 18),
        # Below it the disk itself refuses.
        "diskSpaceWarningLevelRatio": "100",
    }
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "broker", keys))
        producer = stack.enter_context(Producer(broker.endpoint, "senders", retries=0))
        admin = stack.enter_context(AdminClient(broker.endpoint))
        accepted = [f"order-{number}" for number in range(100)]
        for number in range(50):
            producer.send(order(number, size=4_000))
        # Together, so that the disk is full before the first one is due.
        producer.send_batch([order(n, delay_level=1, size=4_000) for n in range(50, 100)])
        fill(small_disk)
        refused: list[Unavailable] = []
        for number in range(100, 120):
            try:
                producer.send(order(number, size=100_000))
            except (StoreUnavailable, DiskFull) as error:
                refused.append(error)
        assert len(refused) == 20
        eventually(lambda: admin.broker_status().now_ms >= due_ms(admin), "all are due")
        assert sum(level.pending for level in admin.broker_status().levels) == 50
        broker.kill()
        broker.start()
        assert sum(level.pending for level in admin.broker_status().levels) == 50
        with pytest.raises(DiskFull):
            producer.send(order(120))
        (small_disk / "ballast").unlink()
        eventually(lambda: admin.broker_status().delivered == 50, "all are delivered")
        assert admin.ranges(SCHEDULE_TOPIC)[0].max_offset == 50
        assert consumed(broker.endpoint) == Counter(accepted)


def due_ms(admin: AdminClient) -> int:
    """When the last of the delayed messages is due, give or take."""
    return max(level.next_due_ms for level in admin.broker_status().levels) + 1_000

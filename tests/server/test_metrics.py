"""What Prometheus reads: right numbers, under names that follow its conventions."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric

from rmqlite import __version__
from rmqlite.kernel.requests.groups import GroupInfo, HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.waits.wait_queue import BOUNDS_MS
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import DiskFull, StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.metrics.timers import TOPICS_MAX, TimerFigures
from tests.support.brokers import BrokerUnderTest
from tests.support.redrives import redrive
from tests.support.scrape import Scrape, scrape, watch_of

HOUR_MS = 3_600_000
SEGMENT = 1 << 17
LEVELS = "1s 5s 10s 2h"
SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "max_message_bytes": 40_000,
    "message_delay_level": LEVELS,
}
UNITS = ("seconds", "bytes", "ratio", "info", "total")
NOT_MEASURED = {
    "rmqlite_scheduled_messages_pending",
    "rmqlite_parked_polls",
    "rmqlite_messages_in_flight",
    "rmqlite_dead_letters_open",
    "rmqlite_messages_not_consumed",
    "rmqlite_members",
    "rmqlite_rate_limit_per_second",
    "rmqlite_disk_full",
    "rmqlite_broken_files",
    "rmqlite_name_servers_away",
    "rmqlite_registered_brokers",
}
"""Gauges without a unit: they count something, or are 0 or 1."""


class Disk(SystemFiles):
    """A disk with a given use; it may also refuse to be read."""

    ratio = 0.25
    refuses = False

    def used_ratio(self, folder: Path) -> float:
        assert folder
        return self.ratio

    def read(self, path: Path, position: int, size: int) -> bytes:
        if self.refuses:
            raise StoreUnavailable("read", str(path), "told to fail")
        return super().read(path, position, size)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def broker(tmp_path: Path, disk: Disk) -> Iterator[BrokerUnderTest]:
    under_test = BrokerUnderTest(
        tmp_path,
        files=disk,
        **SETTINGS,
    )
    yield under_test
    under_test.store.release()


def ours(found: Scrape) -> dict[str, Metric]:
    return {name: each for name, each in found.families.items() if name.startswith("rmqlite_")}


def level(number: int) -> dict[str, str]:
    return {"level": str(number), "delay": LEVELS.split()[number - 1]}


def test_messages_are_counted_on_their_way(broker: BrokerUnderTest) -> None:
    """Sent, pending at a level, delivered with a lateness, pulled, failed, dead."""
    broker.send(Message("orders", b"now"), *[Message("orders", b"x", delay_level=2)] * 3)
    broker.send(Message("orders", b"y", delay_level=4))
    found = scrape(broker)
    assert found.value("rmqlite_messages_sent_total") == 5
    assert found.value("rmqlite_scheduled_messages_pending", **level(2)) == 3
    assert found.value("rmqlite_scheduled_messages_pending", **level(4)) == 1
    assert found.value("rmqlite_scheduled_messages_pending", **level(1)) == 0

    broker.clock.forward(5_007)
    assert broker.deliver() == 3
    first, second, *_ = broker.messages("orders")
    broker.broker.send_back(SendBackRequest("shop", first.physical_offset))
    for message in (first, second):
        broker.broker.send_back(SendBackRequest("shop", message.physical_offset, delay_level=-1))
    found = scrape(broker)
    assert found.value("rmqlite_messages_delivered_total") == 3
    assert found.value("rmqlite_messages_undeliverable_total") == 0
    assert found.value("rmqlite_messages_pulled_total", group="readers") == 4
    assert found.value("rmqlite_messages_retried_total", group="shop") == 1
    assert found.value("rmqlite_messages_dead_total", group="shop") == 2
    assert found.value("rmqlite_dead_letters_open", group="shop") == 2
    assert found.value("rmqlite_log_bytes") == broker.store.end
    redrive(broker)
    assert scrape(broker).value("rmqlite_redriven_total") == 2
    assert scrape(broker).value("rmqlite_dead_letters_open", group="shop") == 0


def test_a_group_that_nobody_reads_for_shows(broker: BrokerUnderTest) -> None:
    """What it could get and has not got, and its members: an alert needs both."""
    broker.send(*[Message("orders", b"x")] * 5)
    joins = HeartbeatRequest("shop", "member-1", (Subscription("orders"),))
    broker.broker.heartbeat(joins)
    first = broker.messages("orders")[0]
    broker.broker.commit_offsets(OffsetsCommit("shop", {Queue("orders", 0): 2}))
    broker.broker.send_back(SendBackRequest("shop", first.physical_offset, delay_level=1))
    broker.clock.forward(10_000)
    broker.deliver()
    found = scrape(broker)
    assert found.value("rmqlite_messages_not_consumed", group="shop") == 3 + 1
    assert found.value("rmqlite_members", group="shop") == 1
    broker.broker.membership.leave("shop", "member-1")
    assert scrape(broker).value("rmqlite_members", group="shop") == 0


def test_a_group_that_hangs_shows(broker: BrokerUnderTest) -> None:
    """It has a member, and its LAG is small: only these two tell."""
    broker.broker.heartbeat(HeartbeatRequest("shop", "a", (Subscription("orders"),)))
    broker.send(Message("orders", b"x"))
    broker.clock.forward(400_000)
    found = scrape(broker)
    assert found.value("rmqlite_members", group="shop") == 1
    assert found.value("rmqlite_oldest_not_consumed_seconds", group="shop") == 400
    assert found.value("rmqlite_group_silent_seconds", group="shop") == 400
    broker.broker.commit_offsets(OffsetsCommit("shop", {Queue("orders", 0): 1}))
    assert scrape(broker).value("rmqlite_group_silent_seconds", group="shop") == 0


def test_every_level_and_group_is_there_from_the_start(broker: BrokerUnderTest) -> None:
    """Prometheus takes a series that appears with 1 for no increase at all."""
    broker.broker.groups.make([GroupInfo("shop")])
    found = scrape(broker)
    for name in ("pulled", "retried", "dead"):
        assert found.value(f"rmqlite_messages_{name}_total", group="shop") == 0
    assert found.value("rmqlite_dead_letters_open", group="shop") == 0
    for number in range(1, 5):
        assert found.value("rmqlite_delivery_lateness_seconds_count", **level(number)) == 0
    for by in ("call", "delivery"):
        assert found.value("rmqlite_append_seconds_count", by=by) == 0
    assert found.value("rmqlite_fsync_seconds_count") == 0


def test_lateness_is_a_histogram_per_level(broker: BrokerUnderTest) -> None:
    """From the tally that the broker keeps anyway."""
    for late_ms in (0, 7, 40_000):
        broker.send(Message("orders", b"x", delay_level=1))
        broker.clock.forward(1_000 + late_ms)
        assert broker.deliver() == 1
    found = scrape(broker)
    name = "rmqlite_delivery_lateness_seconds"
    buckets = {
        float(dict(labels)["le"]): found.value(f"{name}_bucket", **dict(labels))
        for labels in found.labels(f"{name}_bucket")
        if dict(labels)["level"] == "1"
    }
    assert set(buckets) == {*[bound_ms / 1000 for bound_ms in BOUNDS_MS], math.inf}
    assert (buckets[0.001], buckets[0.005], buckets[0.01]) == (1, 1, 2)
    assert (buckets[30], buckets[math.inf]) == (2, 3)
    assert found.value(f"{name}_sum", **level(1)) == pytest.approx(40.007)
    assert found.value(f"{name}_count", **level(1)) == 3
    assert found.value(f"{name}_count", **level(2)) == 0


def test_what_is_overdue_shows(broker: BrokerUnderTest) -> None:
    """How late each level is, and how old the oldest pending message is."""
    found = scrape(broker)
    assert found.value("rmqlite_oldest_pending_age_seconds") == 0
    broker.send(Message("orders", b"x", delay_level=4), Message("orders", b"x", delay_level=2))
    broker.clock.forward(7_500)
    found = scrape(broker)
    assert found.value("rmqlite_oldest_overdue_seconds", **level(1)) == 0
    assert found.value("rmqlite_oldest_overdue_seconds", **level(2)) == 2.5
    assert found.value("rmqlite_oldest_overdue_seconds", **level(4)) == 0
    assert found.value("rmqlite_oldest_pending_age_seconds") == 7.5


def test_a_full_disk_and_what_it_refuses_show(broker: BrokerUnderTest, disk: Disk) -> None:
    """The use as last measured; each call that was refused."""
    broker.broker.retention.measure()
    found = scrape(broker)
    assert found.value("rmqlite_disk_used_ratio") == 0.25
    assert found.value("rmqlite_disk_full") == 0
    disk.ratio = 1.0
    broker.broker.retention.measure()
    with pytest.raises(DiskFull):
        broker.send(Message("orders", b"x"))
    found = scrape(broker)
    assert found.value("rmqlite_disk_used_ratio") == 1
    assert found.value("rmqlite_disk_full") == 1
    assert found.value("rmqlite_disk_full_sends_refused_total") == 1


def test_a_message_that_pins_old_files_shows_with_its_level(broker: BrokerUnderTest) -> None:
    """It explains why the disk does not become empty."""
    broker.send(Message("orders", b"x", delay_level=4))
    while broker.store.end < 3 * SEGMENT:
        broker.send(Message("orders", b"x" * 30_000))
    broker.persist()
    then_ns = (wall_ms() - 100 * HOUR_MS) * 1_000_000
    for path in (broker.config.store_path / "commitlog").iterdir():
        os.utime(path, ns=(then_ns, then_ns))
    broker.broker.retention.clean(wall_ms())
    found = scrape(broker)
    assert found.value("rmqlite_pinned_log_bytes", **level(4)) == 3 * SEGMENT
    assert found.value("rmqlite_pinned_log_bytes", **level(1)) == 0


def test_what_the_clocks_have_done_shows(broker: BrokerUnderTest) -> None:
    """Steps by direction, from 0 on; how far off the wall clock is; how long nobody was awake."""
    watch = watch_of(broker)
    found = scrape(broker, watch)
    for direction in ("forward", "back"):
        assert found.value("rmqlite_clock_steps_total", direction=direction) == 0
    assert found.value("rmqlite_clock_ahead_of_wall_seconds") == 0
    assert found.value("rmqlite_suspends_total") == 0
    assert found.value("rmqlite_suspended_seconds_total") == 0

    for step_ms in (HOUR_MS, -HOUR_MS, 2_500):
        broker.clock.machine.step_wall(step_ms)
        watch.look()
    broker.clock.machine.suspend(90_500)
    watch.look()
    found = scrape(broker, watch)
    assert found.value("rmqlite_clock_steps_total", direction="forward") == 2
    assert found.value("rmqlite_clock_steps_total", direction="back") == 1
    assert found.value("rmqlite_clock_ahead_of_wall_seconds") == -2.5
    assert found.value("rmqlite_suspends_total") == 1
    assert found.value("rmqlite_suspended_seconds_total") == 90.5


def test_a_disk_that_cannot_be_read_hides_no_other_figure(
    broker: BrokerUnderTest, disk: Disk
) -> None:
    """Operators need the metrics most of all then."""
    broker.send(Message("orders", b"x", delay_level=4), Message("orders", b"y"))
    broker.broker.commit_offsets(OffsetsCommit("shop", {Queue("orders", 0): 0}))
    disk.refuses = True
    found = scrape(broker)
    assert found.value("rmqlite_messages_not_consumed", group="shop") == 1
    assert math.isnan(found.value("rmqlite_oldest_pending_age_seconds"))
    assert found.value("rmqlite_messages_sent_total") == 2


def test_the_broker_and_its_process_introduce_themselves(broker: BrokerUnderTest) -> None:
    """The version, and the memory and CPU of the process."""
    found = scrape(broker)
    assert found.value("rmqlite_build_info", version=__version__) == 1
    assert found.value("process_resident_memory_bytes") > 1 << 20
    assert found.value("rmqlite_parked_polls") == 0


def test_a_level_that_only_older_tables_had_shows_without_a_delay(broker: BrokerUnderTest) -> None:
    """It still holds messages, and they are delivered."""
    broker.send(Message("orders", b"x", delay_level=4))
    broker.restart(**SETTINGS | {"message_delay_level": "1s 5s"})
    assert scrape(broker).value("rmqlite_scheduled_messages_pending", level="4", delay="") == 1


def test_timers_have_a_row_beside_the_levels(broker: BrokerUnderTest) -> None:
    """From the start, as a level has; a person reads a word for their number."""
    timer = {"level": "timer", "delay": "any"}
    assert scrape(broker).value("rmqlite_scheduled_messages_pending", **timer) == 0
    broker.send(*[Message("orders", b"x", deliver_after="1s")] * 3)
    broker.clock.forward(1_500)
    found = scrape(broker)
    assert found.value("rmqlite_scheduled_messages_pending", **timer) == 3
    assert found.value("rmqlite_oldest_overdue_seconds", **timer) == 0.5
    assert broker.deliver() == 3
    found = scrape(broker)
    assert found.value("rmqlite_delivery_lateness_seconds_count", **timer) == 3
    assert found.value("rmqlite_scheduled_messages_pending", **timer) == 0


def test_timers_have_the_metrics_of_rocketmq_5(broker: BrokerUnderTest) -> None:
    """Those that mean the same, so that its dashboards show this broker, too."""
    assert scrape(broker).value("rocketmq_timer_dequeue_lag") == 0
    broker.send(Message("orders", b"x", deliver_after="1h"))
    metrics = TimerFigures(broker.broker)
    for after, count in {"4s": 2, "61s": 3, "24h": 1, "500d": 6}.items():
        broker.send(*[Message("orders", b"x", deliver_after=after)] * count)
    broker.send(Message("invoices", b"x", deliver_after="1s"))
    broker.clock.forward(1_750)
    found = scrape(broker)
    waiting = {"orders": 13, "invoices": 1}
    for topic, count in waiting.items():
        assert found.value("rocketmq_timing_messages", topic=topic) == count
    bounds = {5: 2, 60: 3, 300: 0, 3_600: 1, 86_400: 1}
    for bound_s, count in bounds.items():
        name = "rocketmq_timer_message_snapshot"
        assert found.value(name, timer_bound_s=str(bound_s)) == count, bound_s
    assert found.value("rocketmq_timer_dequeue_total", topic="invoices") == 0
    assert found.value("rocketmq_timer_dequeue_lag") == 1
    assert found.value("rocketmq_timer_dequeue_latency") == 750
    assert found.value("rocketmq_timer_enqueue_lag") == 0
    assert found.value("rocketmq_timer_enqueue_latency") == 0

    assert broker.deliver() == 1
    found = scrape(broker)
    assert found.value("rocketmq_timer_dequeue_total", topic="invoices") == 1
    # Since the start, whether they still wait or not.
    (enqueued,) = [
        each
        for each in metrics.collected(broker.clock.now_ms())
        if each and each.name == "rocketmq_timer_enqueue"
    ]
    assert {each.labels["topic"]: each.value for each in enqueued.samples} == {
        "orders": 12,
        "invoices": 1,
    }
    assert found.value("rocketmq_timer_dequeue_latency") == 0


def test_many_topics_of_timers_are_few_series(broker: BrokerUnderTest) -> None:
    """A series for each of a million topics would be the end of a Prometheus."""
    for number in range(TOPICS_MAX + 2):
        topic = f"t-{number:04}"
        broker.send(*[Message(topic, b"x", deliver_after="1h")] * (1 + (number == 101)))
    found = scrape(broker)
    assert len(found.labels("rocketmq_timing_messages")) == TOPICS_MAX + 1
    assert found.value("rocketmq_timing_messages", topic="t-0101") == 2
    assert found.value("rocketmq_timing_messages", topic="(other topics)") == 2


def test_what_takes_long_to_count_is_counted_seldom(broker: BrokerUnderTest) -> None:
    """Ten million timers take the loop half a second: not at each scrape of each monitor."""
    broker.send(Message("orders", b"x", deliver_after="1s"))
    elapsed_s = [100.0]
    timers = TimerFigures(broker.broker, lambda: elapsed_s[0])

    def lag(took_s: float = 0.0) -> float:
        for metric in timers.collected(broker.clock.now_ms()):
            if metric is None:
                elapsed_s[0] += took_s
                took_s = 0.0
            elif metric.name == "rocketmq_timer_dequeue_lag":
                found = metric.samples[0].value
        return found

    assert lag(took_s=0.5) == 0
    broker.clock.forward(2_000)
    elapsed_s[0] += 9.9
    assert lag() == 0
    elapsed_s[0] += 0.2
    assert lag() == 1


def test_names_follow_prometheus_conventions(broker: BrokerUnderTest) -> None:
    """The rules of promtool check metrics: base units last, _total for counters and only there."""
    found = scrape(broker)
    assert len(ours(found)) > 10
    for name, family in ours(found).items():
        assert re.fullmatch(r"rmqlite(_[a-z]+)+", name), name
        assert family.documentation.endswith("."), name
        assert family.type in {"counter", "gauge", "histogram"}, name
        assert ("# TYPE " + name + "_total counter" in found.text) == (family.type == "counter")
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_created")), name
        if family.type == "histogram":
            assert name.endswith("_seconds"), name
        if family.type == "gauge" and name not in NOT_MEASURED:
            assert name.endswith(UNITS), name
        for word in ("milliseconds", "ms", "percent", "kilobytes", "minutes", "hours"):
            assert word not in name.split("_"), name
        for sample in family.samples:
            assert not {"quantile", "instance", "job", "type"} & set(sample.labels), name
            assert not any(label in name.split("_") for label in sample.labels), name


def test_every_histogram_is_complete(broker: BrokerUnderTest) -> None:
    """Each has +Inf, its counts grow with its bounds, and +Inf is the count."""
    broker.send(Message("orders", b"x", delay_level=1))
    found = scrape(broker)
    histograms = [name for name, each in ours(found).items() if each.type == "histogram"]
    assert len(histograms) >= 3
    for name in histograms:
        for labels in found.labels(f"{name}_count"):
            mine = [
                (float(dict(each)["le"]), found.value(f"{name}_bucket", **dict(each)))
                for each in found.labels(f"{name}_bucket")
                if set(labels) <= set(each)
            ]
            counts = [count for _, count in sorted(mine)]
            assert counts == sorted(counts)
            assert max(mine)[0] == math.inf
            assert counts[-1] == found.value(f"{name}_count", **dict(labels))

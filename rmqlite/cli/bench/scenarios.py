"""What is measured, and between which two moments.

Every scenario starts its own broker on an empty store, and gives figures.  Sizes are for
scale 1; a smaller scale makes a quick look, not a figure to publish.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import Progress

from rmqlite.cli.bench.figures import Figure, spread
from rmqlite.cli.bench.load import Load, LoadResult, lateness, parked_polls, run
from rmqlite.cli.bench.process import BrokerProcess
from rmqlite.clock import elapsed_s, pause_s, wall_ms
from rmqlite.errors import BrokerUnreachable
from rmqlite.requests import PullStatus
from rmqlite.store.check import check

SEND_SECONDS: Final = 5.0
BATCH_MESSAGES: Final = 32
PARKED_POLLS: Final = 5_000
DRAIN_MESSAGES: Final = 200_000
DRAIN_SENT_PER_S_MIN: Final = 10_000
"""The drain's level is long enough to send everything at this rate before the first is due."""
PENDING_MESSAGES: Final = 1_000_000
STORED_MESSAGES: Final = 4_300_000
"""Of 1 KiB each: a commit log of 5 GB."""
FILL_BATCH_MESSAGES: Final = 200
FILL_THREADS: Final = 4
LATENESS_SECONDS: Final = 20.0
LATENESS_PER_S: Final = 50
_ENDLESS: Final = 10**9
_FILL_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how to measure."""

    folder: Path
    flush: str
    scale: float
    progress: Progress

    def size(self, full: int) -> int:
        """A number of messages at this scale."""
        return max(1, round(full * self.scale))

    @contextmanager
    def broker(self, name: str, levels: str = "1s 5s 10s 30s 1m 2h") -> Iterator[BrokerProcess]:
        """A running broker on an empty store, which is deleted in the end."""
        folder = self.folder / name
        settings = {"flushDiskType": self.flush, "messageDelayLevel": levels}
        try:
            with BrokerProcess(folder, settings) as broker:
                yield broker
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def load(self, label: str, load: Load) -> LoadResult:
        """Run a load with a progress bar."""
        with self.phase(label) as on_tick:
            return run(load, on_tick)

    @contextmanager
    def phase(self, label: str) -> Iterator[Callable[[float], None]]:
        """A progress bar; the callback takes the share that is done, 0 to 1."""
        task = self.progress.add_task(label, total=1.0)
        try:
            yield lambda share: self.progress.update(task, completed=share)
        finally:
            self.progress.remove_task(task)

    def wait_until(self, label: str, at_ms: int) -> None:
        """Wait for a moment of the wall clock."""
        began_ms = wall_ms()
        with self.phase(label) as on_tick:
            while (now_ms := wall_ms()) < at_ms:
                on_tick((now_ms - began_ms) / (at_ms - began_ms))
                pause_s(min(0.2, (at_ms - now_ms) / 1000))


def send(bench: Bench) -> Iterator[Figure]:
    """Single sends of 1 KiB: the call returns when the broker has answered."""
    for threads in (1, 8, 32):
        case = "1 thread" if threads == 1 else f"{threads} threads"
        yield from _timed_load(bench, "send", case, threads=threads)


def batch(bench: Bench) -> Iterator[Figure]:
    """32 messages of 1 KiB a call."""
    for threads in (8, 32):
        case = f"{threads} threads x {BATCH_MESSAGES}"
        yield from _timed_load(bench, "batch", case, threads=threads, size=BATCH_MESSAGES)


def delayed_send(bench: Bench) -> Iterator[Figure]:
    """Single sends of 1 KiB with a delay level; none is due while it is measured."""
    yield from _timed_load(bench, "delayed-send", "32 threads", threads=32, level=6)


def parked(bench: Bench) -> Iterator[Figure]:
    """Single sends by one thread, first alone, then beside long polls of another topic."""
    with bench.broker("parked") as broker:
        seconds = max(0.2, SEND_SECONDS * bench.scale)
        load = Load(broker.endpoint, "bench", 1, _ENDLESS, seconds)
        for polls in (0, bench.size(PARKED_POLLS)):
            with parked_polls(broker.endpoint, "quiet", polls):
                result = bench.load(f"parked: {polls:,} polls", load)
            yield from spread("parked", f"send, {polls:,} polls", result.calls_ms)


def late(bench: Bench) -> Iterator[Figure]:
    """How long after its deliver time a message is in its topic, and in a listener."""
    seconds = max(0.5, LATENESS_SECONDS * bench.scale)
    case = f"{LATENESS_PER_S}/s level 1"
    with bench.broker("lateness") as broker, bench.phase("lateness"):
        result = lateness(
            broker.endpoint, "bench", level=1, per_second=LATENESS_PER_S, seconds=seconds
        )
    yield from spread("lateness", f"{case}, stored", result.stored_ms)
    yield from spread("lateness", f"{case}, received", result.received_ms)
    missing = result.sent - len(result.received_ms)
    if missing:
        yield Figure("lateness", f"{case}, received", "missing", missing, "msg")


def drain(bench: Bench) -> Iterator[Figure]:
    """How fast a backlog of one level goes out.

    Messages of one level are due in the order and at the pace in which they were sent, so a
    running broker could only show the sender's rate.  So the broker is stopped before the
    first is due and started after the last one is: then all are due at once.  The time is
    taken from the records: from the first store timestamp in the topic to the last.
    """
    messages = bench.size(DRAIN_MESSAGES)
    delay_s = max(5, -(-messages // DRAIN_SENT_PER_S_MIN))
    case = f"{messages:,} x 1 KiB"
    with bench.broker("drain", f"{delay_s}s") as broker:
        sent = bench.load("drain: send", _fill(broker, messages, level=1))
        broker.stop()
        bench.wait_until("drain: until all are due", sent.last_deliver_at_ms + 100)
        broker.start()
        took_s = _drained(bench, broker, sent.messages)
    yield Figure("drain", case, "rate", sent.messages / took_s, "msg/s")


def pending(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """Time to ready and memory with messages pending; the store is filled once for both."""
    messages = bench.size(PENDING_MESSAGES)
    case = f"{messages:,} pending"
    with bench.broker("pending") as broker:
        idle_mib = broker.resident_mib()
        bench.load(f"{case}: send", _fill(broker, messages, level=6))
        filled_mib = broker.resident_mib()
        broker.kill()
        with bench.phase("start after SIGKILL"):
            killed_s = broker.start()
        broker.stop()
        with bench.phase("start after a clean stop"):
            stopped_s = broker.start()
        started_mib = broker.resident_mib()
    if "start" in wanted:
        yield Figure("start", f"{messages:,} after a stop", "ready", stopped_s, "s")
        yield Figure("start", f"{messages:,} after SIGKILL", "ready", killed_s, "s")
    if "memory" in wanted:
        yield Figure("memory", "idle", "RSS", idle_mib, "MiB")
        yield Figure("memory", f"{messages:,} just sent", "RSS", filled_mib, "MiB")
        yield Figure("memory", f"{messages:,} after a restart", "RSS", started_mib, "MiB")


def recovery(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """Time to ready of a large store after SIGKILL in mid-write, and how fast it is checked."""
    messages = bench.size(STORED_MESSAGES)
    with bench.broker("recovery") as broker:
        for share in (0.02, 0.98):
            part = max(1, round(messages * share))
            bench.load(f"recovery: send {part:,}", _fill(broker, part, level=0))
            broker.kill()
            case = f"{log_bytes(broker.store) / 1e9:.1f} GB after SIGKILL"
            with bench.phase(case):
                ready_s = broker.start()
            if "recovery" in wanted:
                yield Figure("recovery", case, "ready", ready_s, "s")
        broker.stop()
        if "check" in wanted:
            began_s = elapsed_s()
            with bench.phase("check") as on_tick:
                findings = sum(
                    1 for _ in check(broker.store, progress=lambda n, of: on_tick(n / of))
                )
            rate = log_bytes(broker.store) / 1e6 / (elapsed_s() - began_s)
            yield Figure("check", f"{messages:,} x 1 KiB", "rate", rate, "MB/s")
            if findings:
                yield Figure("check", f"{messages:,} x 1 KiB", "inconsistencies", findings, "")


SCENARIOS: Final[dict[str, Callable[[Bench], Iterator[Figure]]]] = {
    "send": send,
    "batch": batch,
    "delayed-send": delayed_send,
    "parked": parked,
    "lateness": late,
    "drain": drain,
}
PENDING_SCENARIOS: Final = ("start", "memory")
RECOVERY_SCENARIOS: Final = ("recovery", "check")
NAMES: Final = (*SCENARIOS, *PENDING_SCENARIOS, *RECOVERY_SCENARIOS)


def measure(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """The figures of the wanted scenarios, in their own order."""
    for name, scenario in SCENARIOS.items():
        if name in wanted:
            yield from scenario(bench)
    if wanted & set(PENDING_SCENARIOS):
        yield from pending(bench, wanted)
    if wanted & set(RECOVERY_SCENARIOS):
        yield from recovery(bench, wanted)


def log_bytes(store: Path) -> int:
    """What a store's commit log takes on disk; its last file is mostly a hole."""
    return sum([path.stat().st_blocks * 512 for path in (store / "commitlog").iterdir()])


def _timed_load(
    bench: Bench, scenario: str, case: str, *, threads: int, size: int = 1, level: int = 0
) -> Iterator[Figure]:
    with bench.broker(scenario) as broker:
        seconds = max(0.2, SEND_SECONDS * bench.scale)
        load = Load(broker.endpoint, "bench", threads, _ENDLESS, seconds, size, level=level)
        result = bench.load(f"{scenario}: {case}", load)
    yield Figure(scenario, case, "rate", result.per_second, "msg/s")
    yield from spread(scenario, case, result.calls_ms)


def _fill(broker: BrokerProcess, messages: int, *, level: int) -> Load:
    return Load(
        broker.endpoint,
        "bench",
        min(FILL_THREADS, messages),
        messages,
        _FILL_SECONDS_MAX,
        FILL_BATCH_MESSAGES,
        level=level,
    )


def _drained(bench: Bench, broker: BrokerProcess, messages: int) -> float:
    """Wait until all are in the topic; the seconds between the first and the last record."""
    from rmqlite.client import AdminClient, PullConsumer

    with AdminClient(broker.endpoint) as admin, bench.phase("drain: deliver") as on_tick:
        began_s = elapsed_s()
        while (held := sum([r.max_offset for r in admin.ranges("bench")])) < messages:
            on_tick(held / messages)
            if elapsed_s() - began_s > _FILL_SECONDS_MAX:
                raise BrokerUnreachable(f"only {held} of {messages} messages were delivered")
            pause_s(0.05)
        ranges = [each for each in admin.ranges("bench") if each.max_offset]
    first_ms = []
    with PullConsumer(broker.endpoint, "rmqlite-bench") as consumer:
        for each in ranges:
            queue = each.queue
            pulled = consumer.pull(queue.topic, queue.queue_id, each.min_offset, max_messages=1)
            if pulled.status is PullStatus.FOUND:
                first_ms.append(pulled.messages[0].store_timestamp_ms)
    last_ms = max([each.newest_timestamp_ms for each in ranges])
    return max(1, last_ms - min(first_ms)) / 1000

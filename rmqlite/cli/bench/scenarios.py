"""The scenarios of sends, a backlog and a start.

Every scenario starts its own broker on an empty store, and yields figures.  Sizes are for scale 1;
a smaller scale is for a quick look, not for figures to publish.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqlite.cli.bench.bench import FAR_LEVEL, Bench, drained, fill, log_bytes, overdue
from rmqlite.cli.bench.figures import Figure, spread
from rmqlite.cli.bench.load import Load, lateness, parked_polls
from rmqlite.clock import elapsed_s
from rmqlite.store.check import check

SEND_SECONDS: Final = 5.0
BATCH_MESSAGES: Final = 32
PARKED_POLLS: Final = 5_000
DRAIN_MESSAGES: Final = 200_000
PENDING_MESSAGES: Final = 1_000_000
STORED_MESSAGES: Final = 4_300_000
"""Messages of 1 KiB each: a commit log of 5 GB."""
LATENESS_SECONDS: Final = 20.0
LATENESS_PER_S: Final = 50
_ENDLESS: Final = 10**9


def send(bench: Bench) -> Iterator[Figure]:
    """Single sends of 1 KiB: the call returns when the broker has answered."""
    for threads in (1, 8, 32):
        case = "1 thread" if threads == 1 else f"{threads} threads"
        yield from _timed_load(bench, "send", case, threads=threads)


def batch(bench: Bench) -> Iterator[Figure]:
    """32 messages of 1 KiB per call."""
    for threads in (8, 32):
        case = f"{threads} threads x {BATCH_MESSAGES}"
        yield from _timed_load(bench, "batch", case, threads=threads, size=BATCH_MESSAGES)


def delayed_send(bench: Bench) -> Iterator[Figure]:
    """Single sends of 1 KiB with a delay level; none is due while it is measured."""
    yield from _timed_load(bench, "delayed-send", "32 threads", threads=32, level=FAR_LEVEL)


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
    """The time from a message's deliver time to its topic, and to a listener."""
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
    """The delivery rate of a backlog of one level, all of it due when the broker starts.

    The time counts from the first store timestamp in the topic to the last.
    """
    messages = bench.size(DRAIN_MESSAGES)
    case = f"{messages:,} x 1 KiB"
    with overdue(bench, "drain", messages) as broker:
        broker.start()
        took_s = drained(bench, "drain: deliver", broker, messages)
    yield Figure("drain", case, "rate", messages / took_s, "msg/s")


def restarted(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """Time to ready and memory with messages pending; the store is filled once for both."""
    messages = bench.size(PENDING_MESSAGES)
    case = f"{messages:,} pending"
    with bench.broker("start") as broker:
        idle_mib = broker.resident_mib()
        bench.load(f"{case}: send", fill(broker, messages, level=FAR_LEVEL))
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
    """Time to ready of a large store after SIGKILL in mid-write, and the rate of a check."""
    messages = bench.size(STORED_MESSAGES)
    with bench.broker("recovery") as broker:
        for share in (0.02, 0.98):
            part = max(1, round(messages * share))
            bench.load(f"recovery: send {part:,}", fill(broker, part, level=0))
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


def _timed_load(
    bench: Bench, scenario: str, case: str, *, threads: int, size: int = 1, level: int = 0
) -> Iterator[Figure]:
    with bench.broker(scenario) as broker:
        seconds = max(0.2, SEND_SECONDS * bench.scale)
        load = Load(broker.endpoint, "bench", threads, _ENDLESS, seconds, size, level=level)
        result = bench.load(f"{scenario}: {case}", load)
    yield Figure(scenario, case, "rate", result.per_second, "msg/s")
    yield from spread(scenario, case, result.calls_ms)

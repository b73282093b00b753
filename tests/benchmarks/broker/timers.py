"""Timers against delay levels, in one run: how fast they are accepted and delivered, how late.

The ratio is that of timers to levels: above 1, timers are faster.  With --pending N, also what N
timers cost that wait: memory, bytes of index, the time of a start after SIGKILL, and the lateness
of others beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from rmqlite.kernel.words.message import Message
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker.bench import FAR_LEVEL, FAR_LEVEL_MS, Bench, fill
from tests.benchmarks.broker.beside import (
    BODY_BYTES,
    LATENESS_PER_S,
    LATENESS_SECONDS,
    lateness,
    lateness_figures,
)
from tests.benchmarks.broker.figures import Figure
from tests.benchmarks.broker.loads import ENDLESS, TOPIC, Load
from tests.benchmarks.broker.throughput import DRAIN_MESSAGES, drained_per_s, sent
from tests.support.broker_processes import resident_mib

SENDS: Final = ((1, 1), (32, 1), (8, 32))
"""Threads, and messages in each call."""
FAR_S: Final = FAR_LEVEL_MS // 1_000
SPREAD_S: Final = 62_000_000
"""Nearly the two years that a timer may wait."""
PENDING_BODY_BYTES: Final = 100
PENDING_BATCH_MESSAGES: Final = 500
BESIDE_PER_S: Final = 5_000
BESIDE_BATCH_MESSAGES: Final = 10


def timers(bench: Bench) -> Iterator[Figure]:
    """Sends, a burst, and the lateness at an even pace."""
    for threads, size in SENDS:
        case = f"{threads} thread{'s' * (threads > 1)}" + (f" x {size}" if size > 1 else "")
        load = Load("", threads, ENDLESS, 0.0, size)
        rates = [
            sent(bench, "timers", f"{case}, {kind}", each).per_second
            for kind, each in (
                ("level", replace(load, level=FAR_LEVEL)),
                ("timer", replace(load, after_s=FAR_S)),
            )
        ]
        yield from _against_levels(case, *rates)
    messages = bench.size(DRAIN_MESSAGES)
    rates = [drained_per_s(bench, "timers", messages, are_timers=each) for each in (False, True)]
    yield from _against_levels(f"deliver {messages:,}", *rates)
    with bench.broker("timers") as broker:
        yield from _lateness(bench, broker, "alone")
    if bench.pending:
        yield from _pending(bench)


def _against_levels(case: str, level: float, timer: float) -> Iterator[Figure]:
    yield Figure("timers", f"{case}, level", "rate", level, "msg/s")
    yield Figure("timers", f"{case}, timer", "rate", timer, "msg/s")
    yield Figure("timers", f"{case}, ratio", "ratio", timer / level, "of msg/s")


def _lateness(bench: Bench, broker: BrokerProcess, beside: str) -> Iterator[Figure]:
    # Due half way between two sends: else each waits for the sync of the send that comes then.
    message = Message(TOPIC, bytes(BODY_BYTES), deliver_after="1010ms")
    seconds = max(0.5, LATENESS_SECONDS * bench.scale)
    with bench.phase(f"timers: lateness, {beside}"):
        late = lateness(broker.endpoint, message, per_second=LATENESS_PER_S, seconds=seconds)
    yield from lateness_figures("timers", f"{LATENESS_PER_S}/s {beside}", late)


def _pending(bench: Bench) -> Iterator[Figure]:
    """What many timers cost that wait for up to two years, and what others are late beside them."""
    case = f"{bench.pending:,} pending"
    with bench.broker("timers") as broker:
        idle_mib = resident_mib(broker)
        load = fill(
            broker,
            bench.pending,
            level=0,
            body_bytes=PENDING_BODY_BYTES,
            batch=PENDING_BATCH_MESSAGES,
        )
        filled = bench.load(f"timers: {case}", replace(load, after_s=FAR_S, spread_s=SPREAD_S))
        yield Figure("timers", case, "rate", filled.per_second, "msg/s")
        yield Figure("timers", f"{case}, sent", "RSS", resident_mib(broker) - idle_mib, "MiB more")
        broker.kill()
        with bench.phase(f"timers: start with {case}"):
            ready_s = broker.start()
        yield Figure("timers", f"{case}, after SIGKILL", "ready", ready_s, "s")
        yield from _lateness(bench, broker, f"beside {case}")
        seconds = max(0.5, LATENESS_SECONDS * bench.scale) + 5
        beside = Load(
            broker.endpoint,
            1,
            ENDLESS,
            seconds,
            BESIDE_BATCH_MESSAGES,
            level=FAR_LEVEL,
            interval_s=BESIDE_BATCH_MESSAGES / BESIDE_PER_S,
        )
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(bench.load, f"timers: {BESIDE_PER_S:,} sends/s", beside)
            yield from _lateness(bench, broker, f"beside {case} and {BESIDE_PER_S:,} sends/s")
            sending.result()
        yield Figure("timers", f"{case}, used", "RSS", resident_mib(broker) - idle_mib, "MiB more")
        broker.stop()
        size = sum([each.stat().st_size for each in (broker.store / "timers").iterdir()])
        yield Figure("timers", f"{case}, index", "size", size / bench.pending, "bytes each")

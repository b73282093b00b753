"""The scenarios of rmqlite bench: each measures a broker that starts with an empty store.

The large scenarios of tests/benchmarks are made of the same parts.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqlite.cli.bench.broker_process import BrokerProcess
from rmqlite.cli.bench.load import ENDLESS, GROUP, TOPIC, Load, LoadResult, run
from rmqlite.client import AdminClient, PullConsumer
from rmqlite.kernel.words.clock import elapsed_s, pause_s, wall_ms
from rmqlite.kernel.words.errors import BrokerUnreachable

LEVELS: Final = "1s 5s 10s 30s 1m 2h"
FAR_LEVEL: Final = 6
"""A level of LEVELS at which no message is due during a measurement."""
DRAIN_PER_S: Final = 40_000
"""Messages of drain for each second that a case should take."""
FILL_PER_S_MIN: Final = 10_000
"""The delay of messages that are due together: long enough to send them all at this rate."""
LATENESS_PER_S: Final = 50
SECONDS_MAX: Final = 3600.0
COLUMNS: Final = ("SCENARIO", "CASE", "MSG/S", "P50 MS", "P99 MS", "MAX MS")
Row = tuple[object, ...]

SENDS: Final = {
    "send": [(1, 1, 0), (8, 1, 0), (32, 1, 0)],
    "batch": [(8, 32, 0), (32, 32, 0)],
    "delayed": [(32, 1, FAR_LEVEL)],
}
"""The cases of each: threads, messages of a call, and the delay level."""
NAMES: Final = (*SENDS, "drain", "lateness")


@contextmanager
def empty_broker(folder: Path, settings: Mapping[str, str]) -> Iterator[BrokerProcess]:
    """A running broker on an empty store, which is deleted in the end."""
    try:
        with BrokerProcess(folder, {"messageDelayLevel": LEVELS, **settings}) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(name: str, folder: Path, flush: str, seconds: float) -> Iterator[Row]:
    """The rows of a scenario, under COLUMNS; each case takes about so many seconds."""
    settings = {"flushDiskType": flush}
    if name == "drain":
        yield _drain(folder, settings, max(1, round(DRAIN_PER_S * seconds)))
    elif name == "lateness":
        yield _lateness(folder, settings, max(1, round(LATENESS_PER_S * seconds)))
    else:
        for threads, batch, level in SENDS[name]:
            with empty_broker(folder, settings) as broker:
                load = Load(broker.endpoint, threads, ENDLESS, seconds, batch, level=level)
                result = run(replace(load, warm_up_s=min(1.0, seconds)))
            case = f"{threads} thread{'s' * (threads > 1)}" + (f" x {batch}" if batch > 1 else "")
            yield name, case, round(result.per_second), *spread_of(result.calls_ms)


def spread_of(values_ms: Iterable[float]) -> list[float]:
    """The median, the 99th percentile and the maximum."""
    ordered = sorted(values_ms)
    return [percentile(ordered, percent) for percent in (50, 99, 100)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank of values in ascending order; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _drain(folder: Path, settings: Mapping[str, str], messages: int) -> Row:
    """The delivery rate of a backlog of one level, all of it due when the broker starts."""
    level = {"messageDelayLevel": f"{overdue_after_s(messages)}s"}
    with empty_broker(folder, {**settings, **level}) as broker:
        load = Load(broker.endpoint, min(4, messages), messages, SECONDS_MAX, batch=200, level=1)
        stop_until_due(broker, run(load))
        broker.start()
        rate = messages / drained_s(broker, messages)
    return "drain", f"{messages:,} overdue", round(rate), None, None, None


def overdue_after_s(messages: int) -> int:
    """A delay for messages that should all be due together."""
    return max(2, -(-messages // FILL_PER_S_MIN))


def stop_until_due(broker: BrokerProcess, result: LoadResult) -> None:
    """Stop the broker before the first message is due, and wait until the last one is.

    Messages of one level are due at the pace in which they were sent, so a running broker would
    only show the sender's rate.
    """
    broker.stop()
    pause_s(max(0, result.last_deliver_at_ms + 100 - wall_ms()) / 1000)


def drained_s(broker: BrokerProcess, messages: int) -> float:
    """Wait until all are in the topic; returns the seconds from the first to the last."""
    until_s = elapsed_s() + SECONDS_MAX
    with AdminClient(broker.endpoint) as admin, PullConsumer(broker.endpoint, GROUP) as consumer:
        while (held := sum([each.max_offset for each in admin.ranges(TOPIC)])) < messages:
            if elapsed_s() > until_s:
                raise BrokerUnreachable(f"only {held} of {messages} messages were delivered")
            pause_s(0.05)
        ranges = [each for each in admin.ranges(TOPIC) if each.max_offset]
        firsts = [consumer.pull(TOPIC, each.queue.queue_id, 0, max_messages=1) for each in ranges]
    first_ms = min([each.messages[0].store_timestamp_ms for each in firsts])
    return max(1, max([each.newest_timestamp_ms for each in ranges]) - first_ms) / 1000


def _lateness(folder: Path, settings: Mapping[str, str], messages: int) -> Row:
    """How late messages are stored in their topic, counted by the broker in milliseconds."""
    with empty_broker(folder, settings) as broker:
        load = Load(broker.endpoint, 1, messages, SECONDS_MAX, level=1)
        run(replace(load, interval_s=1 / LATENESS_PER_S))
        drained_s(broker, messages)
        with AdminClient(broker.endpoint) as admin:
            late = admin.broker_status().levels[0]
    spread = (late.lateness_p50_ms, late.lateness_p99_ms, late.lateness_max_ms)
    return "lateness", f"{LATENESS_PER_S}/s, stored", None, *spread

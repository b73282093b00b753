"""The tools of a scenario: brokers on empty stores, loads, waits, and their progress bars.

This module brings a broker into a state; the scenarios measure it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.progress import Progress

from rmqlite.cli.bench.broker_process import BrokerProcess
from rmqlite.cli.bench.load import GROUP, TOPIC, Load, LoadResult, run
from rmqlite.client import AdminClient, PullConsumer
from rmqlite.clock import elapsed_s, pause_s, wall_ms
from rmqlite.errors import BrokerUnreachable

LEVELS: Final = "1s 5s 10s 30s 1m 2h"
FAR_LEVEL: Final = 6
FAR_LEVEL_MS: Final = 7_200_000
"""A level of LEVELS at which no message is due during a measurement."""
FILL_BATCH_MESSAGES: Final = 200
FILL_THREADS: Final = 4
FILL_PER_S_MIN: Final = 10_000
"""The delay of messages that are due together: long enough to send them all at this rate."""
SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Bench:
    """The settings of a measurement."""

    folder: Path
    flush: str
    scale: float
    progress: Progress
    repeat: int = 1
    """How many times a scenario runs whose figures become medians."""
    pending: int = 0
    """How many timers wait beside those whose lateness is measured, at any scale."""

    def size(self, full: int) -> int:
        """A number of messages at this scale."""
        return max(1, round(full * self.scale))

    def seconds(self, full: float) -> float:
        """A duration at this scale."""
        return max(0.2, full * self.scale)

    @contextmanager
    def broker(
        self,
        name: str,
        levels: str = LEVELS,
        prepare: Callable[[Path], None] | None = None,
        **more: int | str,
    ) -> Iterator[BrokerProcess]:
        """A running broker on an empty store, which is deleted in the end.

        prepare: makes files of the store before the start.  more: other keys of broker.conf.
        """
        folder = self.folder / name
        settings = {"flushDiskType": self.flush, "messageDelayLevel": levels}
        settings |= {key: str(value) for key, value in more.items()}
        try:
            process = BrokerProcess(folder, settings)
            if prepare is not None:
                prepare(process.store)
            with process as broker:
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

    @contextmanager
    def overdue(
        self, name: str, messages: int, *, are_timers: bool = False, **settings: int | str
    ) -> Iterator[BrokerProcess]:
        """A stopped broker with messages of a level, or timers, that are all due when it starts.

        Messages of one level are due in the order and at the pace in which they were sent, so a
        running broker would only show the sender's rate.  So the broker stops before the first
        message is due and starts after the last one is, like a broker that was down for hours.
        """
        delay_s = max(2, -(-messages // FILL_PER_S_MIN))
        with self.broker(name, f"{delay_s}s", None, **settings) as broker:
            load = fill(broker, messages, level=1)
            if are_timers:
                load = replace(load, after_s=delay_s)
            sent = self.load(f"{name}: send {messages:,}", load)
            broker.stop()
            began_ms, until_ms = wall_ms(), sent.last_deliver_at_ms + 100
            with self.phase(f"{name}: until all are due") as on_tick:
                while (now_ms := wall_ms()) < until_ms:
                    on_tick((now_ms - began_ms) / (until_ms - began_ms))
                    pause_s(min(0.2, (until_ms - now_ms) / 1000))
            yield broker

    def drained(self, label: str, broker: BrokerProcess, messages: int) -> float:
        """Wait until all are in the topic; returns the seconds from the first to the last."""
        with AdminClient(broker.endpoint) as admin, self.phase(label) as on_tick:
            began_s = elapsed_s()
            while (held := sum([r.max_offset for r in admin.ranges(TOPIC)])) < messages:
                on_tick(held / messages)
                if elapsed_s() - began_s > SECONDS_MAX:
                    raise BrokerUnreachable(f"only {held} of {messages} messages were delivered")
                pause_s(0.05)
            ranges = [each for each in admin.ranges(TOPIC) if each.max_offset]
        with PullConsumer(broker.endpoint, GROUP) as consumer:
            firsts = [
                consumer.pull(each.queue.topic, each.queue.queue_id, 0, max_messages=1)
                for each in ranges
            ]
        first_ms = min([m.store_timestamp_ms for pulled in firsts for m in pulled.messages])
        last_ms = max([each.newest_timestamp_ms for each in ranges])
        return max(1, last_ms - first_ms) / 1000


def fill(
    broker: BrokerProcess,
    messages: int,
    *,
    level: int,
    body_bytes: int = 1024,
    batch: int = FILL_BATCH_MESSAGES,
    rare_every: int = 0,
) -> Load:
    """A load that sends this many messages as fast as it can."""
    return Load(
        broker.endpoint,
        min(FILL_THREADS, messages),
        messages,
        SECONDS_MAX,
        batch,
        body_bytes,
        level,
        rare_every=rare_every,
    )


def log_bytes(store: Path) -> int:
    """The bytes of a store's commit log on disk; its last file is mostly a hole."""
    return sum([path.stat().st_blocks * 512 for path in (store / "commitlog").iterdir()])

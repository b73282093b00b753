"""The tools of a scenario: brokers on empty stores, loads, waits, and their progress bars.

This module brings a broker into a state; the scenarios measure it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.progress import Progress

from rmqlite.client import AdminClient, PullConsumer
from rmqlite.kernel.words.clock import elapsed_s, pause_s, wall_ms
from rmqlite.kernel.words.errors import BrokerUnreachable
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker.loads import GROUP, TOPIC, Load, LoadResult, run, run_here

LEVELS: Final = "1s 5s 10s 30s 1m 2h"
FAR_LEVEL: Final = 6
"""A level of LEVELS at which no message is due during a measurement."""
FAR_LEVEL_MS: Final = 7_200_000
"""The delay of FAR_LEVEL."""
FILL_PER_S_MIN: Final = 10_000
"""The delay of messages that are due together: long enough to send them all at this rate."""
SECONDS_MAX: Final = 3600.0
FILL_BATCH_MESSAGES: Final = 200
FILL_THREADS: Final = 4


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
    in_one_process: bool = False
    """The load comes from threads of this process: quick to start, for tests."""

    def size(self, full: int) -> int:
        """A number of messages at this scale."""
        return max(1, round(full * self.scale))

    def seconds(self, full: float) -> float:
        """A duration at this scale."""
        return max(0.2, full * self.scale)

    def broker(self, name: str, **settings: int | str) -> AbstractContextManager[BrokerProcess]:
        """A running broker on an empty store.  settings: keys of broker.conf."""
        texts = {key: str(value) for key, value in settings.items()}
        return _empty_broker(self.folder / name, {"flushDiskType": self.flush, **texts})

    def load(self, label: str, load: Load) -> LoadResult:
        """Run a load with a progress bar."""
        with self.phase(label) as on_tick:
            return run_here(load) if self.in_one_process else run(load, on_tick)

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
        """A stopped broker with messages of a level, or timers, that are all due when it starts."""
        delay_s = _overdue_after_s(messages)
        with self.broker(name, messageDelayLevel=f"{delay_s}s", **settings) as broker:
            load = fill(broker, messages, level=1)
            if are_timers:
                load = replace(load, after_s=delay_s)
            sent = self.load(f"{name}: send {messages:,}", load)
            with self.phase(f"{name}: until all are due"):
                _stop_until_due(broker, sent)
            yield broker

    def drained(self, label: str, broker: BrokerProcess, messages: int) -> float:
        """Wait until all are in the topic; returns the seconds from the first to the last."""
        with self.phase(label):
            return _drained_s(broker, messages)


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


@contextmanager
def _empty_broker(folder: Path, settings: Mapping[str, str]) -> Iterator[BrokerProcess]:
    """A running broker on an empty store, which is deleted in the end."""
    try:
        with BrokerProcess(
            folder, {"messageDelayLevel": LEVELS, **settings}, is_forked=False
        ) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _overdue_after_s(messages: int) -> int:
    """A delay for messages that should all be due together."""
    return max(2, -(-messages // FILL_PER_S_MIN))


def _stop_until_due(broker: BrokerProcess, result: LoadResult) -> None:
    """Stop the broker before the first message is due, and wait until the last one is.

    Messages of one level are due at the pace in which they were sent, so a running broker would
    only show the sender's rate.
    """
    broker.stop()
    pause_s(max(0, result.last_deliver_at_ms + 100 - wall_ms()) / 1000)


def _drained_s(broker: BrokerProcess, messages: int) -> float:
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

"""The index of the timers is a cache: whatever becomes of it, each timer is delivered once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest

from rmqlite.kernel.retention import Carrying
from rmqlite.kernel.store.timer_index import IndexDamaged
from rmqlite.kernel.words.errors import StoreUnavailable
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, create_topic
from tests.support.steps import done
from tests.support.timers import send_timer

YEAR_MS = 365 * 86_400_000


class Timers:
    """A broker and its table, beside a plain list of what waits."""

    def __init__(self, broker: BrokerUnderTest, folder: Path, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.waiting: dict[str, int] = {}
        self.sent = 0
        self._path = broker.config.store_path / "timers"
        self._older = folder / "older"
        create_topic(broker, TOPIC)

    def send(self) -> None:
        for _ in range(self.random.randint(1, 30)):
            wait_ms = self.random.choice((1, 500, 3_000, 60_000, YEAR_MS))
            self.waiting[str(self.sent)] = self.broker.clock.now_ms() + wait_ms
            send_timer(self.broker, str(self.sent), TIMER_DELAY_MS=wait_ms)
            self.sent += 1

    def write(self) -> None:
        """What the server's thread does, as soon as the log is on disk."""
        timers = self.broker.broker.wait_queues.timers
        if timers is None:
            return
        batch = timers.keys.begin_write()
        self.broker.sync()
        writer = batch.index._writer
        if writer is not None and self.random.random() < 0.3:
            # It is tried again, as by the server; a crash may come first.
            writer.execute("PRAGMA max_page_count = 1").fetchall()
            with suppress(StoreUnavailable):
                batch.run()
            writer.execute("PRAGMA max_page_count = 1000000").fetchall()
            if self.random.random() < 0.5:
                self.start_again()
                return
        error: IndexDamaged | None = None
        try:
            batch.run()
        except IndexDamaged as damage:
            error = damage
        timers.keys.end_write(error)
        if self.random.random() < 0.3:
            rmtree(self._older, ignore_errors=True)
            copytree(self._path, self._older)

    def carry(self) -> None:
        broker = self.broker.broker
        carrying = Carrying(broker.store, broker.wait_queues, broker.schedule)
        done(carrying.carry(broker.store.end, 1))
        self.broker.sync()

    def deliver(self) -> None:
        self.broker.clock.forward(self.random.choice((1, 700, 4_000, 70_000)))
        now_ms = self.broker.clock.now_ms()
        due = {name for name, due_ms in self.waiting.items() if due_ms <= now_ms}
        queue = self.broker.store.queue(TOPIC, 0)
        before = queue.max_offset if queue else 0
        assert self.broker.deliver() == len(due)
        for name in due:
            del self.waiting[name]
        if due:
            found = self.broker.pull(TOPIC, 0, before).messages
            assert {each.body.decode() for each in found} <= due

    def start_again(self) -> None:
        """Killed; meanwhile somebody may have done something to the table."""
        self.broker.crash()
        harm: Callable[[], None] = self.random.choice(
            (self._delete, self._cut, self._bring_back, lambda: None)
        )
        harm()
        self.broker.open()
        timers = self.broker.broker.wait_queues.timers
        while timers is not None and timers.keys.catch_up():
            pass

    def _delete(self) -> None:
        rmtree(self._path, ignore_errors=True)

    def _cut(self) -> None:
        """As a full disk or a bad copy leaves it."""
        for path in sorted(self._path.glob("*")):
            if path.stat().st_size and self.random.random() < 0.7:
                data = path.read_bytes()
                path.write_bytes(data[: self.random.randrange(len(data))])

    def _bring_back(self) -> None:
        """An older table, as after a power cut."""
        if self._older.exists():
            self._delete()
            copytree(self._older, self._path)

    def check(self) -> None:
        timers = self.broker.broker.wait_queues.timers
        assert (timers.pending if timers else 0) == len(self.waiting)


@pytest.mark.seeds(4, 12)
def test_each_timer_is_delivered_once_whatever_becomes_of_the_table(
    make: Make, tmp_path: Path, seed: int
) -> None:
    """Deleted, cut short, or older than the log: never early, never lost, never twice."""
    timers = Timers(make(), tmp_path, seed)
    steps = (timers.send, timers.send, timers.write, timers.write, timers.carry, timers.deliver)
    for _ in range(40):
        timers.random.choice((*steps, timers.start_again))()
        timers.check()
    timers.broker.clock.forward(YEAR_MS)
    timers.deliver()
    assert not timers.waiting

"""The timers' wait queue: whatever happens to table and process, the queue's entries decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rmqlite.kernel.store import timer_index
from tests.support.timer_queues import TimersUnderTest


@pytest.fixture
def timers(tmp_path: Path) -> TimersUnderTest:
    return TimersUnderTest(tmp_path)


def test_near_and_far_are_one_order(timers: TimersUnderTest) -> None:
    """A timer in the table, one that is being written and one in memory, due in turn."""
    timers.add(30, 10)
    timers.written()
    timers.add(20, 5)
    write = timers.begin()
    timers.add(25, 7)
    timers.check()
    write.run()
    timers.check()
    timers.end()
    timers.check()
    assert timers.deliver(24) == [(5, 3), (7, 5), (10, 1), (20, 2)]
    assert timers.queue.next_due_ms() == 25
    timers.check()
    assert timers.deliver(100) == [(25, 4), (30, 0)]
    assert timers.queue.next_due_ms() is None


class History:
    """Random work on timers; each step ends with a check against the plain list."""

    def __init__(self, timers: TimersUnderTest, seed: int) -> None:
        self.timers = timers
        self.random = Random(seed)
        self.now_ms = 0
        self.steps: list[Callable[[], None]] = [
            *[self.add] * 4,
            *[self.deliver] * 2,
            *[self.cancel] * 2,
            *[self.compare] * 2,
            *(self.write, self.killed_in_a_write, self.start_again, self.cut_power),
        ]

    def step(self) -> None:
        self.random.choice(self.steps)()
        self.timers.check((self.now_ms, self.now_ms + 20, self.now_ms + 1_000))

    def add(self) -> None:
        spread = self.random.choice((1, 20, 1_000, 100_000))
        count = self.random.choice((1, 1, 3, 50, 400))
        self.timers.add(*(self.now_ms + 1 + self.random.randrange(spread) for _ in range(count)))

    def deliver(self) -> None:
        self.now_ms += self.random.choice((1, 10, 500))
        due = [each for each in self.timers.waiting() if each[0] <= self.now_ms]
        assert self.timers.deliver(self.now_ms, self.random.choice((1, 7, 1_000))) == due

    def cancel(self) -> None:
        waiting = self.timers.waiting()
        count = self.random.randint(0, min(len(waiting), 300))
        self.timers.complete(*(at for _, at in self.random.sample(waiting, count)))

    def write(self) -> None:
        self.timers.written()
        if self.random.random() < 0.5:
            self.timers.save()

    def compare(self) -> None:
        if not self.timers.queue.keys.is_comparing:
            self.timers.queue.keys.begin_comparison()
        self.timers.queue.keys.compare()

    def killed_in_a_write(self) -> None:
        write = self.timers.begin()
        self.timers.add(self.now_ms + self.random.randrange(1, 50))
        self.cancel()
        if self.random.random() < 0.5:
            write.run()
        self.timers.check()
        self.timers.kill()
        self.timers.catch_up()

    def start_again(self) -> None:
        self.random.choice((self.timers.kill, self.timers.restart))()
        assert self.timers.deliver(self.now_ms) == []
        self.timers.catch_up()

    def cut_power(self) -> None:
        timers = self.timers
        timers.durable_end += self.random.randint(0, timers.log_end - timers.durable_end)
        timers.cut_power()
        timers.catch_up()
        # What was delivered may wait again.
        timers.deliver(self.now_ms)


@pytest.mark.seeds(4, 12)
def test_a_random_history_is_that_of_a_plain_list(
    timers: TimersUnderTest,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Adds, deliveries, cancels, writes that end or not, kills and power cuts in any order."""
    monkeypatch.setattr(timer_index, "ROWS_A_STEP", 100)
    history = History(timers, seed)
    for _ in range(40):
        history.step()
    timers.catch_up()
    timers.written()
    timers.written()
    assert timers.rows() == len(timers.waiting())
    # A table without entries is made again, too: none shows that it is of this queue.
    reasons = [each.getMessage().split(" reason=")[1] for each in caplog.records]
    assert not [each for each in reasons if not each.startswith("it ends at 0,")]

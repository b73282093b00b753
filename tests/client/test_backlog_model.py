"""A model of a Backlog and its takers: while one can take a message, one that will is awake.

No thread runs here: a taker that would wait is noted as asleep, and a notify makes one awake again.
So each order of steps can be had, a thousand times a second, by a seed.
"""

from __future__ import annotations

import random
import threading
from types import TracebackType

import pytest

from rmqlite.client.consuming.backlog import Backlog, CacheLimits, ProcessQueue
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import StoredMessage
from tests.client.conftest import stored

SEEDS = range(40)
STEPS = 150
QUEUES_MAX = 6

Taken = tuple[ProcessQueue, StoredMessage]


class FallsAsleepError(Exception):
    """A thread would wait here."""


class Sleepers:
    """In place of the condition that takers wait for."""

    def __init__(self, random_: random.Random, takers: int) -> None:
        self.awake = set(range(takers))
        self.asleep: list[int] = []
        self._random = random_

    def __enter__(self) -> Sleepers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def wait(self) -> None:
        raise FallsAsleepError

    def notify(self) -> None:
        if self.asleep:
            self._wake(self._random.choice(self.asleep))

    def notify_all(self) -> None:
        for each in tuple(self.asleep):
            self._wake(each)

    def _wake(self, taker: int) -> None:
        self.asleep.remove(taker)
        self.awake.add(taker)


class Consumer:
    """threads: how many listeners may run.  takers: as many (PushConsumer), or one that hands over
    and needs a free place to go on (AsyncPushConsumer)."""

    def __init__(self, seed: int, threads: int, *, hands_over: bool) -> None:
        self.random = random.Random(seed)
        self.threads = threads
        self.hands_over = hands_over
        self.backlog = Backlog(threads)
        self.sleepers = Sleepers(self.random, 1 if hands_over else threads)
        self.backlog._work = self.sleepers  # type: ignore[assignment]
        self.backlog._quiet = threading.Condition()
        self.queues: list[ProcessQueue] = []
        self.running: list[tuple[int, Taken]] = []
        self.failed: list[Taken] = []
        self.added = 0

    # ---- what may happen

    def take(self) -> None:
        full = self.hands_over and len(self.running) >= self.threads
        if not self.sleepers.awake or full:
            return
        taker = self.random.choice(sorted(self.sleepers.awake))
        try:
            taken = self.backlog.take()
        except FallsAsleepError:
            self.sleepers.awake.discard(taker)
            self.sleepers.asleep.append(taker)
            return
        assert taken is not None
        self.running.append((taker, taken))
        if not self.hands_over:
            self.sleepers.awake.discard(taker)

    def end_one(self) -> None:
        if not self.running:
            return
        taker, taken = self.running.pop(self.random.randrange(len(self.running)))
        is_finished = self.random.random() < 0.6
        takes_next = not self.hands_over
        self.backlog.returned(*taken, is_finished=is_finished, takes_next=takes_next)
        if takes_next:
            self.sleepers.awake.add(taker)
        if not is_finished:
            self.failed.append(taken)

    def settle_a_failed_one(self) -> None:
        if self.failed:
            taken = self.failed.pop()
            if self.random.random() < 0.5:
                self.backlog.finish(*taken)
            else:
                self.backlog.abandon(taken[0])

    def put(self) -> None:
        if self.queues:
            # Uneven: the first queues get nearly everything.
            queue = self.queues[min(self.random.randrange(9), len(self.queues) - 1)]
            number = self.random.choice((0, 1, 1, 5, 30))
            messages = [stored(queue.next_offset + n) for n in range(number)]
            self.backlog.put(queue, messages, queue.next_offset + number)

    def assign(self) -> None:
        """More queues are expected before they are added; fewer before they are lost."""
        wanted = self.random.randrange(QUEUES_MAX + 1)
        self.backlog.expect(wanted)
        lost = self.queues[wanted:]
        if lost or self.random.random() < 0.5:
            self.backlog.lose(lost)
        self.queues = self.queues[:wanted]

    def add(self) -> None:
        if len(self.queues) < QUEUES_MAX:
            self.added += 1
            limits = CacheLimits(1_000, 1_000_000)
            queue = ProcessQueue(Queue(f"t{self.added}", 0), 0, None, limits, lambda: None)
            self.backlog.add(queue)
            self.queues.append(queue)

    # ---- what must be so

    @property
    def share(self) -> int:
        others = max(0, max(self.backlog._expected, len(self.queues)) - 1)
        return max(1, self.threads // 2, self.threads - others)

    def check(self) -> None:
        can_take = any(each.ready and each.running < self.share for each in self.queues)
        if can_take and self.sleepers.asleep:
            assert self.sleepers.awake, "everybody who could take a message sleeps"

    def drain(self) -> None:
        """Nobody sends any more: what is there is consumed, to the last one."""
        while self.sleepers.awake or self.running:
            before = len(self.sleepers.asleep), len(self.running)
            self.take()
            self.check()
            if (len(self.sleepers.asleep), len(self.running)) == before:
                self.end_one()
                self.check()
        assert [len(each.ready) for each in self.queues] == [0] * len(self.queues)


@pytest.mark.parametrize("threads", [1, 2, 3, 20])
@pytest.mark.parametrize("hands_over", [False, True])
def test_whoever_can_take_a_message_is_awake(threads: int, hands_over: bool) -> None:
    """An AsyncPushConsumer consumed 16 of 100 messages of one queue, until somebody sent more."""
    for seed in SEEDS:
        consumer = Consumer(seed, threads, hands_over=hands_over)
        steps = (
            consumer.take,
            consumer.take,
            consumer.take,
            consumer.end_one,
            consumer.end_one,
            consumer.settle_a_failed_one,
            consumer.put,
            consumer.add,
            consumer.assign,
        )
        weights = (4, 4, 4, 4, 4, 3, 3, 1, 0.3)
        for step in consumer.random.choices(steps, weights, k=STEPS):
            step()
            consumer.check()
        consumer.drain()
        consumer.backlog.stop()
        assert not consumer.sleepers.asleep
        assert consumer.backlog.take() is None

"""Load from separate processes, so that its threads do not wait for one interpreter.

Every process starts, connects, sends some messages to warm up, and waits at a barrier; only
what happens after it is measured.  A rate is all messages divided by the time from the
first process's begin to the last one's end.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from threading import Barrier, BrokenBarrierError
from typing import Final, Self

from rmqlite.client import AdminClient, Producer, PullConsumer
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import BrokerUnreachable, RmqliteError
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult

TOPIC: Final = "bench"
GROUP: Final = "rmqlite-bench"
WARM_UP_CALLS: Final = 20
ENDLESS: Final = 10**9
"""Messages of a load that ends by time."""
RARE_TOPIC: Final = "rare"
SPREAD_MESSAGES: Final = 8_192
READY_SECONDS_MAX: Final = 120.0
POLL_MS: Final = 60_000
_TICK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class LoadResult:
    """began_s: of the first send.  ended_s: of the last answer.  calls_ms: each call's duration."""

    began_s: float
    ended_s: float
    messages: int
    calls_ms: tuple[float, ...]
    last_deliver_at_ms: int

    @property
    def per_second(self) -> float:
        return self.messages / max(1e-6, self.ended_s - self.began_s)


@dataclass(frozen=True, slots=True)
class Load:
    """Threads that send until `messages` are sent or `seconds` have passed.

    interval_s: from one call of a thread to its next; 0: each call follows the last at once.  With
    an interval a call's duration counts from its planned start: if the call before took long, this
    one has waited, too.  warm_up_s: how long the same calls go to another topic before that.
    rare_every: one of this many messages of a thread goes to RARE_TOPIC; 0: none.

    topics: each call of a thread sends to the next of so many topics, see topic_names().
    in_flight: a thread waits for an answer only when so many are missing; 0: for each.
    after_s: instead of a level, a timer so long after the send.  spread_s: each message of a call
    is due at another moment of so many seconds behind that.
    """

    endpoint: str
    threads: int
    messages: int
    seconds: float
    batch: int = 1
    body_bytes: int = 1024
    level: int = 0
    interval_s: float = 0.0
    topic: str = TOPIC
    warm_up_s: float = 0.0
    rare_every: int = 0
    topics: int = 1
    in_flight: int = 0
    after_s: int = 0
    spread_s: int = 0

    def share(self, parts: int, index: int) -> Self:
        """The load of one process of several."""
        threads, messages = share(self.threads, parts, index), share(self.messages, parts, index)
        return replace(self, threads=threads, messages=messages)

    def warm_up(self) -> Self:
        topic = f"{self.topic}-warm-up"
        return replace(self, topic=topic, messages=ENDLESS, seconds=self.warm_up_s, topics=1)

    def topic_names(self) -> list[str]:
        return [self.topic, *[f"{self.topic}-{number}" for number in range(1, self.topics)]]

    def examples(self) -> list[Message]:
        """A message for each topic, or for many of the moments at which they are due."""
        body = bytes(range(256)) * (self.body_bytes // 256) + bytes(self.body_bytes % 256)
        if not self.after_s:
            return [Message(name, body, delay_level=self.level) for name in self.topic_names()]
        steps = [self.spread_s * n // SPREAD_MESSAGES for n in range(SPREAD_MESSAGES)]
        waits = [f"{self.after_s + step_s}s" for step_s in steps]
        return [
            Message(name, body, deliver_after=wait)
            for name in self.topic_names()
            for wait in (waits if self.spread_s else waits[:1])
        ]

    def producer(self) -> Producer:
        return Producer(self.endpoint, GROUP, in_flight_max=self.in_flight or 1)

    def calls(self, thread: int) -> Iterator[Sequence[Message]]:
        """What a thread sends in each call, without end."""
        examples, random = self.examples(), Random(thread)
        rare = replace(examples[0], topic=RARE_TOPIC)
        topic = self.topics * thread // self.threads
        # Rare messages come one by one, not one of every thread together.
        sent = self.rare_every * thread // self.threads
        while True:
            messages = [examples[topic]] * self.batch
            topic = (topic + 1) % self.topics
            if self.spread_s:
                messages = random.choices(examples, k=self.batch)
            if self.rare_every and sent % self.rare_every + self.batch >= self.rare_every:
                messages[0] = rare
            sent += self.batch
            yield messages

    def send(self, producer: Producer) -> LoadResult:
        if self.in_flight:
            return self._send_ahead(producer, self.examples()[0])
        with ThreadPoolExecutor(self.threads) as pool:
            from_thread = partial(self._send, producer, elapsed_s())
            return together(list(pool.map(from_thread, range(self.threads))))

    def _send(self, producer: Producer, began_s: float, thread: int) -> LoadResult:
        left = share(self.messages, self.threads, thread)
        calls_ms: list[float] = []
        deliver_at_ms = sent = 0
        now_s = began_s
        calls, planned = self.calls(thread), turns(began_s, self.interval_s)
        while sent < left and now_s - began_s < self.seconds:
            if self.interval_s:
                now_s = next(planned)
            messages = next(calls)[: left - sent]
            if self.batch == 1:
                result = producer.send(messages[0])
            else:
                result = producer.send_batch(messages)[-1]
            ended_s = elapsed_s()
            calls_ms.append((ended_s - now_s) * 1000)
            now_s = ended_s
            sent += len(messages)
            deliver_at_ms = max(deliver_at_ms, result.deliver_at_ms)
        return LoadResult(began_s, now_s, sent, tuple(calls_ms), deliver_at_ms)

    def _send_ahead(self, producer: Producer, message: Message) -> LoadResult:
        """One thread sends; the answers come to futures."""
        calls_ms: list[float] = []
        began_s = now_s = elapsed_s()
        sent = 0

        def answered(sent_s: float, future: Future[SendResult]) -> None:
            if future.exception() is None:
                calls_ms.append((elapsed_s() - sent_s) * 1000)

        while sent < self.messages and now_s - began_s < self.seconds:
            last = producer.send_async(message)
            last.add_done_callback(partial(answered, now_s))
            sent += 1
            now_s = elapsed_s()
        producer.flush()
        result = last.result()
        if len(calls_ms) < sent:
            raise BrokerUnreachable(f"{sent - len(calls_ms)} of {sent} messages were not stored")
        return LoadResult(began_s, elapsed_s(), sent, tuple(calls_ms), result.deliver_at_ms)


def run_here(load: Load, wait: Callable[[], object] = lambda: None) -> LoadResult:
    """Run a load in this process; `wait` is called between its warm-up and its begin."""
    with load.producer() as producer:
        for _ in range(WARM_UP_CALLS):
            producer.send(Message(f"{load.topic}-warm-up", b"x"))
        if load.warm_up_s:
            load.warm_up().send(producer)
        wait()
        return load.send(producer)


def run(load: Load, on_tick: Callable[[float], None]) -> LoadResult:
    """Share a load among processes; on_tick gets the share of its time, 0 to 1, now and then."""
    processes = min(load.threads, max(1, multiprocessing.cpu_count() - 1))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, context) as pool:
        barrier = manager.Barrier(processes)
        parts = [
            pool.submit(_work, load.share(processes, index), barrier) for index in range(processes)
        ]
        began_s = elapsed_s()
        while wait(parts, _TICK_S).not_done:
            on_tick(min(1.0, (elapsed_s() - began_s) / (load.warm_up_s + load.seconds)))
        try:
            return together([each.result() for each in parts])
        except BrokenProcessPool as error:
            raise BrokerUnreachable("a process that made load has ended") from error


def _work(load: Load, barrier: Barrier) -> LoadResult:
    try:
        return run_here(load, partial(barrier.wait, READY_SECONDS_MAX))
    except (RmqliteError, BrokenBarrierError) as error:
        barrier.abort()
        # An exception with arguments of its own does not survive the way to another process.
        raise BrokerUnreachable(f"a process that made load failed: {error}") from None


def together(parts: Sequence[LoadResult]) -> LoadResult:
    """What several threads or processes have sent at the same time."""
    return LoadResult(
        min([each.began_s for each in parts]),
        max([each.ended_s for each in parts]),
        sum([each.messages for each in parts]),
        tuple([ms for each in parts for ms in each.calls_ms]),
        max([each.last_deliver_at_ms for each in parts]),
    )


def share(total: int, parts: int, index: int) -> int:
    """What one of several gets, so that together they get all."""
    return total * (index + 1) // parts - total * index // parts


def turns(first_s: float, interval_s: float) -> Iterator[float]:
    """Planned starts at even intervals; each is returned when its time has come."""
    for turn_s in count(first_s, interval_s):
        pause_s(max(0.0, turn_s - elapsed_s()))
        yield turn_s


@contextmanager
def parked_polls(endpoint: str, topic: str, count: int) -> Iterator[None]:
    """Hold this many pulls that wait for a message which does not come."""
    with AdminClient(endpoint) as admin, PullConsumer(endpoint, GROUP) as consumer:
        admin.create_topic(topic, queues=1)
        for _ in range(count):
            consumer.pull_async(topic, 0, 0, wait_ms=POLL_MS)
        until_s = elapsed_s() + READY_SECONDS_MAX
        while (held := admin.broker_status().parked_polls) < count:
            if elapsed_s() > until_s:
                raise BrokerUnreachable(f"the broker holds {held} of {count} polls")
            pause_s(0.02)
        yield

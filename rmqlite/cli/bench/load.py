"""Load from separate processes, so that its threads do not wait for one interpreter.

Every process starts, connects, sends some messages to warm up, and waits at a barrier; only
what happens after it is measured.  A rate is all messages divided by the time from the
first process's begin to the last one's end.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING, Final

from rmqlite.clock import elapsed_s, pause_s
from rmqlite.errors import BrokerUnreachable, RmqliteError
from rmqlite.message import Message

if TYPE_CHECKING:
    from rmqlite.client import Producer
    from rmqlite.requests.messages import SendResult

TOPIC: Final = "bench"
RARE_TOPIC: Final = "rare"
GROUP: Final = "rmqlite-bench"
WARM_UP_CALLS: Final = 20
ENDLESS: Final = 10**9
"""Messages of a load that ends by time."""
SPREAD_MESSAGES: Final = 8_192
READY_SECONDS_MAX: Final = 120.0
POLL_MS: Final = 60_000
_TELL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """Threads that send until `messages` are sent or `seconds` have passed.

    interval_s: from one call of a thread to its next; 0: each call follows the last at once.
    rare_every: one of this many messages of a thread goes to RARE_TOPIC; 0: none.
    topics: each call of a thread sends to the next of so many topics, see topic_names().
    warm_up_s: how long the threads send to another topic before they are measured.
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
    rare_every: int = 0
    topic: str = TOPIC
    topics: int = 1
    warm_up_s: float = 0.0
    in_flight: int = 0
    after_s: int = 0
    spread_s: int = 0

    def share(self, parts: int, index: int) -> Load:
        """The load of one process of several."""
        threads, messages = _share(self.threads, parts, index), _share(self.messages, parts, index)
        return replace(self, threads=threads, messages=messages)

    def warm_up(self) -> Load:
        """The same calls, to another topic, for a short time."""
        topic, seconds = f"{self.topic}-warm-up", self.warm_up_s
        return replace(self, topic=topic, topics=1, messages=ENDLESS, seconds=seconds)

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


@dataclass(frozen=True, slots=True)
class LoadResult:
    """began_s: of the first send.  ended_s: of the last answer.  calls_ms: each call's duration.

    With an interval the duration counts from the planned start of a call: a call that began late
    because the one before took long has waited, too.
    """

    began_s: float
    ended_s: float
    messages: int
    calls_ms: tuple[float, ...]
    last_deliver_at_ms: int

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


def _together(parts: list[LoadResult]) -> LoadResult:
    return LoadResult(
        min([each.began_s for each in parts]),
        max([each.ended_s for each in parts]),
        sum([each.messages for each in parts]),
        tuple([ms for each in parts for ms in each.calls_ms]),
        max([each.last_deliver_at_ms for each in parts]),
    )


def turns(first_s: float, interval_s: float) -> Iterator[float]:
    """Planned starts at even intervals; each is returned when its time has come."""
    turn_s = first_s
    while True:
        pause_s(max(0.0, turn_s - elapsed_s()))
        yield turn_s
        turn_s += interval_s


def run(load: Load, on_tick: Callable[[float], None]) -> LoadResult:
    """Share a load among processes; on_tick gets the share done, 0 to 1, now and then."""
    processes = min(load.threads, max(1, multiprocessing.cpu_count() - 1))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, context) as pool:
        barrier, sent = manager.Barrier(processes), manager.dict()
        parts = [
            pool.submit(_work, load.share(processes, index), barrier, sent, index)
            for index in range(processes)
        ]
        began_s = elapsed_s()
        while wait(parts, _TELL_S).not_done:
            by_count = sum(sent.values()) / load.messages
            by_time = (elapsed_s() - began_s) / (load.warm_up_s + load.seconds)
            on_tick(min(1.0, max(by_count, by_time)))
        try:
            return _together([each.result() for each in parts])
        except BrokenProcessPool as error:
            raise BrokerUnreachable("a process that made load has ended") from error


def _share(total: int, parts: int, index: int) -> int:
    return total * (index + 1) // parts - total * index // parts


def _work(load: Load, barrier: Barrier, sent: MutableMapping[int, int], index: int) -> LoadResult:
    from rmqlite.client import Producer

    def tell(messages: int) -> None:
        sent[index] = messages

    try:
        with Producer(load.endpoint, GROUP, in_flight_max=load.in_flight or 1) as producer:
            for _ in range(WARM_UP_CALLS):
                producer.send(Message(f"{load.topic}-warm-up", b"x"))
            if load.warm_up_s:
                _measured(load.warm_up(), producer, lambda _: None)
            barrier.wait(READY_SECONDS_MAX)
            return _measured(load, producer, tell)
    except (RmqliteError, BrokenBarrierError) as error:
        barrier.abort()
        # An exception with arguments of its own does not survive the way to another process.
        raise BrokerUnreachable(f"a process that made load failed: {error}") from None


def _measured(load: Load, producer: Producer, tell: Callable[[int], None]) -> LoadResult:
    messages = load.examples()
    rare = replace(messages[0], topic=RARE_TOPIC)
    began_s = elapsed_s()

    def send(thread: int) -> LoadResult:
        left = _share(load.messages, load.threads, thread)
        calls_ms: list[float] = []
        deliver_at_ms = sent = 0
        # Rare messages come one by one, not one of every thread together.
        ahead = load.rare_every * thread // load.threads
        told_s = now_s = began_s
        planned = turns(began_s, load.interval_s)
        random = Random(thread)
        topic = load.topics * thread // load.threads
        while sent < left and now_s - began_s < load.seconds:
            if load.interval_s:
                now_s = next(planned)
            size = min(load.batch, left - sent)
            message, topic = messages[topic], (topic + 1) % load.topics
            if load.batch == 1:
                result = producer.send(message)
            else:
                together = [message] * size
                if load.spread_s:
                    together = random.choices(messages, k=size)
                if load.rare_every and (sent + ahead) % load.rare_every + size >= load.rare_every:
                    together[0] = rare
                result = producer.send_batch(together)[-1]
            after_s = elapsed_s()
            calls_ms.append((after_s - now_s) * 1000)
            now_s = after_s
            sent += size
            deliver_at_ms = max(deliver_at_ms, result.deliver_at_ms)
            if thread == 0 and now_s - told_s > _TELL_S:
                told_s = now_s
                tell(sent * load.threads)
        return LoadResult(began_s, now_s, sent, tuple(calls_ms), deliver_at_ms)

    if load.in_flight:
        return _measured_futures(load, producer, messages[0], tell)
    with ThreadPoolExecutor(load.threads) as pool:
        return _together(list(pool.map(send, range(load.threads))))


def _measured_futures(
    load: Load, producer: Producer, message: Message, tell: Callable[[int], None]
) -> LoadResult:
    """One thread sends; the answers come to futures."""
    calls_ms: list[float] = []
    began_s = now_s = told_s = elapsed_s()
    sent = 0

    def answered(sent_s: float, future: Future[SendResult]) -> None:
        if future.exception() is None:
            calls_ms.append((elapsed_s() - sent_s) * 1000)

    while sent < load.messages and now_s - began_s < load.seconds:
        last = producer.send_async(message)
        last.add_done_callback(partial(answered, now_s))
        sent += 1
        now_s = elapsed_s()
        if now_s - told_s > _TELL_S:
            told_s = now_s
            tell(sent)
    producer.flush()
    result = last.result()
    if len(calls_ms) < sent:
        raise BrokerUnreachable(f"{sent - len(calls_ms)} of {sent} messages were not stored")
    return LoadResult(began_s, elapsed_s(), sent, tuple(calls_ms), result.deliver_at_ms)


@contextmanager
def parked_polls(endpoint: str, topic: str, count: int) -> Iterator[None]:
    """Hold this many pulls that wait for a message which does not come."""
    from rmqlite.client import AdminClient, PullConsumer

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

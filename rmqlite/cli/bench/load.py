"""Load: threads that send to a broker, and what they measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from typing import Final, Self

from rmqlite.client import Producer
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.message import Message

TOPIC: Final = "bench"
GROUP: Final = "rmqlite-bench"
WARM_UP_CALLS: Final = 20
ENDLESS: Final = 10**9
"""Messages of a load that ends by time."""


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

    def warm_up(self) -> Self:
        topic = f"{self.topic}-warm-up"
        return replace(self, topic=topic, messages=ENDLESS, seconds=self.warm_up_s)

    def producer(self) -> Producer:
        return Producer(self.endpoint, GROUP)

    def calls(self, _thread: int) -> Iterator[Sequence[Message]]:
        """What a thread sends in each call, without end."""
        message = Message(self.topic, bytes(self.body_bytes), delay_level=self.level)
        return repeat([message] * self.batch)

    def send(self, producer: Producer) -> LoadResult:
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


def run(load: Load, wait: Callable[[], object] = lambda: None) -> LoadResult:
    """Run a load in this process; `wait` is called between its warm-up and its begin."""
    with load.producer() as producer:
        for _ in range(WARM_UP_CALLS):
            producer.send(Message(f"{load.topic}-warm-up", b"x"))
        if load.warm_up_s:
            load.warm_up().send(producer)
        wait()
        return load.send(producer)


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

"""What messages and calls wait for while the broker works: lateness, and a small steady load.

A call's time counts from its planned start, not from its real one: if a broker hangs for a second,
every call of that second shows it, and not only the one under way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rmqlite.client import CONSUME_SUCCESS, Producer, PullConsumer, PushConsumer
from rmqlite.kernel.words.clock import elapsed_s, pause_s, wall_ms
from rmqlite.kernel.words.message import Message, StoredMessage
from tests.benchmarks.broker.figures import Figure, spread
from tests.benchmarks.broker.loads import GROUP, TOPIC, turns

BESIDE_TOPIC: Final = "beside"
SENDERS: Final = 20
SENDS_PER_S: Final = 200
PULLERS: Final = 5
PULLS_PER_S: Final = 50
BODY_BYTES: Final = 1024
LATENESS_SECONDS: Final = 20.0
LATENESS_PER_S: Final = 50
RECEIPT_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Calls:
    """The duration of each call."""

    sends_ms: list[float] = field(default_factory=list)
    pulls_ms: list[float] = field(default_factory=list)

    def figures(self, scenario: str, when: str) -> Iterator[Figure]:
        """when: what else the broker did."""
        yield from spread(scenario, f"send {when}", self.sends_ms)
        yield from spread(scenario, f"pull {when}", self.pulls_ms)


@contextmanager
def calls_beside(endpoint: str) -> Iterator[Calls]:
    """Send to and pull from a topic of their own until the block ends; every thread at least once.

    The calls come from threads of this process, which only waits meanwhile.
    """
    message = Message(BESIDE_TOPIC, bytes(BODY_BYTES))
    with (
        Producer(endpoint, GROUP) as producer,
        PullConsumer(endpoint, GROUP) as consumer,
        ThreadPoolExecutor(SENDERS + PULLERS) as pool,
    ):
        calls = Calls()
        ended = threading.Event()

        def send() -> None:
            producer.send(message)

        def pull() -> None:
            consumer.pull(BESIDE_TOPIC, 0, 0, max_messages=1)

        def timed(
            call: Callable[[], None], first_s: float, interval_s: float, calls_ms: list[float]
        ) -> None:
            for turn_s in turns(first_s, interval_s):
                call()
                calls_ms.append((elapsed_s() - turn_s) * 1000)
                if ended.is_set():
                    return

        producer.send(message, queue_id=0)
        pull()
        began_s = elapsed_s()
        running = [
            pool.submit(timed, call, began_s + thread / per_second, threads / per_second, calls_ms)
            for call, threads, per_second, calls_ms in (
                (send, SENDERS, SENDS_PER_S, calls.sends_ms),
                (pull, PULLERS, PULLS_PER_S, calls.pulls_ms),
            )
            for thread in range(threads)
        ]
        try:
            yield calls
        finally:
            ended.set()
        for each in running:
            each.result()


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds after the deliver time: of the record in the topic, and of the listener."""

    sent: int
    stored_ms: tuple[int, ...]
    received_ms: tuple[int, ...]


def lateness(endpoint: str, message: Message, *, per_second: int, seconds: float) -> Lateness:
    """Send a message to TOPIC at an even pace, and measure how late it comes each time."""
    seen: dict[str, tuple[int, int]] = {}

    def listener(message: StoredMessage) -> Any:
        seen[message.message_id] = (message.store_timestamp_ms, wall_ms())
        return CONSUME_SUCCESS

    def wait_for(message_ids: set[str]) -> None:
        until_s = elapsed_s() + RECEIPT_SECONDS_MAX
        while not message_ids <= seen.keys() and elapsed_s() < until_s:
            pause_s(0.01)

    with (
        Producer(endpoint, GROUP) as producer,
        PushConsumer(endpoint, GROUP, consume_threads=4) as consumer,
    ):
        first = producer.send(Message(TOPIC, b"warm-up"))
        consumer.subscribe(TOPIC, "*")
        consumer.listen(listener)
        consumer.start()
        wait_for({first.message_id})
        paced = islice(turns(elapsed_s(), 1 / per_second), int(per_second * seconds))
        sent = [producer.send(message) for _ in paced]
        wait_for({each.message_id for each in sent})
    pairs = [(*seen[e.message_id], e.deliver_at_ms) for e in sent if e.message_id in seen]
    return Lateness(
        len(sent),
        tuple([stored_ms - due_ms for stored_ms, _, due_ms in pairs]),
        tuple([received_ms - due_ms for _, received_ms, due_ms in pairs]),
    )


def lateness_figures(scenario: str, case: str, result: Lateness) -> Iterator[Figure]:
    """Its spreads, and how many messages did not come."""
    yield from spread(scenario, f"{case}, stored", result.stored_ms)
    yield from spread(scenario, f"{case}, received", result.received_ms)
    missing = result.sent - len(result.received_ms)
    if missing:
        yield Figure(scenario, f"{case}, received", "missing", missing, "msg")

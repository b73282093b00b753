"""The scenarios that give a rate and are repeated: sends, the drain of a backlog, consumption.

Each run is on a broker with an empty store.  Before it counts, it sends for a short time like the
measured load, except drain: that begins with the start of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from rmqlite.client import CONSUME_SUCCESS, Producer, PullConsumer, PushConsumer
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import BrokerUnreachable
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker.bench import Bench, fill
from tests.benchmarks.broker.figures import Figure, spread
from tests.benchmarks.broker.loads import ENDLESS, GROUP, TOPIC, Load, LoadResult

SEND_SECONDS: Final = 5.0
WARM_UP_SECONDS: Final = 1.0
IN_FLIGHT: Final = 1_000
"""Messages without an answer, where one thread sends without a wait."""
DRAIN_MESSAGES: Final = 200_000
CONSUME_MESSAGES: Final = 100_000
CONSUME_BATCHES: Final = (32, 256)
CONSUME_SENDERS: Final = 8
CONSUME_THREADS: Final = 4
CONSUME_PULL_BATCH: Final = 256
CONSUME_CACHED_MAX: Final = 4_096
CONSUME_SECONDS_MAX: Final = 600.0
WARM_UP_MESSAGES: Final = 1_000
"""To the same topic, before the consumption counts."""


def sends(
    scenario: str,
    threads: Sequence[int],
    *,
    size: int = 1,
    level: int = 0,
    futures: bool = False,
) -> Callable[[Bench], Iterator[Figure]]:
    """A scenario of sends of 1 KiB: each call returns when the broker has answered.

    futures: in one case more, one thread sends and waits for none of the answers.
    """
    batch = f" x {size}" if size > 1 else ""
    cases = [(f"{count} thread{'s' * (count > 1)}{batch}", count, 0) for count in threads]
    if futures:
        cases.append(("1 thread, futures", 1, IN_FLIGHT))

    def measure(bench: Bench) -> Iterator[Figure]:
        for case, count, in_flight in cases:
            load = Load("", count, ENDLESS, 0.0, size, level=level, in_flight=in_flight)
            result = sent(bench, scenario, case, load)
            yield Figure(scenario, case, "rate", result.per_second, "msg/s")
            yield from spread(scenario, case, result.calls_ms)

    return measure


def sent(bench: Bench, scenario: str, case: str, load: Load) -> LoadResult:
    """Run a load on a broker of its own, for SEND_SECONDS after a warm-up."""
    with bench.broker(scenario) as broker:
        seconds, warm_up_s = bench.seconds(SEND_SECONDS), bench.seconds(WARM_UP_SECONDS)
        load = replace(load, endpoint=broker.endpoint, seconds=seconds, warm_up_s=warm_up_s)
        return bench.load(f"{scenario}: {case}", load)


def drain(bench: Bench) -> Iterator[Figure]:
    """The delivery rate of a backlog of one level, all of it due when the broker starts.

    The time counts from the first store timestamp in the topic to the last.
    """
    messages = bench.size(DRAIN_MESSAGES)
    rate = drained_per_s(bench, "drain", messages)
    yield Figure("drain", f"{messages:,} x 1 KiB", "rate", rate, "msg/s")


def drained_per_s(bench: Bench, name: str, messages: int, *, are_timers: bool = False) -> float:
    """How many of a backlog are delivered in a second."""
    with bench.overdue(name, messages, are_timers=are_timers) as broker:
        broker.start()
        return messages / bench.drained(f"{name}: deliver", broker, messages)


def consume(bench: Bench) -> Iterator[Figure]:
    """End to end: a producer sends batches, a push consumer consumes them and commits.

    The time counts from the first send to the answer to the last commit.  The consumer runs in
    this process, the producer in another one.
    """
    messages = bench.size(CONSUME_MESSAGES)
    for batch in CONSUME_BATCHES:
        with bench.broker("consume") as broker:
            took_s = _consumed(bench, broker, messages, batch)
            _check_committed(broker, messages + WARM_UP_MESSAGES)
        case = f"{messages:,} x 1 KiB, {batch} a call"
        yield Figure("consume", case, "rate", messages / took_s, "msg/s")


def _consumed(bench: Bench, broker: BrokerProcess, messages: int, batch: int) -> float:
    """Send and consume this many; returns the seconds from the first send to the last commit."""
    seen: list[int] = []

    def listener(message: StoredMessage) -> Any:
        seen.append(message.queue_offset)
        return CONSUME_SUCCESS

    def wait_for(count: int, sending: Future[LoadResult] | None = None) -> None:
        until_s = elapsed_s() + CONSUME_SECONDS_MAX
        while len(seen) < count:
            if elapsed_s() > until_s:
                raise BrokerUnreachable(f"only {len(seen)} of {count} messages were consumed")
            if sending is not None and sending.done() and sending.exception() is not None:
                return
            pause_s(0.002)

    load = replace(
        fill(broker, messages, level=0, batch=batch),
        threads=min(CONSUME_SENDERS, messages),
        warm_up_s=bench.seconds(WARM_UP_SECONDS),
    )
    with (
        ThreadPoolExecutor(1) as pool,
        Producer(broker.endpoint, GROUP) as producer,
        PushConsumer(
            broker.endpoint,
            GROUP,
            listener,
            consume_threads=CONSUME_THREADS,
            pull_batch=CONSUME_PULL_BATCH,
            cached_messages_max=CONSUME_CACHED_MAX,
        ) as consumer,
    ):
        producer.send_batch([Message(TOPIC, b"warm-up")] * WARM_UP_MESSAGES)
        consumer.subscribe(TOPIC)
        consumer.start()
        wait_for(WARM_UP_MESSAGES)
        # The load ends some time after its last answer: a thread waits for its processes.
        label = f"consume: {messages:,}, {batch} a call"
        sending = pool.submit(bench.load, label, load)
        wait_for(messages + WARM_UP_MESSAGES, sending)
        consumer.close()
        ended_s = elapsed_s()
        return ended_s - sending.result().began_s


def _check_committed(broker: BrokerProcess, messages: int) -> None:
    with PullConsumer(broker.endpoint, GROUP) as consumer:
        committed = sum([consumer.committed(queue) or 0 for queue in consumer.queues(TOPIC)])
    if committed != messages:
        raise BrokerUnreachable(f"{committed} of {messages} messages were committed")

"""Load from separate processes, so that it shares no interpreter with the broker.

Every process starts, connects, sends a few messages to warm up, and waits at a barrier; only
what happens after it is measured.  A rate is all messages divided by the time from the
first process's begin to the last one's end.
"""

from __future__ import annotations

import multiprocessing
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Barrier
from typing import TYPE_CHECKING, Any, Final

from rmqlite.clock import elapsed_s, pause_s, wall_ms
from rmqlite.errors import BrokerUnreachable, RmqliteError
from rmqlite.message import Message, StoredMessage

if TYPE_CHECKING:
    from rmqlite.client import Producer

WARM_UP_CALLS: Final = 20
BARRIER_SECONDS_MAX: Final = 120.0
RECEIPT_SECONDS_MAX: Final = 30.0
POLL_MS: Final = 60_000
RARE_TOPIC: Final = "rare"


@dataclass(frozen=True, slots=True)
class Load:
    """Threads that send until `messages` are sent or `seconds` have passed.

    interval_s: from one call of a thread to its next; 0: each call follows the last at once.
    rare_every: one of this many messages of a thread goes to RARE_TOPIC; 0: none.
    """

    endpoint: str
    topic: str
    threads: int
    messages: int
    seconds: float
    batch: int = 1
    body_bytes: int = 1024
    level: int = 0
    interval_s: float = 0.0
    rare_every: int = 0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """seconds: from the first send to the last answer.  calls_ms: the duration of each call.

    With an interval the duration counts from the planned start of a call: a call that began late
    because the one before took long has waited, too.
    """

    messages: int
    seconds: float
    calls_ms: tuple[float, ...]
    last_deliver_at_ms: int

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


def run(load: Load, on_tick: Callable[[float], None]) -> LoadResult:
    """Share a load among processes; on_tick gets the share done, 0 to 1, now and then."""
    processes = min(load.threads, max(1, multiprocessing.cpu_count() - 1))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    answers: list[_Answer] = []
    children: list[tuple[Any, Connection]] = []
    for index in range(processes):
        part = replace(
            load,
            threads=_part(load.threads, processes, index),
            messages=_part(load.messages, processes, index),
        )
        children.append(_child(context, part, barrier))
    try:
        began_s = elapsed_s()
        sent = dict.fromkeys(range(processes), 0)
        pipes = {pipe: index for index, (_, pipe) in enumerate(children)}
        while pipes:
            for ready in wait(list(pipes), timeout=0.2):
                assert isinstance(ready, Connection)
                told = _receive(ready)
                if isinstance(told, _Answer):
                    answers.append(told)
                    del pipes[ready]
                else:
                    sent[pipes[ready]] = told
            by_count = sum(sent.values()) / load.messages
            on_tick(min(1.0, max(by_count, (elapsed_s() - began_s) / load.seconds)))
    finally:
        for process, _ in children:
            if len(answers) < processes:
                process.terminate()
            process.join()
    began, ended = min([a.began_s for a in answers]), max([a.ended_s for a in answers])
    return LoadResult(
        sum([a.messages for a in answers]),
        ended - began,
        tuple([ms for a in answers for ms in a.calls_ms]),
        max([a.last_deliver_at_ms for a in answers]),
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    began_s: float
    ended_s: float
    messages: int
    calls_ms: array[float]
    last_deliver_at_ms: int


def _part(total: int, parts: int, index: int) -> int:
    return total * (index + 1) // parts - total * index // parts


def _child(context: SpawnContext, load: Load, barrier: Barrier) -> tuple[Any, Connection]:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(load, barrier, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _receive(pipe: Connection) -> _Answer | int:
    try:
        told = pipe.recv()
    except EOFError:
        raise BrokerUnreachable("a process that made load has ended") from None
    if isinstance(told, str):
        raise BrokerUnreachable(f"a process that made load failed: {told}")
    assert isinstance(told, (_Answer, int))
    return told


def _work(load: Load, barrier: Barrier, pipe: Connection) -> None:
    from rmqlite.client import Producer

    try:
        with Producer(load.endpoint, "rmqlite-bench") as producer:
            for _ in range(WARM_UP_CALLS):
                producer.send(Message(load.topic + "-warm-up", b"x"))
            barrier.wait(BARRIER_SECONDS_MAX)
            pipe.send(_measured(load, producer, pipe))
    except RmqliteError as error:
        barrier.abort()
        # Send text: an exception with its own arguments does not survive a pipe.
        pipe.send(str(error))


def _measured(load: Load, producer: Producer, pipe: Connection) -> _Answer:
    body = bytes(range(256)) * (load.body_bytes // 256) + bytes(load.body_bytes % 256)
    message = Message(load.topic, body, delay_level=load.level)
    rare = replace(message, topic=RARE_TOPIC)
    began_s = elapsed_s()

    def send(thread: int) -> tuple[int, array[float], int]:
        left = _part(load.messages, load.threads, thread)
        calls_ms, deliver_at_ms, sent = array("d"), 0, 0
        # Rare messages come one by one, not one of every thread together.
        ahead = load.rare_every * thread // load.threads
        told_s = now_s = began_s
        while sent < left and now_s - began_s < load.seconds:
            if load.interval_s:
                turn_s = began_s + len(calls_ms) * load.interval_s
                pause_s(max(0.0, turn_s - now_s))
                now_s = turn_s
            size = min(load.batch, left - sent)
            if load.batch == 1:
                result = producer.send(message)
            else:
                together = [message] * size
                if load.rare_every and (sent + ahead) % load.rare_every + size >= load.rare_every:
                    together[0] = rare
                result = producer.send_batch(together)[-1]
            after_s = elapsed_s()
            calls_ms.append((after_s - now_s) * 1000)
            now_s = after_s
            sent += size
            deliver_at_ms = max(deliver_at_ms, result.deliver_at_ms)
            if thread == 0 and now_s - told_s > 0.2:
                told_s = now_s
                pipe.send(sent * load.threads)
        return sent, calls_ms, deliver_at_ms

    with ThreadPoolExecutor(load.threads) as pool:
        parts = list(pool.map(send, range(load.threads)))
    calls_ms = array("d")
    for _, part, _ in parts:
        calls_ms.extend(part)
    messages = sum([sent for sent, _, _ in parts])
    return _Answer(began_s, elapsed_s(), messages, calls_ms, max([at for _, _, at in parts]))


def lateness(endpoint: str, topic: str, *, level: int, per_second: int, seconds: float) -> Lateness:
    """Send at an even pace in a separate process, and measure how late each message comes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        args = (endpoint, topic, level, per_second, seconds)
        late = pool.apply(_lateness, args)
    if isinstance(late, str):
        raise BrokerUnreachable(f"the process that made load failed: {late}")
    return late


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds after the deliver time: of the record in the topic, and of the listener."""

    sent: int
    stored_ms: tuple[int, ...]
    received_ms: tuple[int, ...]


def _lateness(
    endpoint: str, topic: str, level: int, per_second: int, seconds: float
) -> Lateness | str:
    from rmqlite.client import CONSUME_SUCCESS, Producer, PushConsumer

    seen: dict[str, tuple[int, int]] = {}

    def listener(message: StoredMessage) -> Any:
        seen[message.message_id] = (message.store_timestamp_ms, wall_ms())
        return CONSUME_SUCCESS

    try:
        with Producer(endpoint, "rmqlite-bench") as producer:
            first = producer.send(Message(topic, b"warm-up"))
            consumer = PushConsumer(endpoint, "rmqlite-bench", consume_threads=4)
            consumer.subscribe(topic, "*")
            consumer.listen(listener)
            consumer.start()
            try:
                _wait_for(lambda: first.message_id in seen)
                due = _paced(
                    producer,
                    Message(topic, bytes(1024), delay_level=level),
                    per_second,
                    int(per_second * seconds),
                )
                _wait_for(lambda: due.keys() <= seen.keys())
            finally:
                consumer.close()
    except RmqliteError as error:
        return str(error)
    pairs = [(seen[name], at_ms) for name, at_ms in due.items() if name in seen]
    return Lateness(
        len(due),
        tuple([stored_ms - at_ms for (stored_ms, _), at_ms in pairs]),
        tuple([received_ms - at_ms for (_, received_ms), at_ms in pairs]),
    )


def _paced(producer: Producer, message: Message, per_second: int, messages: int) -> dict[str, int]:
    due: dict[str, int] = {}
    began_s = elapsed_s()
    for number in range(messages):
        pause_s(max(0.0, began_s + number / per_second - elapsed_s()))
        result = producer.send(message)
        due[result.message_id] = result.deliver_at_ms
    return due


def _wait_for(is_done: Callable[[], bool]) -> None:
    until_s = elapsed_s() + RECEIPT_SECONDS_MAX
    while not is_done() and elapsed_s() < until_s:
        pause_s(0.01)


@contextmanager
def parked_polls(endpoint: str, topic: str, count: int) -> Iterator[None]:
    """Hold this many pulls that wait for a message which does not come."""
    from rmqlite.client import AdminClient, PullConsumer

    with AdminClient(endpoint) as admin, PullConsumer(endpoint, "rmqlite-bench") as consumer:
        admin.create_topic(topic, queues=1)
        for _ in range(count):
            consumer.pull_async(topic, 0, 0, wait_ms=POLL_MS)
        until_s = elapsed_s() + BARRIER_SECONDS_MAX
        while (held := admin.broker_status().parked_polls) < count:
            if elapsed_s() > until_s:
                raise BrokerUnreachable(f"the broker holds {held} of {count} polls")
            pause_s(0.02)
        yield

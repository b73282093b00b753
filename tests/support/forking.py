"""Programs that fork while they have clients.

    python -m tests.support.forking [SCENE ENDPOINT]...

Each prints what went wrong; if something did, FAILED and its name is said.  They run one after the
other, each in a process of its own, because that of the tests has threads and gRPC of other tests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait

from rmqlite.client import (
    AdminClient,
    BulkMessage,
    BulkScheduler,
    ChangeOutcome,
    Message,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    RawReader,
)
from rmqlite.client.asyncio import AsyncAdmin, AsyncProducer
from rmqlite.client.forks import CallFuture, step_aside
from rmqlite.kernel.words.errors import Refused, Unavailable
from tests.support.eventually import eventually

TOPIC = "forked"
CHILDREN = 3
EACH = 300
WAIT_S = 60.0
ALARM_S = 90
NEVER_MS = 3_600_000


CRASHES = (signal.SIGABRT, signal.SIGSEGV)
CRASHED = "a child crashed with signal"
FAILED = "failed:"


def forked(child: Callable[[], None]) -> int:
    """The process id of a child that runs this, and ends as any Python program does."""
    process_id = os.fork()
    if not process_id:
        signal.alarm(ALARM_S)  # a child that hangs ends, and not well
        child()
        sys.exit(0)
    return process_id


def ended_well(*process_ids: int) -> bool:
    statuses = [os.waitpid(each, 0)[1] for each in process_ids]
    for status in statuses:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in CRASHES:
            print(CRASHED, os.WTERMSIG(status), file=sys.stderr)
    return not any(statuses)


def refusal_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Refused as error:
        return str(error)
    raise AssertionError("a call without an error")


def ids(endpoint: str) -> None:
    """Children and parent use one producer; every id is another one."""
    producer = Producer(endpoint, "shop", linger_ms=1)
    producer.send(Message(TOPIC, b"first", delay="30m"))
    reading, writing = os.pipe()

    def send() -> None:
        sent = [producer.send_async(Message(TOPIC, b"x", delay="30m")) for _ in range(EACH)]
        found = [future.result(WAIT_S).message_id for future in sent]
        found += [producer.send(Message(TOPIC, b"x", delay="30m")).message_id]
        os.write(writing, "".join(f"{each}\n" for each in found).encode())
        producer.close()

    children = [forked(send) for _ in range(CHILDREN)]
    send()
    os.close(writing)
    with os.fdopen(reading) as lines:
        found = lines.read().split()
    assert ended_well(*children)
    assert len(set(found)) == len(found) == (CHILDREN + 1) * (EACH + 1)
    with Producer(endpoint, "shop") as other:
        cancelled = other.cancel(found[0], TOPIC)
    assert (cancelled.outcome, cancelled.count) == (ChangeOutcome.DONE, 1)


def every_client(endpoint: str) -> None:
    """The parent's idle clients work in a child, and in the parent after it."""
    admin, producer = AdminClient(endpoint), Producer(endpoint, "shop")
    puller, raw, bulk = PullConsumer(endpoint, "g"), RawReader(endpoint), BulkScheduler(endpoint)
    pusher = PushConsumer(endpoint, "pushed")
    pusher.subscribe(TOPIC)

    def use() -> None:
        producer.send(Message(TOPIC, b"x"))
        assert producer.send_async(Message(TOPIC, b"x", delay="1h")).result(WAIT_S)
        assert [each.queue for each in admin.ranges(TOPIC)] == puller.queues(TOPIC)
        assert puller.pull_async(TOPIC, 0, 0).result(WAIT_S)
        assert raw.snapshot([TOPIC]).queues
        assert bulk.schedule_all([BulkMessage(TOPIC, b"x")] * 3).accepted == 3

    def use_all() -> None:
        assert pusher.client_id != client_id
        came = threading.Event()
        pusher.listen(lambda _: came.set())
        use()
        pusher.start()
        assert came.wait(WAIT_S)
        for each in (pusher, admin, producer, puller, raw, bulk):
            each.close()

    client_id = pusher.client_id
    use()
    assert ended_well(forked(use_all))
    use()
    pusher.listen(lambda _: None)
    pusher.start()
    pusher.close()


def gathered(endpoint: str) -> None:
    """What a producer gathered before the fork is sent once, by the parent."""
    producer = Producer(endpoint, "shop", linger_ms=NEVER_MS)
    future = producer.send_async(Message(TOPIC, b"gathered"))
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())

    def check() -> None:
        assert isinstance(future.exception(WAIT_S), Unavailable)
        assert not called.is_set()
        producer.flush()
        own = producer.send_async(Message(TOPIC, b"own"))
        producer.close()
        assert own.result(0).message_id

    assert ended_well(forked(check))
    assert not future.done()
    producer.close()
    assert future.result(0).message_id
    with PullConsumer(endpoint, "g") as reader:
        pulls = [reader.pull(each.topic, each.queue_id) for each in reader.queues(TOPIC)]
    assert sorted(m.body for pull in pulls for m in pull.messages) == [b"gathered", b"own"]


def held_locks(endpoint: str) -> None:
    """A lock that another thread holds at the fork stays held for ever in the child."""
    producer, bulk = Producer(endpoint, "shop"), BulkScheduler(endpoint)
    consumer = PushConsumer(endpoint, "g", lambda _: None)
    producer.send(Message(TOPIC, b"x"))
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        # Without waiting: two conditions may share one lock.
        own = [each for each in locks_of(producer, bulk, consumer) if each.acquire(blocking=False)]
        held.set()
        let_go.wait()
        for lock in own:
            lock.release()

    def use() -> None:
        assert producer.send(Message(TOPIC, b"x", delay="1h")).message_id
        assert producer.send_async(Message(TOPIC, b"x")).result(WAIT_S)
        assert bulk.schedule_all([BulkMessage(TOPIC, b"x")]).accepted == 1
        consumer.subscribe(TOPIC)
        consumer.stop_listening()
        for each in (producer, bulk, consumer):
            each.close()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    child = forked(use)
    let_go.set()
    assert ended_well(child)
    holding.join()
    producer.close()


def locks_of(*clients: object) -> Iterator[threading.Lock]:
    """Every lock in these clients and in their parts."""
    kinds = (type(threading.Lock()), threading.Condition)
    for client in clients:
        for part in vars(client).values():
            if isinstance(part, threading.Event):
                yield vars(part)["_cond"]
            elif isinstance(part, kinds):
                yield part  # type: ignore[misc]
            elif type(part).__module__.startswith("rmqlite.client") and hasattr(part, "__dict__"):
                yield from locks_of(part)


def busy(endpoint: str) -> None:
    """While another thread is in a call, gRPC does not survive a fork: the child hears it."""
    admin, puller = AdminClient(endpoint), PullConsumer(endpoint, "g")
    admin.create_topic("empty", 1)
    producer = Producer(endpoint, "shop", linger_ms=NEVER_MS)
    raw, bulk = RawReader(endpoint), BulkScheduler(endpoint)
    poll = puller.pull_async("empty", 0, 0, wait_ms=25_000)

    def check() -> None:
        own = PushConsumer(endpoint, "g", lambda _: None)
        own.subscribe("empty")
        for call in (
            lambda: producer.send(Message(TOPIC, b"x")),
            lambda: Producer(endpoint, "shop").send_async(Message(TOPIC, b"x", delay="1h")),
            lambda: puller.pull("empty", 0),
            lambda: puller.pull_async("empty", 0, 0),
            admin.list_topics,
            raw.snapshot,
            lambda: bulk.schedule_all([BulkMessage(TOPIC, b"x")]),
            own.start,
        ):
            assert "forked" in refusal_of(call)
        late = producer.send_async(Message(TOPIC, b"x"))
        assert isinstance(poll.exception(WAIT_S), Unavailable)
        for each in (producer, admin, puller, raw, bulk, own):
            each.close()
        assert isinstance(late.exception(WAIT_S), Refused)

    assert ended_well(forked(check))
    admin.list_topics()
    producer.send(Message("empty", b"x"))
    # gRPC may drop the parent's connections at a fork: then the call ends, and may be repeated.
    assert isinstance(poll.exception(WAIT_S), Unavailable) or poll.result().messages


def aside(endpoint: str) -> None:
    """Who always waits for an answer steps aside for a fork, and the child can call the broker."""
    admin, producer = AdminClient(endpoint), Producer(endpoint, "shop")
    admin.create_topic("empty", 1)
    poller = Poller(endpoint)
    step_aside(poller)
    for _ in range(CHILDREN):
        poller.poll()
        assert ended_well(forked(lambda: producer.send(Message(TOPIC, b"child")) and None))
        producer.send(Message(TOPIC, b"parent"))
        eventually(lambda: poller.given_up > 0, "the poll was given up")


class Poller:
    """Has a long poll under way, and counts those that it gave up."""

    def __init__(self, endpoint: str) -> None:
        self._puller = PullConsumer(endpoint, "g")
        self._poll: CallFuture[PullResult] | None = None
        self.given_up = 0

    def poll(self) -> None:
        self._poll = self._puller.pull_async("empty", 0, 0, wait_ms=25_000)

    def step_aside(self) -> None:
        if self._poll is not None:
            self._poll.give_up()
            self.given_up += 1


def consuming(endpoint: str) -> None:
    """A started consumer stays the parent's: a child neither consumes nor leaves the group."""
    consumed: list[bytes] = []
    consumer = PushConsumer(endpoint, "workers", lambda message: consumed.append(message.body))
    consumer.subscribe(TOPIC)
    producer, admin = Producer(endpoint, "shop"), AdminClient(endpoint)
    producer.send(Message(TOPIC, b"1"))
    consumer.start()
    eventually(lambda: consumed == [b"1"], "the first is consumed")

    def check() -> None:
        assert consumer.queues == ()
        assert not consumer.wait_assigned(0)
        consumer.stop_listening()
        for call in (consumer.start, lambda: consumer.subscribe("t")):
            assert "before the fork" in refusal_of(call)
        consumer.close()

    assert ended_well(forked(check))
    producer.send(Message(TOPIC, b"2"))
    eventually(lambda: consumed == [b"1", b"2"], "the parent goes on")
    assert len(admin.group("workers").members) == 1
    consumer.close()
    assert admin.group("workers").members == ()


def without_support(endpoint: str) -> None:
    """With GRPC_ENABLE_FORK_SUPPORT=0 no call of a child works after one of its parent."""
    producer = Producer(endpoint, "shop")
    producer.send(Message(TOPIC, b"x"))

    def check() -> None:
        assert "forked" in refusal_of(lambda: producer.send(Message(TOPIC, b"x")))

    assert ended_well(forked(check))
    wait([producer.send_async(Message(TOPIC, b"x"))], WAIT_S)


def event_loops(endpoint: str) -> None:
    """Clients of an event loop that their parent has used work on a loop of the child."""

    async def use() -> None:
        assert (await producer.send(Message(TOPIC, b"x"))).message_id
        assert (await producer.send(Message(TOPIC, b"x", delay="30m"), 0)).deliver_at_ms
        assert await admin.ranges(TOPIC)

    async def made() -> tuple[AsyncProducer, AsyncAdmin]:
        return AsyncProducer(endpoint, "shop", in_flight_max=1), AsyncAdmin(endpoint)

    producer, admin = asyncio.run(made())
    asyncio.run(use())
    assert ended_well(forked(lambda: asyncio.run(use())))
    asyncio.run(use())
    asyncio.run(producer.close())
    asyncio.run(admin.close())


SCENES = {
    each.__name__: each
    for each in (
        ids,
        every_client,
        event_loops,
        gathered,
        held_locks,
        busy,
        aside,
        consuming,
        without_support,
    )
}


def main() -> None:
    """Nothing of gRPC has begun here: each scene begins as a new program does."""
    for scene, endpoint in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        process_id = os.fork()
        if not process_id:
            SCENES[scene](endpoint)
            return
        if os.waitpid(process_id, 0)[1]:
            print(FAILED, scene, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

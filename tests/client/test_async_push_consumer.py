"""AsyncPushConsumer: coroutine listeners, how many at a time, in which order, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    ConsumeResult,
    Message,
    StoredMessage,
    reconsume_later,
)
from rmqlite.client.asyncio import AsyncListener, AsyncPushConsumer
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue, Refused
from rmqlite.kernel.words.names import retry_topic
from tests.support.event_loops import MAKE, Slow, Steps, too_long, until
from tests.support.fake_broker import WAIT_S, FakeBroker, raises

QUEUE = Queue("orders", 0)


class Seen:
    """A listener that remembers, and waits or fails as it is told per body."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.running = self.running_max = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.errors: dict[str, BaseException] = {}
        self.results: dict[str, ConsumeResult] = {}

    async def __call__(self, message: StoredMessage) -> ConsumeResult | None:
        name = message.body.decode()
        self.begun.append(name)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            if name in self.gates:
                await self.gates[name].wait()
            await asyncio.sleep(0)
            if name in self.errors:
                raise self.errors[name]
            self.ended.append(name)
            return self.results.get(name)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.running -= 1


Test = Callable[[AsyncPushConsumer], Coroutine[Any, Any, None]]


def made(broker: FakeBroker, listener: AsyncListener | None, **options: Any) -> AsyncPushConsumer:
    broker.add_queues("orders")
    options = {"commit_interval_ms": 10, "close_timeout_ms": 20_000, **options}
    consumer = AsyncPushConsumer(broker.endpoint, "g", listener, **options)
    consumer.subscribe("orders")
    return consumer


def run(broker: FakeBroker, listener: AsyncListener, test: Test, **options: Any) -> None:
    async def whole() -> None:
        async with made(broker, listener, **options) as consumer:
            await consumer.start()
            await asyncio.wait_for(test(consumer), WAIT_S)

    asyncio.run(whole())


def fill(broker: FakeBroker, names: str, **fields: Any) -> None:
    for name in names:
        broker.add(Message("orders", name.encode(), **fields))


# ---- consuming


def test_every_message_is_consumed_in_a_task_and_committed(broker: FakeBroker) -> None:
    """On the loop of start(), each in its own task."""
    fill(broker, "abc")
    tasks: list[asyncio.Task[Any] | None] = []

    async def listener(_: StoredMessage) -> ConsumeResult:
        tasks.append(asyncio.current_task())
        return CONSUME_SUCCESS

    async def test(consumer: AsyncPushConsumer) -> None:
        await until(lambda: broker.committed.get(QUEUE) == 3, "all are committed")
        assert QUEUE in consumer.queues
        assert consumer.client_id in broker.members

    run(broker, listener, test)
    assert len(set(tasks)) == 3
    assert not broker.members


def test_a_failure_goes_back_with_its_reason(broker: FakeBroker) -> None:
    """An exception, a result, a value that is none, a cancel of its own, and SystemExit not here:
    that ends the loop."""
    fill(broker, "abcd")
    seen = Seen()
    seen.errors = {"a": KeyError("no such order"), "b": asyncio.CancelledError("by itself")}
    seen.results = {
        "c": reconsume_later(delay_level=DEAD_LETTER, reason="gave up"),
        "d": True,  # type: ignore[dict-item]
    }

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: len(broker.asked["SendBack"]) == 4, "all came back")
        await until(lambda: broker.committed.get(QUEUE) == 4, "and are committed")

    run(broker, seen, test)
    asked: list[SendBackRequest] = sorted(
        broker.asked["SendBack"], key=lambda each: each.physical_offset
    )
    a, b, c, d = [(each.delay_level, each.reason) for each in asked]
    assert a == (0, "KeyError: 'no such order'")
    assert b == (0, "CancelledError: by itself")
    assert c == (-1, "gave up")
    assert d[1].startswith("TypeError: listener Seen must return None, CONSUME_SUCCESS or")


def test_a_retry_shows_the_original_topic(broker: FakeBroker) -> None:
    """As with any PushConsumer."""
    fill(broker, "a")
    broker.add_queues(retry_topic("g"))
    topics: list[tuple[str, int]] = []

    async def listener(message: StoredMessage) -> ConsumeResult:
        topics.append((message.topic, message.reconsume_times))
        return reconsume_later() if len(topics) == 1 else CONSUME_SUCCESS

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: len(topics) == 2, "it came again")

    run(broker, listener, test)
    assert topics == [("orders", 0), ("orders", 1)]


def test_a_body_that_cannot_be_inflated_fails_without_the_listener(broker: FakeBroker) -> None:
    """And takes no place of another message."""
    for _ in range(3):
        broker.add(Message("orders", b"x"), sys_flag=0x1)
    fill(broker, "a")
    seen = Seen()

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: broker.committed.get(QUEUE) == 4, "all are finished")

    run(broker, seen, test, concurrency=1)
    assert seen.begun == ["a"]
    assert len(broker.asked["SendBack"]) == 3


# ---- how many, and in which order


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_no_more_messages_run_at_a_time_than_asked_for(
    broker: FakeBroker, concurrency: int
) -> None:
    """And as many as asked for do, if there are so many."""
    names = "abcdefghijklmnop"
    seen = Seen()
    fill(broker, names)

    async def test(_: AsyncPushConsumer) -> None:
        gate = asyncio.Event()
        seen.gates = dict.fromkeys(names, gate)
        broker.add_queues("orders")
        await until(lambda: seen.running == min(concurrency, len(names)), "all places are taken")
        gate.set()
        await until(lambda: broker.committed.get(QUEUE) == len(names), "all are consumed")

    async def listener(message: StoredMessage) -> ConsumeResult | None:
        while not seen.gates:
            await asyncio.sleep(0)
        return await seen(message)

    run(broker, listener, test, concurrency=concurrency)
    assert seen.running_max <= concurrency
    assert sorted(seen.ended) == list(names)


@pytest.mark.parametrize("concurrency", [2, 20])
def test_a_backlog_in_one_of_many_queues_is_consumed_to_its_end(
    broker: FakeBroker, concurrency: int
) -> None:
    """Nobody sends any more: a listener that returns is what lets the next one begin."""
    broker.add_queues("orders", 4)
    fill(broker, "abcdefghijklmnopqrstuvwxyz" * 2)

    async def listener(_: StoredMessage) -> None:
        await asyncio.sleep(0.001)

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: broker.committed.get(QUEUE) == 52, "all are consumed")

    run(broker, listener, test, concurrency=concurrency)


def test_equal_values_are_consumed_one_after_the_other(broker: FakeBroker) -> None:
    """Others pass them."""
    for name, key in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("a3", "a")):
        broker.add(Message("orders", name.encode(), keys=key))
    seen = Seen()

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: {"a1", "b2"} <= {*seen.begun}, "b passes a")
        assert seen.running_max <= 2
        assert "a2" not in seen.begun
        seen.gates["a1"].set()
        await until(lambda: broker.committed.get(QUEUE) == 5, "all are consumed")

    async def whole() -> None:
        seen.gates["a1"] = asyncio.Event()
        seen.errors["a2"] = ValueError("does not stop a3")
        options: Any = {"order_by": lambda message: message.keys}
        async with made(broker, seen, **options) as consumer:
            await consumer.start()
            await test(consumer)
            assert not consumer._latest

    asyncio.run(whole())
    assert [name for name in seen.begun if name[0] == "a"] == ["a1", "a2", "a3"]
    assert [name for name in seen.begun if name[0] == "b"] == ["b1", "b2"]


def test_an_order_that_cannot_be_told_fails_the_message(broker: FakeBroker) -> None:
    """The user's function is the user's code."""
    fill(broker, "a")
    seen = Seen()

    def order_by(message: StoredMessage) -> str:
        return message.properties["customer"]

    async def test(_: AsyncPushConsumer) -> None:
        await until(lambda: broker.committed.get(QUEUE) == 1, "it is finished")

    run(broker, seen, test, order_by=order_by)
    assert broker.asked["SendBack"][0].reason == "KeyError: 'customer'"
    assert seen.begun == []


# ---- the end


def test_close_waits_for_running_listeners_and_starts_no_other(broker: FakeBroker) -> None:
    """What they have done is committed; what did not begin comes again."""
    fill(broker, "ab")
    seen = Seen()

    async def whole() -> None:
        seen.gates["a"] = asyncio.Event()
        consumer = made(broker, seen, concurrency=1, commit_interval_ms=3_600_000)
        await consumer.start()
        await until(lambda: seen.begun == ["a"], "it runs")
        closing = asyncio.create_task(consumer.close())
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done
        seen.gates["a"].set()
        await closing
        await consumer.close()

    asyncio.run(whole())
    assert (seen.begun, seen.ended) == (["a"], ["a"])
    assert broker.committed == {QUEUE: 1}
    assert not broker.members


def test_listeners_that_run_too_long_are_cancelled_and_their_messages_come_again(
    broker: FakeBroker,
) -> None:
    """They do not count as failed."""
    fill(broker, "ab")
    seen = Seen()

    async def test(_: AsyncPushConsumer) -> None:
        seen.gates["a"] = asyncio.Event()
        await until(lambda: {*seen.begun} == {"a", "b"}, "they run")

    async def listener(message: StoredMessage) -> ConsumeResult | None:
        seen.gates.setdefault("a", asyncio.Event())
        return await seen(message)

    run(broker, listener, test, close_timeout_ms=50)
    assert seen.cancelled == ["a"]
    assert broker.asked["SendBack"] == []
    assert broker.committed.get(QUEUE, 0) == 0
    again = Seen()
    run(broker, again, lambda _: until(lambda: len(again.ended) == 2, "both come again"))
    assert broker.committed[QUEUE] == 2


def test_a_cancelled_close_goes_on(broker: FakeBroker) -> None:
    """As does one whose event loop is told to end."""
    fill(broker, "a")
    seen = Seen()

    async def whole() -> None:
        seen.gates["a"] = asyncio.Event()
        consumer = made(broker, seen, close_timeout_ms=3_600_000)
        await consumer.start()
        await until(lambda: seen.begun == ["a"], "it runs")
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert broker.members == {consumer.client_id}

    asyncio.run(whole())
    assert seen.cancelled == ["a"]
    assert broker.asked["SendBack"] == []
    assert not broker.members


def test_a_listener_may_close_its_consumer(broker: FakeBroker) -> None:
    """It waits for the other ones, not for itself."""
    fill(broker, "a")
    closed: list[AsyncPushConsumer] = []

    async def whole() -> None:
        over = asyncio.Event()

        async def listener(_: StoredMessage) -> None:
            await consumer.close()
            closed.append(consumer)
            over.set()

        consumer = made(broker, listener, concurrency=1, close_timeout_ms=3_600_000)
        await consumer.start()
        await asyncio.wait_for(over.wait(), WAIT_S)

    asyncio.run(whole())
    assert closed
    assert not broker.members


def test_a_cancelled_start_leaves_no_member(broker: FakeBroker) -> None:
    """Joining a group may take a while; nobody would close what has not begun."""
    slow = Slow(0.2)
    broker.answers["Heartbeat"] = slow.answer(partial(broker.plain, "Heartbeat"))
    consumers: list[AsyncPushConsumer] = []

    async def whole() -> None:
        consumers.append(made(broker, Seen(), heartbeat_interval_ms=0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumers[0].start(), 0.05)
        with pytest.raises(Refused, match="closed"):
            await consumers[0].start()

    asyncio.run(whole())
    assert not broker.members


def test_the_loop_that_ends_without_close_stops_the_consumer(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages are neither consumed nor lost."""

    async def whole() -> AsyncPushConsumer:
        consumer = made(broker, Seen())
        await consumer.start()
        return consumer

    consumer = asyncio.run(whole())
    fill(broker, "ab")
    broker.until(lambda: any("ended before close" in each for each in caplog.messages))
    asyncio.run(consumer.close())
    assert broker.committed.get(QUEUE, 0) == 0


# ---- what is refused


def test_a_function_that_would_block_the_loop_is_refused(broker: FakeBroker) -> None:
    """A plain one belongs to a PushConsumer."""
    consumer = AsyncPushConsumer(broker.endpoint, "g")
    for wrong in (lambda _: CONSUME_SUCCESS, print, partial(print, "x")):
        with pytest.raises(InvalidValue, match="must be an async function"):
            consumer.listen(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="listener must be a function"):
        AsyncPushConsumer(broker.endpoint, "g", "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="concurrency must be 1 or more"):
        AsyncPushConsumer(broker.endpoint, "g", concurrency=0)

    @consumer.listen
    async def listener(_: StoredMessage) -> None: ...

    assert consumer.listen(partial(Seen().__call__)) is not listener


def test_start_raises_what_the_push_consumer_raises(broker: FakeBroker) -> None:
    """Without a listener, twice, and when the broker refuses the group."""

    async def whole() -> None:
        with pytest.raises(Refused, match="no listener"):
            await made(broker, None).start()
        async with made(broker, Seen()) as consumer:
            await consumer.start()
            with pytest.raises(Refused, match="started"):
                await consumer.start()
        broker.answers["Heartbeat"] = raises(GroupUnknown("g"))
        async with made(broker, Seen()) as refused:
            with pytest.raises(GroupUnknown):
                await refused.start()

    asyncio.run(whole())


def test_nothing_of_it_holds_the_loop(broker: FakeBroker) -> None:
    """Joining, consuming, failing, committing and leaving a broker that takes its time."""
    fill(broker, "ab")
    slow = Slow(0.05)
    for name in ("Heartbeat", "SendBack", "CommitOffsets", "Leave", "QueryOffsets"):
        broker.answers[name] = slow.answer(partial(broker.plain, name))

    async def everything(steps: Steps) -> None:
        broker.committed.clear()
        begun = asyncio.Event()

        async def listener(message: StoredMessage) -> ConsumeResult:
            begun.set()
            return ConsumeResult(message.body == b"a")

        await steps.begin(MAKE)
        async with made(broker, listener) as consumer:
            await steps.begin("start")
            await consumer.start()
            await steps.begin("consume")
            await begun.wait()
            await steps.begin("close")

    assert too_long(everything) == {}

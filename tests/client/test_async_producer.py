"""AsyncProducer: the producer's sends and changes, awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from rmqlite.client import ChangedId, ChangeOutcome, Message, ScheduleAction
from rmqlite.client.asyncio import AsyncProducer
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.kernel.words.errors import (
    BrokerClosing,
    DelayUnknown,
    InvalidValue,
    Refused,
    Unavailable,
)
from tests.support.event_loops import MAKE, Slow, Steps, too_long, until
from tests.support.fake_broker import WAIT_S, FakeBroker, Sent, raises

CALL_S = 0.05


def message(name: str, **fields: Any) -> Message:
    return Message("orders", name.encode(), **fields)


def run(
    broker: FakeBroker, test: Callable[[AsyncProducer], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def whole() -> None:
        options.setdefault("send_timeout_ms", 20_000)
        async with AsyncProducer(broker.endpoint, "makers", **options) as producer:
            await asyncio.wait_for(test(producer), WAIT_S)

    asyncio.run(whole())


def held(broker: FakeBroker) -> threading.Event:
    """Sends are answered when this is set."""
    gate = threading.Event()

    def answer(request: Sent) -> Any:
        assert gate.wait(WAIT_S)
        return broker.plain("Send", request)

    broker.answers["Send"] = answer
    return gate


def changed(change: ChangeByIds) -> tuple[ChangedId, ...]:
    return tuple([ChangedId(each, ChangeOutcome.DONE, 1, 7) for each in change.message_ids])


def test_a_send_is_the_producers(broker: FakeBroker) -> None:
    """With a level, a delay in words, or a queue: the same request, the same result."""

    async def test(producer: AsyncProducer) -> None:
        plain = await producer.send(message("a", tags="T", keys="k"))
        assert (plain.topic, plain.queue_id, plain.queue_offset) == ("orders", 0, 0)
        assert (await producer.send(message("b"), queue_id=3)).queue_id == 3
        await producer.send(message("c", delay="10s"))

    run(broker, test)
    first, second, third = [each for request in broker.asked["Send"] for each in request.messages]
    assert (first.tags, first.keys, first.body) == ("T", ("k",), b"a")
    assert (second.body, third.delay) == (b"b", "10s")


def test_sends_of_many_tasks_share_calls(broker: FakeBroker) -> None:
    """Without a linger: what comes while calls are under way goes together."""

    async def test(producer: AsyncProducer) -> None:
        names = [str(number) for number in range(500)]
        results = await asyncio.gather(*[producer.send(message(each)) for each in names])
        assert len({each.message_id for each in results}) == 500

    run(broker, test)
    assert sum(map(len, broker.names_sent())) == 500
    assert len(broker.asked["Send"]) < 100


def test_a_batch_has_its_results_in_order(broker: FakeBroker) -> None:
    """Of any iterable."""

    async def test(producer: AsyncProducer) -> None:
        results = await producer.send_batch(message(each) for each in "abc")
        assert [each.queue_offset for each in results] == [0, 1, 2]

    run(broker, test)
    assert broker.names_sent() == [["a", "b", "c"]]


def test_errors_are_the_producers(broker: FakeBroker) -> None:
    """Those before the send, and those of the broker."""

    async def test(producer: AsyncProducer) -> None:
        with pytest.raises(InvalidValue, match="message must be a Message"):
            await producer.send("a")  # type: ignore[arg-type]
        with pytest.raises(DelayUnknown):
            await producer.send(message("a", delay="7s"))
        with pytest.raises(InvalidValue, match="request must be of the types that it declares"):
            await producer.cancel(7)  # type: ignore[arg-type]
        broker.answers["Send"] = raises(BrokerClosing())
        with pytest.raises(BrokerClosing):
            await producer.send(message("a"))

    run(broker, test, retries=0)
    with pytest.raises(InvalidValue, match="in_flight_max must be 1 or more"):
        AsyncProducer(broker.endpoint, "makers", in_flight_max=0)


def test_a_waiting_message_is_cancelled_and_rescheduled(broker: FakeBroker) -> None:
    """By its id; the outcome says what was found."""
    broker.answers["ChangeByIds"] = changed

    async def test(producer: AsyncProducer) -> None:
        assert (await producer.cancel("A", "orders")).outcome is ChangeOutcome.DONE
        assert (await producer.reschedule("B", deliver_after="36h")).message_id == "B"
        await producer.reschedule("C", delay_level=5, topic="orders")

    run(broker, test)
    first, second, third = broker.asked["ChangeByIds"]
    assert first == ChangeByIds(ScheduleAction.CANCEL, ("A",), "orders")
    assert (second.action, second.deliver_after_ms) == (ScheduleAction.RESCHEDULE, 36 * 3_600_000)
    assert (third.message_ids, third.topic, third.delay_level) == (("C",), "orders", 5)


def test_a_cancelled_send_is_sent_all_the_same_and_leaves_nothing(broker: FakeBroker) -> None:
    """Its place among those in flight is free when its outcome is there, not before."""
    gate = held(broker)

    async def test(producer: AsyncProducer) -> None:
        first = asyncio.create_task(producer.send(message("a")))
        await until(lambda: len(broker.asked["Send"]) == 1, "the first is under way")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(producer.send(message("b")))
        done, _ = await asyncio.wait([second], timeout=0.05)
        assert not done
        assert len(broker.asked["Send"]) == 1
        gate.set()
        await second

    run(broker, test, in_flight_max=1)
    assert broker.names_sent() == [["a"], ["b"]]


def test_a_call_that_no_thread_took_yet_is_never_made_once_cancelled(broker: FakeBroker) -> None:
    """And one that was begun is finished: nothing is half done."""
    gate = threading.Event()

    def answer(change: ChangeByIds) -> tuple[ChangedId, ...]:
        assert gate.wait(WAIT_S)
        return changed(change)

    broker.answers["ChangeByIds"] = answer

    async def test(producer: AsyncProducer) -> None:
        calls = [asyncio.create_task(producer.cancel(f"A{number}")) for number in range(20)]
        await until(lambda: len(broker.asked["ChangeByIds"]) == 8, "every thread is in a call")
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        gate.set()

    run(broker, test)
    assert len(broker.asked["ChangeByIds"]) == 8


def test_close_waits_for_what_is_under_way_and_later_calls_are_refused(broker: FakeBroker) -> None:
    """Also if the await of close() is cancelled: closing goes on."""
    gate = held(broker)

    async def test(producer: AsyncProducer) -> None:
        send = asyncio.create_task(producer.send(message("a")))
        await until(lambda: len(broker.asked["Send"]) == 1, "it is under way")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        for late in (producer.send(message("b")), producer.cancel("A"), producer.send_batch([])):
            with pytest.raises(Refused, match="closed"):
                await late
        gate.set()
        assert (await send).queue_offset == 0
        await producer.close()

    run(broker, test)
    assert broker.names_sent() == [["a"]]


def test_a_loop_that_ends_before_the_answer_disturbs_nobody(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer's thread has other futures to set."""
    gate = held(broker)
    made: list[AsyncProducer] = []

    async def abandoned() -> None:
        made.append(AsyncProducer(broker.endpoint, "makers", send_timeout_ms=20_000))
        send = asyncio.create_task(made[0].send(message("a")))
        await until(lambda: len(broker.asked["Send"]) == 1, "it is under way")
        send.cancel()

    asyncio.run(abandoned())
    gate.set()
    asyncio.run(made[0].close())
    assert caplog.records == []


def test_no_call_holds_the_loop(broker: FakeBroker) -> None:
    """Connecting, answers that take a while, and closing: none of it in a turn of the loop."""
    slow = Slow(CALL_S)
    for name in ("Send", "GetRoute"):
        broker.answers[name] = slow.answer(partial(broker.plain, name))
    broker.answers["ChangeByIds"] = slow.answer(changed)

    async def everything(steps: Steps) -> None:
        await steps.begin(MAKE)
        async with AsyncProducer(broker.endpoint, "makers", send_timeout_ms=20_000) as producer:
            result = await producer.send(message("a", deliver_after="1h"))
            for name, call in (
                ("send", partial(producer.send, message("b"))),
                ("delay", partial(producer.send, message("b", delay="10s"))),
                ("queue", partial(producer.send, message("c"), queue_id=1)),
                ("batch", partial(producer.send_batch, map(message, "de"))),
                ("cancel", partial(producer.cancel, "A")),
                ("reschedule", partial(producer.reschedule, "A", delay_level=1)),
                ("handle", partial(producer.recall_handle, message("a"), result)),
                ("flush", producer.flush),
                ("close", producer.close),
            ):
                await steps.begin(name)
                await call()

    assert too_long(everything) == {}


def test_the_watch_sees_what_holds_the_loop() -> None:
    """Else the tests with it would say nothing."""

    async def blocking(steps: Steps) -> None:
        await steps.begin("wait")
        threading.Event().wait(0.6 * CALL_S)
        await steps.begin("work")
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass

    assert {*too_long(blocking)} == {"wait", "work"}


def test_nobody_there_is_an_error_that_holds_no_loop() -> None:
    """The name is looked up, and the port tried, in a thread."""

    async def away(steps: Steps) -> None:
        async with AsyncProducer("127.0.0.1:1", "makers", retries=0) as producer:
            await steps.begin("send")
            with pytest.raises(Unavailable):
                await producer.send(message("a"))
            await steps.begin("cancel")
            with pytest.raises(Unavailable):
                await producer.cancel("A")

    assert too_long(away) == {}

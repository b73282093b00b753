"""AsyncAdmin: an administrator's questions and changes, awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from rmqlite.client import AdminClient, ChangeOutcome, PendingFilter, ScheduleAction
from rmqlite.client.asyncio import AsyncAdmin
from rmqlite.client.channel import waited
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue, Refused, Unavailable
from tests.support.event_loops import MAKE, Slow, Steps, too_long, until
from tests.support.fake_broker import GROUP, STATUS, TOPICS, WAIT_S, FakeBroker, raises
from tests.support.fake_schedule import changes, has_schedule, waiting


def run(broker: FakeBroker, test: Callable[[AsyncAdmin], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with AsyncAdmin(broker.endpoint, timeout_ms=20_000) as admin:
            await asyncio.wait_for(test(admin), WAIT_S)

    asyncio.run(whole())


def test_a_call_is_the_administrators(broker: FakeBroker) -> None:
    """Its parameters, its answer, its errors."""
    broker.answers = {
        "ListTopics": lambda _: TOPICS,
        "CreateTopic": lambda asked: asked,
        "DescribeGroup": lambda _: GROUP,
        "GetBrokerStatus": lambda _: STATUS,
    }

    async def test(admin: AsyncAdmin) -> None:
        assert await admin.list_topics() == TOPICS
        assert await admin.create_topic("orders", queues=8) == TopicInfo("orders", 8, 8)
        assert await admin.group("workers") == GROUP
        assert await admin.broker_status() == STATUS
        broker.answers["DescribeGroup"] = raises(GroupUnknown("x"))
        with pytest.raises(GroupUnknown):
            await admin.group("x")
        with pytest.raises(InvalidValue, match="request must be of the types that it declares"):
            await admin.create_topic("orders", queues="8")  # type: ignore[arg-type]

    run(broker, test)


def test_waiting_messages_are_listed_page_by_page_and_changed(broker: FakeBroker) -> None:
    """A long list never stands in memory, and no page is asked for before it is needed."""
    pages = [[waiting(100 * page + number) for number in range(100)] for page in range(3)]
    has_schedule(broker, *pages)
    changes(broker)

    async def test(admin: AsyncAdmin) -> None:
        messages = admin.schedule.pending(PendingFilter(topic="orders"))
        assert not broker.asked["ListPending"]
        assert await anext(messages) == pages[0][0]
        assert len(broker.asked["ListPending"]) == 1
        rest = [each async for each in messages]
        assert [pages[0][0], *rest] == [each for page in pages for each in page]
        (one,) = await admin.schedule.cancel("A", topic="orders")
        assert one.outcome is ChangeOutcome.DONE

    run(broker, test)
    assert broker.asked["ChangeByIds"] == [ChangeByIds(ScheduleAction.CANCEL, ("A",), "orders")]


def test_after_close_every_call_is_refused(broker: FakeBroker) -> None:
    """Also those of the parts."""

    async def test(admin: AsyncAdmin) -> None:
        await admin.close()
        for late in (admin.list_topics(), admin.schedule.fire("A"), admin.redrives.jobs()):
            with pytest.raises(Refused, match="closed"):
                await late
        with pytest.raises(Refused, match="closed"):
            await anext(admin.dead_letters.dead("g"))

    run(broker, test)


def test_a_time_out_counts_the_wait_for_a_thread(broker: FakeBroker) -> None:
    """Eight calls that hang must not hold a ninth for their time and its own."""
    gate = threading.Event()
    broker.answers["GetBrokerStatus"] = lambda _: gate.wait(WAIT_S) and STATUS
    broker.answers["ListTopics"] = lambda _: TOPICS

    async def whole() -> None:
        async with AsyncAdmin(broker.endpoint, timeout_ms=500) as admin:
            admin._threads._timeout_s = 0.05  # the ninth is late first
            busy = [asyncio.create_task(admin.broker_status()) for _ in range(8)]
            await until(lambda: len(broker.asked["GetBrokerStatus"]) == 8, "all hang")
            with pytest.raises(Unavailable, match="no thread was free for this call"):
                await admin.list_topics()
            assert broker.asked["ListTopics"] == []
            gate.set()
            await asyncio.gather(*busy, return_exceptions=True)
            assert await admin.list_topics() == TOPICS

    asyncio.run(whole())


def test_what_the_wait_has_taken_is_not_given_to_the_call(broker: FakeBroker) -> None:
    """Else a call could take twice its time-out."""
    broker.answers["ListTopics"] = Slow(0.3).answer(lambda _: TOPICS)
    with AdminClient(broker.endpoint, timeout_ms=20_000) as admin:
        assert admin.list_topics() == TOPICS
        with waited(19.99), pytest.raises(Unavailable):
            admin.list_topics()


def test_a_method_keeps_its_documentation_and_its_parameters() -> None:
    """An editor shows them."""
    assert AsyncAdmin.create_topic.__doc__ == AdminClient.create_topic.__doc__
    signatures = [inspect.signature(each.create_topic) for each in (AsyncAdmin, AdminClient)]
    assert signatures[0] == signatures[1]
    assert inspect.iscoroutinefunction(AsyncAdmin.create_topic)


def test_no_call_holds_the_loop(broker: FakeBroker) -> None:
    """Whatever its broker takes."""
    slow = Slow(0.05)
    has_schedule(broker, [waiting(1)], [waiting(2)])
    for name, answer in {
        **broker.answers,
        "ListTopics": lambda _: TOPICS,
        "DescribeGroup": lambda _: GROUP,
    }.items():
        broker.answers[name] = slow.answer(answer)

    async def everything(steps: Steps) -> None:
        await steps.begin(MAKE)
        async with AsyncAdmin(broker.endpoint, timeout_ms=20_000) as admin:
            for call in (admin.list_topics, partial(admin.group, "g"), admin.levels):
                await steps.begin("call")
                await call()
            await steps.begin("list")
            assert len([each async for each in admin.schedule.pending()]) == 2
            await steps.begin("close")

    assert too_long(everything) == {}

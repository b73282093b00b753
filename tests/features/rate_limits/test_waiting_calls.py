"""Calls that wait for tokens: who is woken, when, and by how many timers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.leases.requests import ReceiveRequest
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.leases import CLIENT, INVISIBLE_MS, body
from tests.support.messages import GROUP, TOPIC, create_topic, plain
from tests.support.rate_limits import HandTime, begin_limits, limit
from tests.support.sends import call_of
from tests.support.services import Served, served

PULL = PullRequest(GROUP, TOPIC, 0, 0, wait_ms=30_000)
RECEIVE = ReceiveRequest(GROUP, TOPIC, CLIENT, invisible_ms=INVISIBLE_MS, wait_ms=30_000)


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A broker with twenty messages in a queue."""
    broker = BrokerUnderTest(tmp_path / "store")
    create_topic(broker, TOPIC)
    broker.send(*[plain(str(each)) for each in range(20)])
    yield broker
    broker.store.release()
    assert list(check(broker.config.store_path)) == []


def begin(under_test: BrokerUnderTest, server: Served, per_second: float, burst: int) -> HandTime:
    under_test.heard.appended = server.commit.appended  # type: ignore[method-assign]
    time = begin_limits(under_test.broker, server.service._pulls)
    limit(under_test.broker, per_second, burst)
    return time


async def parked(server: Served, *calls: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Calls that wait, in this order."""
    before, tasks = server.service.parked, []
    for number, call in enumerate(calls, before + 1):
        tasks.append(asyncio.create_task(call))
        await turns_until(lambda number=number: server.service.parked == number)  # type: ignore[misc]
    return tasks


async def settled() -> None:
    """Who is woken has had its turns."""
    for _ in range(200):
        await asyncio.sleep(0)


def bodies(pulled: Pulled) -> list[str]:
    return [each.body.decode() for each in pulled.records]


def test_a_waiting_pull_is_woken_when_there_is_a_token(under_test: BrokerUnderTest) -> None:
    """Not a moment earlier, and by the one timer of the limit."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 2, 10)
        (call,) = await parked(server, server.service.messages.pull(PULL))
        assert len(time.running) == 1
        time.forward(0.499)
        await settled()
        assert not call.done()
        time.forward(0.002)
        assert bodies(await call) == ["0"]
        await settled()
        assert not time.running

    served(under_test, scenario)


def test_calls_of_all_protocols_wait_in_one_line(under_test: BrokerUnderTest) -> None:
    """Who waits for longest is the first: a pull does not overtake a receive."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 1, 10)
        pull, receive = server.service.messages.pull, server.service[LeaseCalls].receive
        calls = await parked(
            server, receive(replace(RECEIVE, max_messages=1)), pull(PULL), receive(RECEIVE)
        )
        for answered in range(1, 4):
            assert len(time.running) == 1
            time.forward(1)
            await settled()
            assert [call.done() for call in calls] == [n < answered for n in range(3)]
        assert [body(each) for each in (await calls[0]).messages] == ["0"]
        assert bodies(await calls[1]) == ["0"]
        assert [body(each) for each in (await calls[2]).messages] == ["1"]

    served(under_test, scenario)


def test_a_new_call_does_not_overtake_those_that_wait(under_test: BrokerUnderTest) -> None:
    """Also if it comes in the moment in which there is a token; one that does not wait gets
    nothing until the line is empty."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 10, 10)
        pull = server.service.messages.pull
        (first,) = await parked(server, pull(PULL))
        time.now_s += 0.2
        assert not (await pull(replace(PULL, wait_ms=0))).records
        time.forward(0)
        assert bodies(await first) == ["0", "1"]
        time.now_s += 0.1
        assert bodies(await pull(replace(PULL, wait_ms=0))) == ["0"]

    served(under_test, scenario)


def test_tokens_that_a_look_gives_back_wake_the_next_call(under_test: BrokerUnderTest) -> None:
    """A receive of a topic without messages takes the token, finds nothing, and waits for a
    message; the call behind it must not wait for another token."""

    async def scenario(server: Served, _: object) -> None:
        create_topic(under_test, "empty")
        time = begin(under_test, server, 1, 1)
        receive = server.service[LeaseCalls].receive
        idle, busy = await parked(
            server, receive(replace(RECEIVE, topic="empty")), receive(RECEIVE)
        )
        time.forward(1)
        await settled()
        time.forward(0)
        assert [body(each) for each in (await busy).messages] == ["0"]
        assert not idle.done()
        await server.service.messages.send(call_of((plain("x", "empty"),)))
        await settled()
        assert not idle.done()
        time.forward(1)
        assert [body(each) for each in (await idle).messages] == ["x"]

    served(under_test, scenario)


def test_a_call_that_is_gone_keeps_no_token(under_test: BrokerUnderTest) -> None:
    """Its client hung up in the moment in which it was woken: the next call has its turn."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 1, 1)
        pull, receive = server.service.messages.pull, server.service[LeaseCalls].receive
        first, second, third = await parked(server, receive(RECEIVE), pull(PULL), receive(RECEIVE))
        time.forward(1)
        first.cancel()
        await settled()
        time.forward(0.1)
        assert bodies(await second) == ["0"]
        third.cancel()
        await settled()
        assert server.service.parked == 0

    served(under_test, scenario)


def test_a_receive_that_ends_in_the_line_lets_another_one_look(under_test: BrokerUnderTest) -> None:
    """It was the one that a new message had woken, and it has not looked."""

    async def scenario(server: Served, _: object) -> None:
        create_topic(under_test, "empty")
        time = begin(under_test, server, 1, 2)
        receive = server.service[LeaseCalls].receive
        asked = replace(RECEIVE, topic="empty")
        time.forward(2)
        one, other = await parked(server, receive(asked), receive(asked))
        assert len(bodies(await server.service.messages.pull(PULL))) == 2
        await server.service.messages.send(call_of((plain("x", "empty"),)))
        await settled()
        one.cancel()
        await settled()
        time.forward(1)
        assert [body(each) for each in (await other).messages] == ["x"]

    served(under_test, scenario)


def test_a_pull_whose_time_is_over_is_answered_as_at_the_end(under_test: BrokerUnderTest) -> None:
    """Its client asks again from the same place, after a wait as long as it asked for."""

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server, 0.001, 1)
        answer = await server.service.messages.pull(replace(PULL, wait_ms=5))
        assert (answer.status, answer.next_offset) == (PullStatus.NO_NEW_MESSAGE, 0)
        received = await server.service[LeaseCalls].receive(replace(RECEIVE, wait_ms=5))
        assert (received.messages, received.has_more) == ((), False)
        assert server.service.parked == 0

    served(under_test, scenario)


@pytest.mark.parametrize("per_second", [0.0, 1_000.0])
def test_a_change_is_in_force_for_calls_that_wait(
    under_test: BrokerUnderTest, per_second: float
) -> None:
    """An operator who ends a limit, or raises it, does not wait for the former one's next token."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 0.001, 1)
        pull, receive = server.service.messages.pull, server.service[LeaseCalls].receive
        calls = await parked(server, pull(PULL), receive(replace(RECEIVE, max_messages=1)))
        limit(under_test.broker, per_second, 5)
        for _ in range(2):
            time.forward(0.005)
            await settled()
        assert all(call.done() for call in calls)
        assert not time.running

    served(under_test, scenario)


def test_a_limit_that_is_set_counts_for_calls_that_wait_for_a_message(
    under_test: BrokerUnderTest,
) -> None:
    """They have begun without one."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 0, 0)
        (call,) = await parked(server, server.service.messages.pull(replace(PULL, queue_offset=20)))
        limit(under_test.broker, 1)
        await server.service.messages.send(call_of((plain("a"), plain("b")), queue_id=0))
        await settled()
        assert not call.done()
        time.forward(1)
        assert bodies(await call) == ["a"]

    served(under_test, scenario)


def test_calls_that_wait_for_a_limit_are_bounded_and_end_with_the_broker(
    under_test: BrokerUnderTest,
) -> None:
    """By maxParkedPolls, as those that wait for a message."""

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server, 0.001, 1)
        pull = server.service.messages.pull
        calls = await parked(server, *[pull(PULL) for _ in range(10)])
        with pytest.raises(Overloaded, match="maxParkedPolls"):
            await pull(PULL)
        server.service.close()
        answers = await asyncio.gather(*calls)
        assert [each.status for each in answers] == [PullStatus.NO_NEW_MESSAGE] * 10

    served(under_test, scenario)


def test_members_that_always_ask_get_the_rate_and_even_shares(under_test: BrokerUnderTest) -> None:
    """Four members for twenty seconds of the clock that a test moves: to the token."""

    async def scenario(server: Served, _: object) -> None:
        time = begin(under_test, server, 25, 25)
        counts = [0] * 4

        async def member(number: int) -> None:
            while True:
                found = await server.service.messages.pull(PULL)
                counts[number] += len(found.records)

        members = [asyncio.create_task(member(number)) for number in range(4)]
        await settled()
        for _ in range(20 * 25):
            time.forward(0.04)
            await settled()
        for each in members:
            each.cancel()
        await asyncio.wait(members)
        assert sum(counts) in (499, 500)
        assert max(counts) - min(counts) <= 1

    served(under_test, scenario)

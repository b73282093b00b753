"""Leases at the service: who waits, who is woken, and when an answer may leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqlite.features.leases.feature import Expiring
from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.requests import AckRequest, InvisibleChange, ReceiveRequest
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.features.leases.taking import Received
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.words.message import MESSAGE_GROUP
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.leases import CLIENT, INVISIBLE_MS, Consumer, body
from tests.support.messages import GROUP, TOPIC, plain
from tests.support.sends import call_of
from tests.support.services import Served, served

ASKED = ReceiveRequest(GROUP, TOPIC, CLIENT, invisible_ms=INVISIBLE_MS, wait_ms=30_000)


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A broker with a topic whose only message is consumed."""
    broker = BrokerUnderTest(tmp_path / "store")
    broker.send(plain("first"))
    consumer = Consumer(broker)
    consumer.ack(*consumer.receive().messages)
    yield broker
    broker.store.release()
    assert list(check(broker.config.store_path)) == []


async def parked(
    server: Served, count: int, asked: ReceiveRequest = ASKED
) -> list[asyncio.Task[Received]]:
    """Receives that wait."""
    calls = [asyncio.create_task(server.service[LeaseCalls].receive(asked)) for _ in range(count)]
    await turns_until(lambda: server.service.parked == count)
    return calls


def begin(under_test: BrokerUnderTest, server: Served) -> None:
    under_test.heard.appended = server.commit.appended  # type: ignore[method-assign]


def test_a_new_message_wakes_one_of_those_who_wait(under_test: BrokerUnderTest) -> None:
    """Five thousand calls may wait; one message must not cost five thousand looks."""

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server)
        calls = await parked(server, 8)
        await server.service.messages.send(call_of((plain("a"),)))
        await turns_until(lambda: any(call.done() for call in calls))
        assert server.service.parked == 7
        (answered,) = [call for call in calls if call.done()]
        assert [body(each) for each in answered.result().messages] == ["a"]
        server.service.close()
        assert sum([len(each.messages) for each in await asyncio.gather(*calls)]) == 1

    served(under_test, scenario)


def test_whoever_leaves_messages_behind_wakes_the_next_one(under_test: BrokerUnderTest) -> None:
    """Three messages in one append, and each call asks for one."""

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server)
        calls = await parked(server, 4, replace(ASKED, max_messages=1))
        messages = tuple([plain(each) for each in "abc"])
        await server.service.messages.send(call_of(messages))
        await turns_until(lambda: server.service.parked == 1)
        server.service.close()
        assert sum([len(each.messages) for each in await asyncio.gather(*calls)]) == 3

    served(under_test, scenario)


def test_a_call_that_was_woken_and_is_gone_wakes_the_next_one(under_test: BrokerUnderTest) -> None:
    """Its client has hung up in the very moment."""

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server)
        first, second = await parked(server, 2)
        under_test.send(plain("a"))
        server.service._pulls.wake(((TOPIC, 0),))
        first.cancel()
        assert [body(each) for each in (await second).messages] == ["a"]

    served(under_test, scenario)


def test_a_lease_that_ends_wakes_who_waits(under_test: BrokerUnderTest) -> None:
    """At the instant, not at the next poll."""
    held = Consumer(under_test, client_id="other")
    under_test.send(plain("a"))
    held.receive()

    async def scenario(server: Served, _: object) -> None:
        begin(under_test, server)
        expiring = asyncio.create_task(Expiring(under_test.broker, under_test.clock).run())
        (call,) = await parked(server, 1)
        under_test.clock.forward(INVISIBLE_MS)
        under_test.broker[Leases].table.on_end_sooner()
        (again,) = (await call).messages
        assert (body(again), again.attempt) == ("a", 2)
        expiring.cancel()

    served(under_test, scenario)


def test_the_next_of_a_message_group_comes_when_the_first_is_done(
    under_test: BrokerUnderTest,
) -> None:
    """Acknowledging the first wakes whoever waits for the next."""
    under_test.broker.groups.change(GroupChange(GROUP, orderly=True))
    for each in "ab":
        under_test.send(plain(each, properties={MESSAGE_GROUP: "g"}))
    first = Consumer(under_test).receive(1).messages[0]

    async def scenario(server: Served, _: object) -> None:
        (call,) = await parked(server, 1)
        assert await server.service[LeaseCalls].ack(AckRequest(GROUP, TOPIC, (first.handle,))) == (
            True,
        )
        assert [body(each) for each in (await call).messages] == ["b"]

    served(under_test, scenario)


def test_a_client_that_ends_wakes_who_waits(under_test: BrokerUnderTest) -> None:
    """What it has not consumed goes to the next one at once."""
    under_test.send(plain("a"))
    Consumer(under_test, client_id="ends").receive()

    async def scenario(server: Served, _: object) -> None:
        (call,) = await parked(server, 1)
        await server.service[LeaseCalls].release(GROUP, "ends")
        assert [body(each) for each in (await call).messages] == ["a"]

    served(under_test, scenario)


def test_a_call_ends_in_time_and_leaves_nothing_behind(under_test: BrokerUnderTest) -> None:
    """Nothing in memory grows with calls that found nothing."""

    async def scenario(server: Served, _: object) -> None:
        leases = server.service[LeaseCalls]
        for _ in range(3):
            assert (await leases.receive(replace(ASKED, wait_ms=1))).messages == ()
        calls = await parked(server, 3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert (server.service.parked, leases._waiting) == (0, {})
        assert server.service._pulls.on_wake is None

    served(under_test, scenario)


def test_what_changes_a_lease_is_on_disk_when_it_is_answered(under_test: BrokerUnderTest) -> None:
    """A power cut must not bring an acknowledged message back."""
    under_test.send(plain("a"), plain("b"))
    first, second = Consumer(under_test).receive().messages

    async def scenario(server: Served, _: object) -> None:
        leases, store = server.service[LeaseCalls], under_test.store
        await leases.ack(AckRequest(GROUP, TOPIC, (first.handle,)))
        assert store.durable_end == store.end
        await leases.change(InvisibleChange(GROUP, TOPIC, second.handle, 5_000))
        assert store.durable_end == store.end

    served(under_test, scenario)

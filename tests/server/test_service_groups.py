"""Consumer groups at the service, as a protocol without gRPC uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rmqlite.kernel.requests.groups import HeartbeatRequest, LeaveRequest, Subscription
from rmqlite.kernel.words.errors import ExpressionInvalid, InvalidValue
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.services import Served, served

GROUP = "shop"


def beat(client_id: str) -> HeartbeatRequest:
    return HeartbeatRequest(GROUP, client_id, (Subscription("orders"),))


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    under_test = BrokerUnderTest(tmp_path)
    yield under_test
    under_test.store.release()


async def names(server: Served) -> list[str]:
    return [each.client_id for each in await server.service.groups.members(GROUP)]


def test_a_member_leaves_when_its_waiting_heartbeat_is_cancelled(
    under_test: BrokerUnderTest,
) -> None:
    """A protocol cancels the call when a connection ends; others need not wait for the expiry."""

    async def scenario(server: Served, _: object) -> None:
        groups = server.service.groups
        await groups.heartbeat(beat("a"))
        epoch = (await groups.heartbeat(beat("b"))).epoch
        waiting = replace(beat("a"), known_epoch=epoch, wait_ms=30_000)
        parked = asyncio.create_task(groups.heartbeat(waiting))
        await turns_until(lambda: server.service.parked == 1)
        assert await names(server) == ["a", "b"]
        parked.cancel()
        with suppress(asyncio.CancelledError):
            await parked
        assert await names(server) == ["b"]

    served(under_test, scenario)


def test_each_who_listens_hears_of_a_change_and_can_look_at_the_members(
    under_test: BrokerUnderTest,
) -> None:
    """4.x consumers share the queues themselves: a nudge, then the list of members."""
    first: list[str] = []
    second: list[str] = []

    async def scenario(server: Served, _: object) -> None:
        groups = server.service.groups
        groups.listen(first.append)
        groups.listen(second.append)
        assert await names(server) == []
        epoch = (await groups.heartbeat(beat("a"))).epoch
        assert (await names(server), first) == (["a"], [GROUP])
        # Also a heartbeat that waits for its assignment still hears of it.
        waiting = replace(beat("a"), known_epoch=epoch, wait_ms=30_000)
        parked = asyncio.create_task(groups.heartbeat(waiting))
        await turns_until(lambda: server.service.parked == 1)
        await groups.heartbeat(beat("b"))
        assert (await parked).members == ("a", "b")
        await groups.leave(LeaveRequest(GROUP, "b"))
        await groups.leave(LeaveRequest(GROUP, "a"))
        assert await names(server) == []
        assert first == second == [GROUP] * 4

    served(under_test, scenario)


def test_a_member_with_a_wrong_sql_expression_does_not_join(under_test: BrokerUnderTest) -> None:
    """The consumer's start fails, where its owner sees it, and not each of its pulls."""

    async def scenario(server: Served, _: object) -> None:
        groups = server.service.groups
        wrong = replace(beat("a"), subscriptions=(Subscription("orders", sql="n >"),))
        with pytest.raises(ExpressionInvalid, match="at character 4"):
            await groups.heartbeat(wrong)
        assert await names(server) == []
        right = replace(beat("a"), subscriptions=(Subscription("orders", sql="n > 1"),))
        await groups.heartbeat(right)
        (member,) = await groups.members(GROUP)
        assert Subscription("orders", "*", "n > 1") in member.subscriptions
        with pytest.raises(ExpressionInvalid):
            await groups.heartbeat(wrong)

    served(under_test, scenario)


def test_the_sql_expressions_of_a_member_are_limited_together(under_test: BrokerUnderTest) -> None:
    """Each is compiled: all subscriptions with the longest would take seconds."""
    long = "a = '" + "x" * 4_000 + "'"
    many = tuple([Subscription(f"topic-{number}", sql=long) for number in range(17)])

    async def scenario(server: Served, _: object) -> None:
        with pytest.raises(
            InvalidValue, match=r"sql must be at most 65536 bytes in all .*'68102 bytes'"
        ):
            await server.service.groups.heartbeat(replace(beat("a"), subscriptions=many))

    served(under_test, scenario)

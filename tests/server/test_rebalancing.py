"""Members of large groups are woken a few at a time, those of small groups at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from rmqlite.kernel.process.loops import Rebalancing
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.service.waiting import WOKEN_AT_ONCE, ParkedCalls
from rmqlite.kernel.tables.membership import SMALL_MEMBERS_MAX
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import run_with

GROUP = "shop"
WAIT_MS = 30_000


class Members:
    """Heartbeats as the servicer parks them."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self.broker = broker
        self.heartbeats = ParkedCalls("maxParkedPolls", 10_000)
        self.woken: Counter[int] = Counter()
        """How many heartbeats were woken in each millisecond."""

    def join(self, client_id: str) -> None:
        request = HeartbeatRequest(GROUP, client_id, (Subscription("orders"),))
        self.broker.broker.heartbeat(request)

    async def park(self) -> None:
        await self.heartbeats.wait(GROUP, WAIT_MS / 1000)
        self.woken[self.broker.clock.now_ms()] += 1


def run(broker: BrokerUnderTest, main: Callable[[Members], Awaitable[None]]) -> None:
    """Beside a rebalancing task."""

    async def beside() -> None:
        members = Members(broker)
        rebalancing = Rebalancing(broker.broker.membership, members.heartbeats, broker.clock)
        task = asyncio.create_task(rebalancing.run())
        await asyncio.sleep(0)
        await main(members)
        task.cancel()

    run_with(broker.clock, beside())


def test_members_that_joined_together_are_told_once(under_test: BrokerUnderTest) -> None:
    """It comes after the pause, without another call."""

    async def main(members: Members) -> None:
        count = 200
        for number in range(count):
            members.join(f"member-{number:04}")
        membership = under_test.broker.membership
        assert membership.due_ms() is not None
        await asyncio.sleep(2)
        assert membership.due_ms() is None
        assert len(membership.assignment(GROUP, "member-0000").members) == count

    run(under_test, main)


@pytest.mark.parametrize("count", [SMALL_MEMBERS_MAX, 200])
def test_parked_members_are_woken_a_few_at_a_time(under_test: BrokerUnderTest, count: int) -> None:
    """A thousand answers in one turn of the loop would hold up every other call."""

    async def main(members: Members) -> None:
        parked = [asyncio.create_task(members.park()) for _ in range(count)]
        await asyncio.sleep(0)
        members.join("a")
        await asyncio.gather(*parked)
        most = count if count <= SMALL_MEMBERS_MAX else WOKEN_AT_ONCE
        assert members.woken.total() == count
        assert max(members.woken.values()) == most

    run(under_test, main)

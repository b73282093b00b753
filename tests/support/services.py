"""All methods of a broker behind their service, as the server puts them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

from rmqlite.features.accounts.gate.exposure import open_ports
from rmqlite.features.accounts.gate.limits import limits_of
from rmqlite.features.every import features
from rmqlite.kernel.process.loops import Rebalancing
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.service.group_commit import GroupCommit, Ran, SyncThread, run_timed
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.waiting import ParkedCalls
from rmqlite.kernel.store.commit_log import SyncJob
from rmqlite.kernel.words.errors import RmqliteError
from tests.support.brokers import BrokerUnderTest


class Served:
    """A broker that answers, without a port."""

    def __init__(self, under_test: BrokerUnderTest, syncer: SyncThread, **settings: Any) -> None:
        """settings: of the configuration, other than the broker's."""
        broker, clock = under_test.broker, under_test.clock
        config = under_test.config.model_copy(update=settings)
        self.config = config
        pulls = ParkedCalls("maxParkedPolls", 10)
        heartbeats = ParkedCalls("maxParkedPolls", 10)
        self.commit = GroupCommit(config, under_test.store, syncer, pulls.wake)
        self.access = Access()
        self.service = Service(
            ServiceParts(
                config=config,
                broker=broker,
                commit=self.commit,
                pulls=pulls,
                heartbeats=heartbeats,
                clock=clock,
                access=self.access,
                limits=limits_of(config),
                open_ports=open_ports(config),
            ),
            [kind for feature in features() for kind in feature.calls],
        )
        self.rebalancing = Rebalancing(broker.membership, heartbeats, clock)


class HeldThread(SyncThread):
    """Runs a job when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[tuple[SyncJob, Ran]] = []

    def begin(self, job: SyncJob, ran: Ran) -> None:
        self.jobs.append((job, ran))

    def run_next(self) -> None:
        job, ran = self.jobs.pop(0)
        ran(run_timed(job))


def served(
    under_test: BrokerUnderTest, scenario: Callable[[Served, asyncio.Task[None]], Awaitable[Any]]
) -> None:
    """Run a scenario; it is also given the task that fails when the broker is to end."""

    async def main() -> None:
        with closing(SyncThread()) as syncer:
            server = Served(under_test, syncer)
            ending = asyncio.create_task(server.commit.run())
            try:
                await scenario(server, ending)
            finally:
                ending.cancel()
                await asyncio.wait([ending])

    asyncio.run(main())


def breaking(under_test: BrokerUnderTest, error: RmqliteError) -> None:
    """From now on each way to the disk ends in this error."""

    def broken(*_: object, **__: object) -> None:
        raise error

    for door in ("append_packed", "change_levels"):
        setattr(under_test.store, door, broken)

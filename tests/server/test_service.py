"""The rules for every method: a sync that fails inside it ends the broker; a drain ends waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.errors import (
    BrokerClosing,
    FlushFailed,
    Refused,
    RmqliteError,
    StoreUnavailable,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.redrives import GROUP
from tests.support.service_calls import NEW, READING, SEND, WRITING, ask, filled, parts_of
from tests.support.services import Served, breaking, served


def methods_of_the_service(service: Service) -> set[str]:
    """Every public coroutine method of the service and of its parts."""
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in parts_of(service).items()
        for name in dir(part)
        if not name.startswith("_") and iscoroutinefunction(getattr(part, name))
    }


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    with filled(tmp_path) as under_test:
        yield under_test


def test_every_method_is_known_to_write_or_to_only_look(under_test: BrokerUnderTest) -> None:
    """A new method needs a line in the tables above, so the rule is tested for it."""

    async def scenario(server: Served, _: object) -> None:
        writing, reading = {name for name, _ in WRITING}, {name for name, _ in READING}
        # Between two brokers: tests/features/standby.
        apart = {f"StandbyCalls.{name}" for name in ("follow", "promote", "switch")}
        assert writing | reading | apart == methods_of_the_service(server.service)
        assert not writing & reading

    served(under_test, scenario)


@pytest.mark.parametrize(
    ("method", "arguments"), WRITING, ids=[f"{n}-{name}" for n, (name, _) in enumerate(WRITING)]
)
def test_a_failed_sync_inside_a_method_ends_the_broker(
    method: str, arguments: tuple[Any, ...], under_test: BrokerUnderTest
) -> None:
    """The disk may lack records that the broker has counted: only a recovery finds out."""
    breaking(under_test, FlushFailed("cannot cut commitlog: Input/output error"))

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        with pytest.raises(FlushFailed, match="cannot cut"):
            await ask(server.service, method, arguments)
        with pytest.raises(FlushFailed, match="cannot cut"):
            await ending
        # Nobody is told any more that something is safe.
        with pytest.raises(FlushFailed):
            await server.commit.durable(0)

    served(under_test, scenario)


@pytest.mark.parametrize(("method", "arguments"), READING, ids=[name for name, _ in READING])
def test_a_method_that_only_looks_needs_no_disk_that_can_be_written(
    method: str, arguments: tuple[Any, ...], under_test: BrokerUnderTest
) -> None:
    """So the table above is right about it."""
    breaking(under_test, FlushFailed("cannot cut commitlog: Input/output error"))

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        # No such job, or not by that id: refused is no failure.
        with suppress(Refused):
            await ask(server.service, method, arguments)
        await asyncio.sleep(0)
        assert not ending.done()

    served(under_test, scenario)


@pytest.mark.parametrize(
    "error",
    [
        FlushFailed("the disk took longer than syncFlushTimeout=5000 ms", is_final=False),
        StoreUnavailable("write to", "commitlog", "no space left on device"),
    ],
)
def test_a_disk_that_is_slow_or_full_ends_nothing(
    error: RmqliteError, under_test: BrokerUnderTest
) -> None:
    """Both faults pass by themselves."""
    breaking(under_test, error)

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        with pytest.raises(type(error)):
            await server.service.messages.send(SEND)
        await asyncio.sleep(0)
        assert not ending.done()

    served(under_test, scenario)


def test_a_front_that_is_closed_lets_nobody_wait_and_stores_nothing(
    under_test: BrokerUnderTest,
) -> None:
    """The drain of a broker: parked calls are answered, and clients try another time."""
    pull = PullRequest(GROUP, NEW, 0, 0, wait_ms=30_000)
    beat = HeartbeatRequest(GROUP, "client", (Subscription("orders"),), wait_ms=30_000)

    async def scenario(server: Served, _: object) -> None:
        service = server.service
        await service.topics.create(TopicInfo(NEW, 1, 1))
        epoch = (await service.groups.heartbeat(beat)).epoch
        pulling = asyncio.create_task(service.messages.pull(pull))
        beating = asyncio.create_task(service.groups.heartbeat(replace(beat, known_epoch=epoch)))
        await turns_until(lambda: service.parked == 2)
        assert not service.is_closing
        service.close()
        assert not (await pulling).records
        assert (await beating).epoch == epoch
        assert service.is_closing
        assert not (await service.messages.pull(pull)).records
        with pytest.raises(BrokerClosing):
            await service.messages.send(SEND)
        with pytest.raises(BrokerClosing):
            await service.groups.heartbeat(beat)

    served(under_test, scenario)

"""The rule for every request: a sync that fails inside it ends the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqlite.errors import FlushFailed, NotSupported, Refused, RmqliteError, StoreUnavailable
from rmqlite.message import Message
from rmqlite.names import dlq_topic
from rmqlite.requests.finding import MessageQuery
from rmqlite.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.requests.letters import LettersQuery, LifeQuery, PurgeRequest
from rmqlite.requests.levels import LevelsChange
from rmqlite.requests.log import LogReadRequest, LogSnapshotRequest, QueueReadRequest
from rmqlite.requests.messages import PullRequest, SendBackRequest, SendRequest
from rmqlite.requests.redrive import (
    JobAction,
    JobChange,
    OutcomesQuery,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    PendingFilter,
    PendingQuery,
    ScheduleAction,
    TimelineRequest,
)
from rmqlite.requests.topics import Queue, RouteRequest, TimeQuery, TopicInfo
from rmqlite.server.front import Front
from rmqlite.wire import rpcs
from rmqlite.wire.rpcs import Rpc
from tests.support.brokers import BrokerUnderTest
from tests.support.bulk import request as bulk_request
from tests.support.calls import FakeContext
from tests.support.fronts import Served, breaking, served
from tests.support.redrives import GROUP, bury_many, start

CONTEXT: Any = FakeContext()
WAITING = "waiting-1"
JOB = "nightly"
NEW = "not-there-yet"
FILTER = PendingFilter(topic="orders")
WRITING: tuple[tuple[Rpc[Any, Any], Any], ...] = (
    (rpcs.GET_ROUTE, RouteRequest(NEW, create=True)),
    (rpcs.SEND, SendRequest((Message("orders", b"x"),))),
    (rpcs.SCHEDULE_BULK, bulk_request(["a"])),
    (rpcs.SEND_BACK, SendBackRequest(GROUP, 0)),
    (rpcs.PULL, PullRequest(NEW, "orders", 0, 0)),
    (rpcs.COMMIT_OFFSETS, OffsetsCommit(NEW, {})),
    (rpcs.HEARTBEAT, HeartbeatRequest(NEW, "client", (Subscription("orders"),))),
    (rpcs.CREATE_TOPIC, TopicInfo(NEW, 1, 1)),
    (rpcs.SET_GROUP, GroupChange(GROUP, max_reconsume_times=3)),
    (rpcs.CHANGE_LEVELS, LevelsChange("7s 1h")),
    (rpcs.CHANGE_BY_IDS, ChangeByIds(ScheduleAction.CANCEL, (WAITING,))),
    (rpcs.CHANGE_BY_IDS, ChangeByIds(ScheduleAction.FIRE, (WAITING,))),
    (rpcs.CHANGE_BY_IDS, ChangeByIds(ScheduleAction.RESCHEDULE, (WAITING,), delay_level=2)),
    (rpcs.CHANGE_BY_FILTER, ChangeByFilter(ScheduleAction.CANCEL, FILTER)),
    (rpcs.CHANGE_BY_FILTER, ChangeByFilter(ScheduleAction.FIRE, FILTER)),
    (rpcs.CHANGE_BY_FILTER, ChangeByFilter(ScheduleAction.RESCHEDULE, FILTER, delay_level=2)),
    (rpcs.PURGE_DEAD_LETTERS, PurgeRequest(GROUP)),
    (rpcs.START_REDRIVE, RedriveRequest(RedriveSpec(GROUP), "another")),
    (rpcs.CHANGE_REDRIVE_JOB, JobChange(JOB, JobAction.PAUSE)),
)
"""Every call that can change what is on disk, with a request that does."""
READING: tuple[tuple[Rpc[Any, Any], Any], ...] = (
    (rpcs.QUERY_OFFSETS, OffsetsQuery(GROUP, (Queue("orders", 0),))),
    (rpcs.SEARCH_OFFSET, TimeQuery(Queue("orders", 0), 0)),
    (rpcs.GET_QUEUE_RANGES, "orders"),
    (rpcs.LEAVE, LeaveRequest(GROUP, "client")),
    (rpcs.LIST_TOPICS, None),
    (rpcs.LIST_GROUPS, None),
    (rpcs.DESCRIBE_GROUP, GROUP),
    (rpcs.GET_BROKER_STATUS, None),
    (rpcs.QUERY_MESSAGES, MessageQuery("orders", "key")),
    (rpcs.GET_MESSAGE, ""),
    (rpcs.LIST_PENDING, PendingQuery()),
    (rpcs.COUNT_PENDING, None),
    (rpcs.GET_TIMELINE, TimelineRequest((1_000,))),
    (rpcs.GET_LEVELS, None),
    (rpcs.GET_BULK_JOB, JOB),
    (rpcs.LIST_BULK_JOBS, None),
    (rpcs.LIST_DEAD_LETTER_GROUPS, None),
    (rpcs.LIST_DEAD_LETTERS, LettersQuery(GROUP)),
    (rpcs.LIST_RETRIES, LettersQuery(GROUP)),
    (rpcs.GET_LIFE, LifeQuery(WAITING)),
    (rpcs.PREVIEW_REDRIVE, RedrivePreviewRequest(RedriveSpec(GROUP))),
    (rpcs.GET_REDRIVE_JOB, JOB),
    (rpcs.LIST_REDRIVE_JOBS, None),
    (rpcs.LIST_REDRIVE_OUTCOMES, OutcomesQuery(JOB)),
    (rpcs.GET_LOG_SNAPSHOT, LogSnapshotRequest(("orders",))),
    (rpcs.READ_LOG, LogReadRequest(0)),
    (rpcs.READ_QUEUE, QueueReadRequest(dlq_topic(GROUP), 0, 0)),
)
"""Every call that only looks."""


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A message that waits, dead letters, and a redrive job that has not begun."""
    under_test = BrokerUnderTest(tmp_path)
    under_test.send(Message("orders", b"the record at physical offset 0"))
    under_test.send(Message("orders", b"x", delay_level=5, message_id=WAITING))
    bury_many(under_test, 3)
    start(under_test, JOB)
    yield under_test
    under_test.store.release()


def test_every_call_is_known_to_write_or_to_only_look() -> None:
    """A new call comes with its line above, and so keeps the rule."""
    writing, reading = {rpc for rpc, _ in WRITING}, {rpc for rpc, _ in READING}
    assert writing | reading == set(rpcs.ALL)
    assert not writing & reading


def test_every_call_of_the_table_has_its_method(under_test: BrokerUnderTest) -> None:
    """Else its callers are told that there is no such method."""

    async def scenario(server: Served, _: object) -> None:
        assert set(server.front.methods) == set(rpcs.ALL)

    served(under_test, scenario)


@pytest.mark.parametrize(
    ("rpc", "request_"), WRITING, ids=[f"{n}-{rpc.name}" for n, (rpc, _) in enumerate(WRITING)]
)
def test_a_failed_sync_inside_a_call_ends_the_broker(
    rpc: Rpc[Any, Any], request_: Any, under_test: BrokerUnderTest
) -> None:
    """What is on disk may not be what the broker believes: only a recovery can tell."""
    breaking(under_test, FlushFailed("cannot cut commitlog: Input/output error"))

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        with pytest.raises(FlushFailed, match="cannot cut"):
            await server.front.ask(rpc, request_, CONTEXT)
        with pytest.raises(FlushFailed, match="cannot cut"):
            await ending
        # Nobody is told any more that something is safe.
        with pytest.raises(FlushFailed):
            await server.commit.durable(0)

    served(under_test, scenario)


@pytest.mark.parametrize(("rpc", "request_"), READING, ids=[rpc.name for rpc, _ in READING])
def test_a_call_that_only_looks_needs_no_disk_that_can_be_written(
    rpc: Rpc[Any, Any], request_: Any, under_test: BrokerUnderTest
) -> None:
    """And the table above says the truth about it."""
    breaking(under_test, FlushFailed("cannot cut commitlog: Input/output error"))

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        # No such job, or not by that id: refused is no failure.
        with suppress(Refused):
            await server.front.ask(rpc, request_, CONTEXT)
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
    """Both get better by themselves."""
    breaking(under_test, error)

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        with pytest.raises(type(error)):
            await server.front.ask(rpcs.SEND, SendRequest((Message("orders", b"x"),)), CONTEXT)
        await asyncio.sleep(0)
        assert not ending.done()

    served(under_test, scenario)


def test_a_call_that_the_broker_does_not_have_is_refused_by_name(
    under_test: BrokerUnderTest,
) -> None:
    """A face of a newer version may ask for it."""

    async def scenario(server: Served, _: object) -> None:
        with pytest.raises(NotSupported, match="ListTopics"):
            await Front({}, server.commit).ask(rpcs.LIST_TOPICS, None, CONTEXT)

    served(under_test, scenario)

"""Changed tables are written once per turn, by the thread that syncs, and before the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.features.operating.service import DeletionCalls
from rmqlite.kernel.requests.groups import GroupChange, HeartbeatRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.files import FaultyFiles
from tests.support.messages import TOPIC
from tests.support.remoting import ProtocolUnderTest, served_protocol
from tests.support.sends import call_of, sending
from tests.support.services import Served, served
from tests.support.steps import done

FLUSHES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture(params=FLUSHES)
def under_test(tmp_path: Path, files: FaultyFiles, request: Any) -> Iterator[BrokerUnderTest]:
    broker = BrokerUnderTest(tmp_path / "store", files=files, flush_disk_type=request.param)
    yield broker
    broker.store.release()
    assert list(check(tmp_path / "store")) == []


def run(under_test: BrokerUnderTest, scenario: Callable[[Served], Awaitable[None]]) -> None:
    async def inside(server: Served, _: asyncio.Task[None]) -> None:
        await scenario(server)

    served(under_test, inside)


def test_what_comes_together_is_one_write(under_test: BrokerUnderTest, files: FaultyFiles) -> None:
    """A write for each of a hundred topics, groups or values would hold up everybody."""

    async def scenario(server: Served) -> None:
        service = server.service
        files.replaced.clear()
        await asyncio.gather(
            *[service.topics.create(TopicInfo(f"t-{number}", 4, 4)) for number in range(100)],
            *[service.groups.change(GroupChange(f"g-{number}")) for number in range(100)],
            *[service[KeyValueCalls].put("n", f"k-{number}", "v") for number in range(100)],
        )
        assert files.replaced == dict.fromkeys(
            ("topics.json", "subscriptionGroup.json", "kvConfig.json"), 1
        )

    run(under_test, scenario)
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.get("t-99")
    assert under_test.broker.groups.get("g-99")


def test_a_heartbeat_of_many_new_groups_is_a_few_writes(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """One write for each group took seconds, in which nobody else was answered."""
    groups = [
        {"groupName": f"g-{number}", "subscriptionDataSet": [{"topic": TOPIC}]}
        for number in range(400)
    ]

    async def scenario(protocol: ProtocolUnderTest) -> None:
        files.replaced.clear()
        async with protocol.client() as client:
            answer = await client.ask(
                34, None, dumps({"clientID": "c", "consumerDataSet": groups}).encode()
            )
        assert answer.code == 0
        assert files.replaced["subscriptionGroup.json"] <= 10

    served_protocol(under_test, scenario)
    assert under_test.broker.groups.get("g-399")


def test_what_cannot_be_written_is_answered_and_taken_back(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """Also what was changed while the write ran; and the next call is served."""

    async def scenario(server: Served) -> None:
        service = server.service
        await service.topics.create(TopicInfo("before", 4, 4))
        files.fail("replace", where=lambda path: path.name == "topics.json")
        ended = await asyncio.gather(
            service.topics.create(TopicInfo("a", 4, 4)),
            service[DeletionCalls].delete("before"),
            service.groups.change(GroupChange("kept")),
            return_exceptions=True,
        )
        assert [type(each) for each in ended[:2]] == [StoreUnavailable] * 2
        assert [each.topic for each in await service.topics.all() if each.topic in ("a", "before")]
        assert await service.topics.info("a") is None
        assert await service.topics.info("before") is not None
        await service.topics.create(TopicInfo("a", 4, 4))

    run(under_test, scenario)
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.get("a")
    assert under_test.broker.topics.get("before")
    assert under_test.broker.groups.get("kept")


def test_a_call_that_waits_after_its_change_hears_that_it_was_taken_back(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """Nothing is left to be written then, which would look like success."""

    async def scenario(server: Served) -> None:
        files.fail("replace")
        refusals = server.commit.refusals
        under_test.broker.topics.create(TopicInfo("a", 4, 4))
        with pytest.raises(StoreUnavailable):
            await server.commit.durable(0)
        with pytest.raises(StoreUnavailable):
            await server.commit.durable(0, refusals)
        await server.commit.durable(0, server.commit.refusals)

    run(under_test, scenario)


def test_a_message_whose_topic_cannot_be_written_is_refused(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """After a restart nobody would find it."""

    async def scenario(server: Served) -> None:
        files.fail("replace", where=lambda path: path.name == "topics.json")
        call = call_of([Message("new", b"x")], 0)
        with pytest.raises(StoreUnavailable):
            await server.service.messages.send(call)
        await server.service.messages.send(call)

    run(under_test, scenario)
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.get("new")


def test_a_member_whose_group_cannot_be_written_is_none(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """It hears why, and the others keep their queues."""

    async def scenario(server: Served) -> None:
        under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))
        files.fail("replace", where=lambda path: path.name == "subscriptionGroup.json")
        with pytest.raises(StoreUnavailable):
            await server.service.groups.heartbeat(HeartbeatRequest("g", "one", ()))
        assert await server.service.groups.members("g") == ()

    run(under_test, scenario)


def test_a_write_of_unknown_end_ends_the_broker(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """A restart may find the old table or the new one."""

    async def scenario(server: Served, ending: asyncio.Task[None]) -> None:
        files.fail("replace", is_done=True)
        with pytest.raises(FlushFailed):
            await server.service.topics.create(TopicInfo("a", 4, 4))
        with pytest.raises(FlushFailed):
            await ending

    served(under_test, scenario)


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_leaves_a_message_without_its_topic(seed: int) -> None:
    """The tables of a sync are on disk before its records are."""
    random, promised, crashes = Random(seed), set[str](), 0
    config, disk = small_config(ROOT / "store"), SimulatedDisk(seed)
    broker = BrokerOnDisk(config, disk, FakeClock())
    broker.store.table_changes.on_change = lambda: None

    def crash(call: str, path: str) -> None:
        nonlocal crashes
        if random.random() > 0.2:
            return
        crashes += 1
        loss = random.choice((None, *LOSSES))
        fork = disk.fork_power_cut(random, loss) if loss else disk.fork_killed()
        after = BrokerOnDisk(config, fork, FakeClock(machine=FakeMachine()))
        for topic in promised:
            assert after.broker.topics.get(topic) is not None, (loss, call, path)
            assert len(after.messages(topic)) == 1
        after.crash()

    disk.after_each = crash
    for number in range(12):
        topics = [f"t-{number}-{each}" for each in range(3)]
        for topic in topics:
            done(sending(broker.broker, (Message(topic, b"x"),), queue_id=0))
        broker.sync()
        promised.update(topics)
    assert crashes

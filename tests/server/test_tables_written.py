"""A change of a table is a record of the log; its file is written later, and never in a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.features.operating.service import DeletionCalls
from rmqlite.kernel.requests.groups import GroupChange, HeartbeatRequest
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.files import FaultyFiles
from tests.support.messages import TOPIC
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


def test_what_comes_together_is_one_sync(under_test: BrokerUnderTest, files: FaultyFiles) -> None:
    """A file and a folder synced for each of a hundred topics would hold up everybody."""

    async def scenario(server: Served) -> None:
        service = server.service
        files.replaced.clear()
        syncs = server.commit.syncs.histogram().total
        await asyncio.gather(
            *[service.topics.create(TopicInfo(f"t-{number}", 4, 4)) for number in range(100)],
            *[service.groups.change(GroupChange(f"g-{number}")) for number in range(100)],
            *[service[KeyValueCalls].put("n", f"k-{number}", "v") for number in range(100)],
        )
        assert server.commit.syncs.histogram().total - syncs <= 2
        assert not files.replaced

    run(under_test, scenario)
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.get("t-99")
    assert under_test.broker.groups.get("g-99")
    assert KeyValues(under_test.store).of("n")["k-99"] == "v"


def test_what_cannot_be_written_is_answered_and_changes_nothing(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """And the next call is served."""

    async def scenario(server: Served) -> None:
        service = server.service
        await service.topics.create(TopicInfo("before", 4, 4))
        for call in (
            lambda: service.topics.create(TopicInfo("a", 4, 4)),
            lambda: service[DeletionCalls].delete("before"),
            lambda: service[KeyValueCalls].put("n", "k", "v"),
        ):
            files.fail("write", where=lambda path: path.parent.name == "commitlog")
            with pytest.raises(StoreUnavailable):
                await call()
        assert await service.topics.info("a") is None
        assert await service.topics.info("before") is not None
        await service.topics.create(TopicInfo("a", 4, 4))

    run(under_test, scenario)
    under_test.crash()
    under_test.open()
    assert under_test.broker.topics.get("a")
    assert under_test.broker.topics.get("before")
    assert not KeyValues(under_test.store).of("n")


def test_a_message_whose_topic_cannot_be_written_is_refused(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """After a restart nobody would find it."""

    async def scenario(server: Served) -> None:
        files.fail("write", where=lambda path: path.parent.name == "commitlog")
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
        files.fail("write", where=lambda path: path.parent.name == "commitlog")
        with pytest.raises(StoreUnavailable):
            await server.service.groups.heartbeat(HeartbeatRequest("g", "one", ()))
        assert await server.service.groups.members("g") == ()

    run(under_test, scenario)


def test_a_file_that_cannot_be_written_is_written_later(
    under_test: BrokerUnderTest, files: FaultyFiles
) -> None:
    """It is only a snapshot: the call is answered, and the next persist writes it."""
    under_test.broker.topics.create(TopicInfo("a", 4, 4))
    files.fail("replace", where=lambda path: path.name == "topics.json")
    with pytest.raises(StoreUnavailable):
        under_test.persist()
    assert under_test.store.tables.changed
    under_test.persist()
    assert not under_test.store.tables.changed
    table = under_test.config.store_path / "config" / "topics.json"
    assert "a" in tables.decode(table.read_bytes())["topicConfigTable"]


@pytest.mark.seeds(1, 3)
def test_no_kill_leaves_a_message_without_its_topic(seed: int) -> None:
    """A SIGKILL keeps what was written: once, the record of a retry and a table without its topic.

    So a group never got its failed messages, and a redrive went to a topic that did not exist.
    """
    config, disk = small_config(ROOT / "store"), SimulatedDisk(seed)
    broker = BrokerOnDisk(config, disk, FakeClock())
    kills = 0

    def kill(*_: str) -> None:
        nonlocal kills
        kills += 1
        after = BrokerOnDisk(config, disk.fork_killed(), FakeClock(machine=FakeMachine()))
        topics = after.broker.topics
        for topic, _queue_id in after.store.queue_keys():
            assert topics.get(topic) is not None, topic
        for record in after.store.walk(0):
            assert topics.get(record.properties.text("REAL_TOPIC") or record.head.topic), record
        after.crash()

    broker.send(Message(TOPIC, b"x"))
    (message,) = broker.pull(TOPIC).messages
    broker.sync()
    disk.after_each = kill
    for group in ("a", "b"):
        for level in (0, -1):
            broker.broker.send_back(SendBackRequest(group, message.physical_offset, level))
            broker.broker.failing.sent_back.forget(group)
    assert kills


@pytest.mark.seeds(1, 4)
def test_no_crash_leaves_a_message_without_its_topic(seed: int, is_long: bool) -> None:
    """The tables of a sync are on disk before its records are."""
    random, promised, crashes = Random(seed), set[str](), 0
    chance = 0.2 if is_long else 0.07
    config, disk = small_config(ROOT / "store"), SimulatedDisk(seed)
    broker = BrokerOnDisk(config, disk, FakeClock())

    def crash(call: str, path: str) -> None:
        nonlocal crashes
        if random.random() > chance:
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

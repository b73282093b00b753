"""Answers about very many groups and offsets: other calls get their turns while they are made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.service.turns import TURNS
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.requests.groups import (
    GET_ALL_CONSUMER_OFFSET,
    GET_BROKER_CONSUME_STATS,
    GET_CONSUME_STATS,
    BrokerConsumeStats,
    BrokerConsumeStatsQuery,
    ConsumeStatsQuery,
    GroupOffsets,
)
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.bytes.shapes import read_body
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import ProtocolUnderTest, served_protocol

GROUPS = 300
TOPICS = [f"topic-{number}" for number in range(10)]
QUEUES = 1_000
LARGE = "large-group"
OFFSETS = len(TOPICS) * QUEUES


async def answered(
    protocol: ProtocolUnderTest, row: RemotingRequest[Any, Any], asked: Any
) -> tuple[Command, int]:
    """An answer, and how many turns another task got until the broker had made it."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with protocol.client() as client:
        command = client.request(row, asked)
        beside = asyncio.create_task(other())
        client.send(command)
        answer = await client.answer(command.opaque)
        beside.cancel()
    assert answer.code == 0, answer.remark
    return answer, turns


@pytest.fixture
def broker(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """A group with 10,000 offsets, and 300 groups without any."""
    inner = under_test.broker
    for topic in TOPICS:
        inner.topics.ensure(topic, QUEUES)
    inner.groups.make([GroupInfo(f"group-{number:03}") for number in range(GROUPS)])
    inner.groups.make([GroupInfo(LARGE)])
    queues = [Queue(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES)]
    inner.offsets.commit(LARGE, dict.fromkeys(queues, 0))
    return under_test


def test_others_get_turns_while_all_offsets_are_listed(broker: BrokerUnderTest) -> None:
    """A topic counts by its queues: 200 topics at once could be 50,000 offsets."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        answer, turns = await answered(protocol, GET_ALL_CONSUMER_OFFSET, None)
        table = read_body(GroupOffsets, answer.body).offset_table
        assert set(table) == {f"{topic}@{LARGE}" for topic in TOPICS}
        assert all(list(each) == list(range(QUEUES)) for each in table.values())
        assert turns >= 3 * TURNS

    served_protocol(broker, scenario)


def test_others_get_turns_while_one_groups_progress_is_made(broker: BrokerUnderTest) -> None:
    """Its topics are found in steps, and a long answer is copied in a step of its own."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        answer, turns = await answered(protocol, GET_CONSUME_STATS, ConsumeStatsQuery(LARGE))
        # It is longer than a body that a client may send, so it is not read.
        assert answer.body.count(b'"brokerOffset"') == OFFSETS
        assert turns >= OFFSETS // 100 * TURNS

    served_protocol(broker, scenario)


def test_others_get_turns_while_many_groups_have_nothing_to_tell(broker: BrokerUnderTest) -> None:
    """A group without offsets takes time, too."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        broker.broker.offsets.forget_group(LARGE)
        asked = BrokerConsumeStatsQuery()
        answer, turns = await answered(protocol, GET_BROKER_CONSUME_STATS, asked)
        stats = read_body(BrokerConsumeStats, answer.body)
        assert len(stats.consume_stats_list) == GROUPS + 1
        assert turns >= GROUPS // 100 * TURNS

    served_protocol(broker, scenario)

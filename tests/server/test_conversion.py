"""Requests above a limit are refused before they are decoded; long ones take several turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmqlite.features.changes.requests import LIST_PENDING
from rmqlite.features.finding.requests import QUERY_MESSAGES
from rmqlite.features.rows import Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.grpc.calls import BODIES_BYTES_MAX, READ_BYTES_MAX, Decoding
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import native_limits
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.table import written
from rmqlite.protocols.pb import rmqlite_pb2 as pb

DECODING = Decoding(native_limits(BrokerConfig()))


@pytest.mark.parametrize(
    ("rpc", "data"),
    [
        (rpcs.SEND, b"\x12\x00" * 1_000_000),
        (rpcs.COMMIT_OFFSETS, b"\x12\x00" * 1_000_000),
        (rpcs.COMMIT_OFFSETS, b"\x12\x00" * 500_000),
        (QUERY_MESSAGES, pb.QueryMessagesRequest(key="k" * 5_000_000).SerializeToString()),
        (
            LIST_PENDING,
            pb.ListPendingRequest(filter=pb.PendingFilter(key="k" * 100_000)).SerializeToString(),
        ),
        (rpcs.PULL, pb.PullRequest(expression="a||" * 40_000).SerializeToString()),
        (
            rpcs.HEARTBEAT,
            pb.HeartbeatRequest(
                subscriptions=[pb.Subscription(topic="t", expression="x" * 5_000)] * 20
            ).SerializeToString(),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_what_is_too_much_is_not_read(rpc: Row[Any, Any], data: bytes) -> None:
    """Reading alone would take seconds, and a gigabyte."""
    with pytest.raises(InvalidValue):
        asyncio.run(DECODING.read(rpc, lambda _: pytest.fail("it is read"), data))


async def turns_of(work: Any) -> tuple[Any, int]:
    """The answer, and the number of turns that others had meanwhile."""
    task = asyncio.create_task(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


@pytest.mark.parametrize(
    ("batches", "is_long"),
    [
        ([pb.EncodedBatch(topic="orders", messages=bytes(100))], False),
        ([pb.EncodedBatch(topic="orders", messages=bytes(READ_BYTES_MAX))], False),
        ([pb.EncodedBatch(topic="orders", messages=bytes(BODIES_BYTES_MAX + 1))], True),
        ([pb.EncodedBatch(topic="t" * 99, delay="d" * 99, messages=b"x")] * 99, True),
    ],
    ids=["short", "a body", "a long body", "many texts"],
)
def test_a_long_request_is_read_in_a_turn_of_its_own(
    batches: list[pb.EncodedBatch], is_long: bool
) -> None:
    """The check, the decoding and the method take a few milliseconds each."""
    data = pb.SendRequest(batches=batches).SerializeToString()
    reading = DECODING.read(rpcs.SEND, rpc_of(rpcs.SEND).decode_request, data)
    request, turns = asyncio.run(turns_of(reading))
    assert [each.messages for each in request.batches] == [each.messages for each in batches]
    assert (turns > 2) == is_long


def test_a_long_answer_is_written_in_turns() -> None:
    """10,000 topics take 20 ms; the bytes of the parts together are the same."""
    for count, is_long in ((10, False), (10_000, True)):
        topics = tuple([TopicInfo(f"topic-{number}", 4, 4) for number in range(count)])
        data, turns = asyncio.run(turns_of(written(rpcs.LIST_TOPICS, topics)))
        assert data == rpc_of(rpcs.LIST_TOPICS).encode_response(topics)
        assert (turns > 2) == is_long

"""gRPC in processes of its own gives the same answers, of both protocols and of gRPC's health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2

from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.native.bytes import rpcs as native
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from tests.server.rocketmq_v2.largest import REQUESTS
from tests.support.brokers import BrokerUnderTest
from tests.support.grpc_ports import with_port
from tests.support.largest_calls import Largest, largest_requests

CHECK = "/grpc.health.v1.Health/Check"
CLIENT = (("x-mq-client-id", "client-1"),)
UNLIKE = {native.GET_BROKER_STATUS.path}
"""Its answer has times of this machine."""
LARGE_BYTES_MAX = 16 << 10
"""Longer ones take no other way, but time; only sends are as long as they may be."""
PATIENCE_S = 60.0
Outcome = tuple[Any, ...]


def requests_of(broker: BrokerUnderTest) -> Iterator[tuple[str, bytes]]:
    """Of every call the empty request, one that is none, and a large one."""
    for row in sorted(all_rows(), key=lambda each: each.path):
        yield row.path, b""
        yield row.path, b"\xff\xff"
        with suppress(LookupError, RmqliteError, AssertionError):
            request = largest_requests()[row](Largest(broker, row))
            data = native.rpc_of(row).encode_request(request)
            if row is native.SEND or len(data) <= LARGE_BYTES_MAX:
                yield row.path, data
    for rpc, made in REQUESTS.items():
        yield rpc.path, b""
        yield rpc.path, b"\xff\xff"
        yield rpc.path, made(broker, 1).SerializeToString()
    yield CHECK, b""
    yield CHECK, health_pb2.HealthCheckRequest(service="none").SerializeToString()
    yield "/rmqlite.v1.Messages/NoSuchCall", b""
    yield rpcs.SEND_MESSAGE.path, bytes(6 << 20)


async def outcome(channel: grpc.aio.Channel, path: str, data: bytes) -> Outcome:
    """All that a caller gets to know."""
    call: Any = channel.stream_stream(path)(metadata=CLIENT, timeout=PATIENCE_S)
    answers: list[bytes] = []
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(data)
        await call.done_writing()
    with suppress(grpc.aio.AioRpcError):
        answers = [answer async for answer in call]
    trailing = [(key, value) for key, value in await call.trailing_metadata() or ()]
    return path, len(data), await call.code(), await call.details(), trailing, answers


async def outcomes(port: Any, broker: BrokerUnderTest) -> AsyncIterator[Outcome]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        for path, data in requests_of(broker):
            yield await outcome(channel, path, data)


def test_the_same_answers_come_from_workers(tmp_path: Path) -> None:
    """Bytes, codes, details and trailing metadata: a worker knows no call and changes none."""
    found: dict[str, list[Outcome]] = {}
    for name, workers in {"own": 0, "workers": 2}.items():
        broker = BrokerUnderTest(tmp_path / name)

        async def scenario(port: Any, _: Any, name: str = name, to: Any = broker) -> None:
            found[name] = [each async for each in outcomes(port, to)]

        with_port(broker, scenario, grpc_workers=workers)
        broker.store.release()
    assert len(found["own"]) == len(found["workers"]) > 100
    unlike = [
        f"{own}\n{relayed}"[:2_000]
        for own, relayed in zip(found["own"], found["workers"], strict=True)
        if own != relayed and own[0] not in UNLIKE
    ]
    assert not unlike, "\n".join(unlike[:3])

"""gRPC in processes of its own: what is left when one of them ends; and the frames."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from rmqlite.client import Message, Producer
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.workers import port as workers_port
from rmqlite.protocols.workers.frames import (
    HEAD_BYTES_MAX,
    Began,
    Frames,
    Kind,
    Result,
    read_call,
    read_result,
)
from rmqlite.protocols.workers.link import WorkerLink
from rmqlite.protocols.workers.port import GrpcWorkers
from rmqlite.protocols.workers.relayed import TURN_CALLS_MAX, Beginning, RelayedCall
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK
from tests.support.brokers import BrokerUnderTest
from tests.support.certificates import made
from tests.support.eventually import eventually
from tests.support.grpc_ports import with_port
from tests.support.services import Served

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


def kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Watches:
    """The health that clients of some connections were told; on each worker there are some."""

    def __init__(self, port: GrpcWorkers, count: int = 16) -> None:
        target, options = f"127.0.0.1:{port.port}", [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(count)]
        self.told: list[list[Any]] = [[] for _ in self._channels]
        self.tasks = [
            asyncio.create_task(self._watch(channel, told))
            for channel, told in zip(self._channels, self.told, strict=True)
        ]

    async def _watch(self, channel: grpc.aio.Channel, told: list[Any]) -> None:
        watch: Any = channel.unary_stream(WATCH)
        call = watch(b"")
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for answer in call:
                told += [health_pb2.HealthCheckResponse.FromString(answer).status]
        if await call.code() is not grpc.StatusCode.OK:
            told.append(await call.code())

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        await asyncio.wait(self.tasks)


async def turns_until(is_so: Callable[[], Any]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def stop(port: GrpcWorkers) -> None:
    kill(first_of(port).pid, signal.SIGSTOP)


def junk(port: GrpcWorkers) -> None:
    first_of(port).data_received(b"\xff" * 100)


def gone(port: GrpcWorkers) -> None:
    kill(first_of(port).pid, signal.SIGKILL)


def first_of(port: GrpcWorkers) -> WorkerLink:
    link = port._links[0]
    assert link is not None
    return link


@pytest.mark.parametrize("harm", [gone, stop, junk])
def test_a_worker_that_ends_stops_or_writes_junk_is_replaced(
    under_test: BrokerUnderTest, harm: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients lose their connection, those of the other only hear of it; the broker goes on."""
    monkeypatch.setattr(workers_port, "PING_S", 0.1)

    async def scenario(port: GrpcWorkers, server: Served) -> None:
        watches, before = Watches(port), first_of(port)
        await turns_until(lambda: all(watches.told))
        assert all(told == [SERVING] for told in watches.told)
        harm(port)
        await turns_until(lambda: server.service.ports.away)
        status = await server.service.status()
        assert status.warnings[0].startswith("worker 1 of 2 of the gRPC port, ")
        await turns_until(lambda: server.service.ports.opened_anew)
        assert not before._calls
        assert before._unread == 0
        await turns_until(lambda: all(len(told) > 1 for told in watches.told))
        lost = [told for told in watches.told if told[1] is grpc.StatusCode.UNAVAILABLE]
        others = [told for told in watches.told if told not in lost]
        assert lost
        assert others
        await turns_until(lambda: all(told[1:] == [NOT_SERVING, SERVING] for told in others))
        assert not server.service.ports.away
        await watches.close()
        watches = Watches(port)
        await turns_until(lambda: all(watches.told))
        assert all(told == [SERVING] for told in watches.told)
        await watches.close()

    with_port(under_test, scenario, grpc_workers=2)


def test_a_broker_that_drains_lets_its_workers_answer(under_test: BrokerUnderTest) -> None:
    """Each watcher is told, and its call ends well."""
    found: list[Watches] = []

    async def scenario(port: GrpcWorkers, _: Served) -> None:
        found.append(Watches(port, 4))
        await turns_until(lambda: all(found[0].told))

    with_port(under_test, scenario, grpc_workers=2)
    assert found[0].told == [[SERVING, NOT_SERVING]] * 4


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(each) for task in tasks for each in (task / "children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_broker_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    """Also one that is stopped; and the next broker gets the port at once."""
    keys = OF_ANY_DISK | {"grpcWorkers": "2"}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        with Producer(broker.endpoint, "shop", send_timeout_ms=120_000) as producer:
            first = producer.send(Message("orders", b"1"))
            workers = children_of(broker.pid)
            assert len(workers) == 2
            kill(workers[0], signal.SIGSTOP)
            broker.kill()
            eventually(lambda: not any(map(is_running, workers)), "the workers are gone")
            broker.start()
            second = producer.send(Message("orders", b"2"))
        assert second.physical_offset > first.physical_offset


def test_a_port_that_another_broker_shares_with_its_workers_is_taken() -> None:
    """SO_REUSEPORT would let two brokers of one user share their clients."""

    async def main() -> None:
        first = GrpcWorkers(BrokerConfig(grpc_port=0, grpc_workers=1))
        await first.bind()
        for make in (GrpcServer, GrpcWorkers):
            second = make(BrokerConfig(grpc_port=first.port, grpc_workers=1))
            with pytest.raises(InvalidValue, match="grpcPort must be a port that is free"):
                await second.bind()
        await first.close()

    asyncio.run(main())


# ---- the frames


CALLS = (
    Began("/a.B/C", "ipv4:10.0.0.1:5", None, (), None),
    Began("/a.B/C", "ipv6:%5B::1%5D:5", 1.5, (("a", "é"), ("b-bin", b"\0\xff"), ("c", "")), b""),
)
RESULTS = (
    Result(),
    Result(14, "é", (("x-bin", b"\0"), ("y", "")), b"", is_watched=True),
    Result(answer=b"x"),
)


def test_calls_and_results_come_back_as_they_were() -> None:
    """Metadata may be text or bytes, and an answer without a byte is no missing one."""
    assert [read_call(each.to_bytes()) for each in CALLS] == [*CALLS]
    assert [read_result(each.to_bytes()) for each in RESULTS] == [*RESULTS]


class Kept(Frames):
    def __init__(self, message_bytes_max: int) -> None:
        super().__init__(message_bytes_max)
        self.found: list[tuple[Kind, int, bytes]] = []
        self.reason = ""

    def take_frame(self, kind: Kind, call: int, content: bytes) -> None:
        self.found.append((kind, call, content))

    def broken(self, reason: str) -> None:
        self.reason = reason


def framed(kind: int, call: int, content: bytes) -> bytes:
    size = 1 + 8 + len(content)
    return size.to_bytes(4, "little") + bytes([kind]) + call.to_bytes(8, "little") + content


def test_frames_may_come_in_any_pieces() -> None:
    """A read of the socket ends anywhere."""
    frames = [(Kind.MESSAGE, 7, b"abc"), (Kind.PING, 0, b""), (Kind.END, 7, b"")]
    data = b"".join([framed(*each) for each in frames])

    async def main() -> None:
        for size in range(1, len(data) + 1):
            kept = Kept(100)
            for at in range(0, len(data), size):
                kept.data_received(data[at : at + size])
            assert kept.found == frames

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        framed(99, 0, b""),
        (8).to_bytes(4, "little") + bytes(9),
        (HEAD_BYTES_MAX + 200).to_bytes(4, "little") + bytes([Kind.MESSAGE]) + bytes(8),
    ],
    ids=["no such kind", "too short", "too long"],
)
def test_what_is_no_frame_is_refused_before_it_is_there(data: bytes) -> None:
    """A length is checked before anything waits for so many bytes."""

    async def main() -> None:
        kept = Kept(100)
        kept.data_received(data)
        assert kept.reason.startswith("FrameInvalid")
        assert not kept.found

    asyncio.run(main())


def test_calls_begin_in_turns_of_their_connections() -> None:
    """Who has sent a thousand holds up nobody; and few begin in one turn of the loop."""
    begun: list[str] = []

    class Begun:
        response_streaming = False

        async def stream_unary(self, _: object, call: RelayedCall) -> bytes:
            begun.append(call.peer())
            return b""

    async def main() -> None:
        beginning = Beginning(lambda _: Begun())
        link = WorkerLink(beginning, calls_max=2_000, message_bytes_max=9, waiting_bytes_max=9)
        for number in range(1_000):
            began = Began("/a.B/C", "many", None, (), b"x")
            link.take_frame(Kind.CALL, number + 1, began.to_bytes())
        last = Began("/a.B/C", "one", None, (), b"x")
        link.data_received(framed(Kind.CALL, 1_001, last.to_bytes()))
        while "one" not in begun:
            await asyncio.sleep(0)
        assert len(begun) <= TURN_CALLS_MAX
        while link._calls:
            await asyncio.sleep(0)
        assert len(begun) == 1_001
        assert link._unread == 0

    asyncio.run(main())


def test_workers_take_renewed_keys(under_test: BrokerUnderTest, tmp_path: Path) -> None:
    """New connections get them as those of the broker's own process do; so do those of a worker
    that was starting when the keys changed."""
    first, second, third = [made(tmp_path / name) for name in ("first", "second", "third")]
    keys = {"tls_cert_path": first / "broker.pem", "tls_key_path": first / "broker.key"}

    async def is_served(port: GrpcWorkers, authority: bytes) -> bool:
        credentials = grpc.ssl_channel_credentials(authority)
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"localhost:{port.port}"
        async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
            check: Any = channel.unary_unary(CHECK)
            try:
                await check(b"", timeout=10)
            except grpc.aio.AioRpcError:
                return False
            return True

    async def replace(port: GrpcWorkers, folder: Path) -> None:
        for each in folder.iterdir():
            (first / each.name).write_bytes(each.read_bytes())
        assert port._keys is not None
        await port._keys.look()

    async def scenario(port: GrpcWorkers, _: Served) -> None:
        old, new = [(each / "ca.pem").read_bytes() for each in (first, second)]
        assert await is_served(port, old)
        assert not await is_served(port, new)
        await replace(port, second)
        while not await is_served(port, new):
            await asyncio.sleep(0.1)
        assert not await is_served(port, old)
        before = first_of(port)
        gone(port)
        await turns_until(lambda: first_of(port) is not before and first_of(port).keys)
        kill(first_of(port).pid, signal.SIGSTOP)
        await replace(port, third)
        kill(first_of(port).pid, signal.SIGCONT)
        while not await is_served(port, (third / "ca.pem").read_bytes()):
            await asyncio.sleep(0.1)

    with_port(under_test, scenario, grpc_workers=1, tls_mode="enforcing", **keys)

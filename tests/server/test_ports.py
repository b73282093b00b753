"""All ports of a broker: what their connections have in common."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest

from rmqlite.kernel.process.protocol_server import ProtocolServer, Running
from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.metrics import MetricsServer
from rmqlite.protocols.remoting.server import VIP_BELOW, RemotingServer
from rmqlite.protocols.shared.tls import load_keys
from rmqlite.web import web_server
from rmqlite.web.server import WebServer
from tests.support.broker_processes import free_port
from tests.support.brokers import BrokerUnderTest
from tests.support.certificates import made
from tests.support.grpc_ports import with_port
from tests.support.scrape import watch_of
from tests.support.services import Served, served

PORTS = ("listen_port", "name_server_port", "grpc_port", "metrics_port", "web_port")
PATIENCE_S = 60.0


def has_no_delay(ends: tuple[int, int]) -> bool | None:
    """The option of the broker's end of a connection; None if it has none, yet or any more.

    ends: their ports, because gRPC's addresses are those of IPv6.
    """
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not each.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(each.name))) as end:
                is_tcp = end.family in (socket.AF_INET, socket.AF_INET6)
                if is_tcp and (end.getsockname()[1], end.getpeername()[1]) == ends:
                    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    return None


async def is_without_delay(port: int, context: ssl.SSLContext | None) -> bool:
    """Does the broker's end of a new connection send small answers at once?"""

    def connected() -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        return context.wrap_socket(client, server_hostname="localhost") if context else client

    async with asyncio.timeout(PATIENCE_S):
        with await asyncio.to_thread(connected) as client:
            ends = client.getpeername()[1], client.getsockname()[1]
            while (found := has_no_delay(ends)) is None:
                await asyncio.sleep(0)
        while has_no_delay(ends) is not None:
            await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
def test_a_port_that_is_closed_says_so(
    under_test: BrokerUnderTest, tmp_path: Path, mode: str
) -> None:
    """Whoever looks at it ends the broker: no client would get in any more."""
    folder = made(tmp_path / "keys")
    keys = {"tls_cert_path": folder / "broker.pem", "tls_key_path": folder / "broker.key"}
    ports = {name: free_port() for name in PORTS}
    under_test.config = under_test.config.model_copy(update={**ports, **keys, "tls_mode": mode})

    async def inside(server: Served, _: asyncio.Task[None]) -> None:
        config, watch = server.config, watch_of(under_test)
        keys = load_keys(config)
        remoting, metrics = RemotingServer(config, keys), MetricsServer(config, keys)
        web = WebServer(config, keys)
        async with asyncio.TaskGroup() as tasks:
            running = Running(
                server.service, tasks, under_test.broker, server.commit, watch, config
            )
            protocols: list[ProtocolServer] = [remoting, metrics, web]
            for protocol in protocols:
                await protocol.bind()
                await protocol.open(running)
            while web._server is None or not web._server.started:
                await asyncio.sleep(0)
            assert metrics._http._server is not None
            for protocol, listening in (
                (remoting, remoting._servers[1]),
                (metrics, metrics._http._server),
                (web, web._server._listening[0]),
            ):
                assert protocol.is_listening
                listening.close()
                assert not protocol.is_listening
            server.service.close()
            for protocol in protocols:
                await protocol.drain()
                await protocol.close()

    served(under_test, inside)


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_every_port_sends_small_answers_at_once(
    under_test: BrokerUnderTest, tmp_path: Path, mode: str
) -> None:
    """Nagle's algorithm lets the second of two answers wait 40 ms for an acknowledgement."""
    ports = {name: free_port() for name in PORTS}
    folder = made(tmp_path / "keys")
    keys = {"tls_cert_path": folder / "broker.pem", "tls_key_path": folder / "broker.key"}
    changes = {**ports, **keys, "tls_mode": mode}
    under_test.config = under_test.config.model_copy(update=changes)
    found: dict[str, bool] = {}

    async def inside(server: Served, _: asyncio.Task[None]) -> None:
        config = server.config
        clock, store = under_test.clock, under_test.store
        watch = ClockWatch(clock, clock.machine, store.clock_origin)
        keys = load_keys(config)
        protocols: list[ProtocolServer] = [RemotingServer(config, keys), GrpcServer(config, keys)]
        protocols += [MetricsServer(config, keys), web_server(config, keys)]
        context = (
            ssl.create_default_context(cafile=folder / "ca.pem") if mode != "disabled" else None
        )
        async with asyncio.TaskGroup() as tasks:
            running = Running(
                server.service, tasks, under_test.broker, server.commit, watch, config
            )
            for protocol in protocols:
                await protocol.bind()
                await protocol.open(running)
                assert protocol.is_listening
            for name, port in {**ports, "vip": ports["listen_port"] - VIP_BELOW}.items():
                # gRPC closes a connection of TLS at once that is not HTTP/2.
                is_plain = name == "grpc_port"
                found[name] = await is_without_delay(port, None if is_plain else context)
            server.service.close()
            for protocol in protocols:
                await protocol.drain()
                await protocol.close()

    served(under_test, inside)
    assert found == dict.fromkeys([*PORTS, "vip"], True)


def test_a_call_that_grpc_has_lost_holds_up_no_end(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while a port is closed may get no answer and no end, in one of thirty closes
    of a busy port.  Its client, and a fail-over, would wait for the whole drain."""

    class Losing:
        """gRPC's server, as it is then."""

        def __init__(self, server: grpc.aio.Server | None) -> None:
            assert server is not None
            self._server = server
            self._is_given_up = asyncio.Event()

        async def stop(self, grace: float | None) -> None:
            await self._server.stop(0)
            if grace:
                await self._is_given_up.wait()
            self._is_given_up.set()

    async def scenario(port: GrpcServer, _: Served) -> None:
        monkeypatch.setattr(port, "_server", Losing(port._server))

    with_port(under_test, scenario, drain_ms_max=1_000_000)

"""What a lost connection leaves is free at once, without the search for cycles.

The search hardly ever runs in a broker (serve.py), and what it has not found yet is memory that a
client has taken.  Only asyncio's own transport is a cycle, of seven small objects.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.features.accounts.accounts import Role
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.protocols.metrics import HttpPage, HttpPort
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.clients import (
    GET_CONSUMER_RUNNING_INFO,
    RunningInfoQuery,
)
from rmqlite.protocols.remoting.connection import ClientConnection, NotAnswered
from rmqlite.protocols.remoting.wrong_clients import BYTES_MAX, PREFACE
from rmqlite.protocols.shared.tls import load_keys
from tests.server.remoting.asking import TOPIC, pull_of, send_of
from tests.support.accounts import ADMIN, SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest, small_config
from tests.support.calls import turns_until
from tests.support.certificates import made
from tests.support.remoting import ProtocolUnderTest, Talk, served_protocol

ASKED = RunningInfoQuery("readers", "client-1")

pytestmark = pytest.mark.usefixtures("few_objects")

RESET: Final = struct.pack("ii", 1, 0)
OF_ASYNCIO: Final = frozenset(
    {"tuple", "socket", "_SelectorSocketTransport", "TransportSocket", "dict", "method"}
)
"""The types of a transport's cycle."""
BEGUN: Final = (16 << 20).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"x" * 1_000


class Cuts:
    """Clients of a port of this loop; their own ends are plain sockets, which make no garbage."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def left_by(
        self, data: bytes, is_there: Callable[[], bool], is_gone: Callable[[], bool]
    ) -> set[str]:
        """The types of what is left by two clients that send this, and then close and reset."""
        gc.collect()
        gc.disable()
        try:
            with ExitStack() as stack:
                clients = [stack.enter_context(socket.socket()) for _ in range(2)]
                loop = asyncio.get_running_loop()
                for client in clients:
                    client.setblocking(False)
                    await loop.sock_connect(client, ("127.0.0.1", self._port))
                    await loop.sock_sendall(client, data)
                await turns_until(is_there)
                clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            await turns_until(is_gone)
            # Until tasks that were cancelled have ended, too.
            for _ in range(20):
                await asyncio.sleep(0)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return {type(each).__name__ for each in gc.garbage} - OF_ASYNCIO
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


Sees = Callable[[ProtocolUnderTest], bool]
SIGNS: Final = Talk(signs_as=(ADMIN, SECRET))
WRONG: Final = encode(send_of(Talk(signs_as=(ADMIN, "another secret"))))


def holds_some(protocol: ProtocolUnderTest) -> bool:
    return sum(each.held > 0 for each in protocol.connections.open) == 2


@pytest.mark.parametrize(
    ("data", "is_there"),
    [
        (b"", lambda protocol: len(protocol.connections.open) == 2),
        (BEGUN, holds_some),
        (
            encode(pull_of(SIGNS, wait_ms=50_000)),
            lambda protocol: protocol.server.service.parked == 2,
        ),
        (WRONG + BEGUN, lambda protocol: sum(map(is_waiting, protocol.connections.open)) == 2),
        (PREFACE, lambda protocol: sum(map(is_refused, protocol.connections.open)) == 2),
        (encode(send_of(SIGNS)), lambda protocol: len(protocol.appends) > 0),
    ],
    ids=["nothing", "begun", "parked", "wrong signature", "gRPC", "sent"],
)
def test_a_lost_connection_of_the_remoting_protocol_leaves_nothing(
    under_test: BrokerUnderTest, data: bytes, is_there: Sees
) -> None:
    """Above all not the bytes of a frame that is not whole, up to 16 MB of them."""
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))
    left: list[set[str]] = []

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = accounts(account(ADMIN, role=Role.ADMIN))
        cuts = Cuts(protocol.protocol.port)
        for _ in range(2):
            # The first ones fill caches.
            left.append(
                await cuts.left_by(
                    data, lambda: is_there(protocol), lambda: not protocol.connections.open
                )
            )
            assert protocol.connections.bytes == 0

    served_protocol(under_test, scenario)
    assert left[-1] == set()


def is_waiting(connection: ClientConnection) -> bool:
    return connection.trust.is_waiting


def is_refused(connection: ClientConnection) -> bool:
    return connection._refusal is not None


def test_one_connection_too_many_leaves_nothing(under_test: BrokerUnderTest) -> None:
    """Whoever is refused can come again at once, as often as it likes."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as first:
            assert (await first.ask(106)).code == 0
            cuts = Cuts(protocol.protocol.port)
            left = await cuts.left_by(
                BEGUN, lambda: True, lambda: len(protocol.connections.open) == 1
            )
            assert left == set()

    served_protocol(under_test, scenario, connections_max=1)


def test_a_request_of_the_broker_to_a_lost_client_leaves_nothing(
    under_test: BrokerUnderTest,
) -> None:
    """Its error leads back to all that waited for the answer."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        asking: list[asyncio.Task[Any]] = []

        async def asked(connection: ClientConnection) -> None:
            with suppress(NotAnswered):
                await connection.ask(GET_CONSUMER_RUNNING_INFO, ASKED, seconds=60.0)

        def is_there() -> bool:
            if len(protocol.connections.open) == 2 and not asking:
                asking.extend(
                    [asyncio.create_task(asked(each)) for each in protocol.connections.open]
                )
            return bool(asking) and all(each._asked for each in protocol.connections.open)

        def is_gone() -> bool:
            if asking and all(each.done() for each in asking):
                asking.clear()
            return not asking and not protocol.connections.open

        assert await Cuts(protocol.protocol.port).left_by(b"", is_there, is_gone) == set()

    served_protocol(under_test, scenario)


def test_an_aborted_connection_holds_no_bytes(under_test: BrokerUnderTest) -> None:
    """At once: others in the same turn of the loop need the room, and a task may still have it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.write(BEGUN)
            await turns_until(lambda: any(each.held for each in protocol.connections.open))
            connection = protocol.connection(client)
            assert protocol.connections.bytes >= len(BEGUN)
            connection.abort()
            assert protocol.connections.bytes == connection._decoder.held_bytes == 0

    served_protocol(under_test, scenario)


def test_the_beginning_of_a_grpc_client_counts_and_is_bounded(under_test: BrokerUnderTest) -> None:
    """A port of RocketMQ's protocol reads a little of it, and many may come."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.write(PREFACE + b"\0\xff\xff\0\0\0\0\0\0" + b"x" * 1_000)
            await turns_until(lambda: protocol.connections.bytes > 1_000)
            client.write(b"x" * BYTES_MAX)
            while await client.read_raw():
                pass
        await turns_until(lambda: not protocol.connections.open)
        assert protocol.connections.bytes == 0

    served_protocol(under_test, scenario)


async def page(_: str) -> HttpPage:
    return HttpPage(b"a page")


REQUEST: Final = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [b"", REQUEST[:9], REQUEST, b"\x16", b"\x16" + b"x" * 600],
    ids=["nothing", "begun", "whole", "handshake begun", "no handshake"],
)
def test_a_lost_connection_of_the_metrics_or_of_tls_leaves_nothing(
    tmp_path: Path, data: bytes
) -> None:
    """A handshake has a buffer of 256 KiB, and asyncio keeps the error with which it ended."""
    made(tmp_path)
    config = small_config(
        tmp_path,
        tls_mode="permissive",
        tls_cert_path=tmp_path / "broker.pem",
        tls_key_path=tmp_path / "broker.key",
    )
    keys = load_keys(config)
    assert keys is not None

    async def main() -> set[str]:
        port = HttpPort(keys)
        await port.bind("127.0.0.1", 0)
        await port.open({"/": page})
        cuts = Cuts(port.port)
        left: set[str] = set()
        for _ in range(2):
            left = await cuts.left_by(
                data, lambda: True, lambda: not port._exchanges and not keys._opening
            )
        port.close()
        return left

    assert asyncio.run(main()) == set()

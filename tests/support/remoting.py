"""A small raw client of RocketMQ's remoting protocol, which hides nothing of what was answered.

    with RawClient(broker.name_server) as client:
        answer = client.ask(GET_ROUTEINFO_BY_TOPIC, RouteQuery("orders"))
        client.write(b"anything")
        told = client.told(40)          # a request that the broker started

RawClient blocks, for broker processes; LoopClient has the same methods as coroutines, for a server
that runs in the test's own event loop (served_protocol).  Talk is what both share, without I/O.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rmqlite.kernel.process.protocol_server import Running
from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.kernel.records.record import has_sound_body, read_head, to_message
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.remoting.bytes.command import (
    ACCESS_KEY,
    ONE_WAY_FLAG,
    SERVER_VERSION,
    SIGNATURE,
    Command,
    signature,
)
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.bytes.shapes import write_body
from rmqlite.protocols.remoting.calls import Calls
from rmqlite.protocols.remoting.connection import ClientConnection, Connections
from rmqlite.protocols.remoting.server import RemotingServer
from tests.support.brokers import BrokerUnderTest
from tests.support.services import Served, served

PATIENCE_S: Final = 60.0
"""For a machine that has much else to do: only a test that fails waits so long."""
_READ_BYTES: Final = 1 << 20
GRPC_PORT: Final = 50_051
"""What a protocol that runs without the gRPC protocol names as its port."""


def records_of(body: bytes) -> list[StoredMessage]:
    """The messages of an answer to a pull or a query, as a client reads them."""
    found: list[StoredMessage] = []
    at = 0
    while at < len(body):
        head = read_head(body, at)
        assert head is not None, f"no record at byte {at}"
        assert has_sound_body(head, body)
        found.append(to_message(head, body))
        at += head.size
    return found


class ConnectionClosed(AssertionError):
    """The broker has closed the connection; nothing more comes."""


class Talk:
    """One client's side: numbers requests, and sorts what comes.

    answers: by opaque; asked: requests of the broker, in order, until told() takes them.
    """

    def __init__(
        self,
        *,
        language: str = "JAVA",
        version: int = SERVER_VERSION,
        is_binary: bool = False,
        signs_as: tuple[str, str] | None = None,
    ) -> None:
        """signs_as: access key and secret of an account."""
        self.signs_as = signs_as
        self.language = language
        self.version = version
        self.is_binary = is_binary
        self.answers: dict[int, Command] = {}
        self.asked: deque[Command] = deque()
        self._decoder = FrameDecoder()
        self._opaque = 0

    def request(
        self,
        row: RemotingRequest[Any, Any] | int,
        asked: Any = None,
        body: Any = b"",
        flag: int = 0,
    ) -> Command:
        """The next request.  row: of the table of codes, or a code; asked: its fields as the row's
        NamedTuple, or as a dict of ext fields; body: bytes, or a dataclass of its bodies."""
        self._opaque += 1
        if isinstance(row, int):
            code, ext = row, dict(asked or {})
        else:
            code = row.code
            ext = asked if isinstance(asked, dict) else row.fields.write(asked) if asked else {}
        data = body if isinstance(body, bytes) else write_body(body)
        if self.signs_as is not None:
            key, secret = self.signs_as
            ext = {**ext, ACCESS_KEY: key}
            ext[SIGNATURE] = signature(ext, data, secret)
        return Command(
            code,
            self._opaque,
            ext,
            data,
            flag,
            "",
            self.language,
            self.version,
            self.is_binary,
        )

    def feed(self, data: bytes) -> None:
        for command in self._decoder.feed(data):
            if not command.is_answer:
                self.asked.append(command)
                continue
            assert command.opaque not in self.answers, f"answered twice: {command}"
            self.answers[command.opaque] = command
        assert self._decoder.error is None, self._decoder.error

    def take_asked(self, code: int) -> Command | None:
        """The first of the broker's requests with this code that nobody has taken yet."""
        for command in self.asked:
            if command.code == code:
                self.asked.remove(command)
                return command
        return None


class RawClient(Talk):
    """A blocking connection to "host:port".  Leaving the context closes it."""

    def __init__(self, address: str, **about: Any) -> None:
        super().__init__(**about)
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def write(self, data: bytes) -> None:
        self._socket.settimeout(PATIENCE_S)
        self._socket.sendall(data)

    def send(self, *commands: Command) -> None:
        """All of them in one piece."""
        self.write(b"".join([encode(command) for command in commands]))

    def ask(
        self, row: RemotingRequest[Any, Any] | int, asked: Any = None, body: Any = b""
    ) -> Command:
        """Send a request; its answer."""
        command = self.request(row, asked, body)
        self.send(command)
        return self.answer(command.opaque)

    def one_way(
        self, row: RemotingRequest[Any, Any] | int, asked: Any = None, body: Any = b""
    ) -> None:
        self.send(self.request(row, asked, body, ONE_WAY_FLAG))

    def answer(self, opaque: int, seconds: float = PATIENCE_S) -> Command:
        """Wait for the answer.  Raises TimeoutError, ConnectionClosed."""
        while opaque not in self.answers:
            self.read(seconds)
        return self.answers.pop(opaque)

    def told(self, code: int, seconds: float = PATIENCE_S) -> Command:
        """Wait for a request of the broker with this code.  Raises TimeoutError."""
        while (found := self.take_asked(code)) is None:
            self.read(seconds)
        return found

    def read(self, seconds: float = PATIENCE_S) -> None:
        """Wait for more bytes and sort them.  Raises TimeoutError, ConnectionClosed."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise ConnectionClosed
        self.feed(data)

    def is_closed(self, seconds: float = PATIENCE_S) -> bool:
        """Has the broker closed the connection, or will it within this time?"""
        try:
            while True:
                self.read(seconds)
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False


class LoopClient(Talk):
    """The same in an event loop; made by client_of()."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **about: Any
    ) -> None:
        super().__init__(**about)
        self._reader = reader
        self._writer = writer

    @property
    def address(self) -> tuple[str, int]:
        """Of this end."""
        found: tuple[str, int] = self._writer.get_extra_info("sockname")
        return found

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, *commands: Command) -> None:
        """All of them in one piece."""
        self.write(b"".join([encode(command) for command in commands]))

    async def ask(
        self, row: RemotingRequest[Any, Any] | int, asked: Any = None, body: Any = b""
    ) -> Command:
        command = self.request(row, asked, body)
        self.send(command)
        return await self.answer(command.opaque)

    def one_way(
        self, row: RemotingRequest[Any, Any] | int, asked: Any = None, body: Any = b""
    ) -> None:
        self.send(self.request(row, asked, body, ONE_WAY_FLAG))

    async def answer(self, opaque: int) -> Command:
        while opaque not in self.answers:
            await self.read()
        return self.answers.pop(opaque)

    async def told(self, code: int) -> Command:
        while (found := self.take_asked(code)) is None:
            await self.read()
        return found

    async def read(self) -> None:
        """Raises ConnectionClosed."""
        data = await self.read_raw()
        if not data:
            raise ConnectionClosed
        self.feed(data)

    async def read_raw(self) -> bytes:
        """Whatever bytes come next; none when the broker has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read(_READ_BYTES)
            except ConnectionError:
                return b""

    async def until_closed(self) -> None:
        """Read until the broker closes the connection."""
        try:
            while True:
                await self.read()
        except ConnectionClosed:
            return

    def close(self) -> None:
        self._writer.close()


@dataclass
class ProtocolUnderTest:
    """A protocol in the test's own loop, over a broker without any other port."""

    protocol: RemotingServer
    server: Served
    appends: list[int] = field(default_factory=list)
    """The number of records of each append."""

    @property
    def connections(self) -> Connections:
        assert self.protocol._connections is not None
        return self.protocol._connections

    @property
    def calls(self) -> Calls:
        assert self.protocol._calls is not None
        return self.protocol._calls

    def connection(self, client: LoopClient) -> ClientConnection:
        """The protocol's end of a client's connection."""
        (found,) = [
            each
            for each in self.connections.open
            if each.address == "{}:{}".format(*client.address)
        ]
        return found

    @asynccontextmanager
    async def client(self, *, port: int = 0, **about: Any) -> AsyncIterator[LoopClient]:
        """A client on the broker's port, or another one of the protocol."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.protocol.port)
        client = LoopClient(reader, writer, **about)
        try:
            yield client
        finally:
            client.close()


def served_protocol(
    under_test: BrokerUnderTest,
    scenario: Callable[[ProtocolUnderTest], Awaitable[Any]],
    **settings: Any,
) -> None:
    """Run a scenario against a protocol on ports that the system gives; settings: of the broker."""
    ports = {"listen_port": 0, "name_server_port": 0}
    under_test.config = under_test.config.model_copy(update=ports | settings)

    async def inside(server: Served, _: asyncio.Task[None]) -> None:
        test = ProtocolUnderTest(RemotingServer(server.config), server)
        store, heard = under_test.store, under_test.heard.appended
        append_packed = store.append_packed

        def counted(packed: Any) -> None:
            test.appends.append(sum(map(len, packed)))
            append_packed(packed)

        def appended(topic: str, queue_id: int) -> None:
            heard(topic, queue_id)
            server.commit.appended(topic, queue_id)

        store.append_packed = counted  # type: ignore[method-assign]
        under_test.heard.appended = appended  # type: ignore[method-assign]
        watch = ClockWatch(
            under_test.clock, under_test.clock.machine, under_test.store.clock_origin
        )
        await test.protocol.bind()
        config = server.config.model_copy(update={"grpc_port": GRPC_PORT})
        failed: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            await test.protocol.open(
                Running(server.service, tasks, under_test.broker, server.commit, watch, config)
            )
            try:
                await scenario(test)
            except Exception as error:
                failed = error
            finally:
                server.service.close()
                await test.protocol.drain()
                await test.protocol.close()
                under_test.heard.appended = heard  # type: ignore[method-assign]
        if failed is not None:
            # Not inside a group, which says less.
            raise failed

    served(under_test, inside)

"""A name server that keeps what brokers send, and fails as it is asked to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.registration import (
    Registration,
    crc_of,
    decode_packed,
    decode_plain,
    inflated,
)
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.name_server import BrokerData, ClusterInfo
from rmqlite.protocols.remoting.bytes.shapes import write_body

T = TypeVar("T")
PATIENCE_S = 30.0


def all_steps(steps: Generator[None, None, T]) -> T:
    """What work in steps returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def registration_of(command: Command) -> Registration:
    """What a request REGISTER_BROKER brings; its checksum is compared."""
    fields = codes.REGISTER_BROKER.fields.read(command.ext)
    assert fields.body_crc32 == crc_of(command.body)
    if fields.compressed:
        return all_steps(decode_packed(inflated(command.body)))
    return all_steps(decode_plain(command.body))


class FakeNameServer:
    """answers: bytes instead of an answer, by code; None: it is silent.  brokers: what code 106
    says, beside the brokers that have registered."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.brokers: dict[str, str] = {}
        self.answers: dict[int, Callable[[Command], bytes | None]] = {}
        self.address = ""
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def codes(self) -> list[int]:
        """The codes of the requests that change something, in order."""
        return [each.code for each in self.requests if each.code != 106]

    def registrations(self) -> list[Registration]:
        return [registration_of(each) for each in self.requests if each.code == 103]

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.01)

    def drop_all(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        decoder = FrameDecoder()
        try:
            while data := await reader.read(1 << 16):
                for command in decoder.feed(data):
                    self.requests.append(command)
                    writer.write(self._answer(command) or b"")
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, command: Command) -> bytes | None:
        if command.code in self.answers:
            return self.answers[command.code](command)
        body = b""
        if command.code == codes.GET_BROKER_CLUSTER_INFO.code:
            table = {
                name: BrokerData(name, {0: address}, "DefaultCluster")
                for name, address in self.brokers.items()
            }
            body = write_body(ClusterInfo(table, {"DefaultCluster": tuple(table)}))
        return encode(command.answer(0, body=body))


@asynccontextmanager
async def fake_name_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeNameServer]:
    """One that answers on a port of its own, by TLS if it is given."""
    fake = FakeNameServer()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()[:2]
    fake.address = f"{host}:{port}"
    try:
        yield fake
    finally:
        server.close()
        fake.drop_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await server.wait_closed()

"""A connection to a name server, after the other side has ended it."""

from __future__ import annotations

import asyncio

import pytest

from rmqlite.features.cluster.link import Link
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.connection import NotAnswered
from tests.support.eventually import WAIT_S


class Ended:
    """A transport that is gone: uvloop's then raises whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} of a connection that is lost")


async def lost() -> Link:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: Link(f"{host}:{port}"), host, port)
        await asyncio.wait_for(link.ended.wait(), WAIT_S)
    link._transport = Ended()  # type: ignore[assignment]
    return link


def test_closing_a_lost_connection_does_nothing() -> None:
    """The registration closes every link that it had; one that a name server had ended raised."""

    async def main() -> None:
        link = await lost()
        link.close()
        link.close()

    asyncio.run(main())


def test_a_lost_connection_says_why_it_cannot_be_asked() -> None:
    """Nothing is written to what is gone."""

    async def main() -> None:
        link = await lost()
        with pytest.raises(NotAnswered, match="closed the connection"):
            await link.ask(codes.GET_KV_CONFIG, codes.KvKey("n", "k"))

    asyncio.run(main())

"""Answers that clients do not take: how many bytes of them are kept, and for how long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from rmqlite.features.rows import Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.grpc.calls import everybody
from rmqlite.protocols.grpc.in_flight import (
    ANSWERING,
    LONGEST_BYTES,
    TAKE_S_MAX,
    UNREAD_BYTES_MAX,
    UNREAD_S_MAX,
    WAIT_S_MAX,
    Answering,
    InFlight,
    Unread,
    end_connections,
)
from rmqlite.protocols.grpc.listening import STREAMS_MAX
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.table import handlers_of
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID
from rmqlite.protocols.rocketmq_v2.clients import Stream
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask, turns_until
from tests.support.clock import FakeClock
from tests.support.grpc_ports import with_port
from tests.support.http2 import DATA, HEADERS, SETTINGS, WINDOW, Http2, frame
from tests.support.long_answers import BODY, LONG
from tests.support.loops import run_with
from tests.support.rocketmq_v2_client import TOPIC

PEER, OTHER = "ipv4:10.0.0.1:1", "ipv4:10.0.0.2:2"
LIMIT = 2 * LONGEST_BYTES
CALLS = 40


def run(main: Any) -> None:
    run_with(FakeClock(), main)


@pytest.mark.parametrize(("name", "workers"), [*[(name, 0) for name in LONG], ("pull", 2)])
@pytest.mark.long_bodies
def test_who_takes_nothing_is_answered_little_and_nothing_stays_when_it_is_gone(
    under_test: BrokerUnderTest, name: str, workers: int
) -> None:
    """Each of a client's calls of 60 bytes would hold megabytes, for as long as it likes."""
    under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
    for _ in range(4):
        under_test.send(*[Message(TOPIC, BODY)] * 10)
    rpc, data = LONG[name]

    async def scenario(port: GrpcServer, _: Any) -> None:
        in_flight = port._in_flight

        def begun() -> Http2:
            client = Http2(port.port, window=0)
            sent = (CLIENT_ID.encode(), b"a")
            client.send(b"".join([client.calling(rpc.path, data, sent)[0] for _ in range(CALLS)]))
            return client

        with await asyncio.to_thread(begun):
            while in_flight.unread.begun < CALLS:
                await asyncio.sleep(0.001)
            left = 200
            while left:
                await asyncio.sleep(0.001)
                assert in_flight.unread.bytes <= UNREAD_BYTES_MAX + LONGEST_BYTES
                left -= in_flight.unread.bytes > UNREAD_BYTES_MAX / 2
        while in_flight.unread.bytes or in_flight.unread._connections:
            await asyncio.sleep(0.001)

    with_port(under_test, scenario, grpc_workers=workers)


@pytest.mark.long_bodies
def test_who_takes_its_answers_gets_all_of_them(under_test: BrokerUnderTest) -> None:
    """Calls that had to wait go on when the window opens."""
    under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
    for _ in range(4):
        under_test.send(*[Message(TOPIC, BODY)] * 10)
    rpc, data = LONG["pull"]

    def asked(number: int) -> int:
        with Http2(number, window=0) as client:
            streams = [client.call(rpc.path, data) for _ in range(CALLS)]
            wide = (1 << 30).to_bytes(4)
            client.send(b"".join([frame(WINDOW, 0, stream, wide) for stream in (0, *streams)]))
            ended, size = 0, 0
            for each in client.frames():
                size += len(each.payload) if each.kind == DATA else 0
                ended += each.kind == HEADERS and each.flags & 1
                if ended == CALLS:
                    return size
        return 0

    async def scenario(port: GrpcServer, _: Any) -> None:
        assert await asyncio.to_thread(asked, port.port) > CALLS * len(BODY)
        await turns_until(lambda: not port._in_flight.unread.bytes)

    with_port(under_test, scenario)


def test_a_client_is_told_how_many_calls_a_connection_may_have(
    under_test: BrokerUnderTest,
) -> None:
    """So further ones wait in it, and cost nothing here."""

    def told(number: int) -> dict[int, int]:
        with Http2(number) as client:
            first = next(client.frames())
            assert first.kind == SETTINGS
            pairs = [first.payload[at : at + 6] for at in range(0, len(first.payload), 6)]
        return {int.from_bytes(each[:2]): int.from_bytes(each[2:]) for each in pairs}

    async def scenario(port: GrpcServer, _: Any) -> None:
        assert (await asyncio.to_thread(told, port.port))[3] == STREAMS_MAX

    with_port(under_test, scenario)


@pytest.mark.parametrize("rpc", all_rows(), ids=lambda rpc: rpc.path)
def test_each_call_whose_answer_may_be_long_makes_it_alone(rpc: Row[Any, Any]) -> None:
    """A new call does so by itself; the others are named, and park or have short answers."""
    in_flight, found = InFlight(1 << 27, 1 << 20), []

    async def method(*_: object) -> None:
        found.append(in_flight.unread.bytes)

    async def main() -> None:
        handlers = handlers_of({rpc: method}, in_flight, BrokerConfig(), everybody)
        with suppress(AttributeError, TypeError):
            await ask(handlers, rpc.path, b"")

    asyncio.run(main())
    assert found == [0 if rpc.is_short or rpc.may_park else LONGEST_BYTES]
    assert in_flight.unread.bytes == 0


def test_a_connection_makes_one_long_answer_at_a_time() -> None:
    """Else as many as it has calls would be made before the first one counts."""

    async def main() -> None:
        answers, running = Unread(LIMIT), 0

        async def call(peer: str) -> None:
            nonlocal running
            answering = Answering(answers, peer)
            async with answering.making() as made:
                running += 1
                assert running <= 2
                await asyncio.sleep(0)
                made(10)
                running -= 1
            answering.release()

        await asyncio.gather(*[call(peer) for peer in (PEER, OTHER) * 20])
        assert answers.bytes == 0
        assert not answers._connections

    run(main())


def test_a_call_waits_until_its_client_has_taken_what_it_got() -> None:
    """And short answers, too: whoever takes nothing gets nothing."""

    async def main() -> None:
        answers = Unread(LIMIT)
        first, second, third = [Answering(answers, PEER) for _ in range(3)]
        first.hold(UNREAD_BYTES_MAX + 1)

        async def long() -> None:
            async with second.making() as made:
                made(5)

        waiting = [asyncio.create_task(each) for each in (long(), third.turn())]
        await Answering(answers, OTHER).turn()
        await asyncio.sleep(WAIT_S_MAX - 1)
        assert not any(each.done() for each in waiting)
        first.release()
        await asyncio.gather(*waiting)
        assert answers.bytes == 5

    run(main())


def test_a_call_whose_client_takes_nothing_ends_after_a_time() -> None:
    """All of them at once, not each after a time of its own."""

    async def main() -> None:
        answers = Unread(LIMIT)
        Answering(answers, PEER).hold(UNREAD_BYTES_MAX + 1)
        calls = [Answering(answers, PEER).turn() for _ in range(20)]
        began_s = asyncio.get_running_loop().time()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in found] == [Overloaded] * 20
        assert asyncio.get_running_loop().time() - began_s <= WAIT_S_MAX + 1

    run(main())


def test_the_answers_of_all_stay_below_the_limit() -> None:
    """Many connections that take nothing would fill the memory as well as one."""

    async def main() -> None:
        answers = Unread(LIMIT)

        async def call(number: int) -> Answering:
            answering = Answering(answers, f"ipv4:10.0.0.9:{number}")
            async with answering.making() as made:
                made(UNREAD_BYTES_MAX)
            assert answers.bytes <= LIMIT
            return answering

        calls = [asyncio.create_task(call(number)) for number in range(20)]
        await asyncio.sleep(1)
        ended = [each for each in calls if each.done()]
        assert len(ended) == (LIMIT - LONGEST_BYTES) // UNREAD_BYTES_MAX + 1
        while ended:
            for each in ended:
                calls.remove(each)
                (await each).release()
            await asyncio.sleep(1)
            ended = [each for each in calls if each.done()]
        assert not calls
        assert answers.bytes == 0

    run(main())


def test_a_connection_that_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two minutes, and much earlier if others wait because of it; not one that takes some."""
    closed: list[str] = []

    async def at_once(_: Callable[..., None], peers: list[str]) -> None:
        closed.extend(peers)

    monkeypatch.setattr(asyncio, "to_thread", at_once)

    async def main() -> None:
        answers = Unread(LIMIT)
        stalled, slow = Answering(answers, PEER), Answering(answers, OTHER)
        stalled.hold(UNREAD_BYTES_MAX)
        slow.hold(LIMIT - UNREAD_BYTES_MAX)
        await asyncio.sleep(UNREAD_S_MAX - 1)
        slow.hold(LIMIT - UNREAD_BYTES_MAX - 1)
        await answers.look()
        assert not closed
        await asyncio.sleep(1)
        await answers.look()
        assert closed == [PEER]
        waiting = asyncio.create_task(Answering(answers, "ipv4:10.0.0.3:3").making().__aenter__())
        await asyncio.sleep(TAKE_S_MAX - 2)
        await answers.look()
        assert closed == [PEER, PEER]
        await asyncio.sleep(1)
        await answers.look()
        assert closed == [PEER, PEER, PEER, OTHER]
        waiting.cancel()

    run(main())


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_only_the_connections_of_a_peer_are_ended(family: socket.AddressFamily) -> None:
    """gRPC has no call for that; its peers are texts."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as listening:
        clients = [socket.create_connection(listening.getsockname()[:2]) for _ in range(2)]
        ends = [listening.accept()[0] for _ in clients]
        port = clients[0].getsockname()[1]
        shown = f"ipv4:{host}:{port}" if family == socket.AF_INET else f"ipv6:%5B{host}%5D:{port}"
        end_connections([shown])
        assert clients[0].recv(1) == b""
        ends[1].send(b"x")
        assert clients[1].recv(1) == b"x"
        for each in (*clients, *ends):
            each.close()


def test_frames_of_a_stream_count_until_they_are_written() -> None:
    """A client may have many such calls, and each would keep 8 MiB."""

    async def main() -> None:
        answers = Unread(LIMIT)
        ANSWERING.set(Answering(answers, PEER))
        stream, size = Stream(), UNREAD_BYTES_MAX // 2 + 1
        assert stream.put(bytes(size))
        ANSWERING.set(Answering(answers, PEER))
        other = Stream()
        assert other.put(bytes(size))
        assert not other.put(b"x")
        assert answers.bytes == 2 * size

        class Taking:
            async def write(self, _: bytes) -> None:
                await asyncio.sleep(0)

        context: Any = Taking()
        stream.close()
        await stream.write_to(context)
        assert answers.bytes == size
        assert other.put(b"x")

    run(main())


def test_calls_that_come_in_go_before_answers() -> None:
    """gRPC hands over calls in their order: who begins a thousand would keep out all others."""

    async def main() -> None:
        answers, order = Unread(LIMIT), []
        answering = Answering(answers, PEER)
        answers._even_at_s = float("inf")

        async def work() -> None:
            async with answering.working():
                order.append("answer")

        task = asyncio.create_task(work())
        for _ in range(100):
            await asyncio.sleep(0)
            answers.begun += 1
            order.append("call")
        await task
        assert order == ["call"] * 100 + ["answer"]

    run(main())

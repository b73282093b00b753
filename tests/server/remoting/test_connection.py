"""One connection: its limits, what it costs, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmqlite.client import AdminClient
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting import connection as limits
from rmqlite.protocols.remoting.bytes.command import ANSWER_FLAG, Command
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.clients import (
    GET_CONSUMER_RUNNING_INFO,
    RunningInfoQuery,
)
from rmqlite.protocols.remoting.connection import NotAnswered
from rmqlite.protocols.remoting.server import IDLE_S, LOOK_S, RemotingServer
from tests.server.remoting.asking import TOPIC, beat, pull_of, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.exchanges import Row, probes
from tests.support.loops import FakeTimeLoop
from tests.support.remoting import GRPC_PORT, LoopClient, ProtocolUnderTest, served_protocol

ROW = GET_CONSUMER_RUNNING_INFO
ASKED = RunningInfoQuery("readers", "client-1")

BODY_BYTES = 200_000
CLOSED = "connection closed by server"


@pytest.fixture(autouse=True)
def _topic(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))


def filled(under_test: BrokerUnderTest, count: int = 40) -> None:
    for _ in range(count):
        under_test.send(Message(TOPIC, b"m" * BODY_BYTES))


@pytest.mark.long_bodies
def test_a_client_that_does_not_read_costs_the_memory_of_a_few_answers(
    under_test: BrokerUnderTest,
) -> None:
    """A thousand pulls of 200 kB each would be 200 MB for a client that is stuck."""
    filled(under_test)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            pulls = [pull_of(client, offset=number % 40) for number in range(1_000)]
            client.send(*pulls)
            looks = 0
            most = 0
            while looks < 5_000:
                looks += 1
                waiting = connection._transport.get_write_buffer_size() + connection._out_bytes
                most = max(most, waiting)
                await asyncio.sleep(0)
            assert most < limits.UNREAD_BYTES_MAX + 4 * (BODY_BYTES + 100_000)
            assert connection._is_paused
            for pull in pulls:
                assert (await client.answer(pull.opaque)).code == 0
            assert not connection._is_paused

    served_protocol(under_test, scenario)


@pytest.mark.long_bodies
def test_a_client_that_does_not_read_is_not_told_of_changes(under_test: BrokerUnderTest) -> None:
    """Each heartbeat of another member would cost memory until it reads again."""
    filled(under_test)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as stuck, protocol.client() as other:
            assert (await beat(stuck, "stuck")).code == 0
            connection = protocol.connection(stuck)
            stuck.send(*[pull_of(stuck, offset=number % 40) for number in range(100)])
            await turns_until(lambda: not connection.is_read)
            held = connection._transport.get_write_buffer_size()
            for number in range(50):
                assert (await beat(other, f"other-{number}")).code == 0
            assert connection._transport.get_write_buffer_size() <= held
            assert connection._out == []

    served_protocol(under_test, scenario)


def test_too_many_requests_without_an_answer_stop_the_reading(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one client could fill the memory with requests."""
    monkeypatch.setattr(limits, "FRAMES_IN_FLIGHT_MAX", 4)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            sends = [send_of(client) for _ in range(40)]
            seen = 0
            for send in sends:
                client.send(send)
                await asyncio.sleep(0)
                seen = max(seen, connection.in_flight)
            for send in sends:
                assert (await client.answer(send.opaque)).code == 0
            assert 0 < seen <= 40
            assert connection.in_flight == 0
            assert not connection._is_paused
            assert protocol.connections.bytes == 0

    served_protocol(under_test, scenario)


def test_parked_pulls_do_not_count_as_requests_in_flight(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of a thousand topics has thousands of them, and must still be heard."""
    monkeypatch.setattr(limits, "FRAMES_IN_FLIGHT_MAX", 4)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            pulls = [pull_of(client, queue_id=number % 4, wait_ms=50_000) for number in range(9)]
            client.send(*pulls)
            await turns_until(lambda: protocol.server.service.parked == 9)
            assert (await client.ask(30, {"topic": TOPIC, "queueId": "0"})).code == 0
            assert protocol.connection(client).in_flight == 0

    served_protocol(under_test, scenario)


def test_what_waits_for_a_client_ends_with_its_connection(under_test: BrokerUnderTest) -> None:
    """A pull that nobody reads would keep its place until its time is up."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            client.send(*[pull_of(client, queue_id=queue, wait_ms=50_000) for queue in range(3)])
            await turns_until(lambda: protocol.server.service.parked == 3)
            # What waits has lost its fields.
            assert protocol.connections.bytes == 0
            asked = asyncio.ensure_future(connection.ask(ROW, ASKED, seconds=60.0))
            await turns_until(lambda: bool(connection._asked))
        await turns_until(lambda: protocol.server.service.parked == 0)
        with pytest.raises(NotAnswered, match="is gone"):
            await asked
        assert protocol.connections.bytes == 0
        assert protocol.connections.open == set()

    served_protocol(under_test, scenario)


def test_a_request_of_the_broker_gets_the_answer_with_its_number(
    under_test: BrokerUnderTest,
) -> None:
    """Also while other answers come, and answers that nobody waits for."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            asking = asyncio.ensure_future(connection.ask(ROW, ASKED, seconds=60.0))
            asked = await client.told(307)
            client.send(Command(0, 4_711, {}, b"for nobody", ANSWER_FLAG))
            client.send(Command(0, asked.opaque, {}, b"for me", ANSWER_FLAG))
            assert (await asking).body == b"for me"
            with pytest.raises(NotAnswered, match="did not answer within 0 s"):
                await connection.ask(ROW, ASKED, seconds=0)
            assert len(connection._asked) == 0

    served_protocol(under_test, scenario)


def test_one_connection_too_many_is_closed(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit has a name, the log says it once, and the place is free again afterwards."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as first:
            assert (await first.ask(106)).code == 0
            for _ in range(3):
                async with protocol.client() as second:
                    await second.until_closed()
            assert (await first.ask(106)).code == 0
        await turns_until(lambda: protocol.connections.open == set())
        async with protocol.client() as third:
            assert (await third.ask(106)).code == 0

    served_protocol(under_test, scenario, connections_max=1)
    assert caplog.text.count("maxConnections=1") == 1


@pytest.mark.long_bodies
def test_frames_that_are_not_whole_are_bounded_together(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Many clients that never finish a frame; the one that holds the most of it is closed."""
    most = 1_000_000

    async def scenario(protocol: ProtocolUnderTest) -> None:
        start = (16 << 20).to_bytes(4, "big") + (100).to_bytes(4, "big")
        async with protocol.client() as greedy, protocol.client() as small:
            # What arrives in small parts takes up to an eighth more memory than it has bytes.
            greedy.write(start + b"x" * 800_000)
            await turns_until(lambda: protocol.connections.bytes > 800_000)
            small.write(start + b"x" * 250_000)
            await greedy.until_closed()
            assert protocol.connections.bytes <= most
            async with protocol.client() as third:
                assert (await third.ask(310, send_of(third).ext, b"x" * 100_000)).code == 0

    served_protocol(under_test, scenario, in_flight_bytes_max=most)
    assert "maxBytesInFlight" in caplog.text


def test_a_connection_without_any_frame_for_two_minutes_is_closed(
    under_test: BrokerUnderTest,
) -> None:
    """Its client died without a word, or it never was one of ours."""
    clock = under_test.clock

    async def main() -> None:
        protocol = RemotingServer(
            under_test.config.model_copy(update={"listen_port": 0, "name_server_port": 0})
        )
        await protocol.bind()
        service: Any = _NoService()
        service.clock = clock
        async with asyncio.TaskGroup() as tasks:
            await protocol.open(_running(service, tasks))
            reader, writer = await asyncio.open_connection("127.0.0.1", protocol.port)
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", protocol.port)
            busy = LoopClient(reader, writer)
            began_s = asyncio.get_running_loop().time()
            closed = asyncio.ensure_future(idle.read())
            while not closed.done():
                assert (await busy.ask(9999)).code == 3
                await asyncio.sleep(LOOK_S)
            assert IDLE_S < asyncio.get_running_loop().time() - began_s < IDLE_S + 4 * LOOK_S
            assert (await busy.ask(9999)).code == 3
            writer.close()
            idle_writer.close()
            await protocol.drain()
            await protocol.close()

    with asyncio.Runner(loop_factory=lambda: FakeTimeLoop(clock)) as runner:
        runner.run(main())


class _NoService:
    """Nothing is asked of it; whoever wants to listen may."""

    accounts = limits = None

    def __getattr__(self, _: str) -> Any:
        return self

    def __getitem__(self, _: object) -> Any:
        return self

    def __call__(self, *_: object) -> None:
        return None


def _running(service: Any, tasks: asyncio.TaskGroup) -> Any:
    return type(
        "Running",
        (),
        {"service": service, "tasks": tasks, "config": BrokerConfig(grpc_port=GRPC_PORT)},
    )()


def test_a_grpc_client_reads_which_port_is_its_own(under_test: BrokerUnderTest) -> None:
    """Whoever kept an old address gets one clear sentence, and no long wait."""

    def asked(port: int) -> str:
        with AdminClient(f"127.0.0.1:{port}", timeout_ms=60_000) as admin:
            try:
                admin.broker_status()
            except RmqliteError as error:
                return str(error)
        return ""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        for port in (protocol.protocol.port, protocol.protocol.name_server_port):
            told = await asyncio.to_thread(asked, port)
            assert f"grpcPort={GRPC_PORT}" in told, told
            assert "remoting" in told

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: str(probe["probe"]))
def test_a_probe_is_answered_or_closed_as_it_was_recorded(
    under_test: BrokerUnderTest, probe: Row
) -> None:
    """A client that sends garbage must not be left waiting, and a sound one not be cut off."""
    is_closed = probe["answer"] == CLOSED

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.write(bytes.fromhex(probe["sent_hex"]))
            if is_closed:
                await client.until_closed()
                assert client.answers == {}
                return
            assert (await client.ask(9999)).code == 3
            assert len(client.answers) <= 1
            assert all("Traceback" not in each.remark for each in client.answers.values())

    served_protocol(under_test, scenario)


def test_a_drain_answers_what_has_come_and_reads_nothing_more(
    under_test: BrokerUnderTest,
) -> None:
    """A pull that is answered at once would be followed by the next one, again and again."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            pull = pull_of(client, wait_ms=50_000)
            client.send(pull)
            await turns_until(lambda: protocol.server.service.parked == 1)
            protocol.server.service.close()
            draining = asyncio.ensure_future(protocol.protocol.drain())
            assert (await client.answer(pull.opaque)).code == 19
            client.send(pull_of(client, wait_ms=50_000))
            await draining
            await client.until_closed()
            assert client.answers == {}

    served_protocol(under_test, scenario)


def test_a_port_that_another_broker_has_bound_is_refused(under_test: BrokerUnderTest) -> None:
    """Even before the other one is open: named with its key, before the store is opened."""

    async def main() -> None:
        first = RemotingServer(under_test.config.model_copy(update={"listen_port": 0}))
        await first.bind()
        second = RemotingServer(under_test.config.model_copy(update={"listen_port": first.port}))
        try:
            with pytest.raises(RmqliteError, match=f"listenPort must be a port .*'{first.port}'"):
                await second.bind()
        finally:
            await second.close()
            await first.close()

    asyncio.run(main())


def test_a_frame_after_the_good_ones_that_is_none_closes_the_connection(
    under_test: BrokerUnderTest,
) -> None:
    """What follows cannot be told from garbage."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.write(encode(client.request(9999)) + b"\xff" * 20)
            await client.until_closed()
            assert [answer.code for answer in client.answers.values()] == [3]
        await turns_until(lambda: protocol.connections.open == set())
        assert protocol.connections.bytes == 0

    served_protocol(under_test, scenario)

"""A connection that brings wrong signatures waits, and the frames behind them wait with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rmqlite.features.accounts.accounts import PERMS
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import ALL, encode
from rmqlite.protocols.remoting.connection import ClientConnection, Connections
from rmqlite.protocols.remoting.wrong_clients import (
    FIRST_FRAMES_MAX,
    HOST_BURST,
    HOST_RATE,
    PAUSE_S,
    PAUSE_S_MAX,
    WrongSignatures,
)
from tests.server.remoting.asking import TOPIC, send_of
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock, SetTime
from tests.support.loops import run_with
from tests.support.remoting import ProtocolUnderTest, served_protocol

SENDER = account("the-sender", topic_perms={TOPIC: PERMS["PUB"]})
WRONG = 1
RIGHT = 0


def test_the_wait_doubles_up_to_a_second() -> None:
    """Short for one mistake, long for a flood; less than a client waits for its answer."""
    wrong = WrongSignatures(SetTime())
    waits = [wrong.note("10.0.0.1", in_a_row) for in_a_row in range(1, 20)]
    assert waits[:4] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S]
    assert waits == sorted(waits)
    assert waits[-1] == PAUSE_S_MAX


def test_new_connections_of_a_host_that_floods_wait() -> None:
    """Until it has been quiet; other hosts never do."""
    now = SetTime()
    wrong = WrongSignatures(now)
    for _ in range(int(HOST_BURST)):
        assert not wrong.is_flooding("10.0.0.1")
        wrong.note("10.0.0.1", 1)
    assert wrong.is_flooding("10.0.0.1")
    assert not wrong.is_flooding("10.0.0.2")
    now.s += 1 / HOST_RATE
    assert not wrong.is_flooding("10.0.0.1")


class Pipe(asyncio.Transport):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 7)})
        self.is_paused = False

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return False


class Judge:
    """Begins requests and says of each whether its signature was right; its code says so."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self.begun: list[tuple[int, int]] = []
        """The opaque of each, and the milliseconds since the start."""

    def begin(self, connection: ClientConnection, command: Command, size: int) -> None:
        self.begun.append((command.opaque, self._clock.now_ms() - self._began_ms))
        if command.code == WRONG:
            connection.trust.wrong(connection.go_on)
        elif command.code == RIGHT:
            connection.trust.right()
        connection.answer(command, size, None)

    def gone(self, connection: ClientConnection) -> None:
        pass


def begun(*reads: list[int], until_s: float = 100.0, floods: bool = False) -> list[tuple[int, int]]:
    """Which requests are begun, and when, if frames with these codes come in these reads."""
    clock = FakeClock()

    async def main() -> list[tuple[int, int]]:
        judge, pipe = Judge(clock), Pipe()
        connections = Connections(
            judge, 10, 1 << 20, "", wrong_signatures=WrongSignatures(SetTime())
        )
        for _ in range(int(HOST_BURST) if floods else 0):
            connections.wrong_signatures.note("10.0.0.1", 1)
        connection = connections.made()
        connection.connection_made(pipe)
        opaque = 0
        for codes in reads:
            while pipe.is_paused:
                await asyncio.sleep(0.001)
            frames = [encode(Command(code, opaque + at, {})) for at, code in enumerate(codes)]
            opaque += len(codes)
            connection.data_received(b"".join(frames))
        await asyncio.sleep(until_s)
        assert not pipe.is_paused
        connection.connection_lost(None)
        assert connections.bytes == 0
        return judge.begun

    return run_with(clock, main())


def times(found: list[tuple[int, int]]) -> list[int]:
    assert [opaque for opaque, _ in found] == list(range(len(found)))
    return [at_ms for _, at_ms in found]


def test_wrong_signatures_in_a_row_are_begun_ever_later() -> None:
    """Each in a read of its own: the connection is not read from in between."""
    found = times(begun(*[[WRONG]] * 12))
    gaps = [later - sooner for sooner, later in pairwise(found)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 20
    assert gaps[-1] >= 1_000


def test_frames_that_come_together_with_wrong_ones_wait_too() -> None:
    """Only the first few are begun at once: nobody knew better before."""
    found = times(begun([WRONG] * 40))
    assert len(found) == 40
    assert found[FIRST_FRAMES_MAX - 1] == 0
    gaps = [later - sooner for sooner, later in pairwise(found[15:])]
    assert min(gaps) >= 1_000


def test_a_right_signature_ends_the_waits() -> None:
    """Whatever stands behind it is begun at once, as on every connection."""
    found = times(begun([WRONG], [RIGHT] * 100, [RIGHT] * 100))
    assert len(found) == 201
    assert found[1] == found[-1] >= 10


def test_a_new_connection_of_a_host_that_floods_waits_before_its_first_request() -> None:
    """And then for each wrong one, one by one."""
    found = times(begun([WRONG, WRONG, RIGHT, RIGHT], floods=True))
    assert found[0] >= 1_000
    assert found[1] >= found[0] + 10
    assert found[2] >= found[1] + 20
    assert found[3] == found[2]


def test_a_connection_that_ends_while_it_waits_leaves_nothing() -> None:
    """No timer goes off for it."""
    clock = FakeClock()

    async def main() -> int:
        judge = Judge(clock)
        connections = Connections(judge, 10, 1 << 20, "")
        connection = connections.made()
        connection.connection_made(Pipe())
        frame = encode(Command(WRONG, 1, {}))
        connection.data_received(frame)
        connection.data_received(frame[:5])
        connection.connection_lost(None)
        await asyncio.sleep(10)
        assert connections.bytes == 0
        return len(judge.begun)

    assert run_with(clock, main()) == 1


def guarded(under_test: BrokerUnderTest, scenario: Callable[[ProtocolUnderTest], Any]) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))

    async def inside(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = accounts(SENDER)
        await scenario(protocol)

    served_protocol(under_test, inside)


def test_a_client_with_a_wrong_secret_reads_why(under_test: BrokerUnderTest) -> None:
    """RocketMQ's answer to each request, also when many come together."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(signs_as=("the-sender", "another")) as client:
            sends = [send_of(client) for _ in range(FIRST_FRAMES_MAX + 1)]
            client.send(*sends)
            for send in sends:
                answer = await client.answer(send.opaque)
                assert answer.code == 1
                assert answer.remark.startswith("access denied: ")

    guarded(under_test, scenario)


def test_only_a_wrong_signature_makes_a_connection_wait(under_test: BrokerUnderTest) -> None:
    """A right that is missing does not: a client with the right secret may meet that, too."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(signs_as=("the-sender", SECRET)) as client:
            trust = protocol.connection(client).trust
            assert trust.frames_at_once == FIRST_FRAMES_MAX
            for topic in ("payments", TOPIC):
                send = send_of(client, topic=topic)
                client.send(send)
                code = (await client.answer(send.opaque)).code
                assert code == (0 if topic == TOPIC else 1)
                assert trust.frames_at_once == ALL
                assert not trust.is_waiting
            client.signs_as = ("the-sender", "another")
            send = send_of(client)
            client.send(send)
            await client.answer(send.opaque)
            assert trust.frames_at_once == 1

    guarded(under_test, scenario)

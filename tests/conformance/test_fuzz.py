"""Captured frames, damaged in many ways, against a running protocol.

A client that sends garbage gets an error or loses its connection.  It never gets a stack trace,
a refused request stores nothing, and the broker neither grows nor logs an error of its own.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.command import ONE_WAY_FLAG, Command
from rmqlite.protocols.remoting.bytes.frame import encode
from tests.conformance.captures import OF_CLIENT
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.exchanges import command_of, frame_of, scenarios
from tests.support.remoting import ProtocolUnderTest, Talk, served_protocol

FRAMES: Final = 2_500
FRAMES_LONG: Final = 100_000
REPLIES: Final = frozenset({324, 325})
"""As RocketMQ does it, a reply is stored, too, if its code says that nobody could be given it."""
STORED: Final = frozenset({0, 10})
MEMORY_MIB_MAX: Final = 48
WORDS: Final = (
    *("", " ", "0", "-1", "1", "99", "2147483647", "2147483648", "-2147483648", "1e9", "0x10"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "٣", "1_0", "NaN"),
    *("true", "TRUE", "null", "[]", "{}", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%", "%DLQ%x"),
    *("%RETRY%cg_live", "RMQ_SYS_TRANS_HALF_TOPIC", "../../etc", "a/b", "a\0b", "x" * 127),
    *(
        "x" * 300,
        "ä" * 200,
        "\ud800",
        "KEY\x01value\x02",
        "DELAY\x013\x02",
        "DELAY\x01-9",
        "\x01\x02",
    ),
    *("\x01\x02", "TRAN_MSG\x01true", "y" * 40_000, "n > 0", "TagA || TagB", "|| ||", "*"),
)


def every_frame() -> dict[int, list[Command]]:
    """The captured requests of clients, by code."""
    found: dict[int, list[Command]] = {}
    for rows in scenarios().values():
        for row in rows:
            frame = frame_of(row) if row["dir"] == OF_CLIENT and "request_code" in row else None
            if frame is not None:
                command = command_of(frame)
                found.setdefault(command.code, []).append(command)
    return found


def other_field(random: Random, command: Command) -> bytes:
    ext = dict(command.ext)
    name = random.choice([*ext, "queueId", "topic", "extra"])
    ext[name] = random.choice(WORDS)
    return encode(command._replace(ext=ext))


def missing_field(random: Random, command: Command) -> bytes:
    ext = dict(command.ext)
    if ext:
        del ext[random.choice([*ext])]
    return encode(command._replace(ext=ext))


def other_body(random: Random, command: Command) -> bytes:
    body = bytearray(command.body)
    for _ in range(random.randint(1, 4)):
        if body:
            body[random.randrange(len(body))] = random.randrange(256)
    return encode(command._replace(body=bytes(body)))


def cut_body(random: Random, command: Command) -> bytes:
    body = command.body * random.choice((1, 1, 3))
    return encode(command._replace(body=body[: random.randint(0, len(body))]))


def wild_body(random: Random, command: Command) -> bytes:
    wild = (b"{", b"[" * 2_000, b'{"clientID":5}', b"null", b"{}", random.randbytes(300))
    return encode(command._replace(body=random.choice(wild)))


def other_code(random: Random, command: Command) -> bytes:
    return encode(command._replace(code=random.choice((-1, 0, 9_999, 32_767, 10, 11, 34, 310, 41))))


def one_way(random: Random, command: Command) -> bytes:
    return other_field(random, command._replace(flag=ONE_WAY_FLAG))


def damaged(random: Random, command: Command) -> bytes:
    """Any byte, its length and its header's length among them."""
    frame = bytearray(encode(command))
    for _ in range(random.randint(1, 3)):
        frame[random.randrange(len(frame))] = random.randrange(256)
    return bytes(frame)


def damaged_header(random: Random, command: Command) -> bytes:
    """The lengths stay right."""
    frame = bytearray(encode(command))
    size = int.from_bytes(frame[5:8], "big")
    for _ in range(random.randint(1, 3)):
        frame[8 + random.randrange(size)] = random.randrange(256)
    return bytes(frame)


def binary(random: Random, command: Command) -> bytes:
    return other_field(random, command._replace(is_binary=True))


MUTATIONS: Final[tuple[Callable[[Random, Command], bytes], ...]] = (
    *(other_field, other_field, missing_field, other_body, cut_body, wild_body),
    *(other_code, one_way, damaged, damaged_header, binary),
)


class Wire:
    """A connection of the protocol without a socket: bytes in, answers out."""

    def __init__(self, protocol: ProtocolUnderTest) -> None:
        self._talk = Talk()
        self._is_closing = False
        self.connection = protocol.connections.made()
        transport: Any = self
        self.connection.connection_made(transport)

    async def answers(self, frame: bytes) -> list[Command]:
        """What comes back once the frame is dealt with."""
        connection = self.connection
        connection.data_received(frame)
        await turns_until(lambda: not connection.in_flight and not connection._out)
        self._talk.asked.clear()
        answers, self._talk.answers = list(self._talk.answers.values()), {}
        return answers

    @property
    def is_over(self) -> bool:
        """Closed, or in the middle of a frame that claims to be longer."""
        return self._is_closing or self.connection.held > 0

    def end(self) -> None:
        self._is_closing = True
        self.connection.connection_lost(None)

    # ---- the transport

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "127.0.0.1", 50_000

    def set_write_buffer_limits(self, _: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self._talk.feed(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / (1 << 20)


async def fuzzed(
    protocol: ProtocolUnderTest, under_test: BrokerUnderTest, count: int, seed: int
) -> None:
    """Each code in turn, one damaged frame after the other."""
    random = Random(seed)
    frames = every_frame()
    codes = sorted(frames)
    wire = Wire(protocol)
    before_mib = 0.0
    for number in range(count):
        if number == count // 4:
            gc.collect()
            before_mib = resident_mib()
        command = random.choice(frames[codes[number % len(codes)]])._replace(opaque=number)
        frame = random.choice(MUTATIONS)(random, command)
        end = under_test.store.end
        answers = await wire.answers(frame)
        for answer in answers:
            assert "Traceback" not in answer.remark, frame
            assert "internal error" not in answer.remark, frame
        if len(answers) == 1 and answers[0].code not in STORED and command.code not in REPLIES:
            assert under_test.store.end == end, (frame, answers)
        if wire.is_over:
            wire.end()
            wire = Wire(protocol)
    wire.end()
    gc.collect()
    assert resident_mib() - before_mib < MEMORY_MIB_MAX
    assert protocol.connections.bytes == 0
    assert protocol.connections.open == set()


def test_damaged_frames_do_no_harm(
    tmp_path: Path, pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    """--long tries forty times as many."""
    count = FRAMES_LONG if pytestconfig.getoption("--long") else FRAMES
    seed = int(pytestconfig.getoption("--seed"))
    under_test = BrokerUnderTest(
        tmp_path / "store", topics_max=60, groups_max=60, consumer_offsets_max=300
    )
    under_test.broker.topics.create(TopicInfo("T_live", 4, 4))
    under_test.send(Message("T_live", b"x", keys=("k",)))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        await fuzzed(protocol, under_test, count, seed)
        async with protocol.client() as client:
            assert (await client.ask(105, {"topic": "T_live"})).code == 0

    with caplog.at_level(logging.ERROR):
        served_protocol(under_test, scenario)
    assert caplog.text == ""
    under_test.store.release()

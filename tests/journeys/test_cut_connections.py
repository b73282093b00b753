"""A connection that is cut off leaves nothing: memory is afterwards as it was before."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import pytest

from rmqlite.client import AdminClient, Credentials
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.protocols.remoting.server import VIP_BELOW
from rmqlite.protocols.remoting.wrong_clients import PREFACE
from rmqlite.testing import BrokerProcess
from tests.support.accounts import ADMIN, SECRET, with_admin
from tests.support.broker_processes import StartBroker, free_port, peak_mib, resident_mib
from tests.support.certificates import keys_of, made
from tests.support.eventually import eventually
from tests.support.remoting import Talk

TOPIC: Final = "orders"
UNUSED_QUEUE: Final = 3
GROWTH_MIB_MAX: Final = 10
CUTS: Final = 200
CUTS_IN_A_LONG_RUN: Final = 1_000
AT_ONCE: Final = 64
FRAME_BYTES: Final = 16 << 20
START: Final = FRAME_BYTES.to_bytes(4, "big") + (100).to_bytes(4, "big")
RESET: Final = struct.pack("ii", 1, 0)
ROUNDS: Final = 2
ROUNDS_IN_A_LONG_RUN: Final = 4
BYTES_IN_FLIGHT_MIB: Final = 128
"""The default of maxBytesInFlight."""
PATIENCE_S: Final = 60.0

Stage = Callable[[socket.socket], object]
"""How far a client gets before it is cut off."""


def client_hello() -> bytes:
    """What a client of TLS sends first."""
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


def sent(data: bytes) -> Stage:
    return lambda connection: connection.sendall(data)


def answered(data: bytes) -> Stage:
    """Send, and wait until the broker has begun to answer or has closed the connection."""

    def stage(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.recv(1)

    return stage


def in_tls(data: bytes, folder: Path) -> Stage:
    """Send it after the handshake, and leave without the farewell of TLS."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")

    def stage(connection: socket.socket) -> None:
        with context.wrap_socket(connection.dup(), server_hostname="localhost") as secure:
            secure.sendall(data)

    return stage


HELLO: Final = client_hello()
ANY_PORT: Final[Mapping[str, Stage]] = {
    "connected": lambda _: None,
    "in the first message of TLS": sent(HELLO[:100]),
    "in the handshake": sent(HELLO),
    "after the broker's part of the handshake": answered(HELLO),
    "what is no TLS": answered(b"\x16" + b"x" * 600),
}


def send_of(talk: Talk) -> bytes:
    return encode(talk.request(SEND_MESSAGE_V2, SendMessage(TOPIC, "senders"), b"x"))


def pull_of(talk: Talk) -> bytes:
    """It waits for a message, for a minute."""
    asked = PullMessage("readers", TOPIC, UNUSED_QUEUE, 0, 32, 6, 0, 60_000, 0, "*")
    return encode(talk.request(PULL_MESSAGE, asked))


def remoting_stages(folder: Path) -> dict[str, Stage]:
    talk = Talk(signs_as=(ADMIN, SECRET))
    send, pull = send_of(talk), pull_of(talk)
    routes = b"".join([encode(talk.request(105, {"topic": TOPIC})) for _ in range(200)])
    return {
        **ANY_PORT,
        "in the length": sent(send[:2]),
        "in the header": sent(send[:40]),
        "in the body": sent(START + b"x" * 100_000),
        "before the answer": sent(send),
        "before most answers": answered(routes),
        "with a parked pull": sent(pull),
        "after what is no frame": sent(b"\xff" * 40),
        "in the beginning of gRPC": sent(PREFACE[:10]),
        "after the answer to gRPC": answered(PREFACE),
        "in a body, with TLS": in_tls(START + b"x" * 100_000, folder),
        "with a parked pull, with TLS": in_tls(pull, folder),
    }


def grpc_stages() -> dict[str, Stage]:
    settings = b"\0\0\0\x04\0\0\0\0\0"
    return {
        **ANY_PORT,
        "in the preface": sent(PREFACE[:10]),
        "after the preface": answered(PREFACE + settings),
        "in the headers of a call": answered(
            PREFACE + settings + b"\0\x40\0\x01\x04\0\0\0\x01" + b"x" * 9
        ),
        "after what is no frame": answered(PREFACE + b"\xff" * 100),
    }


def http_stages(path: str, folder: Path) -> dict[str, Stage]:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    return {
        **ANY_PORT,
        "in the request": sent(request[:20]),
        "before the answer": sent(request),
        "in the answer": answered(request),
        "after a request that is too long": sent(request[:-2] + b"x" * (64 << 10)),
        "in the request, with TLS": in_tls(request[:20], folder),
        "before the answer, with TLS": in_tls(request, folder),
    }


def sockets_of(broker: BrokerProcess) -> int:
    """How many sockets the process has open."""
    found = 0
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += descriptor.readlink().name.startswith("socket:")
    return found


class Cutting:
    """Cuts connections off; leaves each time nothing but what the broker had before."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._sockets = sockets_of(broker)

    def cut_off(
        self, port: int, stages: Mapping[str, Stage], cuts: int, at_once: int = AT_ONCE
    ) -> None:
        """So many connections, some at a time; every second one ends with a reset."""
        turns = islice(cycle(stages.values()), cuts)
        while some := list(islice(turns, at_once)):
            with ExitStack() as stack:
                for number, stage in enumerate(some):
                    address = ("127.0.0.1", port)
                    connection = stack.enter_context(socket.create_connection(address, PATIENCE_S))
                    if number % 2:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    with suppress(OSError):
                        stage(connection)
            self.until_all_are_gone()

    def until_all_are_gone(self) -> None:
        eventually(lambda: sockets_of(self._broker) <= self._sockets, "all connections end")


def assert_no_growth(broker: BrokerProcess, before_mib: float, what: str) -> None:
    after_mib = resident_mib(broker)
    assert after_mib < before_mib + GROWTH_MIB_MAX, f"{what}: {before_mib:.0f} MiB before"


@pytest.fixture
def cuts(is_long: bool) -> int:
    return CUTS_IN_A_LONG_RUN if is_long else CUTS


def test_a_connection_that_is_cut_off_at_any_stage_leaves_no_memory(
    tmp_path: Path, start_broker: StartBroker, cuts: int
) -> None:
    """The search for cycles hardly ever runs: what only it would free stays, for each client."""
    keys = made(tmp_path / "keys")
    names = ("listenPort", "nameServerPort", "grpcTlsPort", "metricsPort", "webPort")
    ports = {name: free_port() for name in names}
    broker = start_broker(**with_admin(tmp_path), **keys_of(keys, tlsMode="permissive"), **ports)
    cutting = Cutting(broker)
    with AdminClient(broker.endpoint, credentials=Credentials(ADMIN, SECRET)) as admin:
        admin.create_topic(TOPIC, queues=4)
    remoting = remoting_stages(keys)
    everywhere = {
        ports["listenPort"]: remoting,
        ports["listenPort"] - VIP_BELOW: remoting,
        ports["nameServerPort"]: remoting,
        int(broker.endpoint.rpartition(":")[2]): grpc_stages(),
        ports["grpcTlsPort"]: grpc_stages(),
        ports["metricsPort"]: http_stages("/metrics", keys),
        ports["webPort"]: http_stages("/", keys),
    }
    for port, stages in everywhere.items():
        # What the first ones make, such as the caches of TLS, stays.
        cutting.cut_off(port, stages, 4 * len(stages))
    for port, stages in everywhere.items():
        before_mib = resident_mib(broker)
        cutting.cut_off(port, stages, cuts)
        assert_no_growth(broker, before_mib, f"port {port}")


@pytest.mark.parametrize("has_accounts", [False, True])
def test_the_beginnings_of_long_frames_go_back_to_the_system(
    tmp_path: Path, start_broker: StartBroker, has_accounts: bool, is_long: bool
) -> None:
    """Nobody needs an account for them, and the broker's other programs need the memory."""
    accounts = with_admin(tmp_path) if has_accounts else {}
    port = free_port()
    broker = start_broker(listenPort=port, **accounts)
    cutting, before_mib = Cutting(broker), resident_mib(broker)
    begun = START + b"x" * (FRAME_BYTES - 200)
    for _ in range(ROUNDS_IN_A_LONG_RUN if is_long else ROUNDS):
        cutting.cut_off(port, {"in the body": sent(begun)}, AT_ONCE)
        assert_no_growth(broker, before_mib, "after a round")
    assert peak_mib(broker) < before_mib + 2 * BYTES_IN_FLIGHT_MIB


def test_wrong_signatures_and_what_waits_behind_them_leave_no_memory(
    tmp_path: Path, start_broker: StartBroker, cuts: int
) -> None:
    """Their connections wait with a timer that leads back to them."""
    port = free_port()
    broker = start_broker(listenPort=port, **with_admin(tmp_path))
    wrong = send_of(Talk(signs_as=(ADMIN, "a wrong secret")))
    stages = {
        "with a wrong signature": answered(wrong),
        "with requests behind it": answered(wrong * 2 + START + b"x" * 10_000),
    }
    cutting = Cutting(broker)
    cutting.cut_off(port, stages, AT_ONCE)
    before_mib = resident_mib(broker)
    # From now on the host's new connections wait.
    waiting = {"while it waits": sent(wrong * 2 + START + b"x" * 10_000)}
    cutting.cut_off(port, waiting, cuts, at_once=cuts // 2)
    assert_no_growth(broker, before_mib, "after wrong signatures")

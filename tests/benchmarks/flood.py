"""What a flood of wrong signatures costs the broker, the attacker, and a good client.

    python -m tests.benchmarks.flood --seconds 5

A broker process with accounts, an attacker process, and here a good client that sends signed
messages, one after the other.  The attacker's frames are made beforehand: it pays for the sockets
only.  Each way of attacking runs twice: without the good client, for the CPU time of both sides,
and beside it, for the time of its sends.  "keep": the attacker goes on with its connections, and
skips what a full socket does not take.  "renew": each wrong request comes on a new connection,
which is closed when it is answered, or after a second.  "gRPC": calls of rmqlite.v1.
CPU is given for each wrong request that was sent, answered or not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import grpc

from rmqlite.client import AdminClient, Credentials, Message, Producer
from rmqlite.kernel.words.clock import pause_s, wall_ms
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.protocols.shared.signing import Signer
from rmqlite.testing import BrokerProcess
from tests.support.accounts import ADMIN, SECRET, with_admin
from tests.support.broker_processes import cpu_s_of
from tests.support.remoting import RawClient, Talk

TOPIC: Final = "orders"
BODY: Final = b"x" * 1024
WRONG: Final = "a wrong secret"
GIVE_UP_S: Final = 1.0
CALLS_OPEN_MAX: Final = 500


class Attack(NamedTuple):
    """rate: wrong requests a second, 0: as many as it can."""

    name: str
    kind: str
    connections: int
    rate: int


class Flooded(NamedTuple):
    sent: int
    answered: int
    opened: int
    cpu_s: float


ATTACKS: Final = (
    Attack("keep 1 connection, 2,000/s", "keep", 1, 2_000),
    Attack("keep 50 connections, 2,000/s", "keep", 50, 2_000),
    Attack("keep 50 connections, fast", "keep", 50, 0),
    Attack("renew, 2,000/s", "renew", 0, 2_000),
    Attack("renew, fast", "renew", 0, 0),
    Attack("gRPC, 2,000/s", "grpc", 1, 2_000),
)


def wrong_frame() -> bytes:
    """A send whose signature was made with another secret."""
    asked = SendMessage(TOPIC, "senders", queue_id=0)
    return encode(Talk(signs_as=(ADMIN, WRONG)).request(SEND_MESSAGE_V2, asked, BODY))


class Pace:
    """How many requests are due; with rate 0 always some more."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._began_s = time.monotonic()
        self.begun = 0

    def due(self) -> int:
        if not self._rate:
            return 16
        return int((time.monotonic() - self._began_s) * self._rate) - self.begun


class Sockets:
    """The attacker's connections."""

    def __init__(self, attack: Attack, address: str, frame: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._attack = attack
        self._frame = frame
        self._begun_s: dict[socket.socket, float] = {}
        self._left: dict[socket.socket, bytes] = {}
        self._poll = selectors.DefaultSelector()
        self._pace = Pace(attack.rate)
        self._sent = self.answered = self.opened = 0

    def run(self, seconds: float) -> Flooded:
        began_s, cpu_s = time.monotonic(), time.process_time()
        while time.monotonic() - began_s < seconds:
            step = self._keep if self._attack.kind == "keep" else self._renew
            for _ in range(self._pace.due()):
                step()
            # A fast attacker does not wait for answers, but takes what is there.
            for key, _ in self._poll.select(0.001 if self._attack.rate else 0):
                self._read(cast(socket.socket, key.fileobj))
        return Flooded(self._sent, self.answered, self.opened, time.process_time() - cpu_s)

    def _open(self) -> socket.socket:
        opened = socket.create_connection(self._address)
        opened.setblocking(False)
        self._poll.register(opened, selectors.EVENT_READ)
        self._begun_s[opened] = time.monotonic()
        self.opened += 1
        return opened

    def _keep(self) -> None:
        if len(self._begun_s) < self._attack.connections:
            self._open()
        one = next(iter(self._begun_s))
        self._begun_s[one] = self._begun_s.pop(one)
        self._send(one)

    def _renew(self) -> None:
        late_s = time.monotonic() - GIVE_UP_S
        while self._begun_s and self._begun_s[one := next(iter(self._begun_s))] < late_s:
            self._close(one)
        self._send(self._open())

    def _send(self, one: socket.socket) -> None:
        """One frame, or the rest of one; what a full socket does not take is skipped."""
        self._pace.begun += 1
        left = self._left.get(one) or self._frame
        try:
            self._left[one] = left[one.send(left) :]
            self._sent += 1
        except BlockingIOError:
            # All the others may be full, too.
            pause_s(0.000_1)
        except OSError:
            self._close(one)

    def _read(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
        except OSError:
            data = b""
        self.answered += data.count(b'"remark"')
        if not data or self._attack.kind == "renew":
            self._close(one)

    def _close(self, one: socket.socket) -> None:
        self._poll.unregister(one)
        self._begun_s.pop(one)
        self._left.pop(one, None)
        one.close()


def flooded_grpc(attack: Attack, endpoint: str, seconds: float) -> Flooded:
    """Calls that are signed with a wrong secret, as fast as the pace wants."""
    pace, signer, ended = Pace(attack.rate), Signer(ADMIN, WRONG), 0
    with grpc.insecure_channel(endpoint) as channel:
        call: Any = channel.unary_unary(rpcs.GET_ROUTE.path)
        grpc.channel_ready_future(channel).result()

        def over(_: Any) -> None:
            nonlocal ended
            ended += 1

        began_s, cpu_s = time.monotonic(), time.process_time()
        while time.monotonic() - began_s < seconds:
            for _ in range(min(pace.due(), CALLS_OPEN_MAX - (pace.begun - ended))):
                sent = signer.metadata(rpcs.GET_ROUTE.path, wall_ms())
                call.future(b"", metadata=sent).add_done_callback(over)
                pace.begun += 1
            pause_s(0.001)
        return Flooded(pace.begun, ended, 1, time.process_time() - cpu_s)


def attacking(attack: Attack, where: tuple[str, str], seconds: float, out: Any) -> None:
    """The attacker's process; where: gRPC's endpoint and RocketMQ's port."""
    if attack.kind == "grpc":
        out.put(flooded_grpc(attack, where[0], seconds))
    else:
        out.put(Sockets(attack, where[1], wrong_frame()).run(seconds))


def begin(attack: Attack, broker: BrokerProcess, seconds: float) -> Callable[[], Flooded]:
    """Start an attacker; call what is returned to wait for its end."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    where = (broker.endpoint, broker.name_server)
    process = context.Process(target=attacking, args=(attack, where, seconds, out))
    process.start()

    def ended() -> Flooded:
        found: Flooded = out.get()
        process.join()
        return found

    return ended


def times_ms(send: Callable[[], Any], seconds: float) -> list[float]:
    """How long each send took."""
    found = []
    until_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < until_s:
        send()
        found.append((time.monotonic() - began_s) * 1e3)
    return found


def spread(times: list[float]) -> str:
    parts = statistics.quantiles(times, n=100)
    return f"{parts[49]:6.2f} {parts[98]:6.2f}"


def good_clients(broker: BrokerProcess, seconds: float) -> str:
    """p50 and p99 in ms of a 4.x client, and then of rmqlite's own."""
    half_s = seconds / 2
    with RawClient(broker.name_server, signs_as=(ADMIN, SECRET)) as client:
        asked = SendMessage(TOPIC, "senders", queue_id=0)
        remoting = times_ms(lambda: client.ask(SEND_MESSAGE_V2, asked, BODY), half_s)
    with Producer(
        broker.endpoint, "senders", linger_ms=0, credentials=Credentials(ADMIN, SECRET)
    ) as producer:
        message = Message(TOPIC, BODY)
        own = times_ms(lambda: producer.send(message), half_s)
    return f"{spread(remoting)} {spread(own)}"


def measure(attack: Attack, broker: BrokerProcess, seconds: float) -> str:
    ended, before_s = begin(attack, broker, seconds), cpu_s_of(broker.pid)
    flooded = ended()
    cpu_s = cpu_s_of(broker.pid) - before_s
    # The attacker needs a second to start, and goes on until the good clients have ended.
    ended = begin(attack, broker, seconds + 2)
    pause_s(1.5)
    good = good_clients(broker, seconds)
    ended()
    sent = max(1, flooded.sent)
    return (
        f"{attack.name:30} {flooded.sent / seconds:8,.0f} {flooded.answered / seconds:8,.0f}"
        f" {flooded.opened / seconds:8,.0f} {cpu_s / sent * 1e6:8.1f}"
        f" {flooded.cpu_s / sent * 1e6:8.1f} {cpu_s / seconds:7.1%} {flooded.cpu_s / seconds:7.1%}"
        f" {good}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="the attacks whose name begins so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = with_admin(folder) | {"flushDiskType": "ASYNC_FLUSH"}
        with BrokerProcess(folder / "broker", settings, is_forked=False) as broker:
            with AdminClient(broker.endpoint, credentials=Credentials(ADMIN, SECRET)) as admin:
                admin.create_topic(TOPIC, 4)
            good_clients(broker, 1)
            print(
                f"{'':30} {'sent/s':>8} {'answers':>8} {'opened':>8} {'broker':>8} {'attacker':>8}"
                f" {'broker':>7} {'att.':>7} 4.x p50 and p99, own p50 and p99 (ms)"
            )
            print(f"{'quiet':97}{good_clients(broker, options.seconds)}", flush=True)
            for attack in ATTACKS:
                if attack.name.startswith(options.only):
                    print(measure(attack, broker, options.seconds), flush=True)


if __name__ == "__main__":
    main()

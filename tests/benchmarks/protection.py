"""What accounts and TLS cost a send: CPU time of the broker, on real sockets.

    python -m tests.benchmarks.protection --messages 20000

Four brokers run at the same time, with and without accounts and TLS, and are measured in turns; a
figure is the lowest of all rounds, because other programs on the machine can only make a round
slower.  Frames are made beforehand, as RocketMQ's Java client writes them.  Every message is
answered when the system has it (ASYNC_FLUSH), so that no disk is measured.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rmqlite.client import AdminClient, Credentials, Message, Producer
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder
from rmqlite.testing import BrokerProcess
from tests.benchmarks.sends import ACCOUNT, BODY, QUEUES, TOPIC, Case, frames_of
from tests.support.accounts import SECRET, with_admin
from tests.support.broker_processes import cpu_s_of
from tests.support.certificates import keys_of, made, trusting

TOGETHER: Final = 32
WAYS: Final = {
    "neither": (False, False),
    "accounts": (True, False),
    "TLS": (False, True),
    "both": (True, True),
}
Run = Callable[[], None]


class Protected:
    """A broker with or without accounts and TLS, and its client."""

    def __init__(self, folder: Path, keys: Path, *, has_accounts: bool, has_tls: bool) -> None:
        folder.mkdir()
        settings = {"flushDiskType": "ASYNC_FLUSH"}
        if has_accounts:
            settings |= with_admin(folder, ACCOUNT.access_key)
        if has_tls:
            settings |= keys_of(keys)
        self.has_accounts = has_accounts
        self._keys = keys if has_tls else None
        self.broker = BrokerProcess(folder / "broker", settings, is_forked=False)
        trust = trusting(keys) if has_tls else Credentials()
        account = (ACCOUNT.access_key, SECRET) if has_accounts else ("", "")
        self.credentials = Credentials(*account, ca=trust.ca)

    @property
    def endpoint(self) -> str:
        port = self.broker.endpoint.rpartition(":")[2]
        return f"tls://localhost:{port}" if self._keys else self.broker.endpoint

    def connection(self) -> socket.socket:
        host, _, port = self.broker.name_server.rpartition(":")
        plain = socket.create_connection((host, int(port)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._keys is None:
            return plain
        context = ssl.create_default_context(cafile=self._keys / "ca.pem")
        return context.wrap_socket(plain, server_hostname="localhost")


def of_rocketmq(protected: Protected, count: int, together: int) -> Run:
    """Sends of the 4.x protocol on one connection, some at a time."""
    case = Case("sends", together, is_signed=protected.has_accounts)
    frames = frames_of(case, count)
    writes = [b"".join(frames[at : at + together]) for at in range(0, count, together)]

    def run() -> None:
        decoder = FrameDecoder()
        with protected.connection() as client:
            for data in writes:
                client.sendall(data)
                answered = 0
                while answered < together:
                    got = client.recv(1 << 16)
                    assert got, "the broker has closed the connection"
                    answered += len(decoder.feed(got))

    return run


def of_rmqlite(protected: Protected, count: int) -> Run:
    """Calls of rmqlite's own client, one message each."""

    def run() -> None:
        with Producer(
            protected.endpoint, "senders", linger_ms=0, credentials=protected.credentials
        ) as producer:
            for _ in range(count):
                producer.send(Message(TOPIC, BODY))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count = options.messages // TOGETHER * TOGETHER
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        keys = made(Path(name) / "keys")
        runs: dict[tuple[str, str], tuple[Protected, Run, int]] = {}
        for way, (has_accounts, has_tls) in WAYS.items():
            each = Protected(Path(name) / way, keys, has_accounts=has_accounts, has_tls=has_tls)
            stack.enter_context(each.broker)
            with AdminClient(each.endpoint, credentials=each.credentials) as admin:
                admin.create_topic(TOPIC, QUEUES)
            few = count // 4
            runs["4.x, 32 together", way] = each, of_rocketmq(each, count, TOGETHER), count
            runs["4.x, one at a time", way] = each, of_rocketmq(each, few, 1), few
            runs["rmqlite.v1, one at a time", way] = each, of_rmqlite(each, few), few
        best: dict[tuple[str, str], float] = {}
        for _ in range(options.rounds):
            for key, (each, run, sent) in runs.items():
                before_s = cpu_s_of(each.broker.pid)
                run()
                us = (cpu_s_of(each.broker.pid) - before_s) / sent * 1e6
                best[key] = min(us, best.get(key, us))
    print(f"{'CPU us a send, of the broker':30}" + "".join([f"{way:>10}" for way in WAYS]))
    for what in dict.fromkeys([what for what, _ in runs]):
        print(f"{what:30}" + "".join([f"{best[what, way]:10.1f}" for way in WAYS]))


if __name__ == "__main__":
    main()

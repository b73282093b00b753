"""Whoever may not follow, and whoever talks nonsense, is not noticed by anybody else.

    python -m tests.conformance.standby.hostile --connections 1000 --seconds 30

Connections that say one byte a second, junk and half frames; calls without an account, and with one
that may only read.  Meanwhile a producer sends, and its slowest send is printed.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, cast

import grpc

from rmqlite.client.credentials import Credentials
from rmqlite.client.producer import Producer
from rmqlite.kernel.words.clock import elapsed_s, pause_s, wall_ms
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.replication import FOLLOW, FollowerFrame
from rmqlite.protocols.shared.signing import Signer
from tests.support.standbys import Pair, replication, wait_for_copy

ADMIN: Final = ("the-standby", "secret-of-it")
READER: Final = ("the-reader", "secret-too")
ACCOUNTS: Final = (
    "accounts:\n"
    f"- {{accessKey: {ADMIN[0]}, secretKey: {ADMIN[1]}, admin: true}}\n"
    f"- {{accessKey: {READER[0]}, secretKey: {READER[1]}, defaultTopicPerm: PUB|SUB}}\n"
)
ENOUGH_S: Final = 20.0
"""A send of a loaded machine; a broker that waits for a stranger takes longer."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
HELLO: Final = FollowerFrame(address="forged:1", log_file_bytes=1 << 20).to_bytes()


def drip(address: str, connections: int, stop: threading.Event) -> None:
    """Each connection says a byte at a time: of a true beginning, or of junk."""
    host, _, port = address.rpartition(":")
    with ExitStack() as opened:
        talks = []
        for number in range(connections):
            with suppress(OSError):
                talk = opened.enter_context(socket.create_connection((host, int(port)), 10))
                talks.append((talk, PREFACE if number % 2 else os.urandom(64)))
        for at in range(1 << 30):
            for talk, said in talks:
                with suppress(OSError):
                    talk.send(said[at % len(said)].to_bytes())
            if stop.wait(1):
                return


def follow(address: str, signed: tuple[tuple[str, str], ...]) -> str:
    """The status of a call that would take the standby's place."""
    with grpc.insecure_channel(address) as channel:
        call: Any = cast("Any", channel.stream_stream(FOLLOW))(
            iter([HELLO, HELLO[:-3]]), timeout=30, metadata=signed
        )
        with suppress(grpc.RpcError):
            for _ in call:
                pass
        return str(call.code().name)


def run(folder: Path, connections: int, seconds: float) -> float:
    """The seconds of the slowest send."""
    accounts = folder / "accounts.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    settings: dict[str, Any] = {
        "aclEnable": "true",
        "aclFile": str(accounts),
        "masterAccount": ADMIN[0],
    }
    admin, stop, slowest_s, denied = Credentials(*ADMIN), threading.Event(), 0.0, 0
    with Pair(folder, credentials=admin, **settings) as pair:
        address = pair.first.endpoint
        dripping = threading.Thread(target=drip, args=(address, connections, stop))
        dripping.start()
        try:
            with Producer(address, "shop", retries=0, credentials=admin) as producer:
                until_s = elapsed_s() + seconds
                while elapsed_s() < until_s:
                    began_s = elapsed_s()
                    producer.send(Message("orders", b"x"))
                    slowest_s = max(slowest_s, elapsed_s() - began_s)
                    signed = Signer(*READER).metadata(FOLLOW, wall_ms()) if denied % 2 else ()
                    assert follow(address, signed) == "PERMISSION_DENIED"
                    denied += 1
                    pause_s(0.05)
        finally:
            stop.set()
            dripping.join()
        wait_for_copy(pair.first, admin)
        assert replication(pair.first, admin).peer == pair.second.endpoint
    print(f"connections={connections} denied={denied} slowest_send_s={slowest_s:.2f}", flush=True)
    return slowest_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqlite-hostile-") as folder:
        run(Path(folder), options.connections, options.seconds)


if __name__ == "__main__":
    main()

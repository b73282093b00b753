"""A wrong endpoint: one line that says what is there and what to do, and none of gRPC's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import Message, Producer, PushConsumer
from rmqlite.kernel.words.errors import Refused, RmqliteError, Unavailable
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.certificates import keys_of, made, trusting
from tests.support.command_processes import run_command

pytestmark = pytest.mark.xdist_group("endpoints")
PORTS = ("grpcPort", "listenPort", "webPort", "metricsPort")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The ports of a plain broker and of one that takes TLS only, and others."""
    root = tmp_path_factory.mktemp("endpoints")
    plain = {name: str(free_port()) for name in PORTS}
    over_tls = {name: str(free_port()) for name in PORTS}
    with ExitStack() as stack:
        banner = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(BrokerProcess(root / "plain", OF_ANY_DISK | plain))
        keys = keys_of(made(root / "keys"), **over_tls)
        stack.enter_context(BrokerProcess(root / "tls", OF_ANY_DISK | keys))
        yield {
            **{f"plain {name}": port for name, port in plain.items()},
            **{f"tls {name}": port for name, port in over_tls.items()},
            "nobody": str(free_port()),
            "silent": str(banner.getsockname()[1]),
            "ca": str(root / "keys"),
        }


NOT_GRPC = "use the broker's grpcPort"
MISTAKES = [
    ("", "plain listenPort", "this is a port of RocketMQ's remoting protocol"),
    ("", "plain webPort", f"it answers in HTTP/1, as webPort does: {NOT_GRPC}"),
    ("", "plain metricsPort", f"it answers in HTTP/1, as webPort does: {NOT_GRPC}"),
    ("", "tls grpcPort", "it takes TLS only: use tls://127.0.0.1:"),
    ("", "tls listenPort", "it takes TLS only: use tls://127.0.0.1:"),
    ("tls://", "plain grpcPort", "it does not speak TLS: use 127.0.0.1:"),
    ("tls://", "plain webPort", "it does not speak TLS: use 127.0.0.1:"),
    ("tls://", "tls webPort", f"it speaks TLS, but not gRPC: {NOT_GRPC}"),
]
"""No broker answers so at its grpcPort, so waiting cannot help."""
UNCLEAR = [
    ("", "nobody", "nothing listens there"),
    ("", "silent", "it takes connections, but never answers"),
    ("tls://", "nobody", "nothing listens there"),
    ("tls://", "plain listenPort", "it ends the TLS connection: perhaps it takes no TLS"),
]
"""So it may be for the moment of a restart, too."""


IN_VAIN_MS = 3_000
"""A producer waits so long for a broker that may be about to start."""


def error_of_a_send(endpoint: str, ca: str, **options: Any) -> RmqliteError:
    credentials = trusting(Path(ca)) if endpoint.startswith("tls") else None
    with (
        Producer(endpoint, "g", credentials=credentials, **options) as producer,
        pytest.raises(RmqliteError) as error,
    ):
        producer.send(Message("orders", b"x", delay="1s"))
    return error.value


@pytest.mark.parametrize(("scheme", "port", "sentence"), MISTAKES)
def test_a_mistake_is_refused_at_once(
    places: dict[str, str], scheme: str, port: str, sentence: str
) -> None:
    """Not repeated until a timeout that says nothing; a consumer does not wait in vain."""
    endpoint = f"{scheme}127.0.0.1:{places[port]}"
    error = error_of_a_send(endpoint, places["ca"])
    assert isinstance(error, Refused)
    assert str(error).startswith(f"no broker for this client at {endpoint}: {sentence}")
    credentials = trusting(Path(places["ca"])) if scheme else None
    with PushConsumer(endpoint, "g", lambda _: None, credentials=credentials) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(Refused, match=r"no broker for this client"):
            consumer.start()


@pytest.mark.parametrize(("scheme", "port", "sentence"), UNCLEAR)
def test_nobody_there_is_unavailable_with_the_reason(
    places: dict[str, str], scheme: str, port: str, sentence: str
) -> None:
    """A send is tried as often as it says, but the reason is not lost in a timeout."""
    endpoint = f"{scheme}127.0.0.1:{places[port]}"
    error = error_of_a_send(endpoint, places["ca"], send_timeout_ms=IN_VAIN_MS)
    assert isinstance(error, Unavailable)
    assert str(error).startswith(f"no answer from the broker: {endpoint}: {sentence}")


def test_an_unknown_ca_and_an_unknown_host_are_named(places: dict[str, str]) -> None:
    """The first start over TLS has one of them."""
    for endpoint, sentence in (
        (f"tls://127.0.0.1:{places['tls grpcPort']}", r"a CA that is not trusted .*RMQLITE_TLS_CA"),
        ("no-such-host.invalid:8081", "there is no such host"),
    ):
        with (
            Producer(endpoint, "g", send_timeout_ms=IN_VAIN_MS) as producer,
            pytest.raises(Unavailable, match=sentence),
        ):
            producer.send(Message("orders", b"x"))


SAID = (UNCLEAR[0], MISTAKES[1], MISTAKES[3], MISTAKES[5])
COMMANDS = {
    "status": SAID,
    "send orders x": SAID[:1],
    "consume orders --peek": SAID[1:2],
    "dlq list": SAID[2:3],
}
"""One command with each mistake; all of them find it in the same place."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_it_in_one_line(places: dict[str, str], command: str) -> None:
    """Whichever the command and the mistake; the exit code says whether waiting may help."""
    for scheme, port, sentence in COMMANDS[command]:
        endpoint = f"{scheme}127.0.0.1:{places[port]}"
        ran = run_command(*command.split(), "--endpoint", endpoint)
        assert (ran.stdout, ran.stderr.count("\n")) == ("", 1)
        assert sentence in ran.stderr
        assert ran.returncode == (3 if port == "nobody" else 1)


PROGRAM = """
import os, sys
from rmqlite.client import Message, Producer
assert "GRPC_VERBOSITY" not in os.environ
for endpoint in sys.argv[1:]:
    with Producer(endpoint, "g", retries=0) as producer:
        try:
            producer.send(Message("orders", b"x"))
        except Exception:
            pass
        if os.fork() == 0:
            os._exit(0)
        os.wait()
"""


def test_grpc_says_nothing_by_itself(places: dict[str, str]) -> None:
    """Failed handshakes and forks are lines of gRPC's own; a user who wants them sets its variable.

    The variable is not left behind for what the program starts.
    """
    plain, over_tls = places["plain grpcPort"], places["tls grpcPort"]
    endpoints = [f"tls://127.0.0.1:{plain}", f"127.0.0.1:{over_tls}", f"127.0.0.1:{plain}"]
    environment = {key: value for key, value in os.environ.items() if key[:5] != "GRPC_"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *endpoints],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

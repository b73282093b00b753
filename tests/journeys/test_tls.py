"""A broker process with TLS: every port, every kind of client, and what must not connect."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Credentials, Message, Producer, PullConsumer
from rmqlite.kernel.words.errors import InvalidValue, Refused, Unavailable
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.certificates import YEAR_MS, keys_of, made, trusting
from tests.support.command_processes import run_command


def started(folder: Path, keys: dict[str, str]) -> BrokerProcess:
    return BrokerProcess(folder, OF_ANY_DISK | keys)


def endpoint_of(broker: BrokerProcess, port: str = "") -> str:
    return f"tls://localhost:{port or broker.endpoint.rpartition(':')[2]}"


def sees(endpoint: str, credentials: Credentials | None) -> str:
    with AdminClient(endpoint, credentials=credentials) as admin:
        return admin.broker_status().broker_name


def test_messages_go_over_tls_through_a_kill_and_a_new_certificate(tmp_path: Path) -> None:
    """What was acknowledged is there; a client that was connected stays so."""
    keys = made(tmp_path / "keys")
    port = str(free_port())
    with started(tmp_path / "broker", keys_of(keys, grpcPort=port)) as broker:
        endpoint, trust = endpoint_of(broker), trusting(keys)
        with Producer(endpoint, "senders", credentials=trust) as producer:
            producer.send(Message("orders", b"one"))
            broker.kill()
            made(keys)
            broker.start()
            # A client trusts what it was made with.
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                sees(endpoint, trust)
        trust = trusting(keys)
        with Producer(endpoint, "senders", credentials=trust) as producer:
            producer.send(Message("orders", b"three"))
        with PullConsumer(endpoint, "readers", credentials=trust) as consumer:
            bodies = {
                message.body
                for queue in consumer.queues("orders")
                for message in consumer.pull("orders", queue.queue_id, 0).messages
            }
        assert bodies == {b"one", b"three"}


@pytest.mark.parametrize(
    "certificates",
    [
        lambda folder: made(folder, "elsewhere.example"),
        lambda folder: made(folder, age_ms=2 * YEAR_MS),
        lambda folder: made(folder, age_ms=-2 * YEAR_MS),
    ],
    ids=["another host", "expired", "not yet valid"],
)
def test_a_client_does_not_believe_every_broker(
    certificates: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Names, dates and the CA are checked; there is no switch that turns this off."""
    why = "CERTIFICATE_VERIFY_FAILED|its certificate is for another host name"
    keys = certificates(tmp_path / "keys")
    with started(tmp_path / "broker", keys_of(keys)) as broker:
        for credentials in (trusting(keys), trusting(made(tmp_path / "other"))):
            with pytest.raises(Unavailable, match=why):
                sees(endpoint_of(broker), credentials)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_broker_may_want_certificates_of_its_clients(workers: str, tmp_path: Path) -> None:
    """On gRPC as on RocketMQ's ports, also on the port for TLS only, and by IPv6."""
    keys, port = made(tmp_path / "keys", "::1"), str(free_port())
    settings = keys_of(keys, tlsMode="permissive", tlsNeedClientAuth="require", grpcTlsPort=port)
    settings |= {"bindAddress": "::1", "grpcWorkers": workers}
    with started(tmp_path / "broker", settings) as broker:
        assert sees(broker.endpoint, None) == "broker-a"
        assert sees(f"tls://[::1]:{port}", trusting(keys, shows=True)) == "broker-a"
        with pytest.raises(Unavailable):
            sees(f"tls://[::1]:{port}", trusting(keys))


def test_clients_move_to_tls_one_after_the_other(tmp_path: Path) -> None:
    """permissive: plain on grpcPort, TLS on grpcTlsPort, both on the other ports."""
    keys = made(tmp_path / "keys")
    ports = {name: str(free_port()) for name in ("grpcTlsPort", "metricsPort", "webPort")}
    settings = keys_of(keys, tlsMode="permissive") | ports
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    with started(tmp_path / "broker", settings) as broker:
        assert sees(broker.endpoint, None) == "broker-a"
        assert sees(endpoint_of(broker, ports["grpcTlsPort"]), trusting(keys)) == "broker-a"
        for path in (f"{ports['metricsPort']}/metrics", f"{ports['webPort']}/"):
            plain = urllib.request.urlopen(f"http://localhost:{path}")
            over_tls = urllib.request.urlopen(f"https://localhost:{path}", context=context)
            assert [answer.status for answer in (plain, over_tls)] == [200, 200]


def test_an_enforcing_broker_answers_nothing_in_plain_text(tmp_path: Path) -> None:
    """A client that somebody has talked out of TLS sends its secret to nobody."""
    keys = made(tmp_path / "keys")
    ports = {name: str(free_port()) for name in ("metricsPort", "webPort")}
    with started(tmp_path / "broker", keys_of(keys) | ports) as broker:
        with pytest.raises(Refused, match="it takes TLS only: use tls://"):
            sees(broker.endpoint, None)
        for port in ports.values():
            with pytest.raises(OSError, match=r"."):
                urllib.request.urlopen(f"http://localhost:{port}/", timeout=60)


@pytest.mark.parametrize(
    ("endpoint", "credentials", "field"),
    [
        ("https://localhost:1", Credentials(), "endpoint"),
        ("tls://localhost:1", Credentials(ca="nothing"), "ca"),
    ],
)
def test_what_gives_no_tls_is_refused_before_a_call(
    endpoint: str, credentials: Credentials, field: str
) -> None:
    """gRPC would wait for a broker that cannot be reached."""
    with pytest.raises(InvalidValue) as raised:
        sees(endpoint, credentials)
    assert raised.value.field == field


def test_a_command_says_in_one_line_why_it_does_not_believe_the_broker(tmp_path: Path) -> None:
    """gRPC's own log says nothing, at the command and at the broker."""
    keys = made(tmp_path / "keys")
    with started(tmp_path / "broker", keys_of(keys)) as broker:
        done = run_command("status", "-e", endpoint_of(broker))
        log = (broker.folder / "broker.log").read_text()
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "CERTIFICATE_VERIFY_FAILED" in line
    assert "andshake failed" not in log

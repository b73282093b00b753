"""A port with TLS: which connections it takes, with which keys, and how long it waits for them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.words.errors import ConfigInvalid
from rmqlite.protocols.shared.tls import OPENING_MAX, OPENING_S_MAX, TlsKeys, listen, load_keys
from tests.support.brokers import small_config
from tests.support.certificates import keys_of, made
from tests.support.clock import FakeClock
from tests.support.loops import run_with

ATTRIBUTES = {
    "tlsMode": "tls_mode",
    "tlsCertPath": "tls_cert_path",
    "tlsKeyPath": "tls_key_path",
    "tlsTrustCertPath": "tls_trust_cert_path",
    "tlsNeedClientAuth": "tls_client_auth",
    "grpcTlsPort": "grpc_tls_port",
}


def keys_in(folder: Path, **changes: str) -> TlsKeys | None:
    """The keys of a configuration that names the files of this folder."""
    given = {ATTRIBUTES[key]: value for key, value in keys_of(folder, **changes).items()}
    return load_keys(small_config(folder, **given))


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def of_client(folder: Path, *, shows: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if shows:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


class Client:
    """A connection to an echo."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def echo(self, data: bytes = b"hello") -> bytes:
        """What comes back; b"" if the connection is closed instead."""
        try:
            self.writer.write(data)
            return await self.reader.read(len(data))
        except OSError:
            return b""

    @property
    def serial(self) -> str:
        """The serial number of the broker's certificate."""
        return str(self.writer.get_extra_info("peercert")["serialNumber"])


Connect = Callable[[ssl.SSLContext | None], Awaitable[Client]]


def run(
    keys: TlsKeys | None,
    scenario: Callable[[Connect], Awaitable[Any]],
    clock: FakeClock | None = None,
) -> Any:
    """Run it with a way to connect to a port of echoes; all connections are closed at the end."""

    async def main() -> Any:
        bound = socket.create_server(("127.0.0.1", 0))
        listening = await listen(bound, Echo, keys)
        clients: list[Client] = []

        async def connect(context: ssl.SSLContext | None) -> Client:
            name = "localhost" if context else None
            clients.append(
                Client(
                    *await asyncio.open_connection(
                        *bound.getsockname(), ssl=context, server_hostname=name
                    )
                )
            )
            return clients[-1]

        try:
            return await scenario(connect)
        finally:
            for client in clients:
                client.writer.transport.abort()
            listening.close()
            bound.close()
            await asyncio.sleep(0)

    return run_with(clock, main()) if clock else asyncio.run(main())


@pytest.mark.parametrize(
    ("mode", "plain", "over_tls"),
    [("disabled", b"hello", b""), ("permissive", b"hello", b"hello"), ("enforcing", b"", b"hello")],
)
def test_a_port_takes_the_kinds_of_connections_of_its_mode(
    mode: str, plain: bytes, over_tls: bytes, tmp_path: Path
) -> None:
    """RocketMQ's tls.server.mode; permissive looks at the first byte."""
    made(tmp_path)

    async def scenario(connect: Connect) -> None:
        assert await (await connect(None)).echo() == plain
        try:
            found = await (await connect(of_client(tmp_path))).echo()
        except OSError:
            found = b""
        assert found == over_tls

    run(keys_in(tmp_path, tlsMode=mode), scenario)


def test_new_connections_take_new_keys_and_old_ones_stay(tmp_path: Path) -> None:
    """An operator renews a certificate while clients are connected."""
    keys = keys_in(made(tmp_path))
    assert keys is not None

    async def scenario(connect: Connect) -> None:
        old = await connect(of_client(tmp_path))
        made(tmp_path)
        await keys.look()
        new = await connect(of_client(tmp_path))
        assert old.serial != new.serial
        assert [await each.echo() for each in (old, new)] == [b"hello"] * 2

    run(keys, scenario)


def test_a_broken_certificate_keeps_the_former_one_and_says_so(tmp_path: Path) -> None:
    """A broker must not lose its port because of an edit."""
    keys = keys_in(made(tmp_path))
    assert keys is not None

    async def scenario(connect: Connect) -> None:
        trusted = of_client(tmp_path)
        (tmp_path / "broker.pem").write_text("no certificate")
        await keys.look()
        assert keys.is_broken
        (sentence,) = keys.warnings
        assert sentence.startswith("the TLS keys cannot be read again, the former ones stay: ")
        assert "tlsCertPath" in sentence
        assert await (await connect(trusted)).echo() == b"hello"

    run(keys, scenario)


def test_a_key_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    """It may be known already."""
    made(tmp_path)
    (tmp_path / "broker.key").chmod(0o644)
    keys = keys_in(tmp_path)
    assert keys is not None
    (sentence,) = keys.warnings
    assert "broker.key" in sentence
    assert "BEGIN" not in f"{keys.pem!r} {keys.pem}"


def test_a_client_without_a_certificate_is_refused_where_one_is_required(tmp_path: Path) -> None:
    """Also one whose certificate another CA has signed."""
    keys = keys_in(made(tmp_path), tlsNeedClientAuth="require")
    other = made(tmp_path / "other")

    async def scenario(connect: Connect) -> None:
        assert await (await connect(of_client(tmp_path, shows=True))).echo() == b"hello"
        strange = of_client(tmp_path)
        strange.load_cert_chain(other / "client.pem", other / "client.key")
        for context in (of_client(tmp_path), strange):
            # With TLS 1.3 a client learns of it with its first read.
            client = await connect(context)
            assert await client.echo() == b""

    run(keys, scenario)


@pytest.mark.parametrize(("version", "begins"), [(b"\3\2", b""), (b"\3\3", b"\x16")])
def test_an_older_tls_is_refused(version: bytes, begins: bytes, tmp_path: Path) -> None:
    """1.1 is broken; 1.2 is not."""
    # A ClientHello by hand, since Python's own client warns of old versions.
    suites = bytes.fromhex("0006 c02b c009 c023 0100")
    groups = bytes.fromhex("0016 000a0004 00020017 000d0004 00020403 000b0002 0100")
    hello = version + bytes(32) + b"\0" + suites + groups
    record = b"\1" + len(hello).to_bytes(3, "big") + hello
    data = b"\x16\3\1" + len(record).to_bytes(2, "big") + record

    async def scenario(connect: Connect) -> None:
        client = await connect(None)
        client.writer.write(data)
        assert (await client.reader.read(1)).strip(b"\x15") == begins

    run(keys_in(made(tmp_path)), scenario)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
@pytest.mark.parametrize("begun", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_connection_that_does_not_begin_is_closed(
    mode: str, begun: bytes, tmp_path: Path
) -> None:
    """Otherwise silent ones would take all file descriptors."""
    keys = keys_in(made(tmp_path), tlsMode=mode)
    clock = FakeClock()
    began_ms = clock.now_ms()

    async def scenario(connect: Connect) -> None:
        client = await connect(None)
        client.writer.write(begun)
        with suppress(ConnectionResetError):
            assert await client.reader.read() == b""

    run(keys, scenario, clock)
    assert clock.now_ms() - began_ms == pytest.approx(OPENING_S_MAX * 1000, abs=100)


def test_at_the_limit_the_oldest_silent_connection_is_closed(tmp_path: Path) -> None:
    """So whoever opens many does not keep others out."""
    keys = keys_in(made(tmp_path), tlsMode="permissive")

    async def scenario(connect: Connect) -> None:
        silent = [await connect(None) for _ in range(OPENING_MAX)]
        last = await connect(of_client(tmp_path))
        assert await last.echo() == b"hello"
        assert await silent[0].reader.read() == b""
        assert await silent[-1].echo() == b"hello"

    run(keys, scenario)


@pytest.mark.parametrize(
    ("spoil", "key", "rule"),
    [
        ({"broker.pem": None}, "tlsCertPath", "a file that can be read"),
        ({"broker.key": None}, "tlsKeyPath", "a file that can be read"),
        ({"broker.pem": "nothing"}, "tlsCertPath", "a certificate in PEM"),
        ({"broker.key": "nothing"}, "tlsCertPath", "tlsKeyPath holds its key"),
        ({"broker.key": "client.key"}, "tlsCertPath", "tlsKeyPath holds its key"),
        ({"ca.pem": "nothing"}, "tlsTrustCertPath", "certificates in PEM"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    spoil: dict[str, str | None], key: str, rule: str, tmp_path: Path
) -> None:
    """The broker does not start with half of its keys; a key's text is in no error."""
    made(tmp_path)
    for name, text in spoil.items():
        if text is None:
            (tmp_path / name).unlink()
        else:
            other = tmp_path / text
            (tmp_path / name).write_bytes(other.read_bytes() if other.exists() else text.encode())
    with pytest.raises(ConfigInvalid) as raised:
        keys_in(tmp_path, tlsNeedClientAuth="require")
    assert raised.value.field == key
    assert rule in raised.value.rule
    assert "BEGIN" not in str(raised.value)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    """OpenSSL would wait for a terminal."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    path = made(tmp_path) / "broker.key"
    key = load_pem_private_key(path.read_bytes(), None)
    locked = BestAvailableEncryption(b"passphrase")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    with pytest.raises(ConfigInvalid, match="without a passphrase"):
        keys_in(tmp_path)


@pytest.mark.parametrize("mode", ["disabled", "enforcing"])
def test_a_second_grpc_port_is_for_both_kinds_only(mode: str, tmp_path: Path) -> None:
    """Otherwise an operator would believe that grpcPort is still plain, or the second one TLS."""
    made(tmp_path)
    with pytest.raises(ConfigInvalid, match="tlsMode=permissive"):
        keys_in(tmp_path, tlsMode=mode, grpcTlsPort="8082")

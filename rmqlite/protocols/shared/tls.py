"""TLS on all ports, from one certificate and its key, which may be replaced while the broker runs.

A connection keeps the keys that it began with.  RocketMQ's ports, the web page and the metrics
can take TLS and plain connections on the same port: a connection that begins with 0x16 is TLS
(remoting reference §6.2).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.process.protocol_server import BACKLOG
from rmqlite.protocols.shared.secret_files import read_text
from rmqlite.protocols.shared.watched import WatchedFiles

PEM_BYTES_MAX: Final = 1 << 20
OPENING_MAX: Final = 200
"""How many connections of all ports may be open before their handshake is over, or their first
byte shows that there is none; one more, and the oldest is closed."""
OPENING_S_MAX: Final = 10.0
"""How long that may take."""
ACCEPTS_MAX: Final = 50
"""How many connections are accepted in one turn of the loop."""
NO_DESCRIPTOR_PAUSE_S: Final = 1.0
_HANDSHAKE: Final = b"\x16"
log = logging.getLogger(__name__)


class Pem(NamedTuple):
    """What the files hold.  client_ca: empty if clients need no certificate."""

    context: ssl.SSLContext
    certificate: str
    key: str
    client_ca: str
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """Without the key, because logs may get this text."""
        return "Pem(...)"


class TlsKeys(WatchedFiles[Pem]):
    """The broker's certificate and key in force."""

    name = "TLS keys"

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__()
        self._config = config
        self.pem: Pem
        self.takes_plain = config.tls_mode == "permissive"
        self._opening: dict[asyncio.Task[None], None] = {}
        """Connections whose handshake is not over, the oldest first."""

    def add(self, opening: asyncio.Task[None]) -> None:
        """Hold the task of a connection that begins; at the limit end the oldest one."""
        if len(self._opening) >= OPENING_MAX:
            oldest = next(iter(self._opening))
            del self._opening[oldest]
            oldest.cancel()
        self._opening[opening] = None
        opening.add_done_callback(lambda task: self._opening.pop(task, None))

    @property
    def needs_certificates(self) -> bool:
        """Must clients show a certificate?"""
        return self._config.tls_client_auth == "require"

    def _files(self) -> Iterable[Path]:
        config = self._config
        files = [config.tls_cert_path, config.tls_key_path]
        return [*files, config.tls_trust_cert_path] if self.needs_certificates else files

    def _read(self) -> Pem:
        """Raises ConfigInvalid, which names the key of broker.conf."""
        config, names = self._config, ["tls_cert_path", "tls_key_path"]
        names += ["tls_trust_cert_path"] if self.needs_certificates else []
        texts, warnings = [], []
        for name in names:
            try:
                text, warning = read_text(getattr(config, name), PEM_BYTES_MAX)
            except ValueError as error:
                raise config.refusal(name, str(error)) from None
            texts.append(text)
            if name == "tls_key_path" and warning:
                warnings.append(warning)
        context = self._context()
        certificate, key, client_ca = [*texts, ""][:3]
        return Pem(context, certificate, key, client_ca, tuple(warnings))

    def _take(self, found: Pem) -> Iterable[str]:
        self.pem = found
        log.info("TLS keys in force certificate=%s", self._config.tls_cert_path)
        return found.warnings

    def _context(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # The empty passphrase: otherwise OpenSSL would ask for one on the terminal.
            context.load_cert_chain(config.tls_cert_path, config.tls_key_path, password="")
        except (ssl.SSLError, OSError) as error:
            key = f"{KEYS['tls_key_path']} holds its key, without a passphrase"
            rule = f"a certificate in PEM; {key} ({_reason(error)})"
            raise config.refusal("tls_cert_path", rule) from None
        if self.needs_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(config.tls_trust_cert_path)
            except (ssl.SSLError, OSError) as error:
                rule = f"certificates in PEM ({_reason(error)})"
                raise config.refusal("tls_trust_cert_path", rule) from None
        return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or "not PEM")


def load_keys(config: BrokerConfig) -> TlsKeys | None:
    """The keys for all ports; None without TLS.  Raises ConfigInvalid."""
    if config.grpc_tls_port and config.tls_mode != "permissive":
        rule = f"0 unless {KEYS['tls_mode']}=permissive: else grpcPort takes one kind of connection"
        raise config.refusal("grpc_tls_port", rule)
    if config.tls_mode == "disabled":
        return None
    keys = TlsKeys(config)
    keys.load()
    return keys


class Listening(Protocol):
    """A port that accepts connections until it is closed."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


Factory = Callable[[], asyncio.BaseProtocol]


async def listen(bound: socket.socket, factory: Factory, keys: TlsKeys | None) -> Listening:
    """Accept connections on a bound socket; without keys plain ones only.

    They inherit its options.  asyncio would not set TCP_NODELAY, as the sockets that Python makes
    do not name their protocol; without it the second of two small answers waits up to 40 ms for
    the client's acknowledgement of the first.
    """
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keys is None:
        loop = asyncio.get_running_loop()
        return _PlainPort(bound, await loop.create_server(factory, sock=bound, backlog=BACKLOG))
    bound.setblocking(False)
    bound.listen(BACKLOG)
    return _TlsPort(bound, factory, keys)


class _PlainPort:
    """asyncio accepts the connections."""

    def __init__(self, bound: socket.socket, server: asyncio.Server) -> None:
        self._socket = bound
        self._server = server

    @property
    def is_open(self) -> bool:
        return self._server.is_serving() and self._socket.fileno() >= 0

    def close(self) -> None:
        self._server.close()


class _TlsPort:
    """Accepts connections itself: each takes the newest keys, and may begin with either kind."""

    def __init__(self, bound: socket.socket, factory: Factory, keys: TlsKeys) -> None:
        self._socket = bound
        self._factory = factory
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._watch()

    @property
    def is_open(self) -> bool:
        return self._is_open and self._socket.fileno() >= 0

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _watch(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No file descriptor is free: the others wait in the system's queue.
                log.warning("connections wait reason=%s", error.strerror)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(NO_DESCRIPTOR_PAUSE_S, self._watch)
                return
            connection.setblocking(False)
            self._keys.add(self._loop.create_task(self._open(connection)))

    async def _open(self, connection: socket.socket) -> None:
        """Hand a connection to a new protocol, after its handshake if it is TLS."""
        try:
            async with asyncio.timeout(OPENING_S_MAX):
                is_tls = await self._begins_tls(connection)
                if not is_tls and not self._keys.takes_plain:
                    # OpenSSL would wait for more bytes.
                    connection.close()
                    return
                context = self._keys.pem.context if is_tls else None
                # From here on the connection is the transport's, which closes it.
                await self._loop.connect_accepted_socket(self._factory, connection, ssl=context)
        except OSError as error:
            log.debug("a connection does not begin reason=%s", error)
            # asyncio's frames in it form a cycle with the connection and its buffer.
            error.with_traceback(None)

    async def _begins_tls(self, connection: socket.socket) -> bool:
        """Wait for the first byte, and leave it; if none comes, close the connection."""
        readable = asyncio.Event()
        self._loop.add_reader(connection, readable.set)
        try:
            await readable.wait()
            return connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE
        except BaseException:
            # After this, as a descriptor that is watched must not be closed.
            self._loop.call_soon(connection.close)
            raise
        finally:
            self._loop.remove_reader(connection)

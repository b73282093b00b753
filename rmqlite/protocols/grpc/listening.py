"""How gRPC listens, in the broker's process and in workers: options, TLS keys, its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

STREAMS_MAX: Final = 5_000
"""How many calls a connection may have at once, most of them parked: further ones wait in the
client.  A call costs up to 20 KB."""
PENDING_MAX: Final = 10_000
"""How many calls of all connections may wait until they begin; gRPC refuses further ones itself."""
_LOOP: Final = "_server_main_loop"
_CALL: Final = "_schedule_rpc_coro"
"""gRPC's own names of its loop, and of a call's task."""


class KeyTexts(NamedTuple):
    """In PEM.  client_ca: empty if clients need no certificate."""

    certificate: str
    key: str
    client_ca: str

    def __repr__(self) -> str:
        """Without the key, because logs may get this text."""
        return "KeyTexts(...)"


def options(
    connections_max: int, request_bytes_max: int, *, shares_port: bool
) -> tuple[tuple[str, int], ...]:
    return (
        # A second broker on the same port must fail; else the two would share the calls.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.max_receive_message_length", request_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        # By itself gRPC cancels calls at random when a thousand of them arrive at once.
        ("grpc.server.max_pending_requests", PENDING_MAX),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
        # gRPC then holds only 64 KiB of a request that waits to be read, not megabytes.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )


def credentials(
    in_force: Callable[[], KeyTexts], *, needs_certificates: bool
) -> grpc.ServerCredentials:
    """For every port: each handshake takes the keys in force, of TLS 1.2 or newer."""
    known = in_force()

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        now = in_force()
        if now == known:
            return None
        known = now
        return _certificates(known)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(known),
        newer,  # type: ignore[arg-type]  # None: the keys are the same as before.
        require_client_authentication=needs_certificates,
    )


def _certificates(keys: KeyTexts) -> grpc.ServerCertificateConfiguration:
    pair = (keys.key.encode(), keys.certificate.encode())
    return grpc.ssl_server_certificate_configuration([pair], keys.client_ca.encode() or None)


async def begun(server: grpc.aio.Server) -> asyncio.Task[None]:
    """Answer calls on the ports that are taken; gRPC's loop, which says to nobody when it ends."""
    before = asyncio.all_tasks()
    await server.start()
    new = asyncio.all_tasks() - before
    (serving,) = [each for each in new if _name(each) == _LOOP]
    return serving


async def calls_end(seconds: float) -> None:
    """Wait for the calls that are being answered, so long at most."""
    calls = [each for each in asyncio.all_tasks() if _name(each) == _CALL]
    if calls:
        await asyncio.wait(calls, timeout=seconds)


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__name__", "")

"""Calls of gRPC come in by account: each path asks for a signature, and takes each one once."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.accounts.accounts import Role
from rmqlite.features.accounts.gate.limits import AccountLimits
from rmqlite.features.rows import Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import AccessDenied, Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.grpc.calls import Handlers
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.grpc_server import Health
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.rpcs import native_services, rpc_of
from rmqlite.protocols.native.guard import guard_of
from rmqlite.protocols.native.replays import SKEW_MS_MAX
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.shared.signing import Signer
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask
from tests.support.clock import SetTime
from tests.support.sends import request_of
from tests.support.services import Served, served

KEY = "the-admin"
ADMIN = account(KEY, role=Role.ADMIN)
SEND = rpc_of(rpcs.SEND).encode_request(request_of((Message("orders", b"x"),)))


def guarded(server: Served) -> Handlers:
    server.access.accounts = accounts(ADMIN)
    in_flight = InFlight(1 << 30, 1 << 20)
    enter = guard_of(server.access, None).enter
    return handlers_of(methods_of(server.service), in_flight, BrokerConfig(), enter)


@pytest.mark.parametrize("rpc", all_rows(), ids=lambda rpc: rpc.name)
def test_every_call_asks_for_an_account(rpc: Row[Any, Any], under_test: BrokerUnderTest) -> None:
    """Before it reads the request, which is no request at all here."""

    async def scenario(server: Served, _: object) -> None:
        context = await ask(guarded(server), rpc.path, b"not a request")
        assert context.code.name == "PERMISSION_DENIED"
        assert isinstance(context.error, AccessDenied)
        assert str(context.error) == "access denied: the call has no access key"

    served(under_test, scenario)


def test_a_signed_call_is_answered_once(under_test: BrokerUnderTest) -> None:
    """A captured one is refused, so that a client that is only late signs again."""

    async def scenario(server: Served, _: object) -> None:
        handlers, signer = guarded(server), Signer(KEY, SECRET)
        sent = signer.metadata(rpcs.SEND.path, wall_ms())
        codes = [(await ask(handlers, rpcs.SEND.path, SEND, sent=sent)).code.name for _ in range(2)]
        assert codes == ["OK", "UNAVAILABLE"]
        late = signer.metadata(rpcs.SEND.path, wall_ms() - SKEW_MS_MAX - 10_000)
        context = await ask(handlers, rpcs.SEND.path, SEND, sent=late)
        assert isinstance(context.error, Unavailable)
        assert server.access.refused == 2
        assert under_test.broker.counts.sent == 1

    served(under_test, scenario)


@pytest.mark.parametrize(
    ("key", "secret", "path"),
    [
        (KEY, "b secret", rpcs.SEND.path),
        (KEY, "", rpcs.SEND.path),
        ("nobody-knows", SECRET, rpcs.SEND.path),
        (KEY, SECRET, rpcs.PULL.path),
    ],
)
def test_a_call_with_a_wrong_signature_is_refused(
    key: str, secret: str, path: str, under_test: BrokerUnderTest
) -> None:
    """One sentence for all of them: it does not tell whether the account exists."""

    async def scenario(server: Served, _: object) -> None:
        sent = Signer(key, secret or "x" * 8).metadata(path, wall_ms())
        context = await ask(guarded(server), rpcs.SEND.path, SEND, sent=sent)
        rule = "there is no such access key, or the signature is wrong"
        assert str(context.error) == f"access denied: {rule}"

    served(under_test, scenario)


def test_reflection_asks_for_an_account_and_health_does_not(under_test: BrokerUnderTest) -> None:
    """A load balancer has none; what can be called is nobody else's business."""

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(ADMIN)
        health = Health(native_services())
        handlers = health.handlers(InFlight(1 << 30, 1 << 20), guard_of(server.access, None).enter)
        reflect = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        assert (await ask(handlers, "/grpc.health.v1.Health/Check", b"")).code.name == "OK"
        assert (await ask(handlers, reflect, b"")).code.name == "PERMISSION_DENIED"
        sent = Signer(KEY, SECRET).metadata(reflect, wall_ms())
        assert (await ask(handlers, reflect, sent=sent)).code.name == "OK"

    served(under_test, scenario)


def limited(server: Served, **settings: int) -> Handlers:
    """A broker with these limits, whose time stands still."""
    limits = AccountLimits(BrokerConfig().model_copy(update=settings), SetTime())
    enter = guard_of(server.access, limits).enter
    in_flight = InFlight(1 << 30, 1 << 20)
    return handlers_of(methods_of(server.service), in_flight, BrokerConfig(), enter)


async def outcome(handlers: Handlers, data: bytes, signer: Signer | None) -> str:
    """The status of one send, and the limit that it has met."""
    sent = signer.metadata(rpcs.SEND.path, wall_ms()) if signer else ()
    context = await ask(handlers, rpcs.SEND.path, data, sent=sent)
    return "OK" if context.code.name == "OK" else f"{context.code.name} {context.error.field}"


def test_calls_beyond_the_limit_of_an_account_are_refused(under_test: BrokerUnderTest) -> None:
    """Before the request is read; and what keeps a consumer in its group is let in."""

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(ADMIN)
        handlers, signer = limited(server, account_requests_per_s_max=1), Signer(KEY, SECRET)
        assert await outcome(handlers, SEND, signer) == "OK"
        wanted = "RESOURCE_EXHAUSTED maxAccountRequestsPerSecond"
        assert await outcome(handlers, b"not a request", signer) == wanted
        sent = signer.metadata(rpcs.QUERY_OFFSETS.path, wall_ms())
        context = await ask(handlers, rpcs.QUERY_OFFSETS.path, b"", sent=sent)
        assert context.code.name != "RESOURCE_EXHAUSTED"

    served(under_test, scenario)


def test_bytes_beyond_the_limit_are_refused_before_they_are_decoded(
    under_test: BrokerUnderTest,
) -> None:
    """Of a connection without accounts, too."""

    async def scenario(server: Served, _: object) -> None:
        handlers = limited(server, connection_bytes_per_s_max=len(SEND))
        assert await outcome(handlers, SEND, None) == "OK"
        wanted = "RESOURCE_EXHAUSTED maxConnectionBytesPerSecond"
        assert await outcome(handlers, b"not a request", None) == wanted

    served(under_test, scenario)


def test_a_call_that_no_account_has_signed_counts_for_its_connection(
    under_test: BrokerUnderTest,
) -> None:
    """So its signature is not even looked at."""

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(ADMIN)
        handlers, signer = limited(server, connection_requests_per_s_max=1), Signer(KEY, "wrong!!")
        assert (await outcome(handlers, SEND, signer)).startswith("PERMISSION_DENIED")
        wanted = "RESOURCE_EXHAUSTED maxConnectionRequestsPerSecond"
        assert await outcome(handlers, SEND, signer) == wanted
        assert server.access.refused == 1

    served(under_test, scenario)

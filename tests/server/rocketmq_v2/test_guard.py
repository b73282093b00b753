"""Who calls: signatures as these clients make them, rights, limits, client ids."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.accounts.accounts import PERMS, Role
from rmqlite.kernel.config.addresses import parse_addresses
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.rocketmq_v2.calls import AUTHORIZATION, DATE_TIME
from tests.server.rocketmq_v2.signing import date_text, signed
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext, Sent, ask
from tests.support.rocketmq_v2 import header_of
from tests.support.rocketmq_v2_client import (
    GROUP,
    TOPIC,
    V2,
    ack,
    code_of,
    message,
    named,
    receive,
    served_v2,
)

ADMIN = account("the-admin", role=Role.ADMIN)
WRITER = account("the-writer", topic_perms={TOPIC: PERMS["PUB"]})
READER = account("the-reader", topic_perms={TOPIC: PERMS["SUB"]}, group_perms={GROUP: PERMS["SUB"]})
SEND = service.SendMessageRequest(messages=[message()])
HOUR_MS = 3_600_000


async def code_with(v2: V2, sent: Sent, name: str = "a client") -> tuple[Code, str]:
    """The outcome of a send with this metadata."""
    answer = await v2.other(name, sent).ask(rpcs.SEND_MESSAGE, SEND)
    return Code(answer.status.code), answer.status.message


def header(text: str) -> Sent:
    return ((DATE_TIME, date_text(wall_ms())), (AUTHORIZATION, text))


@pytest.mark.parametrize("rpc", rpcs.ALL, ids=lambda rpc: rpc.name)
def test_every_call_asks_for_an_account(
    under_test: BrokerUnderTest, rpc: RocketmqRpc[Any, Any]
) -> None:
    """Before it reads the request, which is no request at all here; and it ends well for gRPC."""

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN)
        assert await v2.code(rpc, b"not a request") is Code.UNAUTHORIZED
        # Python always signs: without an account with an empty key.
        empty = v2.other("python", signed("", ""))
        assert await empty.code(rpc, b"not a request") is Code.UNAUTHORIZED

    served_v2(under_test, scenario)


@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_a_signed_call_is_let_in(under_test: BrokerUnderTest, case: type[str]) -> None:
    """Python writes the signature in small letters, Node in capitals."""

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN)
        date, (name, text) = signed("the-admin")
        begin, signature = text[:-40], text[-40:]
        assert (await code_with(v2, (date, (name, begin + case(signature)))))[0] is Code.OK
        region = header_of("the-admin", SECRET, date[1]).replace("the-admin,", "the-admin/cn/mq,")
        assert (await code_with(v2, (date, (name, region))))[0] is Code.OK

    served_v2(under_test, scenario)


def test_without_accounts_nothing_is_checked(under_test: BrokerUnderTest) -> None:
    """Not even what is damaged: clients sign also where nobody asks."""

    async def scenario(v2: V2) -> None:
        assert (await code_with(v2, header("nonsense")))[0] is Code.OK

    served_v2(under_test, scenario)


WRONG = {
    "another secret": signed("the-admin", "another secret"),
    "an unknown key": signed("nobody-knows"),
    "another date": (
        (DATE_TIME, date_text(wall_ms() + 60_000)),
        (AUTHORIZATION, header_of("the-admin", SECRET, date_text(wall_ms()))),
    ),
    "no date": (signed("the-admin")[1],),
    "no form": header("MQv2-HMAC-SHA1"),
    "nothing": header(""),
    "another algorithm": header("Basic dGhlLWFkbWluOnNlY3JldA=="),
    "no hex": header(
        f"MQv2-HMAC-SHA1 Credential=the-admin, SignedHeaders={DATE_TIME}, Signature={'x' * 40}"
    ),
    "other headers": header(
        f"MQv2-HMAC-SHA1 Credential=the-admin, SignedHeaders=host, Signature={'a' * 40}"
    ),
    "very long": header(signed("the-admin")[1][1] + " " * 10_000),
    "twice": (*signed("the-admin"), *signed("the-admin")),
    "no date at all": (
        (DATE_TIME, "yesterday"),
        (AUTHORIZATION, header_of("the-admin", SECRET, "yesterday")),
    ),
    "the 31st of February": (
        (DATE_TIME, "20260231T120000Z"),
        (AUTHORIZATION, header_of("the-admin", SECRET, "20260231T120000Z")),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_signature_is_unauthorized(
    under_test: BrokerUnderTest, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The audit log has a line without secret and signature; so has the answer."""
    caplog.set_level(logging.INFO)

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN)
        code, sentence = await code_with(v2, WRONG[name])
        assert code is Code.UNAUTHORIZED
        texts = (sentence, caplog.text)
        secrets = [SECRET, *[value[-40:] for key, value in WRONG[name] if key == AUTHORIZATION]]
        assert not [each for each in secrets if len(each.strip()) > 30 and each in str(texts)]
        assert under_test.broker.counts.sent == 0
        assert v2.server.access.refused == 1
        assert "face=rocketmq5" in caplog.text

    served_v2(under_test, scenario)


@pytest.mark.parametrize(
    ("offset_h", "code"),
    [
        (0, Code.OK),
        (-12, Code.OK),
        (14, Code.OK),
        (-24, Code.UNAUTHORIZED),
        (24, Code.UNAUTHORIZED),
    ],
)
def test_a_date_is_now_in_some_time_zone(
    under_test: BrokerUnderTest, offset_h: int, code: Code
) -> None:
    """Python signs its local time and calls it UTC; what is older is a copy of an old call."""

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN)
        sent = signed("the-admin", at_ms=wall_ms() + offset_h * HOUR_MS)
        assert (await code_with(v2, sent))[0] is code

    served_v2(under_test, scenario)


def test_a_trusted_address_needs_no_signature(under_test: BrokerUnderTest) -> None:
    """As on the other protocols; a damaged one does not matter then."""

    async def scenario(v2: V2) -> None:
        trusted = (parse_addresses("10.0.0.*"),)
        v2.server.access.accounts = accounts(ADMIN, global_white_remote_addresses=trusted)
        for sent in ((), header("nonsense"), signed("nobody-knows")):
            assert (await code_with(v2, sent))[0] is Code.OK

    served_v2(under_test, scenario)


def test_a_missing_right_is_forbidden(under_test: BrokerUnderTest) -> None:
    """Who may send may not receive, and the other way round."""

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(WRITER, READER)
        writer = v2.other("writer", signed("the-writer"))
        reader = v2.other("reader", signed("the-reader"))
        await writer.sent(message())
        assert await reader.code(rpcs.SEND_MESSAGE, SEND) is Code.FORBIDDEN
        assert await writer.code(rpcs.RECEIVE_MESSAGE, receive()) is Code.FORBIDDEN
        assert await reader.code(rpcs.RECEIVE_MESSAGE, receive(group="x")) is Code.FORBIDDEN
        received = await reader.received()
        assert len(received) == 1
        assert await writer.code(rpcs.ACK_MESSAGE, ack(received)) is Code.FORBIDDEN
        beat = service.HeartbeatRequest(group=named(GROUP), client_type=definition.SIMPLE_CONSUMER)
        assert await writer.code(rpcs.HEARTBEAT, beat) is Code.FORBIDDEN
        goodbye = service.NotifyClientTerminationRequest(group=named(GROUP))
        assert await writer.code(rpcs.NOTIFY_TERMINATION, goodbye) is Code.FORBIDDEN
        assert await reader.acked(*received) == [Code.OK]

    served_v2(under_test, scenario)


def test_two_accounts_may_have_one_client_id(under_test: BrokerUnderTest) -> None:
    """One cannot get the other's result, or take its place."""

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN, WRITER)
        await v2.other("same", signed("the-admin")).sent(message())
        await v2.other("same", signed("the-writer")).sent(message())
        assert under_test.broker.counts.sent == 2

    served_v2(under_test, scenario)


@pytest.mark.parametrize("client_id", ["", " ", "x" * 300, "a\nb"])
def test_a_client_needs_an_id(under_test: BrokerUnderTest, client_id: str) -> None:
    """Its leases and its repeats are known by it."""

    async def scenario(v2: V2) -> None:
        for rpc in rpcs.ALL:
            assert await v2.other(client_id).code(rpc, b"") is Code.CLIENT_ID_REQUIRED
        context = await ask(v2.handlers, rpcs.HEARTBEAT.path, b"")
        answer = service.HeartbeatResponse.FromString(context.answers[0])
        assert code_of(answer) is Code.CLIENT_ID_REQUIRED

    served_v2(under_test, scenario)


def test_the_limits_of_an_account_count(tmp_path: Path) -> None:
    """What keeps a consumer in its group has a limit of its own, ten times as high."""
    under_test = BrokerUnderTest(tmp_path / "store", account_requests_per_s_max=3)

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = accounts(ADMIN)
        client = v2.other("a client", signed("the-admin"))
        codes = [await client.code(rpcs.SEND_MESSAGE, SEND) for _ in range(4)]
        assert codes == [Code.OK] * 3 + [Code.TOO_MANY_REQUESTS]
        beat = service.HeartbeatRequest(group=named(GROUP), client_type=definition.SIMPLE_CONSUMER)
        assert await client.code(rpcs.HEARTBEAT, beat) is Code.OK

    served_v2(under_test, scenario)
    under_test.store.release()


def test_the_bytes_of_an_account_count(tmp_path: Path) -> None:
    """Also the frames of an open Telemetry call."""
    under_test = BrokerUnderTest(tmp_path / "store", connection_bytes_per_s_max=1_000)

    async def scenario(v2: V2) -> None:
        large = service.SendMessageRequest(messages=[message("a", body=bytes(2_000))])
        assert await v2.code(rpcs.SEND_MESSAGE, large) is Code.OK
        assert await v2.code(rpcs.SEND_MESSAGE, large) is Code.TOO_MANY_REQUESTS
        call = v2.telemetry()
        trace = service.ThreadStackTrace(nonce="n", thread_stack_trace="x" * 11_000)
        for _ in range(2):
            call.put(service.TelemetryCommand(thread_stack_trace=trace))
        assert code_of(await call.next()) is Code.TOO_MANY_REQUESTS
        await call.call

    served_v2(under_test, scenario)
    under_test.store.release()


def test_the_context_of_a_call_says_who_comes(under_test: BrokerUnderTest) -> None:
    """A message keeps the address of its connection, and the host that its client names."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a", born_host=""))
        (received,) = await v2.received()
        assert received.system_properties.born_host == FakeContext().peer().split(":")[1]

    served_v2(under_test, scenario)

"""The limits of accounts and connections, as a 4.x client meets them."""

from __future__ import annotations

from typing import Any

from rmqlite.features.accounts.accounts import Role
from rmqlite.features.accounts.gate.limits import AccountLimits
from rmqlite.protocols.remoting.bytes.command import Command
from tests.server.remoting.asking import TOPIC, beat, pull_of, send_of
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.clock import SetTime
from tests.support.messages import create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol

ADMIN = account("the-admin", role=Role.ADMIN)
OTHER = account("the-other", role=Role.ADMIN)
BUSY = 2
"""RocketMQ's code for a broker that has too much to do."""


def limited(
    under_test: BrokerUnderTest, scenario: Any, settings: dict[str, int], has_accounts: bool = True
) -> None:
    """Run a scenario on a protocol with these limits, whose time stands still."""
    create_topic(under_test, TOPIC)

    async def inside(protocol: ProtocolUnderTest) -> None:
        limits = protocol.server.service.limits
        assert isinstance(limits, AccountLimits)
        limits._elapsed = SetTime()
        if has_accounts:
            protocol.server.access.accounts = accounts(ADMIN, OTHER)
        await scenario(protocol)

    served_protocol(under_test, inside, **settings)


async def asked(client: LoopClient, command: Command) -> Command:
    client.send(command)
    return await client.answer(command.opaque)


def test_requests_beyond_the_limit_of_an_account_are_refused(under_test: BrokerUnderTest) -> None:
    """On all its connections together; nothing of them is stored, and heartbeats go on."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client(signs_as=("the-admin", SECRET)) as one,
            protocol.client(signs_as=("the-admin", SECRET)) as two,
            protocol.client(signs_as=("the-other", SECRET)) as other,
        ):
            assert [(await asked(each, send_of(each))).code for each in (one, two)] == [0, 0]
            refused = await asked(one, send_of(one))
            assert refused.code == BUSY
            assert refused.remark == "the broker is at its limit maxAccountRequestsPerSecond=2"
            assert (await asked(two, pull_of(two))).code == BUSY
            assert (await asked(other, send_of(other))).code == 0
            assert (await beat(one)).code == 0
            assert under_test.broker.counts.sent == 3

    limited(under_test, scenario, {"account_requests_per_s_max": 2})


def test_a_connection_without_an_account_has_limits_too(under_test: BrokerUnderTest) -> None:
    """Without accounts those of a connection hold, and those of an account have no effect."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as one, protocol.client() as two:
            assert (await asked(one, send_of(one, b"x" * 2_000))).code == 0
            refused = await asked(one, send_of(one))
            assert (refused.code, "maxConnectionBytesPerSecond=1000" in refused.remark) == (2, True)
            assert (await asked(two, send_of(two))).code == 0

    settings = {"connection_bytes_per_s_max": 1_000, "account_requests_per_s_max": 1}
    limited(under_test, scenario, settings, has_accounts=False)


def test_a_wrong_signature_counts_for_its_connection(under_test: BrokerUnderTest) -> None:
    """And for no account: anybody can name it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client(signs_as=("the-admin", "wrong")) as wrong,
            protocol.client(signs_as=("the-admin", SECRET)) as right,
        ):
            codes = [(await asked(wrong, send_of(wrong))).code for _ in range(2)]
            assert codes == [1, BUSY]
            assert (await asked(right, send_of(right))).code == 0

    settings = {"connection_requests_per_s_max": 1, "account_requests_per_s_max": 1}
    limited(under_test, scenario, settings)


def test_an_account_has_its_number_of_connections(under_test: BrokerUnderTest) -> None:
    """A further one is refused until one of them ends."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(signs_as=("the-admin", SECRET)) as second:
            async with protocol.client(signs_as=("the-admin", SECRET)) as first:
                assert (await asked(first, send_of(first))).code == 0
                refused = await asked(second, send_of(second))
                assert refused.code == BUSY
                assert "maxAccountConnections=1" in refused.remark
            await turns_until(lambda: len(protocol.connections.open) == 1)
            assert (await asked(second, send_of(second))).code == 0

    limited(under_test, scenario, {"account_connections_max": 1})


def test_an_account_has_its_number_of_waiting_pulls(under_test: BrokerUnderTest) -> None:
    """One more is refused at once; another account's waits."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client(signs_as=("the-admin", SECRET)) as one,
            protocol.client(signs_as=("the-other", SECRET)) as other,
        ):
            waiting = pull_of(one, queue_id=1, wait_ms=50_000)
            one.send(waiting)
            await turns_until(lambda: protocol.server.service.parked == 1)
            assert (await asked(one, pull_of(one, queue_id=2, wait_ms=50_000))).code == BUSY
            other.send(pull_of(other, queue_id=1, wait_ms=50_000))
            await turns_until(lambda: protocol.server.service.parked == 2)
            assert (await asked(one, send_of(one, queue_id=1))).code == 0
            assert (await one.answer(waiting.opaque)).code == 0

    limited(under_test, scenario, {"account_parked_polls_max": 1})

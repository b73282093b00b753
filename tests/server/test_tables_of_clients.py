"""Nothing enters a table of clients before a right was found, and no account fills a table.

Each request of each protocol is made by an account without rights; all tables of the broker are
then as they were before.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from rmqlite.features.accounts.accounts import PERMS, Account
from rmqlite.features.leases.leases import Leases
from rmqlite.features.queue_locks.queue_locks import QueueLocks
from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.service.access import CALLER, Caller
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.names import HALF_TOPIC, TRACE_TOPIC
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.guard import guard_of
from rmqlite.protocols.native.table import handlers_of, methods_of
from rmqlite.protocols.remoting.bytes.requests.pop import (
    POLLING_INFO,
    SET_MESSAGE_REQUEST_MODE,
    ModeChangeBody,
    PollingInfo,
)
from rmqlite.protocols.remoting.requests import clients as remoting_clients
from rmqlite.protocols.remoting.requests.clients import RemotingClients
from rmqlite.protocols.rocketmq_v2 import clients as v2_clients
from rmqlite.protocols.rocketmq_v2.bytes import rpcs as v2_rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import HEARTBEAT, definition, service
from rmqlite.protocols.shared.signing import Signer
from tests.server import largest_remoting
from tests.server.remoting import asking
from tests.server.rocketmq_v2 import largest as largest_v2
from tests.server.rocketmq_v2 import signing
from tests.support import largest_calls
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import ask, turns_until
from tests.support.messages import create_topic
from tests.support.remoting import ProtocolUnderTest, served_protocol
from tests.support.rocketmq_v2_client import (
    GROUP,
    NODE,
    TOPIC,
    V2,
    code_of,
    consumer_settings,
    producer_settings,
    served_v2,
)
from tests.support.services import Served, served

RIGHTLESS: Final = "no-rights"
OPEN: Final = frozenset({35, 106})
"""A client that goes, and the addresses of brokers: what everybody is answered.  Everybody also
gets the route of a topic, which does not exist here."""


def of_rights(key: str) -> Account:
    """May send to the topics and consume as the groups of these tests."""
    both = PERMS["PUB|SUB"]
    return account(key, default_topic_perm=both, default_group_perm=both)


ONE, OTHER = of_rights("the-first"), of_rights("the-second")
KNOWN: Final = accounts(account(RIGHTLESS), ONE, OTHER)


def tables(under_test: BrokerUnderTest) -> dict[str, Any]:
    """What the broker remembers of clients, and of what they have named."""
    broker = under_test.broker
    return {
        "topics": [each.topic for each in broker.topics.all()],
        "groups": [each.group for each in broker.groups.all()],
        "offsets": list(broker.offsets.groups()),
        "members": broker.membership._shares.total,
        "subscriptions": broker.membership._bytes.total,
        "locks": broker[QueueLocks]._shares.total,
        "modes": broker[RequestModes]._count,
        "leases": len(broker[Leases].table._leases),
    }


# ---- without rights


def test_no_call_of_rmqlites_own_protocol(under_test: BrokerUnderTest) -> None:
    """The rights stand beside each method; what has none for everybody is listed here."""
    before = tables(under_test)

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = KNOWN
        enter = guard_of(server.access, None).enter
        in_flight, config = InFlight(1 << 30, 1 << 23), server.config
        handlers = handlers_of(methods_of(server.service), in_flight, config, enter)
        signer = Signer(RIGHTLESS, SECRET)
        let_in = set()
        for rpc in all_rows():
            data = rpc_of(rpc).encode_request(largest_calls.Largest(under_test, rpc).next())
            context = await ask(handlers, rpc.path, data, sent=signer.metadata(rpc.path, wall_ms()))
            if context.code.name != "PERMISSION_DENIED":
                let_in.add(rpc.name)
        # What every account may know.
        assert let_in == {rpcs.GET_LEVELS.name}
        assert server.service.parked == 0

    served(under_test, scenario)
    assert tables(under_test) == before


def test_no_call_of_rocketmq_5(under_test: BrokerUnderTest) -> None:
    """Twenty thousand heartbeats filled the table of clients in 15 s."""
    before = tables(under_test)
    alone: tuple[tuple[Any, Any], ...] = (
        (v2_rpcs.HEARTBEAT, service.HeartbeatRequest(client_type=definition.PRODUCER)),
        *[
            (v2_rpcs.TELEMETRY, service.TelemetryCommand(settings=each))
            for each in (
                producer_settings(agent=NODE),
                producer_settings(TRACE_TOPIC),
                consumer_settings(),
            )
        ],
    )

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = KNOWN
        client = v2.other("stranger", signing.signed(RIGHTLESS))
        for rpc in v2_rpcs.ALL:
            for serial in range(3):
                asked = largest_v2.REQUESTS[rpc](under_test, serial)
                await largest_v2.ask(client, rpc, asked.SerializeToString())
        for each, request in alone:
            await largest_v2.ask(client, each, request.SerializeToString())
        clients = v2.protocol.clients
        assert (len(clients), clients.names, clients._producers) == (0, 0, {})
        assert len(v2.protocol.telemetry._calls) == 0
        assert v2.server.service.parked == 0

    served_v2(under_test, scenario)
    assert tables(under_test) == before


def test_no_request_of_the_remoting_protocol(under_test: BrokerUnderTest) -> None:
    """Also how many pops wait is nothing that every account may know."""
    before = tables(under_test)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = KNOWN
        async with protocol.client(signs_as=(RIGHTLESS, SECRET)) as client:
            answered = set()
            for code, make in largest_remoting.REQUESTS.items():
                ext, body = make(largest_remoting.At(under_test, 1, 1))
                fields = {name: str(value) for name, value in ext.items()}
                answer = await client.ask(code, fields, body)
                if answer.code == 0:
                    answered.add(code)
            assert answered == OPEN
            assert (await client.ask(POLLING_INFO, PollingInfo("g", TOPIC, 0))).code != 0
            await asking.beat(client, "one", groups=["g"], producers=["p"])
            assert (await asking.beat(client, "one", groups=[], producers=["p"])).code == 0
            clients = registered(protocol)
            assert remembered(clients) == (0, 0, 0, 0)
            assert protocol.server.service.parked == 0

    served_protocol(under_test, scenario)
    assert tables(under_test) == before


def registered(protocol: ProtocolUnderTest) -> RemotingClients:
    calls: Any = protocol.calls
    clients: RemotingClients = calls._gone[0].__self__
    return clients


def remembered(clients: RemotingClients) -> tuple[int, ...]:
    return (
        len(clients._consumers),
        len(clients._producers),
        len(clients._beats),
        clients._beat_bytes.total,
    )


def test_who_takes_a_consumers_name_without_a_right_does_not_get_its_place(
    under_test: BrokerUnderTest,
) -> None:
    """Not even for a moment, in which the notifications of its group would go elsewhere."""
    create_topic(under_test, TOPIC)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = KNOWN
        async with (
            protocol.client(signs_as=(ONE.access_key, SECRET)) as client,
            protocol.client(signs_as=(RIGHTLESS, SECRET)) as stranger,
        ):
            assert (await asking.beat(client, "one")).code == 0
            clients = registered(protocol)
            taken: list[object] = []
            add = clients._add_consumer
            clients._add_consumer = lambda each: (taken.append(each), add(each))  # type: ignore[assignment, method-assign, func-returns-value]
            assert (await asking.beat(stranger, "one")).code == 1
            assert taken == []

    served_protocol(under_test, scenario)


# ---- one account of several


def test_one_account_may_have_half_of_a_table() -> None:
    """Without an account only the whole table counts."""
    shares = AccountShares("ROWS_MAX", 5)
    shares.add("one", 3)
    with pytest.raises(Overloaded, match="ROWS_MAX of one account=3"):
        shares.check("one")
    shares.check("other", 2)
    with pytest.raises(Overloaded, match="ROWS_MAX=5"):
        shares.check("other", 3)
    shares.check("", 2)
    shares.add("", 2)
    with pytest.raises(Overloaded, match="ROWS_MAX=5"):
        shares.check("other")
    shares.check("one", 0)
    shares.add("one", -3)
    assert (shares.of("one"), shares.total, shares._of) == (0, 2, {})


def test_one_account_leaves_room_for_clients_of_rocketmq_5(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of calls, of clients, of the names that they have said."""
    monkeypatch.setattr(v2_clients, "CLIENTS_MAX", 4)
    monkeypatch.setattr("rmqlite.protocols.rocketmq_v2.telemetry.CLIENTS_MAX", 4)
    monkeypatch.setattr(v2_clients, "NAMES_MAX", 4)
    alive = service.HeartbeatRequest(client_type=definition.SIMPLE_CONSUMER)
    alive.group.name = GROUP

    async def scenario(v2: V2) -> None:
        v2.server.access.accounts = KNOWN
        mine = [v2.other(f"client {number}", signing.signed(ONE.access_key)) for number in range(3)]
        calls = [each.telemetry() for each in mine]
        await turns_until(lambda: calls[2].call.done())
        assert code_of(await calls[2].next()) is Code.TOO_MANY_REQUESTS
        calls[0].settings(producer_settings("a", "b", "c"))
        assert code_of(await calls[0].next()) is Code.TOO_MANY_REQUESTS
        calls[0].settings(producer_settings("a", "b"))
        assert code_of(await calls[0].next(2)) is Code.OK
        assert await mine[1].code(HEARTBEAT, alive) is Code.OK
        assert await mine[2].code(HEARTBEAT, alive) is Code.TOO_MANY_REQUESTS
        other = v2.other("another", signing.signed(OTHER.access_key))
        call = other.telemetry()
        call.settings(producer_settings("a", "b"))
        assert code_of(await call.next()) is Code.OK
        await v2.end()
        clients = v2.protocol.clients
        for client in list(clients._clients.values()):
            clients.remove(client)
        assert (clients._shares._of, clients._names._of) == ({}, {})
        assert v2.protocol.telemetry._shares._of == {}

    served_v2(under_test, scenario)


def test_one_account_leaves_room_for_producers(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of producers and of the bytes of heartbeats."""
    monkeypatch.setattr(remoting_clients, "PRODUCERS_MAX", 4)
    monkeypatch.setattr(remoting_clients, "BEATS_BYTES_MAX", 600)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = KNOWN
        clients = registered(protocol)
        async with (
            protocol.client(signs_as=(ONE.access_key, SECRET)) as client,
            protocol.client(signs_as=(OTHER.access_key, SECRET)) as other,
        ):
            names = [f"p{number}" for number in range(4)]
            assert (await asking.beat(client, "one", groups=[], producers=names)).code == 0
            assert list(clients.producer_groups()) == names[:2]
            assert (await asking.beat(other, "two", groups=[], producers=["x"])).code == 0
            assert list(clients.producer_groups()) == [*names[:2], "x"]
            many = [f"p{number:0100}" for number in range(9)]
            assert (await asking.beat(client, "one", groups=[], producers=many)).code == 0
            # Too long to be remembered: it is read each time.
            assert [each.account for each in clients._beats.values()] == [OTHER.access_key]
        await turns_until(lambda: remembered(clients) == (0, 0, 0, 0))
        assert (clients._producer_shares._of, clients._beat_bytes._of) == ({}, {})

    served_protocol(under_test, scenario)


def test_one_account_leaves_room_for_members(under_test: BrokerUnderTest) -> None:
    """Of members and of the bytes of their subscriptions."""
    membership = under_test.broker.membership
    membership._shares = AccountShares("maxMembers", 4)
    membership._bytes = AccountShares("maxSubscriptionBytes", 4_000)

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = KNOWN
        heartbeat = server.service.groups.heartbeat
        CALLER.set(Caller(ONE, "10.0.0.1:1"))
        for number in range(2):
            await heartbeat(HeartbeatRequest(GROUP, f"mine-{number}", ()))
        with pytest.raises(Overloaded, match="maxMembers of one account=2"):
            await heartbeat(HeartbeatRequest(GROUP, "mine-2", ()))
        long = tuple([Subscription(f"topic-{number}", "x" * 500) for number in range(3)])
        with pytest.raises(Overloaded, match="maxSubscriptionBytes of one account=2000"):
            await heartbeat(HeartbeatRequest(GROUP, "mine-0", long))
        CALLER.set(Caller(OTHER, "10.0.0.2:1"))
        await heartbeat(HeartbeatRequest(GROUP, "another", ()))
        for member in under_test.broker.membership.members(GROUP):
            membership.leave(GROUP, member.client_id)
        assert (membership._shares._of, membership._bytes._of) == ({}, {})
        assert (membership._shares.total, membership._bytes.total) == (0, 0)

    served(under_test, scenario)


def test_nobody_may_let_a_group_pop_half_messages(under_test: BrokerUnderTest) -> None:
    """Its answer says why; anything else of the topic is as it was."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            change = ModeChangeBody(HALF_TOPIC, GROUP, RequestMode.POP)
            answer = await client.ask(SET_MESSAGE_REQUEST_MODE, None, change)
            assert answer.code == 16
            assert "the topic is the broker's own" in answer.remark

    served_protocol(under_test, scenario)

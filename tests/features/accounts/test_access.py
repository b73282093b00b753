"""Each method of the service, by each kind of account: who may call it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.features.accounts.accounts import Role, parse_perm
from rmqlite.features.operating.service import DeletionCalls, SettingCalls
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.service.access import BROKER, CALLER, Caller
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.words.errors import AccessDenied, PermissionMissing, Refused, RmqliteError
from rmqlite.kernel.words.names import TOOLS_GROUP
from tests.support.accounts import account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, plain
from tests.support.service_calls import READING, WRITING, ask, filled
from tests.support.services import Served, served

EVERY = (*WRITING, *READING)
OF_EVERYBODY = frozenset(
    {"schedule.levels"}
    | {"KeyValueCalls.has_order", "KeyValueCalls.order_of", "KeyValueCalls.orders"}
)
"""What any account may call."""
OF_THE_BROKER = frozenset({"messages.send_drafts"})
"""What it calls itself, for senders that it has checked."""
LEASES = frozenset(
    f"LeaseCalls.{each}" for each in ("receive", "receive_any", "ack", "change", "fail", "release")
)
OF_CONSUMERS = frozenset(
    {"messages.pull", "messages.send_back", "groups.commit", "groups.heartbeat", "groups.check"}
    | {"groups.offsets", "groups.leave", "QueueLockCalls.lock", "QueueLockCalls.unlock"}
    | {
        "groups.members",
        "groups.info",
        "ModeCalls.assigned",
        "topics.elsewhere",
        "LeaseCalls.peek",
        "LeaseCalls.waiting",
        *LEASES,
    }
)
OF_PRODUCERS = frozenset(
    {"messages.send", "BulkCalls.schedule", "topics.route"}
    | {"TransactionCalls.end", "ChangeCalls.recall"}
)
"""A route that may make its topic."""


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    with filled(tmp_path) as under_test:
        yield under_test


ADMIN = account("admin-key", role=Role.ADMIN)
VIEWER = account("viewer-key", role=Role.VIEWER)
NOTHING = account("nobody-key")
CONSUMER = account(
    "consumer", default_topic_perm=parse_perm("SUB"), default_group_perm=parse_perm("SUB")
)
PRODUCER = account("producer-key", default_topic_perm=parse_perm("PUB"))
ALL = accounts(ADMIN, VIEWER, NOTHING, CONSUMER, PRODUCER)


def refused_by(under_test: BrokerUnderTest, caller: Caller | None) -> set[str]:
    """The methods that this caller may not call."""
    refused = set()

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = ALL
        CALLER.set(caller)
        for method, arguments in EVERY:
            try:
                await ask(server.service, method, arguments)
            except AccessDenied:
                refused.add(method)
            except RmqliteError:
                # Allowed, and then refused for another reason: an earlier one changed the store.
                pass

    served(under_test, scenario)
    return refused


NAMES = {name for name, _ in EVERY}
CHANGING = (
    {name for name, _ in WRITING}
    | {"topics.clean", "FindingCalls.hand_out", "ProgressCalls.reset"}
    | {"ProgressCalls.reset_offsets"}
)
"""Also what has others do something."""


def test_nobody_may_call_anything(under_test: BrokerUnderTest) -> None:
    """Also a method that any account may call: a protocol that forgets to say who calls is shut."""
    assert refused_by(under_test, None) == NAMES


@pytest.mark.parametrize("caller", [BROKER, Caller(None, "10.0.0.1:1"), Caller(ADMIN, "")])
def test_an_admin_and_a_trusted_address_may_call_everything(
    under_test: BrokerUnderTest,
    caller: Caller,
) -> None:
    """The broker itself, too."""
    assert refused_by(under_test, caller) == set()


def test_an_account_without_rights_gets_what_everybody_gets(
    under_test: BrokerUnderTest,
) -> None:
    """Nothing that names a topic, a group or a message."""
    assert NAMES - refused_by(under_test, Caller(NOTHING, "")) == OF_EVERYBODY


def test_a_viewer_may_look_at_everything_and_change_nothing(
    under_test: BrokerUnderTest,
) -> None:
    """What belongs to a consumer is no looking."""
    allowed = NAMES - refused_by(under_test, Caller(VIEWER, ""))
    assert allowed & CHANGING == OF_EVERYBODY & CHANGING
    assert NAMES - allowed == (CHANGING | OF_CONSUMERS) - OF_EVERYBODY


def test_a_producer_may_send_and_no_more(under_test: BrokerUnderTest) -> None:
    """It does not even see the topic's offsets."""
    allowed = NAMES - refused_by(under_test, Caller(PRODUCER, ""))
    assert allowed == OF_EVERYBODY | OF_PRODUCERS


def test_a_consumer_may_consume_and_look_at_what_it_consumes(
    under_test: BrokerUnderTest,
) -> None:
    """It sends and administrates nothing, and sees nothing of the whole broker."""
    allowed = NAMES - refused_by(under_test, Caller(CONSUMER, ""))
    assert allowed >= OF_CONSUMERS | OF_EVERYBODY
    assert allowed & CHANGING == {"messages.pull", "messages.send_back"} | {
        "groups.commit",
        "groups.heartbeat",
        *LEASES,
    }
    assert not allowed & {"status", "topics.all", "groups.all", "LogCalls.read", "SettingCalls.all"}


def test_a_method_without_a_rule_is_an_error() -> None:
    """When its class is made, so no test can be forgotten."""
    with pytest.raises(TypeError, match=r"Calls\.forgotten does not say who may call it"):

        class Calls(Part):
            async def forgotten(self) -> None:
                """Nobody has thought of it."""


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "rmqlite.audit"]


def test_who_changes_something_and_who_is_refused_is_logged(
    under_test: BrokerUnderTest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its outcome; reading leaves no line, and no line has a secret."""
    caplog.set_level(logging.INFO, "rmqlite.audit")

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = ALL
        CALLER.set(Caller(ADMIN, "10.0.0.1:7", "grpc"))
        await server.service[DeletionCalls].delete("orders")
        await server.service.topics.all()
        with pytest.raises(PermissionMissing):
            await server.service[SettingCalls].change({"listenPort": "1"})
        CALLER.set(Caller(None, "10.0.0.3:7", "web"))
        await server.service.topics.clean()
        CALLER.set(Caller(NOTHING, "10.0.0.2:7", "remoting"))
        with pytest.raises(Refused):
            await server.service[DeletionCalls].delete("orders")
        assert server.access.refused == 1

    served(under_test, scenario)
    admin = "changes face=grpc account='admin-key' client=10.0.0.1:7"
    assert lines_of(caplog) == [
        f"{admin} call='DeletionCalls.delete' target='orders' outcome=ok",
        f"{admin} call='SettingCalls.change' target='' outcome=permission-missing",
        "changes face=web account='' client=10.0.0.3:7 call='TopicCalls.clean' target=''"
        " outcome=ok",
        "refused face=remoting account='nobody-key' client=10.0.0.2:7 call='DeletionCalls.delete'"
        " target='orders' outcome=access-denied rule='Need admin permission for the broker, but"
        " accessKey=nobody-key is not'",
    ]


def test_each_method_that_changes_something_is_logged_at_its_end(
    under_test: BrokerUnderTest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, and also if it fails; what belongs to a producer or a consumer is not."""
    caplog.set_level(logging.INFO, "rmqlite.audit")
    expected = []

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = ALL
        CALLER.set(Caller(ADMIN, "10.0.0.1:7", "grpc"))
        for method, arguments in EVERY:
            try:
                await ask(server.service, method, arguments)
                outcome = "ok"
            except RmqliteError as error:
                outcome = error.code
            of_clients = OF_CONSUMERS | OF_PRODUCERS | OF_EVERYBODY
            if method in CHANGING - of_clients - OF_THE_BROKER:
                expected.append((method.rpartition(".")[2], outcome))

    served(under_test, scenario)
    found = [
        (
            line.partition("call='")[2].partition("'")[0].rpartition(".")[2],
            line.split("outcome=")[1],
        )
        for line in lines_of(caplog)
    ]
    assert found == expected
    assert expected


def test_a_call_that_is_cancelled_is_logged_too(
    under_test: BrokerUnderTest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its caller is gone, but it may have changed something."""
    caplog.set_level(logging.INFO, "rmqlite.audit")

    async def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = ALL
        CALLER.set(Caller(ADMIN, "10.0.0.1:7", "grpc"))
        server.service[RedriveCalls]._durable = cancelled  # type: ignore[method-assign]
        (asked,) = [arguments for name, arguments in WRITING if name == "RedriveCalls.start"]
        with pytest.raises(asyncio.CancelledError):
            await ask(server.service, "RedriveCalls.start", asked)

    served(under_test, scenario)
    assert lines_of(caplog)[-1].endswith("outcome=CancelledError")


def test_who_may_look_at_a_topic_may_peek_into_it(under_test: BrokerUnderTest) -> None:
    """Tools pull as RocketMQ's group for tools; the pull makes no group, and commits nothing."""
    under_test.send(plain("a"))
    found = {}

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = ALL
        for caller, group in ((VIEWER, TOOLS_GROUP), (VIEWER, "g"), (NOTHING, TOOLS_GROUP)):
            CALLER.set(Caller(caller, ""))
            try:
                pulled = await server.service.messages.pull(PullRequest(group, TOPIC, 0, 0))
            except AccessDenied:
                found[caller.access_key, group] = -1
            else:
                found[caller.access_key, group] = len(pulled.records)

    served(under_test, scenario)
    assert [count > 0 for count in found.values()] == [True, False, False]
    assert under_test.broker.groups.get(TOOLS_GROUP) is None

"""Requests of RocketMQ's clients come in by account: who signs, and what the account may do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from rmqlite.features.accounts.accounts import PERMS, Account, Role
from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.config.addresses import parse_addresses
from rmqlite.protocols.remoting.bytes.batch import BatchItem, write_batch
from rmqlite.protocols.remoting.bytes.command import (
    ACCESS_KEY,
    ONE_WAY_FLAG,
    SIGNATURE,
    Command,
    signature,
)
from rmqlite.protocols.remoting.bytes.requests import pop
from rmqlite.protocols.remoting.bytes.requests.broker import GET_BROKER_CONFIG
from rmqlite.protocols.remoting.bytes.requests.name_server import GET_ALL_TOPIC_LIST_FROM_NAMESERVER
from rmqlite.protocols.remoting.bytes.requests.pop import (
    ACK_MESSAGE,
    PEEK_MESSAGE,
    POP_MESSAGE,
    SET_MESSAGE_REQUEST_MODE,
    ModeChangeBody,
)
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.bytes.requests.sends import (
    RECALL_MESSAGE,
    SEND_BATCH_MESSAGE,
    Recall,
    SendMessage,
)
from rmqlite.protocols.remoting.calls import _LOOKING, _OF_CLIENTS, _OPEN
from tests.server.remoting.asking import TOPIC, beat, pull_of, send_of
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.messages import create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol
from tests.support.transactions import bodies

ADMIN = account("the-admin", role=Role.ADMIN)
VIEWER = account("the-viewer", role=Role.VIEWER)
SENDER = account("the-sender", topic_perms={TOPIC: PERMS["PUB"]})
READER = account(
    "the-reader",
    topic_perms={TOPIC: PERMS["SUB"]},
    group_perms={"readers": PERMS["SUB"]},
)
NOBODY = account("nobody-knows")
KNOWN = (ADMIN, VIEWER, SENDER, READER)


def guarded(under_test: BrokerUnderTest, scenario: Any, **about: Any) -> None:
    """Run a scenario on a protocol with these accounts; about: of accounts()."""
    create_topic(under_test, TOPIC)

    async def inside(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = accounts(*KNOWN, **about)
        await scenario(protocol)

    served_protocol(under_test, inside)


async def code_of(client: LoopClient, command: Command) -> int:
    client.send(command)
    return (await client.answer(command.opaque)).code


def batch_of(client: LoopClient) -> Command:
    asked = SendMessage(TOPIC, "senders", queue_id=0, is_batch=True)
    items = write_batch([BatchItem(0, b"1", b""), BatchItem(0, b"2", b"")])
    return client.request(SEND_BATCH_MESSAGE, asked, items)


ASKED: dict[str, Any] = {
    "send": send_of,
    "batch": batch_of,
    "recall": lambda client: client.request(RECALL_MESSAGE, Recall(TOPIC, "none")),
    "retry": lambda client: send_of(client, topic="%RETRY%readers"),
    "pull": pull_of,
    "lite pull": lambda client: pull_of(client)._replace(code=361),
    "topics": lambda client: client.request(GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
    "create": lambda client: client.request(17, {"topic": "new", "defaultTopic": "TBW102"}),
    "settings": lambda client: client.request(GET_BROKER_CONFIG),
    "wipe": lambda client: client.request(205, {"brokerName": "broker-a"}),
    "unknown": lambda client: client.request(9_999),
}
MAY = {
    "the-admin": {
        "send",
        "batch",
        "recall",
        "retry",
        "pull",
        "lite pull",
        "topics",
        "create",
        "settings",
        "wipe",
        "unknown",
    },
    "the-viewer": {"topics", "settings"},
    "the-sender": {"send", "batch", "recall"},
    "the-reader": {"retry", "pull", "lite pull"},
}


@pytest.mark.parametrize("what", sorted(ASKED))
@pytest.mark.parametrize("key", sorted(MAY))
def test_an_account_may_what_its_rights_say(
    under_test: BrokerUnderTest, key: str, what: str
) -> None:
    """Also for a batch, which RocketMQ lets everybody send who has an account."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(signs_as=(key, SECRET)) as client:
            command = ASKED[what](client)
            client.send(command)
            answer = await client.answer(command.opaque)
            is_denied = answer.remark.startswith("access denied: ")
            assert is_denied is (what not in MAY[key])
            assert answer.code == 1 or not is_denied

    guarded(under_test, scenario)


def test_a_request_that_is_not_signed_is_refused_with_rocketmqs_code(
    under_test: BrokerUnderTest,
) -> None:
    """The answer tells neither whether the account nor whether the topic exists."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            command = send_of(client)
            keyed = {**command.ext, ACCESS_KEY: "the-sender"}
            right = keyed | {SIGNATURE: signature(keyed, command.body, SECRET)}
            wrong = [
                command.ext,
                keyed,
                keyed | {SIGNATURE: ""},
                right | {ACCESS_KEY: "the-reader"},
                right | {ACCESS_KEY: NOBODY.access_key},
                right | {"b": "payments"},
                right | {SIGNATURE: right[SIGNATURE][:-2]},
            ]
            remarks = set()
            for number, ext in enumerate(wrong):
                client.send(command._replace(ext=ext, opaque=100 + number))
                answer = await client.answer(100 + number)
                assert answer.code == 1
                remarks.add(answer.remark)
            assert remarks == {
                "access denied: the call has no access key",
                "access denied: there is no such access key, or the signature is wrong",
            }
            client.send(command._replace(ext=right, flag=ONE_WAY_FLAG, opaque=200))
            client.send(command._replace(ext=right | {"b": "x"}, flag=ONE_WAY_FLAG, opaque=201))
            assert await code_of(client, command._replace(ext=right, opaque=202)) == 0
            assert not client.answers

    guarded(under_test, scenario)
    assert bodies(under_test) == ["x", "x"]


def test_a_route_is_told_to_everybody(under_test: BrokerUnderTest) -> None:
    """As RocketMQ's name server does: a client asks for it first, and Go does not sign it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            assert (await client.ask(105, {"topic": TOPIC})).code == 0
            assert (await client.ask(105, {"topic": "unknown"})).code == 17
            assert (await client.ask(106)).code == 1

    guarded(under_test, scenario)


def test_a_heartbeat_needs_every_group_and_topic_in_it(under_test: BrokerUnderTest) -> None:
    """A producer's heartbeat needs an account only."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client(signs_as=("the-reader", SECRET)) as reader,
            protocol.client(signs_as=("the-sender", SECRET)) as sender,
        ):
            assert (await beat(reader)).code == 0
            assert (await beat(reader, topic="payments")).code == 1
            assert (await beat(reader, groups=("readers", "others"))).code == 1
            assert (await beat(sender)).code == 1
            assert (await beat(sender, "client-2", groups=(), producers=("senders",))).code == 0
            offset = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0"}
            assert not (await reader.ask(14, offset)).remark.startswith("access denied")
            assert (await sender.ask(14, offset)).remark.startswith("access denied")

    guarded(under_test, scenario)


def test_an_account_that_is_deleted_is_refused_from_then_on(under_test: BrokerUnderTest) -> None:
    """On a connection that is open, too; and one whose secret changes."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(signs_as=("the-sender", SECRET)) as client:
            assert await code_of(client, send_of(client)) == 0
            protocol.server.access.accounts = accounts(account("the-sender", secret="another"))
            assert await code_of(client, send_of(client)) == 1
            protocol.server.access.accounts = accounts()
            assert await code_of(client, send_of(client)) == 1
            assert protocol.server.access.refused == 2

    guarded(under_test, scenario)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (account("the-reader", topic_perms=READER.topic_perms), 1),
        (READER.model_copy(update={"secret": SecretStr("another secret")}), 1),
        (None, 1),
        (READER.model_copy(), 0),
    ],
    ids=["fewer rights", "another secret", "deleted", "read again"],
)
def test_a_pull_that_waits_is_answered_by_the_rules_of_then(
    changed: Account | None, code: int, under_test: BrokerUnderTest
) -> None:
    """A message that comes later is not for who has lost the right to it."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client(signs_as=("the-reader", SECRET)) as reader,
            protocol.client(signs_as=("the-sender", SECRET)) as sender,
        ):
            pull = pull_of(reader, group="readers", wait_ms=50_000)
            reader.send(pull)
            await turns_until(lambda: protocol.server.service.parked == 1)
            protocol.server.access.accounts = accounts(SENDER, *([changed] if changed else []))
            assert await code_of(sender, send_of(sender)) == 0
            assert (await reader.answer(pull.opaque)).code == code

    guarded(under_test, scenario)


@pytest.mark.parametrize("is_global", [True, False])
def test_a_trusted_address_needs_no_signature(under_test: BrokerUnderTest, is_global: bool) -> None:
    """RocketMQ's white lists: one for everybody, and one of an account, which is named."""
    here = parse_addresses("127.0.0.1")
    trusting = SENDER.model_copy(update={"white_remote_address": here})

    async def scenario(protocol: ProtocolUnderTest) -> None:
        if not is_global:
            protocol.server.access.accounts = accounts(trusting)
        async with protocol.client() as client:
            command = send_of(client)
            ext = command.ext if is_global else {**command.ext, ACCESS_KEY: "the-sender"}
            assert await code_of(client, command._replace(ext=ext)) == 0

    guarded(under_test, scenario, global_white_remote_addresses=(here,) if is_global else ())


def test_no_code_is_in_two_tables() -> None:
    """Every code that stands in none needs an admin."""
    assert not _OPEN & _OF_CLIENTS
    assert not _LOOKING & (_OPEN | _OF_CLIENTS)


def test_a_pop_needs_the_right_to_read_and_a_mode_an_admin(under_test: BrokerUnderTest) -> None:
    """The service knows the topic and the group, also those of a retry's ack."""
    asked: dict[RemotingRequest[Any, Any], object] = {
        POP_MESSAGE: pop.PopMessage("readers", TOPIC, -1, 1, 60_000, 0),
        PEEK_MESSAGE: pop.PeekMessage("readers", TOPIC, -1, 1),
        ACK_MESSAGE: pop.AckMessage(
            "readers", f"%RETRY%readers_{TOPIC}", 0, "0 1 1 0 1 broker-a 0 0", 0
        ),
    }
    mode = ModeChangeBody(TOPIC, "readers", RequestMode.POP)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        for who, denied in ((READER, False), (SENDER, True)):
            async with protocol.client(signs_as=(who.access_key, SECRET)) as client:
                for row, fields in asked.items():
                    answer = await client.ask(row, fields)
                    assert answer.remark.startswith("access denied") == denied, answer
                answer = await client.ask(SET_MESSAGE_REQUEST_MODE, None, mode)
                assert "Need admin permission" in answer.remark
        async with protocol.client(signs_as=(ADMIN.access_key, SECRET)) as client:
            assert (await client.ask(SET_MESSAGE_REQUEST_MODE, None, mode)).code == 0

    guarded(under_test, scenario)

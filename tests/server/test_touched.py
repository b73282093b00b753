"""What a call touches, whatever it names: an offset names a topic, and so does a property.

An account that may send to one topic and consume it in one group asks for everything: by each
method of the service, and by each code of RocketMQ's protocol.  Every physical offset that it names
is that of another one's message, wherever that lies.  It may read and change nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqlite.features.accounts.accounts import PERMS
from rmqlite.features.dead_letters.requests import HistoryQuery
from rmqlite.features.raw_log.requests import LogReadRequest
from rmqlite.features.transactions.requests import TransactionEnd
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.pulling import Records
from rmqlite.kernel.records.drafts import Draft, derived
from rmqlite.kernel.records.record import destination
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.service.access import CALLER, Caller
from rmqlite.kernel.words.errors import AccessDenied, MessageNotFound, RmqliteError
from rmqlite.kernel.words.message import REAL_TOPIC, Message, encode_properties, offset_message_id
from rmqlite.kernel.words.names import (
    BULK_JOBS_TOPIC,
    HALF_TOPIC,
    LEASES_TOPIC,
    SCHEDULE_TOPIC,
    TABLES_TOPIC,
    dlq_topic,
    retry_topic,
)
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests import ANSWERED, NAMES
from rmqlite.protocols.remoting.bytes.requests.clients import HEART_BEAT, Heartbeat, ProducerData
from rmqlite.protocols.remoting.bytes.requests.messages import CONSUMER_SEND_MSG_BACK, SendBack
from rmqlite.protocols.remoting.bytes.requests.request import Body, Party, RemotingRequest
from rmqlite.protocols.remoting.bytes.requests.sends import (
    SEND_REPLY_MESSAGE,
    SEND_REPLY_MESSAGE_V2,
    SendMessage,
)
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.look_alikes import send_look_alike
from tests.support.messages import create_topic
from tests.support.redrives import GROUP as SHOP
from tests.support.remoting import ProtocolUnderTest, served_protocol
from tests.support.sends import BORN_HOST
from tests.support.service_calls import NEW, READING, WRITING, ask
from tests.support.services import Served, served
from tests.support.steps import done
from tests.support.transactions import GROUP as PRODUCERS

OWN, MINE = "own", "mine"
OTHER, THEIRS = "payroll", "others"
HIDDEN = "TOP-SALARY"
CLAIMS = {
    "RETRY_TOPIC": OTHER,
    "REAL_TOPIC": OTHER,
    "REAL_QID": "0",
    "DLQ_ORIGIN_TOPIC": OTHER,
    "REPLY_TO_CLIENT": "nobody",
    "PGROUP": MINE,
}
"""What a property string names."""
CURIOUS = account(
    "the-curious", topic_perms={OWN: PERMS["PUB|SUB"]}, group_perms={MINE: PERMS["SUB"]}
)
PLACES = (OTHER, retry_topic(THEIRS), dlq_topic(THEIRS), SCHEDULE_TOPIC, HALF_TOPIC, "forged")
TOUCHABLE = {OWN, retry_topic(MINE), dlq_topic(MINE), BULK_JOBS_TOPIC, LEASES_TOPIC, TABLES_TOPIC}
"""The last two have what the broker notes of the account's own bulk jobs and leases."""
REPLIES = (SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2)


class Aim(NamedTuple):
    """What a call names: of its own or of others, and an offset of others."""

    topic: str
    group: str
    physical_offset: int
    queue_offset: int


class Filled(NamedTuple):
    """at: the physical offset of a hidden message, by the topic that it lies in."""

    under_test: BrokerUnderTest
    at: dict[str, int]
    end: int

    def aim(self, place: str, topic: str, group: str) -> Aim:
        return Aim(topic, group, self.at[place], 0)


def judge(filled: Filled, answers: list[str]) -> None:
    """Nothing hidden was told, copied, written to others or ended."""
    assert not [each for each in answers if HIDDEN in each]
    broker, store = filled.under_test.broker, filled.under_test.store
    for record in store.walk(filled.end):
        to = destination(record.properties)
        is_hop = record.head.topic in (SCHEDULE_TOPIC, HALF_TOPIC)
        assert (to[0] if to and is_hop else record.head.topic) in TOUCHABLE
        assert HIDDEN.encode() not in record.body
    assert broker[Transactions].halves.is_open(0)
    assert broker.offsets.of(THEIRS) == {Queue(OTHER, 0): 1}
    assert broker.topics.get(OTHER) is not None


def send_draft(under_test: BrokerUnderTest, draft: Draft) -> int:
    """The physical offset of a message that comes by RocketMQ's protocol."""
    (outcome,) = done(under_test.broker.drafts.send([DraftCall((draft,))]))
    assert not isinstance(outcome, Exception)
    under_test.sync()
    return outcome.physical_offsets[0]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    """A hidden message of others in each kind of place."""
    under_test = BrokerUnderTest(tmp_path)
    for topic in (OWN, OTHER):
        create_topic(under_test, topic)
    under_test.send(Message(OWN, b"mine"))
    hidden = HIDDEN.encode()
    (plain,) = under_test.send(Message(OTHER, hidden))
    at = {OTHER: plain.physical_offset}
    for level, topic in ((1, retry_topic(THEIRS)), (-1, dlq_topic(THEIRS))):
        under_test.broker.send_back(SendBackRequest(THEIRS, at[OTHER], level))
        under_test.sync()
        under_test.clock.forward(1_000)
        under_test.deliver()
        (lying,) = under_test.messages(topic)
        at[topic] = lying.physical_offset
    (waiting,) = under_test.send(Message(OTHER, hidden, delay_level=18))
    at[SCHEDULE_TOPIC] = waiting.physical_offset
    # A producer group belongs to no account: anybody may name it.
    half = {"TRAN_MSG": "true", "PGROUP": MINE, "UNIQ_KEY": "half"}
    draft = Draft(OTHER, 0, encode_properties(half), hidden, 17, BORN_HOST, sys_flag=4)
    at[HALF_TOPIC] = send_draft(under_test, draft)
    under_test.broker.commit_offsets(OffsetsCommit(THEIRS, {Queue(OTHER, 0): 1}))
    at["forged"] = forged_half(under_test, at[HALF_TOPIC])
    yield Filled(under_test, at, under_test.store.end)
    under_test.store.release()


def forged_half(under_test: BrokerUnderTest, half_at: int) -> int:
    """Where the body of a message begins that looks like another one's half message.

    It has that one's place in the queue, and the account's own topic as its destination.
    """
    half = under_test.store.read_record(half_at)
    changes = {REAL_TOPIC: OWN, "REAL_QID": "0"}
    look = derived(half, HALF_TOPIC, 0, properties=half.properties.edited(changes), body=b"mine")
    return send_look_alike(under_test, OWN, look, half.head.queue_offset)


# ---- by each method of the service


def aimed(value: Any, aim: Aim) -> Any:
    """A request of front_calls, which names something else now."""
    if isinstance(value, str):
        names = {"orders": aim.topic, NEW: aim.group, SHOP: aim.group, PRODUCERS: MINE}
        return names.get(value, value)
    if isinstance(value, dict):
        return {aimed(key, aim): aimed(each, aim) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        values = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return type(value)(**{name: _aimed(name, each, aim) for name, each in values.items()})
    fields_of: tuple[str, ...] = getattr(value, "_fields", ())
    if fields_of:
        return type(value)(*[_aimed(*each, aim) for each in zip(fields_of, value, strict=True)])
    if isinstance(value, tuple):
        return tuple([aimed(each, aim) for each in value])
    return value


def _aimed(name: str, value: Any, aim: Aim) -> Any:
    if name == "physical_offset":
        return aim.physical_offset
    if name == "properties" and isinstance(value, bytes):
        return encode_properties(CLAIMS)
    return aimed(value, aim)


def asked_of_the_service(aim: Aim) -> list[tuple[str, tuple[Any, ...]]]:
    """Each method with its request; the offsets that are no field of one are added."""
    offset_id = offset_message_id("10.0.0.1:10911", aim.physical_offset)
    end = TransactionEnd(MINE, aim.queue_offset, aim.physical_offset, is_commit=True)
    return [
        *[(name, aimed(request, aim)) for name, request in (*WRITING, *READING)],
        ("messages.record", (aim.physical_offset,)),
        ("FindingCalls.at", (offset_id,)),
        ("FindingCalls.hand_out", (offset_id,)),
        ("DeadLetterCalls.history", (HistoryQuery(offset_id),)),
        ("LogCalls.read", (LogReadRequest(aim.physical_offset),)),
        ("TransactionCalls.end", (end,)),
    ]


def shown(answer: Any) -> str:
    """All that an answer tells."""
    if isinstance(answer, (Record, Records)):
        return repr(answer.encoded)
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return "".join(map(shown, answer))
    if isinstance(answer, Iterator):
        return "".join(map(shown, answer))
    return repr(answer)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("topic", "group"), [(OWN, MINE), (OTHER, MINE), (OWN, THEIRS)])
def test_no_method_touches_what_its_caller_may_not(
    filled: Filled, place: str, topic: str, group: str
) -> None:
    """Found with send-back, which copied any message of the log into the caller's own group."""
    aim = filled.aim(place, topic, group)
    answers: list[str] = []

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(CURIOUS)
        CALLER.set(Caller(CURIOUS, "10.0.0.9:1", "grpc"))
        for method, request in asked_of_the_service(aim):
            try:
                answers.append(shown(await ask(server.service, method, request)))
            except RmqliteError as error:
                answers.append(str(error))

    served(filled.under_test, scenario)
    judge(filled, answers)


# ---- by each code of RocketMQ's protocol


def ext_of(row: RemotingRequest[Any, Any], aim: Aim) -> dict[str, str]:
    """The fields of a request, each by its name."""
    by_name = {
        "properties": encode_properties(CLAIMS).decode(),
        "topic": aim.topic,
        "group": aim.group,
        "tran_state_table_offset": aim.queue_offset,
        "queue_offset": aim.queue_offset,
        "commit_offset": aim.queue_offset,
        "offset": aim.physical_offset,
        "msg_id": offset_message_id("10.0.0.1:10911", aim.physical_offset),
        "commit_or_rollback": 8,
        "num": 1,
    }
    by_kind = {"bool": "false", "i32": 0, "i64": 0, "str": "x"}
    ext = {}
    for column in row.fields.columns:
        names = (each for name, each in by_name.items() if name in column.name)
        is_plain = column.kind == "bool"
        value = by_kind[column.kind] if is_plain else next(names, by_kind[column.kind])
        ext[column.wire] = str(value)
    return ext


SERVED = [row for row in ANSWERED.values() if row.asked != (Party.CLIENT,)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("topic", "group"), [(OWN, MINE), (OTHER, MINE), (OWN, THEIRS)])
def test_no_code_touches_what_its_sender_may_not(
    filled: Filled, place: str, topic: str, group: str
) -> None:
    """Found with replies, which an account without any right could store in any topic."""
    aim = filled.aim(place, topic, group)
    answers: list[str] = []

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = accounts(CURIOUS)
        async with protocol.client(signs_as=(CURIOUS.access_key, SECRET)) as client:
            for row in SERVED:
                body = b"mine" if row.body is Body.MESSAGE else b"{}"
                answer = await client.ask(row, ext_of(row, aim), body)
                answers.append(repr(answer))

    served_protocol(filled.under_test, scenario)
    judge(filled, answers)


# ---- what is refused, and said


@pytest.mark.parametrize("place", PLACES[:-1])
def test_a_send_back_of_a_message_that_its_group_cannot_have_received_is_refused(
    filled: Filled, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The audit log has a line of it; the refusal does not tell in which topic the message lies."""
    caplog.set_level(logging.INFO, "rmqlite.audit")
    at = filled.at[place]

    async def scenario(protocol: ProtocolUnderTest) -> None:
        protocol.server.access.accounts = accounts(CURIOUS)
        async with protocol.client(signs_as=(CURIOUS.access_key, SECRET)) as client:
            answer = await client.ask(CONSUMER_SEND_MSG_BACK, SendBack(at, MINE, 0))
        assert answer.code == 1
        rule = f"No default permission for the message at physical offset {at}"
        assert answer.remark == f"access denied: {rule}"
        (line,) = [each.getMessage() for each in caplog.records if each.name == "rmqlite.audit"]
        assert line.startswith(f"refused face=remoting account='{CURIOUS.access_key}'")
        assert "call='MessageCalls.send_back' target='mine'" in line
        assert rule in line

    served_protocol(filled.under_test, scenario)


@pytest.mark.parametrize("row", REPLIES, ids=lambda row: NAMES[row.code])
@pytest.mark.parametrize("topic", [OWN, OTHER])
def test_a_reply_needs_the_right_to_its_topic(
    filled: Filled, row: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the client that asked gets it; RocketMQ asks for an account only."""
    caplog.set_level(logging.INFO, "rmqlite.audit")

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with (
            protocol.client() as asker,
            protocol.client(signs_as=(CURIOUS.access_key, SECRET)) as replier,
        ):
            beat = Heartbeat("asker-1", (ProducerData("askers"),), ())
            assert (await asker.ask(HEART_BEAT, None, beat)).code == 0
            protocol.server.access.accounts = accounts(CURIOUS)
            properties = encode_properties({"REPLY_TO_CLIENT": "asker-1"}).decode()
            sent = replier.request(row, SendMessage(topic, "g", properties=properties), b"yes")
            replier.send(sent)
            if topic == OWN:
                asker.write(encode((await asker.told(326)).answer(0)))
            answer = await replier.answer(sent.opaque)
            is_refused = answer.remark.startswith("access denied: ")
            assert (answer.code, is_refused) == ((0, False) if topic == OWN else (1, True))
            assert not asker.take_asked(326)
        lines = [each for each in caplog.records if each.name == "rmqlite.audit"]
        assert len(lines) == (topic == OTHER)

    served_protocol(filled.under_test, scenario)


def test_what_belongs_to_the_own_group_is_sent_back_as_ever(filled: Filled) -> None:
    """A retry needs no more than the group: its topic may be one that the account cannot read
    any more, and then it would be neither retried nor dead."""
    under_test = filled.under_test
    under_test.broker.send_back(SendBackRequest(MINE, filled.at[OTHER], 1))
    under_test.sync()
    under_test.clock.forward(1_000)
    under_test.deliver()
    (retry,) = under_test.messages(retry_topic(MINE))

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(CURIOUS)
        CALLER.set(Caller(CURIOUS, "10.0.0.9:1", "grpc"))
        result = await server.service.messages.send_back(
            SendBackRequest(MINE, retry.physical_offset, -1)
        )
        assert result.topic == dlq_topic(MINE)

    served(under_test, scenario)


def test_bytes_of_a_body_that_look_like_a_half_message_end_none(filled: Filled) -> None:
    """Without accounts, too: the half message of another one was lost, and nobody heard of it."""
    end = TransactionEnd(MINE, 0, filled.at["forged"], is_commit=True)
    with pytest.raises(MessageNotFound):
        filled.under_test.broker[Transactions].end(end)
    judge(filled, [])


def test_drafts_of_many_senders_are_stored_for_the_broker_only(filled: Filled) -> None:
    """So that a protocol which forgets to check a sender is refused."""

    async def scenario(server: Served, _: object) -> None:
        server.access.accounts = accounts(CURIOUS)
        CALLER.set(Caller(CURIOUS, "10.0.0.9:1", "remoting"))
        call = DraftCall((Draft(OWN, 0, b"", b"x", 17, BORN_HOST),))
        with pytest.raises(AccessDenied):
            await server.service.messages.send_drafts([call], print)
        assert (await server.service.messages.send(call)).physical_offsets

    served(filled.under_test, scenario)

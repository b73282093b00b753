"""Requests of POP consumers of RocketMQ 5, as their bytes come, against the broker's leases."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from rmqlite.features.leases.leases import Leases
from rmqlite.features.request_modes.requests import RequestMode
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.kernel.words.names import retry_topic
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import BATCH_ACK_MESSAGES_MAX
from rmqlite.protocols.remoting.bytes.registration import (
    RegisteredTopic,
    Registration,
    encode_plain,
)
from rmqlite.protocols.remoting.bytes.requests import pop
from rmqlite.protocols.remoting.bytes.requests.clients import (
    UNREGISTER_CLIENT,
    MessageModel,
    UnregisterClient,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    REGISTER_BROKER,
    RegistrationFields,
)
from rmqlite.protocols.remoting.bytes.requests.pop import (
    ACK_MESSAGE,
    BATCH_ACK_MESSAGE,
    CHANGE_MESSAGE_INVISIBLETIME,
    GET_ALL_MESSAGE_REQUEST_MODE,
    NOTIFICATION,
    PEEK_MESSAGE,
    POLLING_INFO,
    POP_MESSAGE,
    QUERY_ASSIGNMENT,
    SET_MESSAGE_REQUEST_MODE,
    AckMessage,
    AssignmentBody,
    Assignments,
    BatchAck,
    BatchAcks,
    ChangeInvisibleTime,
    ExtraInfo,
    ModeChangeBody,
    Notification,
    PeekMessage,
    PollingInfo,
    PopMessage,
    RequestModesBody,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from tests.server.remoting.asking import GROUP, TOPIC, beat, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.messages import create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol
from tests.support.steps import done

BROKER = "broker-a"
INVISIBLE_MS = 60_000
NUMBERS = {"popTime", "invisibleTime", "reviveQid", "restNum"}
NOT_FOUND, NO_MESSAGE, NO_NEW_MESSAGE = 210, 208, 19


def pop_of(*, wait_ms: int = 0, queue_id: int = -1, **more: Any) -> PopMessage:
    asked = PopMessage(GROUP, TOPIC, queue_id, 32, INVISIBLE_MS, wait_ms, exp_type="TAG", exp="*")
    return asked._replace(**more)


def popped(answer: Command) -> list[tuple[StoredMessage, ExtraInfo]]:
    """The messages of an answer with their extra info, as Java's client puts it together."""
    fields = POP_MESSAGE.answer.read(answer.ext)
    assert fields.start_offset_info is not None
    assert fields.msg_offset_info is not None
    starts = dict(part.rsplit(" ", 1) for part in fields.start_offset_info.split(";"))
    offsets = {
        queue: [int(each) for each in them.split(",")]
        for queue, them in (part.rsplit(" ", 1) for part in fields.msg_offset_info.split(";"))
    }
    found = []
    places: dict[str, int] = {}
    for record in records_of(answer.body):
        topic_type = pop.RETRY if record.topic.startswith("%RETRY%") else pop.NORMAL
        queue = f"{topic_type} {record.queue_id}"
        at = places[queue] = places.get(queue, -1) + 1
        assert offsets[queue][at] == record.queue_offset
        info = ExtraInfo(
            int(starts[queue]),
            fields.pop_time,
            fields.invisible_time,
            fields.revive_qid,
            topic_type,
            BROKER,
            record.queue_id,
            record.queue_offset,
        )
        found.append((record, info))
    return found


def named(info: ExtraInfo, topic: str = TOPIC) -> tuple[str, str, int, str, int]:
    """The first fields of an ack and of a change."""
    if info.topic_type == pop.RETRY:
        topic = f"{retry_topic(GROUP)}_{topic}"
    return GROUP, topic, info.queue_id, str(info), info.queue_offset


async def ack(client: LoopClient, info: ExtraInfo) -> int:
    return (await client.ask(ACK_MESSAGE, AckMessage(*named(info)))).code


async def bodies(client: LoopClient, **more: Any) -> list[bytes]:
    """What a pop brings at once."""
    answer = await client.ask(POP_MESSAGE, pop_of(**more))
    return [record.body for record in records_of(answer.body)]


async def until_parked(protocol: ProtocolUnderTest, count: int) -> None:
    await turns_until(lambda: protocol.server.service.parked == count)


@pytest.fixture
def broker(under_test: BrokerUnderTest) -> BrokerUnderTest:
    create_topic(under_test, TOPIC, 4)
    return under_test


def test_popped_messages_are_acknowledged_one_by_one(broker: BrokerUnderTest) -> None:
    """Of all queues; others do not get them meanwhile, and never if they are acknowledged."""
    for queue_id in (0, 2):
        broker.send(*[Message(TOPIC, b"%d" % n) for n in range(2)], queue_id=queue_id)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(POP_MESSAGE, pop_of())
            assert (answer.code, answer.remark) == (0, "FOUND")
            found = popped(answer)
            assert sorted((record.queue_id, record.body) for record, _ in found) == [
                *((0, b"0"), (0, b"1"), (2, b"0"), (2, b"1"))
            ]
            assert {info.invisible_time for _, info in found} == {INVISIBLE_MS}
            assert await bodies(client) == []
            for _, info in found[:3]:
                assert await ack(client, info) == 0
            assert await ack(client, found[0][1]) == NO_MESSAGE
            broker.clock.forward(INVISIBLE_MS)
            assert await ack(client, found[3][1]) == NO_MESSAGE

    served_protocol(broker, scenario)


def test_a_pop_may_name_a_queue_and_tags(broker: BrokerUnderTest) -> None:
    """A client that shares queues with few others asks for each of its own."""
    broker.send(Message(TOPIC, b"a", tags="A"), Message(TOPIC, b"b", tags="B"), queue_id=1)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            assert await bodies(client, queue_id=0) == []
            assert await bodies(client, queue_id=1, exp="A || C", max_msg_nums=0) == [b"a"]
            answer = await client.ask(POP_MESSAGE, pop_of(exp_type="REGEX"))
            assert answer.code == 1
            assert "TAG or SQL92" in answer.remark
            answer = await client.ask(POP_MESSAGE, pop_of(topic="absent"))
            assert answer.code == 17

    served_protocol(broker, scenario)


def test_a_pop_that_finds_nothing_waits_and_then_says_so_with_all_numbers(
    broker: BrokerUnderTest,
) -> None:
    """Java's client reads the numbers first, and fails without them."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(POP_MESSAGE, pop_of(wait_ms=1))
            assert answer.code == NOT_FOUND
            assert answer.ext.keys() >= NUMBERS
            waiting = client.request(POP_MESSAGE, pop_of(wait_ms=50_000))
            client.send(waiting)
            await until_parked(protocol, 1)
            count = await client.ask(POLLING_INFO, PollingInfo(GROUP, TOPIC, -1))
            assert count.ext == {"pollingNum": "1"}
            client.send(send_of(client, b"new"))
            answer = await client.answer(waiting.opaque)
            assert [record.body for record, _ in popped(answer)] == [b"new"]
            count = await client.ask(POLLING_INFO, PollingInfo(GROUP, TOPIC, -1))
            assert count.ext == {"pollingNum": "0"}

    served_protocol(broker, scenario)


def test_nothing_is_leased_to_a_client_that_is_gone(broker: BrokerUnderTest) -> None:
    """Its pop ends with its connection; what it had unregistered from is visible at once."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as gone:
            gone.send(gone.request(POP_MESSAGE, pop_of(wait_ms=50_000)))
            await until_parked(protocol, 1)
        await until_parked(protocol, 0)
        async with protocol.client() as client:
            sent = send_of(client, b"x")
            client.send(sent)
            assert (await client.answer(sent.opaque)).code == 0
            await beat(client, "client-1")
            assert await bodies(client) == [b"x"]
            assert await bodies(client) == []
            await client.ask(UNREGISTER_CLIENT, UnregisterClient("client-1", "", GROUP))
            assert await bodies(client) == [b"x"]

    served_protocol(broker, scenario)


def test_a_failed_message_is_popped_again_from_the_retry_topic(broker: BrokerUnderTest) -> None:
    """After the delay that its client asked for; it acknowledges the topic and the retry mark."""
    broker.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((record, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            assert record.reconsume_times == 0
            changed = await client.ask(
                CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTime(*named(info), 10_000)
            )
            assert changed.code == 0
            fields = CHANGE_MESSAGE_INVISIBLETIME.answer.read(changed.ext)
            assert fields.invisible_time == 10_000
            assert await ack(client, info) == NO_MESSAGE
            broker.clock.forward(10_000)
            expire(broker)
            ((record, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            assert (record.topic, record.reconsume_times) == (retry_topic(GROUP), 1)
            assert info.topic_type == pop.RETRY
            assert await ack(client, info) == 0
            assert await bodies(client) == []

    served_protocol(broker, scenario)


def test_the_handle_of_a_change_is_valid(broker: BrokerUnderTest) -> None:
    """A consumer that needs more time acknowledges it with the words of the answer."""
    broker.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((_, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            change = ChangeInvisibleTime(*named(info), 2 * INVISIBLE_MS)
            fields = CHANGE_MESSAGE_INVISIBLETIME.answer.read(
                (await client.ask(CHANGE_MESSAGE_INVISIBLETIME, change)).ext
            )
            broker.clock.forward(INVISIBLE_MS + 1)
            longer = info._replace(pop_time=fields.pop_time, revive_qid=fields.revive_qid)
            assert await ack(client, longer) == 0

    served_protocol(broker, scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"revive_qid": 1 << 22},
        {"revive_qid": 0},
        {"pop_time": 1 << 41},
        {"pop_time": 1},
        {"queue_id": 3},
        {"queue_offset": 7},
        {"topic_type": pop.RETRY},
    ],
)
def test_other_words_than_those_of_a_lease_are_no_handle(
    broker: BrokerUnderTest, wrong: dict[str, Any]
) -> None:
    """The client takes any code but 0 for "no such message"; the remark says more."""
    broker.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((_, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            other = info._replace(**wrong)
            answer = await client.ask(ACK_MESSAGE, AckMessage(*named(other)))
            assert answer.code == NO_MESSAGE
            assert "receipt_handle" in answer.remark
            change = ChangeInvisibleTime(*named(other), 1_000)
            answer = await client.ask(CHANGE_MESSAGE_INVISIBLETIME, change)
            assert answer.code == NO_MESSAGE
            assert answer.ext == dict.fromkeys(("popTime", "invisibleTime", "reviveQid"), "0")
            assert await ack(client, info) == 0

    served_protocol(broker, scenario)


def test_a_change_that_cannot_be_read_is_answered_with_its_numbers_too(
    broker: BrokerUnderTest,
) -> None:
    """Java's client looks for them before it looks at the code."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for ext in ({}, {"topic": TOPIC}):
                answer = await client.ask(CHANGE_MESSAGE_INVISIBLETIME, ext)
                assert answer.code == 1
                assert answer.ext == dict.fromkeys(("popTime", "invisibleTime", "reviveQid"), "0")

    served_protocol(broker, scenario)


def test_many_messages_are_acknowledged_at_once(broker: BrokerUnderTest) -> None:
    """By a proxy of RocketMQ: bits for the messages of one queue; some may be gone."""
    broker.send(*[Message(TOPIC, b"%d" % n) for n in range(4)])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            found = popped(await client.ask(POP_MESSAGE, pop_of()))
            info = found[0][1]
            bits = b64encode(bytes([0b10001011])).decode()
            batch = BatchAck(
                *(GROUP, TOPIC, pop.NORMAL, info.start_offset, 0),
                *(info.revive_qid, info.pop_time, INVISIBLE_MS, bits),
            )
            done = await client.ask(BATCH_ACK_MESSAGE, None, BatchAcks((batch,), BROKER))
            assert done.code == 0
            assert [await ack(client, each) for _, each in found] == [
                *(NO_MESSAGE, NO_MESSAGE, 0, NO_MESSAGE)
            ]

    served_protocol(broker, scenario)


def test_a_batch_of_acks_has_a_limit_for_all_its_messages(broker: BrokerUnderTest) -> None:
    """Nothing of a longer one is acknowledged."""
    broker.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((_, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            bits = b64encode(b"\xff" * 512).decode()
            batch = BatchAck(
                *(GROUP, TOPIC, pop.NORMAL, 0, 0, info.revive_qid, info.pop_time),
                *(INVISIBLE_MS, bits),
            )
            answer = await client.ask(BATCH_ACK_MESSAGE, None, BatchAcks((batch, batch), BROKER))
            assert answer.code == 1
            assert f"at most {BATCH_ACK_MESSAGES_MAX} messages" in answer.remark
            assert await ack(client, info) == 0

    served_protocol(broker, scenario)


def test_a_handle_that_a_producer_sent_along_is_none(broker: BrokerUnderTest) -> None:
    """Java's client would keep it, and acknowledge some other message with it."""
    broker.send(Message(TOPIC, b"x", properties={"POP_CK": "0 1 2 3 0 b 4 5", "kept": "yes"}))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((record, info),) = popped(await client.ask(POP_MESSAGE, pop_of()))
            assert "POP_CK" not in record.properties
            assert record.properties["kept"] == "yes"
            assert await ack(client, info) == 0

    served_protocol(broker, scenario)


def test_whoever_pops_in_order_hears_how_often_a_message_failed(broker: BrokerUnderTest) -> None:
    """It comes again in its place, where its record does not say so."""
    broker.broker.groups.change(GroupChange(GROUP, orderly=True))
    broker.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            ((_, info),) = popped(await client.ask(POP_MESSAGE, pop_of(order=True)))
            change = ChangeInvisibleTime(*named(info), 0)
            assert (await client.ask(CHANGE_MESSAGE_INVISIBLETIME, change)).code == 0
            answer = await client.ask(POP_MESSAGE, pop_of(order=True))
            assert answer.ext["orderCountInfo"] == "0 qo0%0 1"
            ((record, _),) = popped(answer)
            assert (record.topic, record.reconsume_times) == (TOPIC, 0)

    served_protocol(broker, scenario)


def test_a_look_leases_nothing(broker: BrokerUnderTest) -> None:
    """Nor does it hide a message from a pop with another filter."""
    broker.send(Message(TOPIC, b"a", tags="A"), Message(TOPIC, b"b", tags="B"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for _ in range(2):
                answer = await client.ask(PEEK_MESSAGE, PeekMessage(GROUP, TOPIC, -1, 32))
                assert (answer.code, answer.ext.keys() >= NUMBERS) == (0, True)
                assert [each.body for each in records_of(answer.body)] == [b"a", b"b"]
            ((_, info),) = popped(await client.ask(POP_MESSAGE, pop_of(exp="A")))
            answer = await client.ask(PEEK_MESSAGE, PeekMessage(GROUP, TOPIC, 1, 32))
            assert (answer.code, answer.ext.keys() >= NUMBERS) == (NO_NEW_MESSAGE, True)
            change = ChangeInvisibleTime(*named(info), 0)
            assert (await client.ask(CHANGE_MESSAGE_INVISIBLETIME, change)).code == 0
            expire(broker)
            answer = await client.ask(PEEK_MESSAGE, PeekMessage(GROUP, TOPIC, -1, 32))
            assert [each.body for each in records_of(answer.body)] == [b"a"]

    served_protocol(broker, scenario)


def test_a_notification_waits_for_a_message_and_leaves_it_to_a_pop(
    broker: BrokerUnderTest,
) -> None:
    """RocketMQ's proxies ask so; a pop that waits for the same message is not forgotten."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            asked = Notification(GROUP, TOPIC, -1, 0)
            answer = await client.ask(NOTIFICATION, asked)
            assert answer.ext == {"hasMsg": "false", "pollingFull": "false"}
            looking = client.request(NOTIFICATION, asked._replace(poll_time=50_000))
            client.send(looking)
            await until_parked(protocol, 1)
            waiting = client.request(POP_MESSAGE, pop_of(wait_ms=50_000))
            client.send(waiting)
            await until_parked(protocol, 2)
            client.send(send_of(client, b"new"))
            answer = await client.answer(looking.opaque)
            assert answer.ext == {"hasMsg": "true", "pollingFull": "false"}
            assert len(popped(await client.answer(waiting.opaque))) == 1

    served_protocol(broker, scenario)


def test_too_many_that_wait_are_refused_and_come_again(broker: BrokerUnderTest) -> None:
    """Of whoever asks for a notification, in a field that its proxy knows."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            client.send(*[client.request(POP_MESSAGE, pop_of(wait_ms=50_000)) for _ in range(10)])
            await until_parked(protocol, 10)
            answer = await client.ask(POP_MESSAGE, pop_of(wait_ms=50_000))
            assert (answer.code, "maxParkedPolls" in answer.remark) == (2, True)
            answer = await client.ask(NOTIFICATION, Notification(GROUP, TOPIC, -1, 50_000))
            assert answer.ext == {"hasMsg": "false", "pollingFull": "true"}

    served_protocol(broker, scenario)


def test_a_pop_of_one_queue_is_woken_by_its_messages_only(broker: BrokerUnderTest) -> None:
    """The one that waits for longest may wait for another queue."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            waiting = {
                queue_id: client.request(POP_MESSAGE, pop_of(wait_ms=50_000, queue_id=queue_id))
                for queue_id in (0, 1, 2)
            }
            for number, request in enumerate(waiting.values(), 1):
                client.send(request)
                await until_parked(protocol, number)
            for queue_id in (2, 1, 0):
                client.send(send_of(client, b"%d" % queue_id, queue_id=queue_id))
                answer = await client.answer(waiting[queue_id].opaque)
                assert [record.body for record, _ in popped(answer)] == [b"%d" % queue_id]

    served_protocol(broker, scenario)


def test_the_broker_says_which_queues_a_client_reads_and_how(broker: BrokerUnderTest) -> None:
    """mqadmin setConsumeMode changes it; clients ask again at each rebalancing."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            query = AssignmentBody(TOPIC, GROUP, "client-1", "AVG")

            async def assigned() -> list[tuple[int, str]] | None:
                answer = await client.ask(QUERY_ASSIGNMENT, None, query)
                assert answer.code == 0
                rows = read_body(Assignments, answer.body).message_queue_assignments
                if rows is None:
                    return None
                assert {row.message_queue.broker_name for row in rows} == {BROKER}
                return sorted((row.message_queue.queue_id, row.mode) for row in rows)

            assert await assigned() is None
            await beat(client, "client-1")
            assert await assigned() == [(each, "PULL") for each in range(4)]
            mode = ModeChangeBody(TOPIC, GROUP, RequestMode.POP)
            assert (await client.ask(SET_MESSAGE_REQUEST_MODE, None, mode)).code == 0
            assert await assigned() == [(-1, "POP")]
            retries = ModeChangeBody(retry_topic(GROUP), GROUP, RequestMode.POP)
            assert (await client.ask(SET_MESSAGE_REQUEST_MODE, None, retries)).code == 16

    served_protocol(broker, scenario)


def test_the_modes_of_all_groups_are_listed(broker: BrokerUnderTest) -> None:
    """A slave of RocketMQ 5.3 takes them over once a minute, in the shape of RocketMQ's table."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            row = GET_ALL_MESSAGE_REQUEST_MODE
            assert (await client.ask(row)).body == b'{"messageRequestModeMap":{}}'
            modes = [
                ModeChangeBody(TOPIC, GROUP, RequestMode.POP, 2),
                ModeChangeBody(TOPIC, "others", RequestMode.PULL),
                ModeChangeBody("payments", GROUP, RequestMode.PULL),
            ]
            for each in modes:
                assert (await client.ask(SET_MESSAGE_REQUEST_MODE, None, each)).code == 0
            answer = await client.ask(row)
            assert answer.code == 0
            by_topic = read_body(RequestModesBody, answer.body).message_request_mode_map
            assert by_topic == {
                TOPIC: {GROUP: modes[0], "others": modes[1]},
                "payments": {GROUP: modes[2]},
            }

    served_protocol(broker, scenario)


def test_a_client_is_given_the_queues_of_all_brokers(broker: BrokerUnderTest) -> None:
    """It asks any one of them, and takes the answer for all."""
    other = RegistrationFields("broker-b", "10.0.0.2:10911", "C", "10.0.0.2:10912", 0)
    table = Registration(TableVersionBody(1, 1), {TOPIC: RegisteredTopic(3, 3, 6)})

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:

            async def assigned(
                client_id: str, model: MessageModel = MessageModel.CLUSTERING
            ) -> list[tuple[str, int]]:
                query = AssignmentBody(TOPIC, GROUP, client_id, "AVG", model)
                answer = await client.ask(QUERY_ASSIGNMENT, None, query)
                rows = read_body(Assignments, answer.body).message_queue_assignments or ()
                return [(row.message_queue.broker_name, row.message_queue.queue_id) for row in rows]

            body = done(encode_plain(table))
            assert (await client.ask(REGISTER_BROKER, other, body)).code == 0
            for member in ("c1", "c2"):
                await beat(client, member)
            every = [*[(BROKER, each) for each in range(4)], *[("broker-b", n) for n in range(3)]]
            assert await assigned("c1") == every[:4]
            assert await assigned("c2") == every[4:]
            assert await assigned("c3", MessageModel.BROADCASTING) == every
            mode = ModeChangeBody(TOPIC, GROUP, RequestMode.POP)
            assert (await client.ask(SET_MESSAGE_REQUEST_MODE, None, mode)).code == 0
            assert await assigned("c2") == [(BROKER, -1), ("broker-b", -1)]

    served_protocol(broker, scenario, brokers_allowed="127.0.0.1")


def expire(broker: BrokerUnderTest) -> None:
    """End the leases that are due, and deliver what became of their messages."""
    while (due_ms := broker.broker[Leases].ending.expire()) is not None:
        if due_ms > broker.clock.now_ms():
            break
    broker.sync()
    broker.deliver()

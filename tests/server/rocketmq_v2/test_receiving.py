"""ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    ACK_MESSAGE,
    CHANGE_INVISIBLE,
    FORWARD_MESSAGE,
    RECEIVE_MESSAGE,
    definition,
    service,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import FakeContext, talk, turns_until
from tests.support.rocketmq_v2_client import (
    GROUP,
    INVISIBLE_S,
    TOPIC,
    V2,
    ack,
    change,
    code_of,
    consumer_settings,
    message,
    named,
    receive,
    served_v2,
)
from tests.support.sends import call_of


def forward(
    received: definition.Message, handle: str | None = None
) -> service.ForwardMessageToDeadLetterQueueRequest:
    own = received.system_properties
    return service.ForwardMessageToDeadLetterQueueRequest(
        group=named(GROUP),
        topic=received.topic,
        receipt_handle=own.receipt_handle if handle is None else handle,
        message_id=own.message_id,
        delivery_attempt=own.delivery_attempt,
        max_delivery_attempts=17,
    )


def test_status_then_messages_then_the_time(under_test: BrokerUnderTest) -> None:
    """A push consumer of Python loses the batch without the time at the end."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"), message("b"))
        answers = await v2.answers(RECEIVE_MESSAGE, receive())
        kinds = [each.WhichOneof("content") for each in answers]
        assert kinds == ["status", "message", "message", "delivery_timestamp"]
        assert code_of(answers[0]) is Code.OK
        assert answers[-1].delivery_timestamp.ToMilliseconds() == under_test.clock.now_ms()

    served_v2(under_test, scenario)


@pytest.mark.parametrize("written", range(4))
def test_a_call_that_breaks_leaves_nothing_with_its_client(
    under_test: BrokerUnderTest, written: int
) -> None:
    """Its client lives and would keep the messages that it has never got for three hours."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"), message("b"))
        request = receive(auto_renew=True, invisible_s=None).SerializeToString()
        context = Breaking(written, request, sent=v2.sent_with)
        with pytest.raises(asyncio.CancelledError):
            await talk(v2.handlers, RECEIVE_MESSAGE.path, context)
        # One by one: one of them may be the reason.
        for _ in range(2):
            (found,) = await v2.received(auto_renew=True, invisible_s=None)
            assert found.system_properties.delivery_attempt == 1

    served_v2(under_test, scenario)


class Breaking(FakeContext):
    """A call that gRPC cancels when so many answers are written: the client is gone."""

    def __init__(self, written: int, request: bytes, **about: Any) -> None:
        super().__init__(request, **about)
        self._left = written

    async def write(self, message: bytes) -> None:
        if not self._left:
            raise asyncio.CancelledError
        self._left -= 1
        await super().write(message)


def test_nothing_there_is_an_answer(under_test: BrokerUnderTest) -> None:
    """It has the time, too."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        await v2.received()
        answers = await v2.answers(RECEIVE_MESSAGE, receive())
        kinds = [each.WhichOneof("content") for each in answers]
        assert kinds == ["status", "delivery_timestamp"]
        assert code_of(answers[0]) is Code.MESSAGE_NOT_FOUND

    served_v2(under_test, scenario)


def test_a_refusal_has_the_time_at_its_end(under_test: BrokerUnderTest) -> None:
    """Whatever a client does with it."""

    async def scenario(v2: V2) -> None:
        answers = await v2.answers(RECEIVE_MESSAGE, receive(topic="no.dots"))
        kinds = [each.WhichOneof("content") for each in answers]
        assert kinds == ["status", "delivery_timestamp"]
        assert code_of(answers[0]) is Code.ILLEGAL_TOPIC

    served_v2(under_test, scenario)


def test_a_received_message_has_what_clients_need(under_test: BrokerUnderTest) -> None:
    """Digest, encoding, attempt, handle: without one of them some client loses the message."""

    async def scenario(v2: V2) -> None:
        sent = message("a", tag="paid", keys=["k1", "k2"])
        sent.user_properties["colour"] = "red"
        await v2.sent(sent)
        (received,) = await v2.received()
        system = received.system_properties
        assert received.topic.name == TOPIC
        assert system.message_id == sent.system_properties.message_id
        assert (system.tag, list(system.keys)) == ("paid", ["k1", "k2"])
        assert system.message_type == definition.NORMAL
        assert system.body_encoding == definition.IDENTITY
        assert system.body_digest.type == definition.MD5
        assert system.delivery_attempt == 1
        assert system.receipt_handle
        assert dict(received.user_properties) == {"colour": "red"}

    served_v2(under_test, scenario)


def test_a_receive_needs_no_settings_and_any_queue_will_do(under_test: BrokerUnderTest) -> None:
    """The first receive may come before the first settings, and Node asks queue 0 only."""

    async def scenario(v2: V2) -> None:
        await v2.sent(*[message(f"{n}") for n in range(8)])
        queue = definition.MessageQueue(topic=named(TOPIC), id=0)
        request = receive()
        request.message_queue.CopyFrom(queue)
        answers = await v2.answers(RECEIVE_MESSAGE, request)
        assert len([each for each in answers if each.HasField("message")]) == 8

    served_v2(under_test, scenario)


@pytest.mark.parametrize(("asked", "given"), [(0, 32), (-1, 32), (1, 1), (7, 7), (1_000, 32)])
def test_a_batch_has_1_to_32_messages(under_test: BrokerUnderTest, asked: int, given: int) -> None:
    """Node asks for 0 if nobody has told it a number."""

    async def scenario(v2: V2) -> None:
        await v2.sent(*[message(f"{n}") for n in range(40)])
        assert len(await v2.received(batch_size=asked)) == given

    served_v2(under_test, scenario)


def test_the_filter_of_the_request_counts(under_test: BrokerUnderTest) -> None:
    """Some clients subscribe while they run, and send no new settings."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a", tag="red"), message("b", tag="blue"), message("c"))
        tags = definition.FilterExpression(type=definition.TAG, expression="red || green")
        assert [each.body for each in await v2.received(filter_expression=tags)] == [b"a"]
        sql = definition.FilterExpression(type=definition.SQL, expression="TAGS = 'blue'")
        found = await v2.received(filter_expression=sql, group="others")
        assert [each.body for each in found] == [b"b"]
        wrong = definition.FilterExpression(type=definition.SQL, expression="TAGS =")
        refused = receive(filter_expression=wrong)
        assert await v2.code(RECEIVE_MESSAGE, refused) is Code.ILLEGAL_FILTER_EXPRESSION

    served_v2(under_test, scenario)


def test_a_poll_ends_before_the_deadline_of_its_call(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that comes too late is lost, and its messages are invisible for nothing."""
    waits = []

    async def noted(request: Any, *_: Any) -> Any:
        waits.append(request.wait_ms)
        raise KeyError("enough")

    async def scenario(v2: V2) -> None:
        monkeypatch.setattr(v2.server.service[LeaseCalls], "receive", noted)
        for left_s, poll_s in ((23.0, 20), (8.0, 20), (23.0, 3), (None, 30), (4.0, None)):
            await v2.answers(RECEIVE_MESSAGE, receive(poll_s=poll_s), left_s)
        assert waits == [20_000, 7_500, 3_000, 20_000, 3_500]

    served_v2(under_test, scenario)


def test_a_message_wakes_a_poll(under_test: BrokerUnderTest) -> None:
    """At once, whoever has sent it."""

    async def scenario(v2: V2) -> None:
        under_test.heard.appended = v2.server.commit.appended  # type: ignore[method-assign]
        await v2.sent(message("a"))
        await v2.received()
        polling = asyncio.create_task(v2.received(poll_s=20))
        await turns_until(lambda: v2.server.service.parked == 1)
        await v2.server.service.messages.send(call_of((Message(TOPIC, b"b"),)))
        # Without a wake-up it would be found when the poll ends, too.
        await turns_until(polling.done)
        assert [each.body for each in await polling] == [b"b"]

    served_v2(under_test, scenario)


def test_a_broker_that_closes_answers_a_poll(under_test: BrokerUnderTest) -> None:
    """With nothing, so that its client looks elsewhere."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        await v2.received()
        polling = asyncio.create_task(v2.received(poll_s=20))
        await turns_until(lambda: v2.server.service.parked == 1)
        v2.server.service.close()
        assert await polling == []

    served_v2(under_test, scenario)


def test_an_acknowledged_message_never_comes_again(under_test: BrokerUnderTest) -> None:
    """The others do, when their time is over."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"), message("b"))
        first, second = await v2.received()
        assert await v2.acked(first) == [Code.OK]
        await v2.later(1_000 * INVISIBLE_S)
        again = await v2.received()
        assert [each.body for each in again] == [second.body]
        assert again[0].system_properties.delivery_attempt == 2
        assert again[0].topic.name == TOPIC

    served_v2(under_test, scenario)


def test_a_handle_that_is_too_long_is_invalid(under_test: BrokerUnderTest) -> None:
    """It is not even read."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        received.system_properties.receipt_handle = "A" * 5_000
        assert await v2.code(ACK_MESSAGE, ack([received])) is Code.INVALID_RECEIPT_HANDLE
        assert await v2.code(FORWARD_MESSAGE, forward(received)) is Code.INVALID_RECEIPT_HANDLE
        asked = change(received, 10)
        assert await v2.code(CHANGE_INVISIBLE, asked) is Code.INVALID_RECEIPT_HANDLE

    served_v2(under_test, scenario)


BAD_HANDLES = ["", "x", "A" * 44, "A" * 900, "\x00", "ä", "1 2 3 4 5 6 7 8"]


@pytest.mark.parametrize("handle", BAD_HANDLES, ids=ascii)
def test_a_handle_that_is_none_is_always_invalid(under_test: BrokerUnderTest, handle: str) -> None:
    """A client that gets another code tries again every second for ever."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        received.system_properties.receipt_handle = handle
        assert await v2.code(ACK_MESSAGE, ack([received])) is Code.INVALID_RECEIPT_HANDLE
        assert await v2.code(FORWARD_MESSAGE, forward(received)) is Code.INVALID_RECEIPT_HANDLE
        answer = await v2.ask(CHANGE_INVISIBLE, change(received, 10))
        assert code_of(answer) is Code.INVALID_RECEIPT_HANDLE
        # Python takes the answer's handle in any case.
        assert answer.receipt_handle == handle

    served_v2(under_test, scenario)


def test_entries_of_an_ack_have_codes_of_their_own(under_test: BrokerUnderTest) -> None:
    """What they have in common is the code of the whole answer."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"), message("b"))
        first, second = await v2.received()
        assert await v2.acked(first) == [Code.OK]
        request = ack([first, second])
        answer = await v2.ask(ACK_MESSAGE, request)
        assert code_of(answer) is Code.MULTIPLE_RESULTS
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [Code.INVALID_RECEIPT_HANDLE, Code.OK]
        handles = [entry.receipt_handle for entry in answer.entries]
        assert handles == [each.receipt_handle for each in request.entries]
        assert await v2.code(ACK_MESSAGE, request) is Code.INVALID_RECEIPT_HANDLE

    served_v2(under_test, scenario)


def test_a_handle_counts_in_its_own_group_and_topic_only(under_test: BrokerUnderTest) -> None:
    """Whoever may consume with one group cannot end what another one has received."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        assert await v2.acked(received, group="others") == [Code.INVALID_RECEIPT_HANDLE]
        received.topic.name = "bills"
        await v2.sent(message("b", topic="bills"))
        assert await v2.acked(received) == [Code.INVALID_RECEIPT_HANDLE]

    served_v2(under_test, scenario)


def test_a_changed_time_has_a_new_handle(under_test: BrokerUnderTest) -> None:
    """The old one is invalid; the message comes when the new time is over."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        answer = await v2.ask(CHANGE_INVISIBLE, change(received, 60))
        assert code_of(answer) is Code.OK
        assert answer.receipt_handle != received.system_properties.receipt_handle
        assert await v2.acked(received) == [Code.INVALID_RECEIPT_HANDLE]
        await v2.later(59_999)
        assert await v2.received() == []
        received.system_properties.receipt_handle = answer.receipt_handle
        assert await v2.acked(received) == [Code.OK]

    served_v2(under_test, scenario)


def test_a_message_that_is_given_back_is_there_at_once(under_test: BrokerUnderTest) -> None:
    """With time 0 a consumer says: not now."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        assert await v2.code(CHANGE_INVISIBLE, change(received, 0)) is Code.OK
        (again,) = await v2.received()
        assert again.system_properties.delivery_attempt == 2

    served_v2(under_test, scenario)


def test_suspending_is_no_failure(under_test: BrokerUnderTest) -> None:
    """The consumer has not tried it."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        asked = change(received, 0, suspend=True)
        assert await v2.code(CHANGE_INVISIBLE, asked) is Code.OK
        (again,) = await v2.received()
        assert again.system_properties.delivery_attempt == 1

    served_v2(under_test, scenario)


def test_a_push_consumer_gets_a_failed_message_a_second_later_at_the_earliest(
    under_test: BrokerUnderTest,
) -> None:
    """Some clients ask for no pause, and would use up all attempts within a second."""

    async def scenario(v2: V2) -> None:
        call = v2.telemetry()
        call.settings(consumer_settings(TOPIC, kind=definition.PUSH_CONSUMER))
        await call.next()
        await v2.sent(message("a"))
        (received,) = await v2.received(auto_renew=True, invisible_s=None)
        assert await v2.code(CHANGE_INVISIBLE, change(received, 0)) is Code.OK
        await v2.later(999)
        assert await v2.received(auto_renew=True, invisible_s=None) == []
        await v2.later(1)
        (again,) = await v2.received(auto_renew=True, invisible_s=None)
        assert again.system_properties.delivery_attempt == 2
        assert again.topic.name == TOPIC

    served_v2(under_test, scenario)


def test_a_forwarded_message_is_a_dead_letter(under_test: BrokerUnderTest) -> None:
    """At once, with where it came from; its consumer gets it no more."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        assert await v2.code(FORWARD_MESSAGE, forward(received)) is Code.OK
        assert await v2.code(FORWARD_MESSAGE, forward(received)) is Code.INVALID_RECEIPT_HANDLE
        await v2.later(1_000 * INVISIBLE_S)
        assert await v2.received() == []
        (dead,) = await v2.received(topic=dlq_topic(GROUP), group="undertakers")
        assert dead.body == b"a"

    served_v2(under_test, scenario)


def test_lite_topics_are_refused_in_words(under_test: BrokerUnderTest) -> None:
    """A message of one was never received here."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        request = ack([received])
        request.entries[0].lite_topic = "chat-7"
        assert await v2.code(ACK_MESSAGE, request) is Code.UNSUPPORTED
        asked = change(received, 10, lite_topic="chat-7")
        assert await v2.code(CHANGE_INVISIBLE, asked) is Code.UNSUPPORTED
        gone = forward(received)
        gone.lite_topic = "chat-7"
        assert await v2.code(FORWARD_MESSAGE, gone) is Code.UNSUPPORTED

    served_v2(under_test, scenario)


@pytest.mark.parametrize("seconds", [-1, 12 * 3_600 + 1, 10**12])
def test_a_time_that_no_lease_has_is_refused(under_test: BrokerUnderTest, seconds: int) -> None:
    """The message stays as it was, and so does its handle."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a"))
        (received,) = await v2.received()
        asked = change(received, 0)
        asked.invisible_duration.CopyFrom(Duration(seconds=seconds))
        answer = await v2.ask(CHANGE_INVISIBLE, asked)
        assert code_of(answer) is Code.ILLEGAL_INVISIBLE_TIME
        assert answer.receipt_handle == received.system_properties.receipt_handle
        assert await v2.acked(received) == [Code.OK]

    served_v2(under_test, scenario)

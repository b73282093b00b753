"""SendMessage and RecallMessage: stored once, answered by message."""

from __future__ import annotations

import asyncio
from binascii import crc32
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.words.errors import DiskFull, FlushFailed
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RECALL_MESSAGE, SEND_MESSAGE, service
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.clock import START_MS
from tests.support.rocketmq_v2_client import (
    TOPIC,
    V2,
    code_of,
    delayed,
    half,
    message,
    message_id,
    named,
    ordered,
    served_v2,
)
from tests.support.sends import call_of


def recall(handle: str, topic: str = TOPIC) -> service.RecallMessageRequest:
    return service.RecallMessageRequest(topic=named(topic), recall_handle=handle)


def test_the_answer_has_the_clients_id_and_where_the_message_is(
    under_test: BrokerUnderTest,
) -> None:
    """The application compares the id with its own."""

    async def scenario(v2: V2) -> None:
        under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
        first, second = await v2.sent(message("a"), message("b"))
        assert (first.message_id, first.offset) == (message_id("a"), 0)
        assert (second.message_id, second.offset) == (message_id("b"), 1)
        assert first.transaction_id == first.recall_handle == ""

    served_v2(under_test, scenario)


def test_messages_of_one_call_have_outcomes_of_their_own(under_test: BrokerUnderTest) -> None:
    """One that is refused does not keep out the others."""

    async def scenario(v2: V2) -> None:
        messages = [message("a"), message("b", tag="a|b"), message("c")]
        request = service.SendMessageRequest(messages=messages)
        answer = await v2.ask(SEND_MESSAGE, request)
        assert code_of(answer) is Code.MULTIPLE_RESULTS
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [Code.OK, Code.ILLEGAL_MESSAGE_TAG, Code.OK]
        assert len(await v2.received()) == 2

    served_v2(under_test, scenario)


def test_a_message_that_is_sent_again_is_stored_once(under_test: BrokerUnderTest) -> None:
    """Both clients send up to three times with the same id, and get the first result."""

    async def scenario(v2: V2) -> None:
        first, second, third = await v2.sent(message("a"), message("b"), message("a"))
        assert third == first != second
        assert under_test.broker.counts.sent == 2
        # Two machines can make the same id.
        (other,) = await v2.other("another client").sent(message("a"))
        (elsewhere,) = await v2.sent(message("a", topic="bills"))
        assert under_test.broker.counts.sent == 4
        assert other.message_id == elsewhere.message_id == first.message_id

    served_v2(under_test, scenario)


def test_a_repeat_waits_for_the_first(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the disk is slow, which is why the client sends again."""
    then, held = GroupCommit.then, []

    def hold(*args: Any) -> None:
        held.append(args)

    async def scenario(v2: V2) -> None:
        await v2.sent(message("first"))
        monkeypatch.setattr(GroupCommit, "then", hold)
        sending = [asyncio.create_task(v2.sent(message("a"))) for _ in range(3)]
        await turns_until(lambda: bool(held))
        # The first client gives up; its message is stored all the same.
        sending[0].cancel()
        await asyncio.sleep(0)
        assert not sending[1].done()
        then(*held.pop())
        assert await sending[1] == await sending[2]
        assert under_test.broker.counts.sent == 2

    served_v2(under_test, scenario)


def test_what_was_refused_can_be_sent_again(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a message that is stored is remembered."""

    async def scenario(v2: V2) -> None:
        def full(*_: object, **__: object) -> None:
            raise DiskFull(0.93, 90, 85)

        with monkeypatch.context() as patched:
            patched.setattr(under_test.store, "append_packed", full)
            request = service.SendMessageRequest(messages=[message("a")])
            assert await v2.code(SEND_MESSAGE, request) is Code.TOO_MANY_REQUESTS
        await v2.sent(message("a"))
        assert [each.body for each in await v2.received()] == [b"a"]

    served_v2(under_test, scenario)


def test_a_disk_that_is_slow_is_no_success(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message may or may not survive a crash, so the client sends again, and it is stored
    again: at least once."""

    def slow(_: GroupCommit, __: int, answer: Any, *___: object) -> None:
        answer(FlushFailed("the disk is slow", is_final=False))

    async def scenario(v2: V2) -> None:
        request = service.SendMessageRequest(messages=[message("a")])
        await v2.sent(message("first"))
        with monkeypatch.context() as patched:
            patched.setattr(GroupCommit, "then", slow)
            assert await v2.code(SEND_MESSAGE, request) is Code.MASTER_PERSISTENCE_TIMEOUT
        await v2.sent(message("a"))
        assert under_test.broker.counts.sent == 3

    served_v2(under_test, scenario)


def test_what_comes_together_is_one_append(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is refused does not keep out those of others."""
    appends, append_packed = [], under_test.store.append_packed

    def counted(packed: Any) -> None:
        appends.append(sum(map(len, packed)))
        append_packed(packed)

    async def scenario(v2: V2) -> None:
        await v2.sent(message("first"))
        under_test.broker.topics.create(TopicInfo("read-only", 1, 1, 4))
        monkeypatch.setattr(under_test.store, "append_packed", counted)
        clients = [v2.other(f"client {number}") for number in range(20)]
        requests = [service.SendMessageRequest(messages=[message("a")]) for _ in clients]
        requests[7].messages[0].topic.name = "read-only"
        codes = await asyncio.gather(
            *[
                client.code(SEND_MESSAGE, request)
                for client, request in zip(clients, requests, strict=True)
            ]
        )
        assert codes.count(Code.OK) == 19
        assert sum(appends) == 19
        assert len(appends) < 5

    served_v2(under_test, scenario)


def test_a_message_group_has_one_queue(under_test: BrokerUnderTest) -> None:
    """So its messages stay in order for every kind of consumer."""

    async def scenario(v2: V2) -> None:
        under_test.broker.topics.create(TopicInfo(TOPIC, 8, 8))
        await v2.sent(*[ordered(f"{n}", "customer-7") for n in range(5)])
        received = await v2.received()
        queue_id = crc32(b"customer-7") % 8
        places = [
            (each.system_properties.queue_id, each.system_properties.queue_offset)
            for each in received
        ]
        assert places == [(queue_id, offset) for offset in range(5)]
        assert {each.system_properties.message_group for each in received} == {"customer-7"}

    served_v2(under_test, scenario)


def test_a_delayed_message_comes_to_the_millisecond_and_can_be_recalled(
    under_test: BrokerUnderTest,
) -> None:
    """The answer has a handle; each recall says what has become of the message."""

    async def scenario(v2: V2) -> None:
        kept, recalled = await v2.sent(
            delayed("kept", START_MS + 1_501), delayed("recalled", START_MS + 1_501)
        )
        answer = await v2.ask(RECALL_MESSAGE, recall(recalled.recall_handle))
        assert (code_of(answer), answer.message_id) == (Code.OK, message_id("recalled"))
        again = await v2.ask(RECALL_MESSAGE, recall(recalled.recall_handle))
        assert code_of(again) is Code.NOT_FOUND
        assert "cancelled already" in again.status.message
        under_test.clock.forward(1_500)
        under_test.deliver()
        assert await v2.received() == []
        under_test.clock.forward(1)
        under_test.deliver()
        (received,) = await v2.received()
        assert received.body == b"kept"
        late = await v2.ask(RECALL_MESSAGE, recall(kept.recall_handle))
        assert code_of(late) is Code.NOT_FOUND
        assert "delivered already" in late.status.message

    served_v2(under_test, scenario)


@pytest.mark.parametrize("handle", ["", "x", "=", "AAAA", "\x00", "v1 orders"])
def test_a_handle_that_is_none_is_refused(under_test: BrokerUnderTest, handle: str) -> None:
    """No client may take it for a success."""

    async def scenario(v2: V2) -> None:
        await v2.sent(message())
        assert await v2.code(RECALL_MESSAGE, recall(handle)) is Code.BAD_REQUEST

    served_v2(under_test, scenario)


def test_a_handle_of_another_topic_is_refused(under_test: BrokerUnderTest) -> None:
    """The right to send to one topic is none to recall from another."""

    async def scenario(v2: V2) -> None:
        (sent,) = await v2.sent(delayed("a", START_MS + 60_000))
        await v2.sent(message(topic="bills"))
        for topic, code in (("bills", Code.ILLEGAL_TOPIC), ("none", Code.TOPIC_NOT_FOUND)):
            assert await v2.code(RECALL_MESSAGE, recall(sent.recall_handle, topic)) is code

    served_v2(under_test, scenario)


def test_only_a_half_message_has_a_transaction_id(under_test: BrokerUnderTest) -> None:
    """With it the producer ends the transaction; until then nobody gets the message."""

    async def scenario(v2: V2) -> None:
        (entry,) = await v2.sent(half("a"))
        assert entry.transaction_id
        assert await v2.received() == []

    served_v2(under_test, scenario)


def test_a_broker_that_closes_takes_no_message(under_test: BrokerUnderTest) -> None:
    """Its client tries again, and finds it closed or new."""

    async def scenario(v2: V2) -> None:
        v2.server.service.close()
        request = service.SendMessageRequest(messages=[message()])
        assert await v2.code(SEND_MESSAGE, request) is Code.TOO_MANY_REQUESTS

    served_v2(under_test, scenario)


def test_a_bug_is_one_sentence_for_the_client(
    under_test: BrokerUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stack is in the log only."""

    async def broken(*_: object) -> None:
        raise KeyError("a bug")

    async def scenario(v2: V2) -> None:
        monkeypatch.setattr(v2.server.service.messages, "send_drafts", broken)
        answer = await v2.ask(SEND_MESSAGE, service.SendMessageRequest(messages=[message()]))
        assert code_of(answer) is Code.INTERNAL_SERVER_ERROR
        assert answer.status.message == "the broker failed; its log says why"

    served_v2(under_test, scenario)
    assert "KeyError" in caplog.text


def test_both_kinds_of_messages_have_the_same_broker(under_test: BrokerUnderTest) -> None:
    """A message that was sent by another protocol is received with everything that it has."""

    async def scenario(v2: V2) -> None:
        sent = Message(TOPIC, b"x", tags="paid", keys=("k1", "k2"), properties={"colour": "red"})
        await v2.server.service.messages.send(call_of((sent,)))
        (received,) = await v2.received()
        system = received.system_properties
        assert (received.body, system.tag, list(system.keys)) == (b"x", "paid", ["k1", "k2"])
        assert dict(received.user_properties) == {"colour": "red"}
        assert system.message_id

    served_v2(under_test, scenario)


def test_a_body_of_the_largest_size_goes_through(tmp_path: Path) -> None:
    """4 MiB, which is what clients are told."""
    under_test = BrokerUnderTest(
        tmp_path / "store", max_message_bytes=4 << 20, mapped_file_size_commit_log=16 << 20
    )

    async def scenario(v2: V2) -> None:
        await v2.sent(message("a", body=bytes(4 << 20)))
        (received,) = await v2.received()
        assert received.body == bytes(4 << 20)
        too_long = service.SendMessageRequest(messages=[message("b", body=bytes((4 << 20) + 1))])
        assert await v2.code(SEND_MESSAGE, too_long) is Code.MESSAGE_BODY_TOO_LARGE

    served_v2(under_test, scenario)
    under_test.store.release()

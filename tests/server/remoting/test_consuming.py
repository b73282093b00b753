"""Pulls, offsets, failed messages, and the locks of ordered consumers."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.queue_locks.queue_locks import LOCK_MS
from rmqlite.kernel.pulling import STEP_MESSAGES
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests import REFUSED
from rmqlite.protocols.remoting.bytes.requests.groups import (
    GET_EARLIEST_MSG_STORETIME,
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    QUERY_CONSUMER_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    UPDATE_CONSUMER_OFFSET,
    GroupQueue,
    LockedQueues,
    LockRequest,
    MessageQueue,
    OffsetCommit,
    QueueAtTime,
    QueueOfTopic,
)
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CONSUMER_SEND_MSG_BACK,
    LITE_PULL_MESSAGE,
    PULL_MESSAGE,
    PullMessage,
    SendBack,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from rmqlite.protocols.remoting.connection import AT_ONCE_MAX
from rmqlite.protocols.remoting.requests.messages import COMMITS, HAS_SUBSCRIPTION, MAY_WAIT
from tests.server.remoting.asking import GROUP, TOPIC, beat, pull_of, send_of
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.remoting import LoopClient, ProtocolUnderTest, records_of, served_protocol

PULL_ANSWER = {"nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"}


@pytest.fixture(autouse=True)
def _topic(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))


async def pulled(client: LoopClient, **about: Any) -> Command:
    command = pull_of(client, **about)
    client.send(command)
    return await client.answer(command.opaque)


def test_a_pull_gives_the_records_as_they_lie_in_the_log(under_test: BrokerUnderTest) -> None:
    """The client takes them apart itself, and computes their checksums."""
    under_test.send(*[Message(TOPIC, b"%d" % number) for number in range(5)])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await pulled(client, offset=1, count=3)
            assert answer.code == 0
            assert answer.ext.keys() == PULL_ANSWER
            assert answer.ext["nextBeginOffset"] == "4"
            assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "5")
            assert answer.ext["suggestWhichBrokerId"] == "0"
            first = under_test.store.queue(TOPIC, 0).entry(1)  # type: ignore[union-attr]
            assert first is not None
            record = under_test.broker.record_at(first.physical_offset)
            assert answer.body.startswith(record.encoded)
            assert len(answer.body) == 3 * len(record.encoded)

    served_protocol(under_test, scenario)


def test_a_pull_of_no_messages_gets_one(under_test: BrokerUnderTest) -> None:
    """As RocketMQ's client for Go asks, and means one."""
    under_test.send(*[Message(TOPIC, b"%d" % number) for number in range(5)])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await pulled(client, offset=1, count=0)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "2")
            assert [each.body for each in records_of(answer.body)] == [b"1"]

    served_protocol(under_test, scenario)


def test_a_pull_that_finds_records_needs_no_task(under_test: BrokerUnderTest) -> None:
    """It is answered in the turn in which it came; what it commits is committed, too."""
    under_test.send(*[Message(TOPIC, b"%d" % number) for number in range(5)])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            flags = COMMITS | MAY_WAIT | HAS_SUBSCRIPTION
            asked = PullMessage(GROUP, TOPIC, 0, 2, 32, flags, 2, 50_000, 0, "*")
            connection.data_received(encode(client.request(PULL_MESSAGE, asked)))
            assert len(connection._out) == 1
            assert not protocol.calls.running
            assert under_test.broker.offsets.of(GROUP) == {Queue(TOPIC, 0): 2}
            # Nothing is there: it waits in a task.
            end = asked._replace(queue_offset=5, commit_offset=5)
            connection.data_received(encode(client.request(PULL_MESSAGE, end)))
            assert len(connection._out) == 1
            assert len(protocol.calls.running) == 1
            await turns_until(lambda: protocol.server.service.parked == 1)
            assert under_test.broker.offsets.of(GROUP) == {Queue(TOPIC, 0): 5}

    served_protocol(under_test, scenario)


def test_the_lite_pull_of_rocketmq_5_is_a_pull(under_test: BrokerUnderTest) -> None:
    """Its consumer takes any refusal for "nothing there", and waits for ever without a word."""
    under_test.send(Message(TOPIC, b"first"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            flags = COMMITS | MAY_WAIT | HAS_SUBSCRIPTION
            asked = PullMessage(GROUP, TOPIC, 0, 0, 32, flags, 0, 50_000, 0, "*")
            connection.data_received(encode(client.request(LITE_PULL_MESSAGE, asked)))
            assert len(connection._out) == 1
            waiting = client.request(
                LITE_PULL_MESSAGE, asked._replace(queue_offset=1, commit_offset=1)
            )
            client.send(waiting)
            await turns_until(lambda: protocol.server.service.parked == 1)
            client.send(send_of(client, b"second"))
            answer = await client.answer(waiting.opaque)
            assert answer.code == 0
            assert answer.ext.keys() == PULL_ANSWER
            assert [each.body for each in records_of(answer.body)] == [b"second"]
            assert under_test.broker.offsets.of(GROUP) == {Queue(TOPIC, 0): 1}

    served_protocol(under_test, scenario)


@pytest.mark.parametrize("code", [27, 403, 200056])
def test_a_request_of_rocketmq_5_that_is_not_served_is_refused(
    under_test: BrokerUnderTest, code: int
) -> None:
    """With the reason, if it is known: it stands in the exception that the client's user sees."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(code)
            assert answer.code == 3
            row = REFUSED.get(code)
            assert answer.remark.endswith(f": {row.name}: {row.reason}" if row else "supported")

    served_protocol(under_test, scenario)


def test_a_pull_that_takes_several_steps_is_answered_in_a_task(
    under_test: BrokerUnderTest,
) -> None:
    """The look that was begun at once ends after its first step, and answers nothing."""
    count = 2 * STEP_MESSAGES
    under_test.send(*[Message(TOPIC, b"x", tags="A") for _ in range(count)])

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            asked = PullMessage(GROUP, TOPIC, 0, 0, count, HAS_SUBSCRIPTION, 0, 0, 0, "A")
            pull = client.request(PULL_MESSAGE, asked)
            connection.data_received(encode(pull))
            assert not connection._out
            assert len(protocol.calls.running) == 1
            answer = await client.answer(pull.opaque)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (0, str(count))
            assert under_test.broker.counts.found == 1

    served_protocol(under_test, scenario)


def test_a_pull_that_is_refused_at_once_says_why(under_test: BrokerUnderTest) -> None:
    """As it does later; the messages of a topic that may not be read stay where they are."""
    under_test.broker.topics.create(TopicInfo("closed", 1, 1, perm=2))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            refusals = [await pulled(client, topic=topic) for topic in ("closed", "nowhere")]
            assert [each.code for each in refusals] == [16, 17]
            assert "closed" in refusals[0].remark

    served_protocol(under_test, scenario)


def test_other_connections_have_their_turns_between_many_pulls(
    under_test: BrokerUnderTest,
) -> None:
    """A read of a quarter of a megabyte holds a thousand of them."""
    under_test.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            pulls = [pull_of(client) for _ in range(AT_ONCE_MAX + 8)]
            connection.data_received(b"".join(map(encode, pulls)))
            # On a busy machine the time of a turn may end earlier.
            answered = len(connection._out)
            assert answered <= AT_ONCE_MAX
            assert len(protocol.calls.running) == len(pulls) - answered
            for pull in pulls:
                assert (await client.answer(pull.opaque)).code == 0
            assert not protocol.calls.running

    served_protocol(under_test, scenario)


def test_no_code_0_has_an_empty_body(under_test: BrokerUnderTest) -> None:
    """Java's client throws a NullPointerException, C++'s an exception."""
    under_test.send(Message(TOPIC, b"x", tags="A"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            asked = PullMessage(GROUP, TOPIC, 0, 0, 32, 4, 0, 0, 0, "B")
            unmatched = await client.ask(PULL_MESSAGE, asked)
            assert (unmatched.code, unmatched.ext["nextBeginOffset"]) == (20, "1")
            assert (await pulled(client, offset=1)).code == 19
            beyond = await pulled(client, offset=99)
            assert (beyond.code, beyond.ext["nextBeginOffset"]) == (21, "1")
            zero = await pulled(client, count=0)
            assert (zero.code, zero.ext["nextBeginOffset"]) == (0, "1")

    served_protocol(under_test, scenario)


def test_a_suspended_pull_is_answered_by_the_next_send(under_test: BrokerUnderTest) -> None:
    """Within the loop: nobody polls."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as reader, protocol.client() as writer:
            pull = pull_of(reader, queue_id=2, wait_ms=50_000)
            other = pull_of(reader, queue_id=1, wait_ms=50_000)
            reader.send(pull, other)
            await turns_until(lambda: protocol.server.service.parked == 2)
            assert (await reader.ask(30, {"topic": TOPIC, "queueId": "2"})).code == 0
            await writer.ask(310, send_of(writer, queue_id=2).ext, b"now")
            answer = await reader.answer(pull.opaque)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "1")
            assert other.opaque not in reader.answers
            assert protocol.server.service.parked == 1

    served_protocol(under_test, scenario)


def test_a_suspended_pull_is_answered_19_when_its_time_is_up(under_test: BrokerUnderTest) -> None:
    """Not before: the client asks again at once."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            pull, began_s = pull_of(client, wait_ms=30), elapsed_s()
            client.send(pull)
            answer = await client.answer(pull.opaque)
            assert elapsed_s() - began_s >= 0.03
            assert answer.code == 19
            assert answer.ext.keys() == PULL_ANSWER
            assert protocol.server.service.parked == 0

    served_protocol(under_test, scenario)


def test_too_many_suspended_pulls_are_told_to_come_back(under_test: BrokerUnderTest) -> None:
    """The limit has a name; ten in this test."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            pulls = [pull_of(client, queue_id=n % 4, wait_ms=50_000) for n in range(11)]
            client.send(*pulls)
            answer = await client.answer(pulls[-1].opaque)
            assert answer.code == 2
            assert "maxParkedPolls=10" in answer.remark

    served_protocol(under_test, scenario)


def test_a_pull_without_a_filter_takes_that_of_the_heartbeat(under_test: BrokerUnderTest) -> None:
    """Java and Go send it once, with the heartbeat."""
    under_test.send(Message(TOPIC, b"a", tags="A"), Message(TOPIC, b"b", tags="B"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            asked = PullMessage(GROUP, TOPIC, 0, 0, 32, 0, 0, 0, 7)
            assert (await client.ask(PULL_MESSAGE, asked)).code == 24
            assert (await beat(client, expression="B")).code == 0
            answer = await client.ask(PULL_MESSAGE, asked)
            assert answer.code == 0
            assert [each.body for each in records_of(answer.body)] == [b"b"]
            retries = asked._replace(topic=retry_topic(GROUP))
            assert (await client.ask(PULL_MESSAGE, retries)).code == 19

    served_protocol(under_test, scenario)


def test_a_pull_commits_the_offset_that_it_brings(under_test: BrokerUnderTest) -> None:
    """A commit that is refused does not keep back the messages."""
    under_test.send(*[Message(TOPIC, b"x")] * 3)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            asked = PullMessage(GROUP, TOPIC, 0, 2, 32, 1 | 4, 2, 0, 0, "*")
            assert (await client.ask(PULL_MESSAGE, asked)).code == 0
            assert (await client.ask(14, offset_ext())).ext == {"offset": "2"}
            bad = asked._replace(commit_offset=-5)
            assert (await client.ask(PULL_MESSAGE, bad)).code == 0
            assert (await client.ask(14, offset_ext())).ext == {"offset": "2"}

    served_protocol(under_test, scenario)


def offset_ext(**changes: str) -> dict[str, str]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"} | changes


BAD_OFFSET_QUERIES = {
    "no fields": {},
    "no queue id": {"consumerGroup": GROUP, "topic": TOPIC},
    "a queue id that is no number": offset_ext(queueId="zz"),
    "a queue that does not exist": offset_ext(queueId="-1"),
    "a topic that does not exist": offset_ext(topic="nowhere"),
    "a topic that cannot exist": offset_ext(topic="?" * 300),
    "a group that cannot exist": offset_ext(consumerGroup="?" * 300),
}


@pytest.mark.parametrize("what", BAD_OFFSET_QUERIES)
def test_an_offset_query_is_answered_with_an_offset_or_22(
    under_test: BrokerUnderTest, what: str
) -> None:
    """Consumers take any error for 22, and then skip what waits or read all of it again."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            assert (await client.ask(14, BAD_OFFSET_QUERIES[what])).code in (0, 22)

    served_protocol(under_test, scenario)


def test_an_offset_query_that_fails_gets_no_answer(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Java and Go try again later, which loses nothing."""

    def fails(*_: object) -> None:
        raise StoreUnavailable("read", "consumequeue", "input/output error")

    monkeypatch.setattr(under_test.broker, "query_offsets", fails)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            command = client.request(14, offset_ext())
            client.send(command)
            assert (await client.ask(9999)).code == 3
            assert client.answers == {}
            assert protocol.connection(client).in_flight == 0

    served_protocol(under_test, scenario)
    assert "input/output error" in caplog.text


def test_offsets_are_kept_and_found(under_test: BrokerUnderTest) -> None:
    """Every client of the group continues there, of whichever protocol."""
    under_test.send(*[Message(TOPIC, b"x")] * 3)
    under_test.clock.forward(1_000)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            queue = GroupQueue(GROUP, TOPIC, 0)
            assert (await client.ask(QUERY_CONSUMER_OFFSET, queue)).ext == {"offset": "0"}
            commit = OffsetCommit(GROUP, TOPIC, 0, 2)
            assert (await client.ask(UPDATE_CONSUMER_OFFSET, commit)).code == 0
            assert (await client.ask(QUERY_CONSUMER_OFFSET, queue)).ext == {"offset": "2"}
            of_topic = QueueOfTopic(TOPIC, 0)
            assert (await client.ask(GET_MAX_OFFSET, of_topic)).ext == {"offset": "3"}
            assert (await client.ask(GET_MIN_OFFSET, of_topic)).ext == {"offset": "0"}
            earliest = await client.ask(GET_EARLIEST_MSG_STORETIME, of_topic)
            assert int(earliest.ext["timestamp"]) <= under_test.clock.now_ms() - 1_000
            empty = await client.ask(GET_EARLIEST_MSG_STORETIME, QueueOfTopic(TOPIC, 3))
            assert empty.ext == {"timestamp": "-1"}
            at = QueueAtTime(TOPIC, 0, under_test.clock.now_ms())
            found = await client.ask(SEARCH_OFFSET_BY_TIMESTAMP, at)
            assert found.ext == {"offset": "3"}

    served_protocol(under_test, scenario)
    assert under_test.broker.offsets.of(GROUP) == {Queue(TOPIC, 0): 2}


def test_a_group_without_an_offset_in_a_queue_that_has_lost_its_first_is_told_22(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client then decides by its own setting where to begin."""
    under_test.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async def first_offset(_: Queue) -> int:
            return 5

        monkeypatch.setattr(protocol.server.service.topics, "first_offset", first_offset)
        async with protocol.client() as client:
            assert (await client.ask(14, offset_ext())).code == 22
            under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 1}))
            assert (await client.ask(14, offset_ext())).ext == {"offset": "1"}

    served_protocol(under_test, scenario)


@pytest.mark.parametrize(("version", "is_dead"), [(409, True), (63, False)])
def test_a_failed_message_is_retried_or_buried_as_its_client_may_say(
    under_test: BrokerUnderTest, version: int, is_dead: bool
) -> None:
    """Clients before version 121 do not say how often: then the group does."""
    (sent,) = under_test.send(Message(TOPIC, b"x"))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(version=version) as client:
            assert (await beat(client)).code == 0
            back = SendBack(sent.physical_offset, GROUP, 1, max_reconsume_times=0)
            assert (await client.ask(CONSUMER_SEND_MSG_BACK, back)).code == 0
            unknown = back._replace(offset=999_999)
            assert (await client.ask(CONSUMER_SEND_MSG_BACK, unknown)).code == 1

    served_protocol(under_test, scenario)
    under_test.clock.forward(10_000)
    under_test.deliver()
    found = retry_topic(GROUP), dlq_topic(GROUP)
    assert under_test.store.queue(found[is_dead], 0) is not None
    assert under_test.store.queue(found[not is_dead], 0) is None


async def locked(client: LoopClient, who: str, *queue_ids: int, code: int = 41) -> set[int]:
    body = LockRequest(GROUP, who, tuple([MessageQueue(TOPIC, each, "b") for each in queue_ids]))
    answer = await client.ask(code, None, body)
    assert answer.code == 0
    if code != 41:
        return set()
    return {each.queue_id for each in read_body(LockedQueues, answer.body).locked}


def test_a_locked_queue_is_one_members_until_the_lock_expires(under_test: BrokerUnderTest) -> None:
    """Two ordered consumers of one queue would break the order."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            assert await locked(client, "one", 0, 1) == {0, 1}
            assert await locked(client, "two", 1, 2) == {2}
            assert await locked(client, "two", 1, code=42) == set()
            assert await locked(client, "two", 1) == set()
            under_test.clock.forward(LOCK_MS - 1)
            assert await locked(client, "two", 0) == set()
            assert await locked(client, "one", 1) == {1}
            under_test.clock.forward(1)
            assert await locked(client, "two", 0, 1) == {0}
            await locked(client, "one", 1, code=42)
            assert await locked(client, "two", 1) == {1}
            empty = await client.ask(41, None, LockRequest(GROUP, "three", ()))
            assert empty.body == b'{"lockOKMQSet":[]}'

    served_protocol(under_test, scenario)

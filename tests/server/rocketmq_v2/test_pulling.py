"""PullMessage, UpdateOffset, GetOffset and QueryOffset: by offset, queue by queue."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    GET_OFFSET,
    PULL_MESSAGE,
    QUERY_OFFSET,
    UPDATE_OFFSET,
    definition,
    service,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import START_MS
from tests.support.rocketmq_v2_client import (
    ALL,
    GROUP,
    TOPIC,
    V2,
    code_of,
    message,
    named,
    served_v2,
)


def queue(number: int = 0, topic: str = TOPIC) -> definition.MessageQueue:
    return definition.MessageQueue(topic=named(topic), id=number)


def pull(offset: int = 0, *, number: int = 0, **about: Any) -> service.PullMessageRequest:
    fields: dict[str, Any] = {
        "filter_expression": ALL,
        "long_polling_timeout": Duration(seconds=0),
        **about,
    }
    return service.PullMessageRequest(
        group=named(GROUP), message_queue=queue(number), offset=offset, **fields
    )


def update(offset: int, number: int = 0) -> service.UpdateOffsetRequest:
    return service.UpdateOffsetRequest(
        group=named(GROUP), message_queue=queue(number), offset=offset
    )


def get(number: int = 0) -> service.GetOffsetRequest:
    return service.GetOffsetRequest(group=named(GROUP), message_queue=queue(number))


def of_one_queue(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))


def test_a_pull_goes_on_where_the_last_one_ended(under_test: BrokerUnderTest) -> None:
    """It leases nothing: the messages can be pulled again."""

    async def scenario(v2: V2) -> None:
        of_one_queue(under_test)
        await v2.sent(*[message(f"{n}") for n in range(5)])
        answers = await v2.answers(PULL_MESSAGE, pull(batch_size=3))
        kinds = [each.WhichOneof("content") for each in answers]
        assert kinds == ["status", "message", "message", "message", "next_offset"]
        assert code_of(answers[0]) is Code.OK
        rest = await v2.answers(PULL_MESSAGE, pull(answers[-1].next_offset))
        bodies = [each.message.body for each in rest if each.HasField("message")]
        assert bodies == [b"3", b"4"]
        assert rest[-1].next_offset == 5

    served_v2(under_test, scenario)


def test_an_end_and_an_offset_that_is_not_there_are_answers(under_test: BrokerUnderTest) -> None:
    """Each says where the next pull begins."""

    async def scenario(v2: V2) -> None:
        of_one_queue(under_test)
        await v2.sent(message("a"))
        status, next_offset = await v2.answers(PULL_MESSAGE, pull(1))
        assert code_of(status) is Code.MESSAGE_NOT_FOUND
        assert next_offset.next_offset == 1
        status, next_offset = await v2.answers(PULL_MESSAGE, pull(99))
        assert code_of(status) is Code.ILLEGAL_OFFSET
        assert next_offset.next_offset in (0, 1)

    served_v2(under_test, scenario)


def test_a_committed_offset_is_there_for_every_protocol(under_test: BrokerUnderTest) -> None:
    """It is the group's."""

    async def scenario(v2: V2) -> None:
        of_one_queue(under_test)
        await v2.sent(message("a"))
        assert await v2.code(GET_OFFSET, get()) is Code.OFFSET_NOT_FOUND
        assert await v2.code(UPDATE_OFFSET, update(1)) is Code.OK
        answer = await v2.ask(GET_OFFSET, get())
        assert (code_of(answer), answer.offset) == (Code.OK, 1)
        committed = under_test.broker.offsets.of(GROUP)
        assert [(each.queue_id, offset) for each, offset in committed.items()] == [(0, 1)]

    served_v2(under_test, scenario)


def test_offsets_of_a_queue_are_found_by_place_and_time(under_test: BrokerUnderTest) -> None:
    """Its first message, the next one, the first of a time."""

    async def scenario(v2: V2) -> None:
        of_one_queue(under_test)
        await v2.sent(message("a"))
        under_test.clock.forward(5_000)
        await v2.sent(message("b"))

        async def found(policy: definition.QueryOffsetPolicy, at_ms: int = 0) -> int:
            seconds, ms = divmod(at_ms, 1_000)
            asked = service.QueryOffsetRequest(
                message_queue=queue(),
                query_offset_policy=policy,
                timestamp=Timestamp(seconds=seconds, nanos=ms * 1_000_000),
            )
            answer = await v2.ask(QUERY_OFFSET, asked)
            assert code_of(answer) is Code.OK
            offset: int = answer.offset
            return offset

        assert await found(definition.BEGINNING) == 0
        assert await found(definition.END) == 2
        assert await found(definition.TIMESTAMP, START_MS) == 0
        assert await found(definition.TIMESTAMP, START_MS + 1) == 1
        assert await found(definition.TIMESTAMP, START_MS + 60_000) == 2

    served_v2(under_test, scenario)


@pytest.mark.parametrize(
    ("rpc", "request_", "code"),
    [
        (PULL_MESSAGE, pull(-1), Code.ILLEGAL_OFFSET),
        (PULL_MESSAGE, pull(number=-1), Code.BAD_REQUEST),
        (PULL_MESSAGE, pull(number=99), Code.NOT_FOUND),
        (UPDATE_OFFSET, update(-1), Code.ILLEGAL_OFFSET),
        (UPDATE_OFFSET, update(0, 99), Code.NOT_FOUND),
        (GET_OFFSET, get(-1), Code.BAD_REQUEST),
        (
            QUERY_OFFSET,
            service.QueryOffsetRequest(message_queue=queue(topic="none")),
            Code.TOPIC_NOT_FOUND,
        ),
        (
            QUERY_OFFSET,
            service.QueryOffsetRequest(
                message_queue=queue(),
                query_offset_policy=definition.TIMESTAMP,
                timestamp=Timestamp(seconds=-(2**62)),
            ),
            Code.BAD_REQUEST,
        ),
    ],
)
def test_what_cannot_be_is_refused(
    under_test: BrokerUnderTest, rpc: Any, request_: Any, code: Code
) -> None:
    """With the code that says which field is wrong."""

    async def scenario(v2: V2) -> None:
        of_one_queue(under_test)
        assert await v2.code(rpc, request_) is code

    served_v2(under_test, scenario)

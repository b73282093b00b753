"""Queues: a group's offsets, where queues begin and end, and the locks of ordered consumers."""

from __future__ import annotations

import asyncio
import logging

from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.errors import Refused
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import Nothing
from rmqlite.protocols.remoting.bytes.names import FieldError
from rmqlite.protocols.remoting.bytes.requests import queues as codes
from rmqlite.protocols.remoting.bytes.requests.queues import (
    GroupQueue,
    LockedQueues,
    LockRequest,
    MessageQueue,
    OffsetAnswer,
    OffsetCommit,
    QueueAtTime,
    QueueOfTopic,
    TimestampAnswer,
)
from rmqlite.protocols.remoting.bytes.shapes import write_body
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers
from rmqlite.protocols.remoting.large_bodies import read_large

log = logging.getLogger(__name__)


class Queues:
    """Requests about queues."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.QUERY_CONSUMER_OFFSET)
    async def offset(self, call: Call[GroupQueue]) -> Command | None:
        """A group's offset in a queue.  A queue that still has its first message begins there.

        Clients take any error for 22, and then skip or repeat messages: 22 is the answer for a
        group or a queue that cannot exist, and if the broker fails it gives no answer at all.
        """
        try:
            return await self._offset_of(call)
        except (FieldError, Refused) as error:
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from None
        except CodeRefusal:
            raise
        except Exception as error:
            log.error("a group's offset is not answered", exc_info=error)
            return None

    async def _offset_of(self, call: Call[GroupQueue]) -> Command:
        asked = call.asked()
        queue = _queue(asked)
        known = await self._service.groups.offsets(OffsetsQuery(asked.consumer_group, (queue,)))
        offset = known.get(queue)
        if offset is None:
            if await self._service.topics.first_offset(queue) > 0:
                remark = f"group {asked.consumer_group} has no offset here"
                raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return call.done(OffsetAnswer(offset))

    @answers(codes.UPDATE_CONSUMER_OFFSET)
    async def commit(self, call: Call[OffsetCommit]) -> Command:
        asked = call.asked()
        offsets = {_queue(asked): asked.commit_offset}
        await self._service.groups.commit(OffsetsCommit(asked.consumer_group, offsets))
        return call.done()

    @answers(codes.SEARCH_OFFSET_BY_TIMESTAMP)
    async def search(self, call: Call[QueueAtTime]) -> Command:
        asked = call.asked()
        query = TimeQuery(_queue(asked), asked.timestamp)
        return call.done(OffsetAnswer(await self._service.topics.search_offset(query)))

    @answers(codes.GET_MAX_OFFSET)
    async def max_offset(self, call: Call[QueueOfTopic]) -> Command:
        offset = await self._service.topics.end_offset(_queue(call.asked()))
        return call.done(OffsetAnswer(offset))

    @answers(codes.GET_MIN_OFFSET)
    async def min_offset(self, call: Call[QueueOfTopic]) -> Command:
        offset = await self._service.topics.first_offset(_queue(call.asked()))
        return call.done(OffsetAnswer(offset))

    @answers(codes.GET_EARLIEST_MSG_STORETIME)
    async def earliest(self, call: Call[QueueOfTopic]) -> Command:
        stored_ms = await self._service.topics.earliest_ms(_queue(call.asked()))
        return call.done(TimestampAnswer(-1 if stored_ms is None else stored_ms))

    @answers(codes.LOCK_BATCH_MQ)
    async def lock(self, call: Call[Nothing]) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        queues = [_queue(each) for each in asked.mq_set]
        locked = await self._service.groups.lock(asked.consumer_group, asked.client_id, queues)
        answer = LockedQueues(tuple([each for each in asked.mq_set if _queue(each) in locked]))
        return call.done(body=await asyncio.to_thread(write_body, answer))

    @answers(codes.UNLOCK_BATCH_MQ)
    async def unlock(self, call: Call[Nothing]) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        queues = [_queue(each) for each in asked.mq_set]
        await self._service.groups.unlock(asked.consumer_group, asked.client_id, queues)
        return call.done()


def _queue(asked: GroupQueue | OffsetCommit | QueueAtTime | QueueOfTopic | MessageQueue) -> Queue:
    return Queue(asked.topic, asked.queue_id)

"""Pulls, offsets, failed messages, and the locks of ordered consumers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import Final

from rmqlite.broker.pulling import Pulled
from rmqlite.config import BrokerConfig
from rmqlite.errors import Refused, RmqliteError
from rmqlite.requests.groups import OffsetsCommit, OffsetsQuery, Subscription
from rmqlite.requests.messages import PullRequest, PullStatus, SendBackRequest
from rmqlite.requests.topics import Queue, TimeQuery
from rmqlite.server.protocols.remoting.administration.large_bodies import read_large
from rmqlite.server.protocols.remoting.calls import AtOnce, Call, Handler, Refusal
from rmqlite.server.protocols.remoting.clients import Clients, filter_of
from rmqlite.server.protocols.remoting.connection import Connection
from rmqlite.server.protocols.remoting.sending import VERSION_WITH_LIMIT
from rmqlite.server.service.service import Service
from rmqlite.server.turns import at_once
from rmqlite.wire.remoting.bodies.queues import LockedQueues, LockRequest
from rmqlite.wire.remoting.codes import consuming as codes
from rmqlite.wire.remoting.codes.consuming import (
    OffsetAnswer,
    PullAnswer,
    PullMessage,
    TimestampAnswer,
)
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.codes.sending import CONSUMER_SEND_MSG_BACK
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.names import FieldError
from rmqlite.wire.remoting.shapes import write_body

COMMITS: Final = 1
MAY_WAIT: Final = 2
HAS_SUBSCRIPTION: Final = 4
"""Bits of a pull's sys flag."""
_REMARKS: Final = {
    PullStatus.FOUND: "FOUND",
    PullStatus.NO_NEW_MESSAGE: "OFFSET_OVERFLOW_ONE",
    PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MESSAGE",
    PullStatus.OFFSET_MOVED: "OFFSET_TOO_SMALL",
}

log = logging.getLogger(__name__)


class Consuming:
    """The requests of consumers that run."""

    def __init__(self, config: BrokerConfig, service: Service, clients: Clients) -> None:
        self._config = config
        self._service = service
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.PULL_MESSAGE.code: self.pull,
            codes.LITE_PULL_MESSAGE.code: self.pull,
            codes.QUERY_CONSUMER_OFFSET.code: self.offset,
            codes.UPDATE_CONSUMER_OFFSET.code: self.commit,
            codes.SEARCH_OFFSET_BY_TIMESTAMP.code: self.search,
            codes.GET_MAX_OFFSET.code: self.max_offset,
            codes.GET_MIN_OFFSET.code: self.min_offset,
            codes.GET_EARLIEST_MSG_STORETIME.code: self.earliest,
            codes.LOCK_BATCH_MQ.code: self.lock,
            codes.UNLOCK_BATCH_MQ.code: self.unlock,
            CONSUMER_SEND_MSG_BACK.code: self.send_back,
        }

    # ---- messages

    def at_once(self) -> dict[int, AtOnce]:
        return {
            codes.PULL_MESSAGE.code: self.pull_at_once,
            codes.LITE_PULL_MESSAGE.code: self.pull_at_once,
        }

    async def pull(self, call: Call) -> Command:
        """Records as they lie in the log; the client takes them apart."""
        asked = codes.PULL_MESSAGE.fields.read(call.command.ext)
        await self._commit(asked)
        connection = call.connection
        wait_ms = asked.suspend_timeout_millis if asked.sys_flag & MAY_WAIT else 0
        request = self._pull_request(connection, asked, wait_ms)
        with connection.parked() if request.wait_ms else nullcontext():
            pulled = await self._service.messages.pull(
                request, connection.reading, tells_unmatched=True
            )
        return _pulled(call.command, pulled)

    def pull_at_once(self, call: Call) -> Command | None:
        """The same if there are records: most pulls of a consumer that is behind find some."""
        asked = codes.PULL_MESSAGE.fields.read(call.command.ext)
        at_once(self._commit(asked))
        request = self._pull_request(call.connection, asked, 0)
        # A look with an SQL92 expression may take several steps.
        pulled = None if request.sql else at_once(self._service.messages.pull(request))
        return _pulled(call.command, pulled) if pulled is not None and pulled.records else None

    async def send_back(self, call: Call) -> Command:
        asked = CONSUMER_SEND_MSG_BACK.fields.read(call.command.ext)
        limit = asked.max_reconsume_times if call.command.version >= VERSION_WITH_LIMIT else None
        await self._service.messages.send_back(
            SendBackRequest(asked.group, asked.offset, asked.delay_level, max_reconsume_times=limit)
        )
        return call.command.answer(ResponseCode.SUCCESS)

    # ---- offsets

    async def offset(self, call: Call) -> Command | None:
        """A group's offset in a queue.  A queue that still has its first message begins there.

        Clients take any error for 22, and then skip or repeat messages: 22 is the answer for a
        group or a queue that cannot exist, and if the broker fails it gives no answer at all.
        """
        try:
            return await self._offset_of(call.command)
        except (FieldError, Refused) as error:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from None
        except Refusal:
            raise
        except Exception as error:
            log.error("a group's offset is not answered", exc_info=error)
            return None

    async def _offset_of(self, command: Command) -> Command:
        asked = codes.QUERY_CONSUMER_OFFSET.fields.read(command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        known = await self._service.groups.offsets(OffsetsQuery(asked.consumer_group, (queue,)))
        offset = known.get(queue)
        if offset is None:
            if await self._service.topics.first_offset(queue) > 0:
                remark = f"group {asked.consumer_group} has no offset here"
                raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return _offset(command, offset)

    async def commit(self, call: Call) -> Command:
        asked = codes.UPDATE_CONSUMER_OFFSET.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        await self._service.groups.commit(
            OffsetsCommit(asked.consumer_group, {queue: asked.commit_offset})
        )
        return call.command.answer(ResponseCode.SUCCESS)

    async def search(self, call: Call) -> Command:
        asked = codes.SEARCH_OFFSET_BY_TIMESTAMP.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        return _offset(
            call.command,
            await self._service.topics.search_offset(TimeQuery(queue, asked.timestamp)),
        )

    async def max_offset(self, call: Call) -> Command:
        asked = codes.GET_MAX_OFFSET.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        return _offset(call.command, await self._service.topics.end_offset(queue))

    async def min_offset(self, call: Call) -> Command:
        asked = codes.GET_MIN_OFFSET.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        return _offset(call.command, await self._service.topics.first_offset(queue))

    async def earliest(self, call: Call) -> Command:
        asked = codes.GET_EARLIEST_MSG_STORETIME.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        stored_ms = await self._service.topics.earliest_ms(queue)
        ext = codes.GET_EARLIEST_MSG_STORETIME.answer.write(
            TimestampAnswer(-1 if stored_ms is None else stored_ms)
        )
        return call.command.answer(ResponseCode.SUCCESS, ext)

    # ---- locks

    async def lock(self, call: Call) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        locked = await self._service.groups.lock(
            asked.consumer_group,
            asked.client_id,
            [Queue(each.topic, each.queue_id) for each in asked.mq_set],
        )
        kept = [each for each in asked.mq_set if Queue(each.topic, each.queue_id) in locked]
        body = await asyncio.to_thread(write_body, LockedQueues(tuple(kept)))
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def unlock(self, call: Call) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        await self._service.groups.unlock(
            asked.consumer_group,
            asked.client_id,
            [Queue(each.topic, each.queue_id) for each in asked.mq_set],
        )
        return call.command.answer(ResponseCode.SUCCESS)

    # ---- inside

    def _pull_request(
        self, connection: Connection, asked: PullMessage, wait_ms: int
    ) -> PullRequest:
        """Raises InvalidValue, Refusal."""
        wanted = self._filter(connection, asked)
        return PullRequest(
            asked.consumer_group,
            asked.topic,
            asked.queue_id,
            asked.queue_offset,
            wanted.expression,
            min(max(asked.max_msg_nums, 1), self._config.pull_messages_max),
            wait_ms=min(max(wait_ms, 0), self._config.pull_wait_ms_max),
            sql=wanted.sql,
        )

    def _filter(self, connection: Connection, asked: PullMessage) -> Subscription:
        """The filter of a pull: its own, or that of the last heartbeat."""
        if asked.sys_flag & HAS_SUBSCRIPTION:
            return filter_of(asked.topic, asked.subscription, asked.expression_type)
        group, topic = asked.consumer_group, asked.topic
        wanted = self._clients.subscription(connection, group, topic)
        if wanted is None:
            remark = f"the consumer group {group} has no subscription of {topic} here"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        return wanted

    async def _commit(self, asked: PullMessage) -> None:
        """Commit what a pull says, if anything; a refusal does not keep back the messages."""
        if not asked.sys_flag & COMMITS:
            return
        offsets = {Queue(asked.topic, asked.queue_id): asked.commit_offset}
        try:
            await self._service.groups.commit(OffsetsCommit(asked.consumer_group, offsets))
        except RmqliteError:
            return


def _offset(command: Command, offset: int) -> Command:
    ext = codes.GET_MAX_OFFSET.answer.write(OffsetAnswer(offset))
    return command.answer(ResponseCode.SUCCESS, ext)


def _pulled(command: Command, pulled: Pulled) -> Command:
    ext = codes.PULL_MESSAGE.answer.write(
        PullAnswer(pulled.next_offset, pulled.min_offset, pulled.max_offset)
    )
    return command.answer(pulled.status, ext, pulled.records.encoded, _REMARKS[pulled.status])

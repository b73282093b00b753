"""Messages by their offset, and the offsets that a group has committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.service.service import Service
from rmqlite.protocols.grpc.unread import making
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal, broken, status
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition, service
from rmqlite.protocols.rocketmq_v2.calls import written
from rmqlite.protocols.rocketmq_v2.guard import Asker


class Pulling:
    """Requests of pull consumers."""

    def __init__(self, config: BrokerConfig, own: Service) -> None:
        self._wait_ms_max = config.pull_wait_ms_max
        self._service = own

    async def pull(
        self, request: service.PullMessageRequest, asker: Asker
    ) -> AsyncGenerator[service.PullMessageResponse, None]:
        """The outcome, the messages, and where the next pull begins."""
        wanted = self._wanted(request, asker)
        queue = Queue(wanted.topic, wanted.queue_id)
        namespace = request.message_queue.topic.resource_namespace
        # Also a part of it would keep all of it.
        del request
        pulled = await self._service.messages.pull(wanted, making)
        if pulled.status is PullStatus.OFFSET_MOVED:
            shown = status(
                Code.ILLEGAL_OFFSET,
                f"queue {queue.queue_id} of topic {queue.topic!r} has the offsets"
                f" {pulled.min_offset} to {pulled.max_offset}",
            )
        elif not len(pulled.records):
            shown = status(Code.MESSAGE_NOT_FOUND, "no new message")
        else:
            shown = OK
        yield service.PullMessageResponse(status=shown)
        for record in pulled.records:
            answer = service.PullMessageResponse()
            await written(answer.message, record, queue.topic, namespace=namespace)
            yield answer
        yield service.PullMessageResponse(next_offset=pulled.next_offset)

    def _wanted(self, request: service.PullMessageRequest, asker: Asker) -> PullRequest:
        queue = _queue_of(request.message_queue)
        expression, sql = rules.filter_of(request.filter_expression)
        asked = request.long_polling_timeout if request.HasField("long_polling_timeout") else None
        return PullRequest(
            rules.group_of(request.group),
            queue.topic,
            queue.queue_id,
            rules.queue_offset_of(request.offset),
            expression,
            max_messages=rules.batch_size(request.batch_size),
            wait_ms=min(self._wait_ms_max, rules.polling_ms(asked, asker.left_ms, asker.version)),
            sql=sql,
        )

    async def update(
        self, request: service.UpdateOffsetRequest, _: Asker
    ) -> service.UpdateOffsetResponse:
        """Commit the offset of a group in one queue."""
        queue = _queue_of(request.message_queue)
        offset = rules.queue_offset_of(request.offset)
        group = rules.group_of(request.group)
        await self._service.groups.commit(OffsetsCommit(group, {queue: offset}))
        return service.UpdateOffsetResponse(status=OK)

    async def committed(
        self, request: service.GetOffsetRequest, _: Asker
    ) -> service.GetOffsetResponse:
        queue = _queue_of(request.message_queue)
        group = rules.group_of(request.group)
        offsets = await self._service.groups.offsets(OffsetsQuery(group, (queue,)))
        if queue not in offsets:
            why = f"group {group!r} has committed no offset in queue {queue.queue_id}"
            raise RocketmqRefusal(Code.OFFSET_NOT_FOUND, f"{why} of topic {queue.topic!r}")
        return service.GetOffsetResponse(status=OK, offset=offsets[queue])

    async def offset(
        self, request: service.QueryOffsetRequest, _: Asker
    ) -> service.QueryOffsetResponse:
        """The offset of the first or the next message of a queue, or the first from a time on."""
        queue, policy = _queue_of(request.message_queue), request.query_offset_policy
        topics = self._service.topics
        # Raises TopicUnknown, which the other two do not.
        if policy == definition.BEGINNING:
            found = (await self._range(queue))[0]
        elif policy == definition.END:
            found = (await self._range(queue))[1]
        elif policy == definition.TIMESTAMP:
            at_ms = rules.timestamp_ms(request.timestamp)
            if at_ms is None:
                raise broken(Code.BAD_REQUEST, "timestamp", "", "an instant from year 1 to 9999")
            found = await topics.search_offset(TimeQuery(queue, at_ms))
        else:
            rule = "BEGINNING, END or TIMESTAMP"
            raise broken(Code.BAD_REQUEST, "query_offset_policy", policy, rule)
        return service.QueryOffsetResponse(status=OK, offset=found)

    async def _range(self, queue: Queue) -> tuple[int, int]:
        """The first and the end offset of a queue.  Raises TopicUnknown, QueueUnknown."""
        entries = await self._service.topics.entries(queue, 0, 0)
        return entries.min_offset, entries.max_offset


def _queue_of(named: definition.MessageQueue) -> Queue:
    topic = rules.topic_of(named.topic)
    if named.id < 0:
        raise broken(Code.BAD_REQUEST, "message_queue.id", named.id, "0 or more")
    return Queue(topic, named.id)

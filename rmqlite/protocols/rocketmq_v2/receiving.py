"""Messages that go out, by lease or by offset; acks, other times, dead letters, committed offsets.

A receive never depends on what its client has said about itself before: after a restart of the
broker clients receive at once, and describe themselves ten minutes later.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from rmqlite.features.leases.requests import (
    AckRequest,
    FailRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.features.leases.taking import Received
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.groups import (
    HeartbeatRequest,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.errors import HandleInvalid
from rmqlite.protocols.grpc.in_flight import making
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import (
    OK,
    Code,
    RocketmqRefusal,
    broken,
    refusal_of,
    status,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import (
    CHANGE_INVISIBLE,
    RECEIVE_MESSAGE,
    definition,
    service,
)
from rmqlite.protocols.rocketmq_v2.calls import Asker, no_lite_topics, refused, written
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients

NACK_MS_MIN: Final = 1_000
"""A push consumer gets a message that it has failed not sooner: some clients ask for no pause at
all, and would use up all attempts within a second."""
REASON: Final = "forwarded by its consumer"
_ACKED: Final = status(Code.OK)
_INVALID: Final = refusal_of(HandleInvalid("")).status


class Receiving:
    """Requests of consumers about messages."""

    def __init__(self, config: BrokerConfig, own: Service, clients: RocketmqClients) -> None:
        self._wait_ms_max = config.pull_wait_ms_max
        self._service = own
        self._clients = clients

    async def receive(
        self, request: service.ReceiveMessageRequest, asker: Asker
    ) -> AsyncGenerator[service.ReceiveMessageResponse, None]:
        """The outcome, the messages, and at the end the time, which some clients rely on."""
        namespace = request.message_queue.topic.resource_namespace
        try:
            wanted = self._wanted(request, asker)
            del request
            received = await self._received(wanted, asker)
        except Exception as error:
            shown = refused(RECEIVE_MESSAGE.path, error).status
            yield service.ReceiveMessageResponse(status=shown)
            yield _end(self._service.clock.now_ms())
            return
        with self._service[LeaseCalls].answering(received):
            found = OK if received.messages else status(Code.MESSAGE_NOT_FOUND, "no new message")
            yield service.ReceiveMessageResponse(status=found)
            for record, topic, handle, attempt in received.messages:
                answer = service.ReceiveMessageResponse()
                await written(
                    answer.message,
                    record,
                    topic,
                    receipt_handle=handle.text,
                    attempt=attempt,
                    namespace=namespace,
                )
                yield answer
            yield _end(received.received_at_ms)

    def _wanted(self, request: service.ReceiveMessageRequest, asker: Asker) -> ReceiveRequest:
        group = rules.group_of(request.group)
        topic = rules.topic_of(request.message_queue.topic)
        expression, sql = rules.filter_of(request.filter_expression)
        asked = request.long_polling_timeout if request.HasField("long_polling_timeout") else None
        return ReceiveRequest(
            group,
            topic,
            asker.client_id,
            expression,
            sql,
            max_messages=rules.batch_size(request.batch_size),
            invisible_ms=rules.invisible_ms(request),
            auto_renew=request.auto_renew,
            wait_ms=min(self._wait_ms_max, rules.polling_ms(asked, asker.left_ms, asker.version)),
            attempt_id=request.attempt_id,
        )

    async def _received(self, wanted: ReceiveRequest, asker: Asker) -> Received:
        self._clients.begun(asker.key)
        subscription = Subscription(wanted.topic, wanted.expression, wanted.sql)
        if wanted.sql:
            # Where no message is to be matched, a wrong expression would wait for one.
            asked_for = HeartbeatRequest(wanted.group, asker.client_id, (subscription,))
            await self._service.groups.check(asked_for)
        received = await self._service[LeaseCalls].receive(wanted, making)
        # Behind the check of rights: what a stranger names is not remembered.
        self._clients.subscribe(asker.key, wanted.group, subscription)
        return received

    async def ack(self, request: service.AckMessageRequest, _: Asker) -> service.AckMessageResponse:
        """These messages are done."""
        group, topic = rules.group_of(request.group), rules.topic_of(request.topic)
        if not request.entries:
            raise broken(Code.BAD_REQUEST, "entries", "none", "at least one entry")
        handles = [_handle(each.receipt_handle, each) for each in request.entries]
        valid = tuple([each for each in handles if each is not None])
        acked = iter(
            await self._service[LeaseCalls].ack(AckRequest(group, topic, valid)) if valid else ()
        )
        entries = [
            service.AckMessageResultEntry(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=_ACKED if handle is not None and next(acked) else _INVALID,
            )
            for entry, handle in zip(request.entries, handles, strict=True)
        ]
        codes = {each.status.code for each in entries}
        outcome = entries[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS)
        return service.AckMessageResponse(status=outcome, entries=entries)

    async def change(
        self, request: service.ChangeInvisibleDurationRequest, asker: Asker
    ) -> service.ChangeInvisibleDurationResponse:
        """Let a message come again at another time.

        Also an error has a handle: some clients take the answer's in any case.
        """
        try:
            handle = await self._changed(request, asker)
        except Exception as error:
            return service.ChangeInvisibleDurationResponse(
                status=refused(CHANGE_INVISIBLE.path, error).status,
                receipt_handle=request.receipt_handle,
            )
        return service.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle.text)

    async def _changed(
        self, request: service.ChangeInvisibleDurationRequest, asker: Asker
    ) -> Handle:
        group, topic = rules.group_of(request.group), rules.topic_of(request.topic)
        invisible_ms = rules.changed_invisible_ms(request.invisible_duration)
        client = self._clients.get(asker.key)
        if client is not None and client.kind == definition.PUSH_CONSUMER:
            invisible_ms = max(invisible_ms, NACK_MS_MIN)
        handle = _handle(request.receipt_handle, request)
        if handle is None:
            raise HandleInvalid(request.receipt_handle)
        wanted = InvisibleChange(group, topic, handle, invisible_ms, not request.suspend)
        return await self._service[LeaseCalls].change(wanted)

    async def forward(
        self, request: service.ForwardMessageToDeadLetterQueueRequest, _: Asker
    ) -> service.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter at once."""
        group, topic = rules.group_of(request.group), rules.topic_of(request.topic)
        handle = _handle(request.receipt_handle, request)
        if handle is None:
            raise HandleInvalid(request.receipt_handle)
        await self._service[LeaseCalls].fail(
            FailRequest(group, topic, handle, REASON, is_dead=True)
        )
        return service.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _end(at_ms: int) -> service.ReceiveMessageResponse:
    end = service.ReceiveMessageResponse()
    rules.write_timestamp(end.delivery_timestamp, at_ms)
    return end


def _handle(
    text: str,
    request: service.AckMessageEntry
    | service.ChangeInvisibleDurationRequest
    | service.ForwardMessageToDeadLetterQueueRequest,
) -> Handle | None:
    """None for a text that is no handle, and for one of a lite topic, which nobody has got."""
    if request.HasField("lite_topic") and request.lite_topic:
        raise no_lite_topics()
    try:
        return Handle.parse(text)
    except HandleInvalid:
        return None


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

"""Which method of the service answers which call of rmqlite.v1, and how: values in, values out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from rmqlite.features.bulk.service import BulkCalls
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.finding.requests import FoundMessages, MessageQuery
from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.operating.requests import GroupDeletion
from rmqlite.features.operating.service import DeletionCalls, ProgressCalls
from rmqlite.features.raw_log.service import LogCalls
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import TimeQuery
from rmqlite.kernel.sends.calls import DraftCall, Stored
from rmqlite.kernel.service.messages import MessageCalls
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.tables import GroupCalls, TopicCalls
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.protocols.grpc.calls import Answer, Context, Enter, Handlers, one_answer, peer_host
from rmqlite.protocols.grpc.in_flight import InFlight, making, working
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import PulledRecords, SendAnswer, SendRequest
from rmqlite.protocols.native.bytes.rpcs import Rpc
from rmqlite.protocols.native.conversion import Conversion
from rmqlite.protocols.native.guard import take_note
from rmqlite.protocols.remoting.bytes.batch import read_batch
from rmqlite.protocols.remoting.bytes.fields import FieldError

Method = Callable[[Any, Context], Awaitable[Any]]
"""Turns a request and its gRPC context into the answer.  Raises RmqliteError."""
Methods = Mapping[Rpc[Any, Any], Method]
_PARKING: Final = (rpcs.PULL, rpcs.HEARTBEAT)
"""Calls that wait if there is no message, or no other assignment."""
_SHORT: Final = frozenset(
    (
        rpcs.SEND,
        rpcs.SCHEDULE_BULK,
        rpcs.SEND_BACK,
        rpcs.COMMIT_OFFSETS,
        rpcs.LEAVE,
        rpcs.CREATE_TOPIC,
        rpcs.DELETE_TOPIC,
        rpcs.SET_GROUP,
        rpcs.DELETE_GROUP,
        rpcs.PURGE_DEAD_LETTERS,
        rpcs.IMPORT_LETTERS,
    )
)
"""Calls that wait for the disk, many at a time, and whose answers are no longer than their requests
or only some bytes.  Each other one makes its answer alone among those of its connection."""


def methods_of(service: Service) -> Methods:
    """The method for every call."""
    messages, topics, groups = service.messages, service.topics, service.groups
    dead_letters, redrives = service[DeadLetterCalls], service[RedriveCalls]
    bulk, changes, log = service[BulkCalls], service[ChangeCalls], service[LogCalls]
    finding, progress = service[FindingCalls], service[ProgressCalls]
    return {
        rpcs.SEND: _with_host(partial(_sent, messages)),
        rpcs.SCHEDULE_BULK: _with_host(bulk.schedule),
        rpcs.PULL: _of(partial(_pulled, messages.pull)),
        rpcs.SEND_BACK: _of(messages.send_back),
        rpcs.QUERY_MESSAGES: _of(partial(_found, finding)),
        rpcs.GET_MESSAGE: _of(finding.at),
        rpcs.GET_BULK_JOB: _of(bulk.job),
        rpcs.LIST_BULK_JOBS: _of_nothing(bulk.jobs),
        rpcs.GET_ROUTE: _of(topics.route),
        rpcs.SEARCH_OFFSET: _of(partial(_offset_at, topics)),
        rpcs.GET_QUEUE_RANGES: _of(topics.queue_ranges),
        rpcs.LIST_TOPICS: _of_nothing(topics.all),
        rpcs.CREATE_TOPIC: _of(topics.create),
        rpcs.PREVIEW_TOPIC_DELETION: _of(service[DeletionCalls].loss),
        rpcs.DELETE_TOPIC: _of(service[DeletionCalls].delete),
        rpcs.QUERY_OFFSETS: _of(groups.offsets),
        rpcs.COMMIT_OFFSETS: _of(groups.commit),
        rpcs.HEARTBEAT: _of(groups.heartbeat),
        rpcs.LEAVE: _of(groups.leave),
        rpcs.LIST_GROUPS: _of_nothing(groups.all),
        rpcs.DESCRIBE_GROUP: _of(progress.status),
        rpcs.SET_GROUP: _of(groups.change),
        rpcs.DELETE_GROUP: _of(partial(_group_deleted, groups)),
        rpcs.PREVIEW_OFFSET_RESET: _of(progress.preview_reset),
        rpcs.RESET_OFFSETS: _of(progress.reset_offsets),
        rpcs.LIST_PENDING: _of(changes.pending),
        rpcs.COUNT_PENDING: _of_nothing(changes.counts),
        rpcs.GET_TIMELINE: _of(changes.timeline),
        rpcs.CHANGE_BY_IDS: _of(changes.change_by_ids),
        rpcs.CHANGE_BY_FILTER: _of(changes.change_by_filter),
        rpcs.GET_LEVELS: _of_nothing(service.schedule.levels),
        rpcs.CHANGE_LEVELS: _of(service.schedule.change_levels),
        rpcs.LIST_DEAD_LETTER_GROUPS: _of_nothing(dead_letters.dead_groups),
        rpcs.LIST_REASONS: _of(dead_letters.reasons),
        rpcs.LIST_DEAD_LETTERS: _of(dead_letters.dead),
        rpcs.PURGE_DEAD_LETTERS: _of(dead_letters.purge),
        rpcs.LIST_RETRIES: _of(dead_letters.retries),
        rpcs.GET_HISTORY: _of(dead_letters.history),
        rpcs.PREVIEW_REDRIVE: _of(redrives.preview),
        rpcs.START_REDRIVE: _of(redrives.start),
        rpcs.GET_REDRIVE_JOB: _of(redrives.get),
        rpcs.LIST_REDRIVE_JOBS: _of_nothing(redrives.all),
        rpcs.CHANGE_REDRIVE_JOB: _of(redrives.change),
        rpcs.IMPORT_LETTERS: _of(redrives.import_letters),
        rpcs.LIST_REDRIVE_OUTCOMES: _of(redrives.outcomes),
        rpcs.GET_LOG_SNAPSHOT: _of(log.snapshot),
        rpcs.READ_LOG: _of(log.read),
        rpcs.READ_QUEUE: _of(log.read_queue),
        rpcs.GET_BROKER_STATUS: _of_nothing(service.status),
    }


def handlers_of(
    methods: Methods, in_flight: InFlight, conversion: Conversion, enter: Enter
) -> Handlers:
    """gRPC handlers that call these methods."""
    return Handlers(
        {
            rpc.path: one_answer(
                rpc.path,
                _asked(rpc, method, conversion),
                in_flight,
                enter,
                may_park=rpc in _PARKING,
            )
            for rpc, method in methods.items()
        }
    )


def _asked(rpc: Rpc[Any, Any], method: Method, conversion: Conversion) -> Answer:
    is_admins, is_long = rpc.service == rpcs.ADMIN, rpc not in _SHORT and rpc not in _PARKING

    async def answer(data: bytes, context: Context) -> bytes:
        if is_admins:
            take_note(context)
        reading = conversion.read(rpc, data)
        del data
        if is_long:
            request = await reading
            async with making():
                return await conversion.written(rpc, await method(request, context))
        found = await method(await reading, context)
        if rpc not in _PARKING:
            return await conversion.written(rpc, found)
        async with working() if rpc is rpcs.PULL else making():
            return await conversion.written(rpc, found)

    return answer


# RocketMQ's own clients may ask for any time, with the outcome that RocketMQ gives it.


async def _found(finding: FindingCalls, query: MessageQuery) -> FoundMessages:
    check_not_long_ago("begin_ms", query.begin_ms)
    check_not_long_ago("end_ms", query.end_ms)
    return await finding.find(query)


async def _offset_at(topics: TopicCalls, query: TimeQuery) -> int:
    check_not_long_ago("timestamp_ms", query.timestamp_ms)
    return await topics.search_offset(query)


async def _sent(messages: MessageCalls, request: SendRequest, born_host: bytes) -> SendAnswer:
    """Store messages, all or none.  Each draft is a batch, if of one message only."""
    stored = await messages.send(call_of(request, born_host))
    return answer_of(stored, messages.store_host)


def call_of(request: SendRequest, born_host: bytes) -> DraftCall:
    """Raises InvalidValue for a damaged batch."""
    drafts = [
        Draft(
            each.topic,
            request.queue_id,
            b"",
            each.messages,
            request.born_at_ms or wall_ms(),
            born_host,
            spans=_spans(each.messages),
            delay=each.delay,
        )
        for each in request.batches
    ]
    return DraftCall(drafts)


def answer_of(stored: Stored, store_host: str) -> SendAnswer:
    queue_ids, queue_offsets, physical_offsets, due_ms, _ = stored
    return SendAnswer(
        tuple(queue_ids),
        tuple(queue_offsets),
        tuple(physical_offsets),
        tuple(due_ms) if any(due_ms) else (),
        store_host,
    )


def _spans(messages: bytes) -> bytes:
    try:
        return read_batch(messages)
    except FieldError as error:
        raise InvalidValue("batches", f"{error.field}: {error.value}", error.rule) from error


async def _pulled(pull: Callable[..., Awaitable[Pulled]], request: PullRequest) -> PulledRecords:
    pulled = await pull(request, making)
    bounds = (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)
    return PulledRecords(*bounds, pulled.records.encoded)


async def _group_deleted(groups: GroupCalls, request: GroupDeletion) -> None:
    await groups.delete(request.group, with_offsets=True, force=request.force)


def _of(method: Callable[[Any], Awaitable[Any]]) -> Method:
    return lambda request, _: method(request)


def _of_nothing(method: Callable[[], Awaitable[Any]]) -> Method:
    return lambda _, __: method()


def _with_host(method: Callable[[Any, bytes], Awaitable[Any]]) -> Method:
    return lambda request, context: method(request, peer_host(context.peer()))

"""Which method of the service answers which call of rmqlite.v1, and how: values in, values out.

The limits of a request (bytes/limits.py) are checked before it is decoded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any, Final

import grpc.aio

from rmqlite.features.native import Answers, Talk, native_features
from rmqlite.features.rows import A, Row
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.requests.topics import TimeQuery
from rmqlite.kernel.sends.calls import DraftCall, Stored
from rmqlite.kernel.service.messages import Looking, MessageCalls
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.tables import TopicCalls
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.protocols.grpc.calls import (
    READ_BYTES_MAX,
    Answer,
    Context,
    Decoding,
    Enter,
    Handler,
    Handlers,
    Read,
    many_answers,
    one_answer,
    peer_host,
)
from rmqlite.protocols.grpc.in_flight import InFlight, making, working
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import native_limits
from rmqlite.protocols.native.bytes.messages import (
    Duplicate,
    PulledRecords,
    SendAnswer,
    SendRequest,
)
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.native.guard import take_note
from rmqlite.protocols.remoting.bytes.batch import read_batch
from rmqlite.protocols.remoting.bytes.fields import FieldError

Method = Callable[[Any, Context], Awaitable[Any]]
"""Turns a request and its gRPC context into the answer.  Raises RmqliteError."""
Methods = Mapping[Row[Any, Any], Method]
_OF_KERNEL: Final[Answers] = {
    rpcs.SEND: lambda service: partial(_sent, service.messages),
    rpcs.PULL: lambda service: partial(_pulled, service.messages.pull),
    rpcs.SEND_BACK: lambda service: service.messages.send_back,
    rpcs.GET_ROUTE: lambda service: service.topics.route,
    rpcs.SEARCH_OFFSET: lambda service: partial(_offset_at, service.topics),
    rpcs.GET_QUEUE_RANGES: lambda service: service.topics.queue_ranges,
    rpcs.LIST_TOPICS: lambda service: service.topics.all,
    rpcs.CREATE_TOPIC: lambda service: service.topics.create,
    rpcs.QUERY_OFFSETS: lambda service: service.groups.offsets,
    rpcs.COMMIT_OFFSETS: lambda service: service.groups.commit,
    rpcs.HEARTBEAT: lambda service: service.groups.heartbeat,
    rpcs.LEAVE: lambda service: service.groups.leave,
    rpcs.LIST_GROUPS: lambda service: service.groups.all,
    rpcs.SET_GROUP: lambda service: service.groups.change,
    rpcs.GET_LEVELS: lambda service: service.schedule.levels,
    rpcs.CHANGE_LEVELS: lambda service: service.schedule.change_levels,
    rpcs.GET_BROKER_STATUS: lambda service: service.status,
}


def methods_of(service: Service) -> Methods:
    """The method for every call, the kernel's and those of all features."""
    answers = [_OF_KERNEL, *[feature.answers for feature in native_features()]]
    return {row: _method(row, of(service)) for each in answers for row, of in each.items()}


def _method(row: Row[Any, Any], answer: Callable[..., Awaitable[Any]]) -> Method:
    if row.request is NoneType:
        return lambda _, __: answer()
    if row.has_host:
        return lambda request, context: answer(request, peer_host(context.peer()))
    if row.looks:
        return lambda request, _: answer(request, making)
    return lambda request, _: answer(request)


def handlers_of(
    methods: Methods, in_flight: InFlight, config: BrokerConfig, enter: Enter
) -> Handlers:
    """gRPC handlers that call these methods."""
    decoding = Decoding(native_limits(config))
    return Handlers(
        {
            row.path: one_answer(
                row.path,
                _asked(row, method, decoding),
                in_flight,
                enter,
                may_park=row.may_park,
            )
            for row, method in methods.items()
        }
    )


def streams_of(service: Service, in_flight: InFlight, enter: Enter) -> Handlers:
    """gRPC handlers of the calls with many requests and answers."""

    def talking(path: str, talk: Talk) -> Handler:
        async def answer(read: Read, context: Context) -> None:
            async def write(data: bytes) -> None:
                try:
                    await context.write(data)
                except grpc.aio.BaseError as error:
                    raise BrokerUnreachable("the caller has gone") from error

            await talk(read, write)

        return many_answers(path, answer, in_flight, enter, is_slow=True)

    found = [each for feature in native_features() for each in feature.streams.items()]
    return Handlers({path: talking(path, of(service)) for path, of in found})


def _asked(row: Row[Any, Any], method: Method, decoding: Decoding[Row[Any, Any]]) -> Answer:
    decode = rpc_of(row).decode_request
    is_admins, is_long = row.service == rpcs.ADMIN, not (row.is_short or row.may_park)

    async def answer(data: bytes, context: Context) -> bytes:
        if is_admins:
            take_note(context)
        reading = decoding.read(row, decode, data)
        del data
        if is_long:
            request = await reading
            async with making():
                return await written(row, await method(request, context))
        found = await method(await reading, context)
        if not row.may_park:
            return await written(row, found)
        async with working() if row.looks else making():
            return await written(row, found)

    return answer


async def written(row: Row[Any, A], answer: A) -> bytes:
    """Encode an answer; between the parts of a long one other calls get their turns."""
    parts: list[bytes] = []
    size = 0
    for part in rpc_of(row).response_parts(answer):
        parts.append(part)
        size += len(part)
        if size > READ_BYTES_MAX:
            await let_others()
            size = 0
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _offset_at(topics: TopicCalls, query: TimeQuery) -> int:
    # RocketMQ's own clients may ask for any time, with the outcome that RocketMQ gives it.
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
    queue_ids, queue_offsets, physical_offsets, due_ms, _, duplicates = stored
    return SendAnswer(
        tuple(queue_ids),
        tuple(queue_offsets),
        tuple(physical_offsets),
        tuple(due_ms) if any(due_ms) else (),
        store_host,
        {at: Duplicate(*each) for at, each in duplicates.items()},
    )


def _spans(messages: bytes) -> bytes:
    try:
        return read_batch(messages)
    except FieldError as error:
        raise InvalidValue("batches", f"{error.field}: {error.value}", error.rule) from error


async def _pulled(
    pull: Callable[..., Awaitable[Pulled]], request: PullRequest, looking: Looking
) -> PulledRecords:
    pulled = await pull(request, looking)
    bounds = (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)
    return PulledRecords(*bounds, pulled.records.encoded)

"""A broker of a few lines behind real gRPC on a unix socket: no port, no disk, no schedule.

It keeps queues in lists, gives every member the queues it is told to, and answers long
polls as the real one does.  A test changes one answer by putting a function into
`answers`, and reads what was asked from `asked`.  TOPICS, GROUP and STATUS are answers
to an administrator.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.features.rows import Row
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import NewRecord, body_crc
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.requests.groups import (
    Assignment,
    GroupInfo,
    HeartbeatRequest,
    LeaveRequest,
    MemberInfo,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.kernel.requests.messages import (
    PullRequest,
    PullStatus,
    SendBackRequest,
    SendBackResult,
)
from rmqlite.kernel.requests.topics import (
    Queue,
    QueueRange,
    Route,
    RouteRequest,
    TimeQuery,
    TopicInfo,
)
from rmqlite.kernel.words.errors import MessageNotFound, RmqliteError
from rmqlite.kernel.words.message import (
    RETRY_TOPIC,
    Message,
    StoredMessage,
    decode_properties,
    encode_properties,
    pack_host,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.limits import all_rows
from rmqlite.protocols.native.bytes.messages import (
    Duplicate,
    PulledRecords,
    PullResult,
    SendAnswer,
    SendRequest,
    SendResult,
)
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.remoting.bytes.batch import message_properties, read_batch
from rmqlite.protocols.shared.status import ERROR_METADATA, STATUS_NAMES, error_to_metadata
from tests.support.eventually import WAIT_S as WAIT_S

STORED_MS: Final = 1_763_632_800_000
"""The n-th message is stored n seconds later."""


class FakeBroker:
    def __init__(self, folder: Path) -> None:
        self.endpoint = f"unix:{folder / 'broker.sock'}"
        self.changed = threading.Condition()
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.asked: dict[str, list[Any]] = defaultdict(list)
        self.metadata: list[tuple[str, tuple[tuple[str, str | bytes], ...]]] = []
        """Path and metadata of every call."""
        self.levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
        self.queues: dict[Queue, list[StoredMessage]] = {}
        self.committed: dict[Queue, int] = {}
        self.assigned: dict[str, tuple[Queue, ...]] = {}
        self.members: set[str] = set()
        self.epoch = 1
        self._next_offset = 0
        self._server: grpc.Server | None = None

    # ---- for tests

    def start(self) -> None:
        self._stopping = False
        self._pool = ThreadPoolExecutor(64)
        self._server = grpc.server(self._pool)
        methods: dict[str, dict[str, Any]] = defaultdict(dict)
        for rpc in all_rows():
            handler: Any = grpc.unary_unary_rpc_method_handler(self._answer(rpc))
            methods[f"rmqlite.v1.{rpc.service}"][rpc.name] = handler
        for service, handlers in methods.items():
            generic = grpc.method_handlers_generic_handler(service, handlers)
            self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def stop(self) -> None:
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        assert self._server is not None
        self._server.stop(None).wait()
        self._pool.shutdown()

    def add_queues(self, topic: str, queues: int = 1) -> list[Queue]:
        made = [Queue(topic, queue_id) for queue_id in range(queues)]
        for queue in made:
            self.queues.setdefault(queue, [])
        return made

    def add(self, message: Message, queue_id: int = 0, **fields: Any) -> StoredMessage:
        """Put a message into a queue, as if delivered."""
        with self.changed:
            queue = Queue(message.topic, queue_id)
            kept = self.queues.setdefault(queue, [])
            self._next_offset += 1_000
            stored = StoredMessage(
                topic=message.topic,
                queue_id=queue_id,
                queue_offset=len(kept),
                physical_offset=self._next_offset,
                store_size=0,
                body=message.body,
                properties=message_properties(message),
                flag=message.flag,
                sys_flag=0,
                born_timestamp_ms=1,
                born_host="127.0.0.1:1",
                store_timestamp_ms=STORED_MS + self._next_offset,
                store_host="127.0.0.1:2",
                reconsume_times=0,
                prepared_transaction_offset=0,
            )
            stored = replace(stored, **fields)
            stored = replace(stored, store_size=len(record_of(stored)))
            kept.append(stored)
            self.changed.notify_all()
            return stored

    def assign(self, client_id: str, queues: Iterable[Queue]) -> None:
        with self.changed:
            self.assigned[client_id] = tuple(queues)
            self.epoch += 1
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that was asked made this true; fail after WAIT_S."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)

    def names_sent(self) -> list[list[str]]:
        """The bodies of each Send, call by call."""
        return [[m.body.decode() for m in r.messages] for r in self.asked["Send"]]

    # ---- the broker

    def _answer(self, rpc: Row[Any, Any]) -> Callable[[bytes, Any], bytes]:
        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            request = rpc_of(rpc).decode_request(data)
            if rpc is rpcs.SEND:
                request = sent_of(request)
            context.add_callback(self._wake)
            with self.changed:
                self.asked[rpc.name].append(request)
                self.metadata.append((rpc.path, tuple(context.invocation_metadata())))
                self.changed.notify_all()
            try:
                if rpc.name in self.answers:
                    answer = self.answers[rpc.name](request)
                else:
                    answer = self.plain(rpc.name, request, context)
                if rpc is rpcs.SEND:
                    answer = answer_to_batches(answer, request)
                elif rpc is rpcs.PULL:
                    answer = as_records(answer)
                return rpc_of(rpc).encode_response(answer)
            except RmqliteError as error:
                context.set_trailing_metadata(((ERROR_METADATA, error_to_metadata(error)),))
                status = getattr(grpc.StatusCode, STATUS_NAMES[error.code])
                context.abort(status, str(error))
                raise AssertionError from error
            finally:
                self._wake()

        return answer

    def plain(self, name: str, request: Any, context: Any = None) -> Any:
        """The ordinary answer, for answers that only sometimes differ from it."""
        return getattr(self, f"_{name}")(request, context)

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _wait(self, context: Any, wait_ms: int, ready: Callable[[], bool]) -> None:
        def over() -> bool:
            is_over = context is not None and not context.is_active()
            return self._stopping or ready() or is_over

        self.changed.wait_for(over, wait_ms / 1000)

    def _GetRoute(self, request: RouteRequest, _: Any) -> Route:
        topic = TopicInfo(request.topic, 1, 1)
        return Route(topic, "fake", self.levels, 4 * 1024 * 1024)

    def _Send(self, request: Sent, _: Any) -> tuple[SendResult, ...]:
        results = []
        for message in request.messages:
            stored = self.add(message, max(0, request.queue_id))
            result = SendResult(
                stored.topic,
                stored.queue_id,
                stored.queue_offset,
                message.message_id,
                stored.physical_offset,
                0,
                stored.store_host,
            )
            results.append(result)
        return tuple(results)

    def _Pull(self, request: PullRequest, context: Any) -> PullResult:
        queue = Queue(request.topic, request.queue_id)
        at = request.queue_offset
        with self.changed:
            kept = self.queues.setdefault(queue, [])
            if not 0 <= at <= len(kept):
                return PullResult(PullStatus.OFFSET_MOVED, len(kept), 0, len(kept))
            self._wait(context, request.wait_ms, lambda: len(kept) > at)
            found = tuple(kept[at : at + request.max_messages])
            status = PullStatus.FOUND if found else PullStatus.NO_NEW_MESSAGE
            return PullResult(status, at + len(found), 0, len(kept), found)

    def _SendBack(self, request: SendBackRequest, _: Any) -> SendBackResult:
        kept = [m for messages in self.queues.values() for m in messages]
        failed = next((m for m in kept if m.physical_offset == request.physical_offset), None)
        if failed is None:
            raise MessageNotFound(request.physical_offset)
        dead = request.delay_level < 0
        topic = dlq_topic(request.group) if dead else retry_topic(request.group)
        times = failed.reconsume_times + (not dead)
        properties = {RETRY_TOPIC: failed.topic, **failed.properties}
        again = Message(topic, failed.body)
        self.add(again, properties=properties, reconsume_times=times)
        return SendBackResult(topic, times, 0 if dead else 3, 0 if dead else 1)

    def _QueryOffsets(self, request: OffsetsQuery, _: Any) -> dict[Queue, int]:
        return {q: self.committed[q] for q in request.queues if q in self.committed}

    def _CommitOffsets(self, request: OffsetsCommit, _: Any) -> None:
        self.committed.update(request.offsets)

    def _SearchOffset(self, request: TimeQuery, _: Any) -> int:
        kept = self.queues[request.queue]
        return sum(m.store_timestamp_ms < request.timestamp_ms for m in kept)

    def _GetQueueRanges(self, topic: str, _: Any) -> tuple[QueueRange, ...]:
        queues = sorted(q for q in self.queues if q.topic == topic)
        return tuple(QueueRange(q, 0, len(self.queues[q])) for q in queues)

    def _Heartbeat(self, request: HeartbeatRequest, context: Any) -> Assignment:
        with self.changed:
            self.members.add(request.client_id)
            self._wait(context, request.wait_ms, lambda: self.epoch != request.known_epoch)
            topics = {s.topic for s in request.subscriptions} | {retry_topic(request.group)}
            every = tuple(sorted(q for q in self.queues if q.topic in topics))
            queues = self.assigned.get(request.client_id, every)
            return Assignment(self.epoch, queues, tuple(sorted(self.members)))

    def _Leave(self, request: LeaveRequest, _: Any) -> None:
        self.members.discard(request.client_id)


TOPICS = (TopicInfo("orders", 4, 4), TopicInfo("SCHEDULE_TOPIC_XXXX", 18, 18))
GROUP = GroupStatus(
    GroupInfo("workers", 16, 1),
    (MemberInfo("10.0.0.1@77", (Subscription("orders", "A || B"),), 1_700_000_000_000),),
    (
        QueueProgress(
            Queue("orders", 0),
            0,
            1_234_567,
            1_234_000,
            "10.0.0.1@77",
            oldest_timestamp_ms=1_699_999_380_000,
            silent_since_ms=1_700_000_040_000,
        ),
        QueueProgress(Queue("orders", 1), 0, 5, None, ""),
    ),
    now_ms=1_700_000_100_000,
)
STATUS = BrokerStatus(
    version="0.1.0",
    broker_name="broker-a",
    now_ms=1_700_000_100_000,
    started_at_ms=1_700_000_000_000,
    log_min_offset=0,
    log_max_offset=4_096,
    sent=1_000_000,
    delivered=900,
    retried=17,
    dead=1,
    parked_polls=5_000,
    disk_used_ratio=0.42,
    levels=(
        LevelStatus(1, "1s", 99_100, 1_700_000_100_500, 900, 1, 3, 9),
        LevelStatus(2, "5s", 0, 0, 0, 0, 0, 0),
    ),
)


def raises(error: Exception) -> Callable[[Any], Any]:
    """Every call fails."""

    def answer(_: Any) -> Any:
        raise error

    return answer


def failing_at(number: int, answer: Callable[[Any], Any], error: Exception) -> Callable[[Any], Any]:
    """The number-th call, counted from 0, fails; the others are answered."""
    calls = iter(range(1_000))

    def answer_or_fail(request: Any) -> Any:
        if next(calls) == number:
            raise error
        return answer(request)

    return answer_or_fail


def as_records(result: PullResult) -> PulledRecords:
    """The answer with the records of its messages."""
    records = [record_of(message) for message in result.messages]
    bounds = (result.status, result.next_offset, result.min_offset, result.max_offset)
    return PulledRecords(*bounds, b"".join(records))


def record_of(message: StoredMessage) -> bytes:
    """One record as it would lie in a log."""
    record = NewRecord(
        message.topic,
        message.queue_id,
        PropertyString(encode_properties(message.properties)),
        message.body,
        body_crc(message.body),
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        pack_host(message.born_host),
        pack_host(message.store_host),
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    return encode(
        record,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_timestamp_ms=message.store_timestamp_ms,
    )


class Sent(NamedTuple):
    """A SendRequest with the messages that the client has encoded."""

    messages: tuple[Message, ...]
    producer_group: str
    queue_id: int
    born_at_ms: int
    batches: int


def sent_of(request: SendRequest) -> Sent:
    messages: list[Message] = []
    for batch in request.batches:
        shared = Draft(
            batch.topic, 0, b"", batch.messages, 0, b"", spans=read_batch(batch.messages)
        )
        for draft in shared.singles():
            own = decode_properties(draft.properties)
            at_ms, after_ms = own.pop("TIMER_DELIVER_MS", None), own.pop("TIMER_DELAY_MS", None)
            limit = own.pop("MAX_RECONSUME_TIMES", None)
            expires_at_ms = own.pop("EXPIRES_AT_MS", None)
            messages.append(
                Message(
                    batch.topic,
                    draft.body,
                    own.pop("TAGS", ""),
                    own.pop("KEYS", ""),
                    flag=draft.flag,
                    delay_level=int(own.pop("DELAY", "0")),
                    delay=batch.delay or None,
                    message_id=own.pop("UNIQ_KEY", ""),
                    max_reconsume_times=None if limit is None else int(limit),
                    deliver_at=None if at_ms is None else int(at_ms),
                    deliver_after=None if after_ms is None else f"{after_ms}ms",
                    expires_at=None if expires_at_ms is None else int(expires_at_ms),
                    unique_id=own.pop("UNIQUE_ID", ""),
                    replace=own.pop("UNIQUE_ID_REPLACE", "") == "true",
                    properties=own,
                )
            )
    return Sent(
        tuple(messages),
        request.producer_group,
        request.queue_id,
        request.born_at_ms,
        len(request.batches),
    )


def answer_to_batches(results: tuple[SendResult, ...], request: Sent) -> SendAnswer:
    """All messages of a request have one queue id."""
    _, queue_ids, queue_offsets, _, physical_offsets, due_ms, hosts, _ = zip(*results, strict=True)
    queue_ids = queue_ids[:1] * request.batches
    duplicates = {
        position: Duplicate(each.queue_id, each.message_id)
        for position, each in enumerate(results)
        if each.is_duplicate
    }
    return SendAnswer(queue_ids, queue_offsets, physical_offsets, due_ms, hosts[0], duplicates)

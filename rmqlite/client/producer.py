"""The producer: resolves a delay, gives a message its id, and sends it until it is on disk.

A message gets its id before its first attempt and keeps it through all of them, so a
consumer can tell a repeated send from a second message.  A request has one batch for each topic and
delay; nearly always that is one for all messages.

The broker's table of levels is cached for half a minute, and fetched once more before a delay is
refused, so that a level that was just added is found.  The delay is sent, too, and the broker uses
it, so that a table that was just changed delays no message wrongly; the level is for a broker
before 0.3.0, whose table changes only with a restart.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from typing import ClassVar, Final, NamedTuple

from rmqlite.client.batcher import Batcher, BatchLimits, Outcome, SharedCalls, size_bytes
from rmqlite.client.channel import Closing, Connection, Started
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import follow
from rmqlite.client.schedule_admin import ScheduleAdmin
from rmqlite.client.tracing import Tracing
from rmqlite.client.unique_id import UniqueIds
from rmqlite.features.changes.requests import CHANGE_BY_IDS, ChangeByIds, ChangedId, RecallHandle
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.words.clock import elapsed_s, wall_ms
from rmqlite.kernel.words.errors import (
    DelayUnknown,
    InvalidValue,
    MessageTooLarge,
    RmqliteError,
    must_be_type,
)
from rmqlite.kernel.words.levels import (
    Instant,
    LevelTable,
    Wait,
    instant_ms,
    parse_levels,
    wait_ms,
)
from rmqlite.kernel.words.message import EXPIRES_AT_MS, UNIQUE_ID, UNIQUE_ID_REPLACE, Message
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import (
    EncodedBatch,
    SendAnswer,
    SendRequest,
    SendResult,
)
from rmqlite.protocols.remoting.bytes.batch import write_messages

TABLE_AGE_S_MAX: Final = 30.0


class LevelLookup:
    """Resolves delays by the table of the broker behind a connection.  Usable from any thread."""

    def __init__(self, connection: Connection, timeout_s: float, retries: int) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._retries = retries
        self._lock = threading.Lock()
        self._table: LevelTable | None = None
        self._asked_at_s = 0.0

    def resolve(self, message: Message) -> Message:
        """The message with the delay_level of its delay in the cached table.

        Raises DelayUnknown, InvalidValue, and the errors of a call to the broker.
        """
        if message.__class__ is not Message:
            # Here, because every message comes by: another value would fail far from its cause.
            if isinstance(message, str | bytes):
                what = type(message).__name__
                raise InvalidValue("message", what, "a Message(topic, body): send(Message(...))")
            if not isinstance(message, Message):
                raise must_be_type("message", "Message", message)
        if message.expires_after is not None or message.expires_at is not None:
            message = message.with_properties({EXPIRES_AT_MS: str(_expires_at_ms(message))})
        if message.delay is None:
            return message
        delay = str(message.delay)
        # One thread asks, the others wait for its answer instead of asking too.
        with self._lock:
            fresh = self._table is None or elapsed_s() - self._asked_at_s > TABLE_AGE_S_MAX
            table = self._ask(message.topic) if fresh or self._table is None else self._table
            try:
                level = table.level_lasting(delay)
            except DelayUnknown:
                if fresh:
                    raise
                level = self._ask(message.topic).level_lasting(delay)
        return message.at_level(level)

    def _ask(self, topic: str) -> LevelTable:
        # A route contains the broker's table; create: the send would create the topic too.
        request = RouteRequest(topic, create=True)
        route = self._connection.call_repeatedly(
            rpcs.GET_ROUTE, request, self._timeout_s, retries=self._retries
        )
        self._table = parse_levels(route.message_delay_level)
        self._asked_at_s = elapsed_s()
        return self._table


def _expires_at_ms(message: Message) -> int:
    """When a message expires; expires_after counts from now on, by this machine's clock."""
    if message.expires_after is not None:
        return wall_ms() + wait_ms("expires_after", message.expires_after)
    assert message.expires_at is not None
    return instant_ms("expires_at", message.expires_at)


class EncodedSend(NamedTuple):
    """groups: the messages of each batch; places: where those stand in the call."""

    request: SendRequest
    groups: list[tuple[Message, ...]]
    places: list[int] | None = None

    def results(self, answer: SendAnswer) -> tuple[SendResult, ...]:
        """In the order of the messages."""
        if len(answer.physical_offsets) == 1 and not answer.duplicates:
            # The columns below cost a single send more than the rest of its answer.
            one, queue_id, host = self.groups[0][0], answer.queue_ids[0], answer.store_host
            at, place = answer.queue_offsets[0], answer.physical_offsets[0]
            due_ms = answer.deliver_at_ms[0] if answer.deliver_at_ms else 0
            return (SendResult(one.topic, queue_id, at, one.message_id, place, due_ms, host),)
        results: list[SendResult] = []
        for messages, queue_id in zip(self.groups, answer.queue_ids, strict=True):
            mine = slice(len(results), len(results) + len(messages))
            columns = zip(
                repeat(messages[0].topic),
                repeat(queue_id),
                answer.queue_offsets[mine],
                [message.message_id for message in messages],
                answer.physical_offsets[mine],
                answer.deliver_at_ms[mine] or repeat(0),
                repeat(answer.store_host),
                repeat(False),
                strict=False,
            )
            results += map(partial(tuple.__new__, SendResult), columns)
        for position, (queue_id, message_id) in answer.duplicates.items():
            own = results[position]
            # With the same message id it is this message, which an earlier attempt has stored.
            results[position] = own._replace(
                queue_id=queue_id,
                message_id=message_id,
                is_duplicate=message_id != own.message_id,
            )
        if self.places is None:
            return tuple(results)
        in_order = dict(zip(self.places, results, strict=True))
        return tuple([in_order[place] for place in range(len(results))])


def encoded(messages: tuple[Message, ...], group: str, queue_id: int) -> EncodedSend:
    """The request for messages that have ids."""
    groups, places = [messages], None
    if len(messages) > 1 and not _are_alike(messages):
        keys = [(each.topic, each.delay) for each in messages]
        by_kind = [
            [at for at, key in enumerate(keys) if key == kind] for kind in dict.fromkeys(keys)
        ]
        groups = [tuple([messages[at] for at in mine]) for mine in by_kind]
        places = [at for mine in by_kind for at in mine]
    batches = tuple([_batch(mine) for mine in groups])
    return EncodedSend(SendRequest(group, queue_id, wall_ms(), batches), groups, places)


def _are_alike(messages: tuple[Message, ...]) -> bool:
    """Have they one topic and delay?  Two sets cost a third of one pair for each message."""
    return len({each.topic for each in messages}) == len({each.delay for each in messages}) == 1


def _batch(messages: tuple[Message, ...]) -> EncodedBatch:
    topic, delay = messages[0].topic, messages[0].delay
    if any([each.unique_id for each in messages]):
        messages = tuple([each.with_properties(_unique_id_of(each)) for each in messages])
    return EncodedBatch(topic, "" if delay is None else str(delay), write_messages(messages))


def _unique_id_of(message: Message) -> dict[str, str]:
    pairs = {UNIQUE_ID: message.unique_id} if message.unique_id else {}
    return pairs | ({UNIQUE_ID_REPLACE: "true"} if message.replace else {})


class Producer(Closing):
    """Sends messages to the broker at endpoint ("host:port").  Usable from any thread.

    send_timeout_ms: for all attempts of one call together; the default outlasts a restart of the
    broker.  retries: attempts after the first, made when an answer is lost or says that it may
    work later; a message whose answer was lost is then stored twice, under the same message id.
    Attempts that reach no broker do not count; with retries=0 there is one attempt.

    linger_ms: how long send_async waits for more messages; batch_messages_max and batch_bytes_max:
    limits of one call of send_async or send_batch.  in_flight_max: at this number of messages
    without an outcome, send_async blocks.  credentials: what they lack
    comes from the environment.  tracing: make a span of each send.

    A producer that is not closed loses the messages that send_async still gathers.
    """

    _begins_calls: ClassVar[bool] = False

    def __init__(
        self,
        endpoint: str,
        group: str,
        *,
        send_timeout_ms: float = 10_000,
        retries: int = 2,
        linger_ms: float = 5,
        batch_messages_max: int = 256,
        batch_bytes_max: int = 1024 * 1024,
        in_flight_max: int = 10_000,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._limits = BatchLimits(
            linger_s=linger_ms / 1000,
            messages_max=batch_messages_max,
            size_bytes_max=batch_bytes_max,
            in_flight_max=in_flight_max,
            timeout_s=send_timeout_ms / 1000,
            retries=retries,
        )
        self._group = group
        self._connection = Connection(endpoint, credentials=credentials)
        self._ids = UniqueIds()
        self._spans = tracing.spans(endpoint) if tracing else None
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: the parent sends what it gathered, the child only its own."""
        limits = self._limits
        self._levels = LevelLookup(self._connection, limits.timeout_s, limits.retries)
        self._batcher = Batcher(self._start, limits, is_begun=self._begins_calls)
        self._shared = SharedCalls(self._call, limits)

    def send(self, message: Message, queue_id: int | None = None) -> SendResult:
        """Send one message; return when it is on disk (SYNC_FLUSH).

        queue_id: None lets the broker take the topic's queues in turn.  Raises Refused if it can
        never work (DelayUnknown, TopicUnknown, InvalidValue …), Unavailable if it did not work
        within send_timeout_ms; the message may have been stored all the same.
        """
        named = self._named(message)
        if self._spans is None:
            return self._sent(named, queue_id)
        with self._spans.sending((named,)) as sending:
            result = self._sent(sending.messages[0], queue_id)
            sending.stored((result,))
            return result

    def send_batch(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send messages of any topics and delays; results in their order.

        They go in several calls within the batch limits, one after the other; each call stores all
        of its messages or none, and a call that is too large for the broker is halved.  When a
        call fails, its error is raised, with a note of how many messages were stored before.
        """
        named = self._all_named(messages)
        if self._spans is None:
            return self._all_sent(named)
        with self._spans.sending(named) as sending:
            results = self._all_sent(sending.messages)
            sending.stored(results)
            return results

    def _sent(self, message: Message, queue_id: int | None) -> SendResult:
        if queue_id is None:
            return self._shared.send((message,), size_bytes(message))[0]
        return self._call((message,), queue_id)[0]

    def _all_sent(self, named: Sequence[Message]) -> list[SendResult]:
        results: list[SendResult] = []
        parts = deque(_parts(named, self._limits))
        while parts:
            part, part_bytes = parts.popleft()
            try:
                results.extend(self._shared.send(part, part_bytes))
            except RmqliteError as error:
                if isinstance(error, MessageTooLarge) and len(part) > 1:
                    half = len(part) // 2
                    for each in (part[half:], part[:half]):
                        parts.appendleft((each, sum(map(size_bytes, each))))
                    continue
                error.add_note(f"{len(results)} of {len(named)} messages were stored before this")
                raise
        return results

    def send_async(self, message: Message) -> Future[SendResult]:
        """Send with others in one call; the future gets the result, or an error of send().

        Raises at once the errors that come before the send, such as InvalidValue, DelayUnknown or
        Refused after close().  Callbacks of the future run on the producer's own thread:
        while one runs, nothing else is sent.
        """
        named = self._named(message)
        if self._spans is None:
            return self._batcher.add(named)
        return self._spans.sending((named,)).until(self._batcher.add)

    def cancel(self, message_id: str, topic: str = "") -> ChangedId:
        """Cancel a delayed message by the id that send() returned; return when that is on disk.

        The outcome is the state found: DONE, ALREADY_DELIVERED, NOT_FOUND …; a message that
        send_async still gathers is not found.  topic: the topic of the send; empty also cancels
        the message's retries in consumer groups.  Repeated like send(): if the answer DONE is
        lost, the result is ALREADY_CANCELLED.  Raises the errors of send().
        """
        change = ChangeByIds(ScheduleAction.CANCEL, (message_id,), topic)
        changed = self._connection.call_repeatedly(
            CHANGE_BY_IDS, change, self._limits.timeout_s, retries=self._limits.retries
        )
        return changed[0]

    def reschedule(
        self,
        message_id: str,
        *,
        delay_level: int = 0,
        deliver_at: Instant | None = None,
        deliver_after: Wait | None = None,
        topic: str = "",
    ) -> ChangedId:
        """Let a delayed message wait anew, until one of the three, as for a Message.

        A level and deliver_after count from now on, by the broker's clock.  Outcome and topic are
        those of cancel().  Never repeated: after an Unavailable it may have been made.
        """
        admin = ScheduleAdmin(self._connection, self._limits.timeout_s)
        changed = admin.reschedule(
            message_id,
            delay_level=delay_level,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
            topic=topic,
        )
        return changed[0]

    def recall_handle(self, message: Message, result: SendResult) -> str:
        """The handle by which a client of RocketMQ 5 recalls this message, over remoting.

        message: as sent; result: of its send.  Only what waits for an instant of its own has a
        handle; "" for any other message, and for a message id with blanks.  Asks the broker for
        its name.  Raises the errors of send().
        """
        if not result.deliver_at_ms or message.delay is not None or message.delay_level > 0:
            return ""
        limits = self._limits
        route = self._connection.call_repeatedly(
            rpcs.GET_ROUTE, RouteRequest(result.topic), limits.timeout_s, retries=limits.retries
        )
        return RecallHandle(
            result.topic, route.broker_name, result.deliver_at_ms, result.message_id
        ).text()

    def flush(self) -> None:
        """Send at once what send_async gathered; return when every future is done."""
        self._batcher.flush()

    def close(self) -> None:
        """flush(), then disconnect; later sends are Refused."""
        self._batcher.close()
        self._connection.close()

    def _named(self, message: Message) -> Message:
        resolved = self._levels.resolve(message)
        return resolved if resolved.message_id else resolved.named(self._ids.next())

    def _all_named(self, messages: Iterable[Message]) -> list[Message]:
        if not isinstance(messages, Iterable):
            raise must_be_type("messages", "a sequence of Message", messages)
        resolved = [self._levels.resolve(message) for message in messages]
        ids = iter(self._ids.take(sum([not each.message_id for each in resolved])))
        return [each if each.message_id else each.named(next(ids)) for each in resolved]

    def _call(self, messages: tuple[Message, ...], queue_id: int = -1) -> tuple[SendResult, ...]:
        sent = encoded(messages, self._group, queue_id)
        answer = self._connection.call_repeatedly(
            rpcs.SEND, sent.request, self._limits.timeout_s, retries=self._limits.retries
        )
        return sent.results(answer)

    def _start(
        self,
        messages: tuple[Message, ...],
        timeout_s: float,
        wait_for_ready: bool,
        on_done: Callable[[Outcome], None],
    ) -> Started:
        sent = encoded(messages, self._group, -1)

        def answered(outcome: SendAnswer | RmqliteError) -> None:
            on_done(outcome if isinstance(outcome, RmqliteError) else sent.results(outcome))

        return self._connection.start(
            rpcs.SEND, sent.request, timeout_s, answered, wait_for_ready=wait_for_ready
        )


def _parts(
    messages: Sequence[Message], limits: BatchLimits
) -> Iterator[tuple[tuple[Message, ...], int]]:
    """The messages in order, in parts within the limits, and the size of each part in bytes.

    A too large message goes alone.
    """
    part: list[Message] = []
    part_bytes = 0
    for message in messages:
        more_bytes = size_bytes(message)
        too_large = part_bytes + more_bytes > limits.size_bytes_max
        if part and (len(part) == limits.messages_max or too_large):
            yield tuple(part), part_bytes
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += more_bytes
    if part:
        yield tuple(part), part_bytes

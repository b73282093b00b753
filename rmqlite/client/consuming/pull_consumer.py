"""The pull consumer: reads a queue at a given offset, or at its own position.

It has no thread and no membership: several pull consumers must agree among themselves which of
them reads which queue.  Only commit() stores the group's progress at the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rmqlite.client.channel import Closing, Connection
from rmqlite.client.consuming.queue_reader import EVERYTHING, given_sql, parse_tags
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import CallFuture
from rmqlite.client.tracing import Tracing
from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, QueueRange, TimeQuery
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.compression import inflated
from rmqlite.kernel.words.errors import InvalidValue, QueueUnknown, Refused, RmqliteError
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import check_group
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import PullResult

RETRIES: Final = 2
"""Every call here may run twice."""


class PullConsumer(Closing):
    """Reads queues for a group.  Usable from several threads, each with queues of its own.

    timeout_ms: limit of one method, without the wait_ms of a pull.  credentials: what they lack
    comes from the environment.  tracing: make a span of each pull that finds messages.

    Every method raises RmqliteError; Unavailable if the broker did not answer in time, after
    RETRIES retries.
    """

    def __init__(
        self,
        endpoint: str,
        group: str,
        *,
        timeout_ms: float = 10_000,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        check_group(group)
        self.group: Final = group
        self._connection = Connection(endpoint, credentials=credentials)
        self._spans = tracing.spans(endpoint, group) if tracing else None
        self._timeout_s = timeout_ms / 1000
        self._positions: dict[Queue, int] = {}

    def queues(self, topic: str) -> list[Queue]:
        """A topic's queues, sorted.  Raises TopicUnknown."""
        return sorted(each.queue for each in self._ranges(topic))

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int | None = None,
        *,
        max_messages: int = 32,
        expression: str = EVERYTHING,
        sql: str | None = None,
        wait_ms: int = 0,
        inflate: bool = True,
    ) -> PullResult:
        """Up to max_messages of one queue, possibly none.

        queue_offset: None reads at this consumer's own position and moves it to the
        result's next_offset, also when the status is OFFSET_MOVED; the position starts at
        the group's committed offset, else at the queue's beginning.  A given queue_offset
        leaves the position where it is.  expression: tags, "*" or "TagA || TagB".  sql: an
        SQL92 expression over properties; a message has to match both.  wait_ms: how long the
        broker waits for a first message.  Raises TopicUnknown, QueueUnknown, GroupUnknown,
        ExpressionInvalid, InvalidValue.

        Compressed bodies are inflated.  A message whose body cannot be inflated ends the result
        before it; the pull that begins with it raises the error (see inflated()).  The position is
        then at that message, and seek() to the next offset skips it.  inflate=False hands out
        every body as it is stored.
        """
        queue = Queue(topic, queue_id)
        at = self.position(queue) if queue_offset is None else queue_offset
        request = PullRequest(
            self.group,
            topic,
            queue_id,
            at,
            expression,
            max_messages,
            wait_ms=wait_ms,
            sql=given_sql(sql),
        )
        began_at_ms = wall_ms()
        try:
            answer = self._ask(rpcs.PULL, request, wait_ms)
        except RmqliteError as failure:
            self._received(queue, began_at_ms, failure)
            raise
        result, error = _readable(answer, expression, inflate=inflate)
        self._received(queue, began_at_ms, result.messages or error or ())
        if queue_offset is None:
            self._positions[queue] = result.next_offset
        if error is not None and not result.messages:
            raise error
        return result

    def pull_async(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 32,
        expression: str = EVERYTHING,
        sql: str | None = None,
        wait_ms: int = 0,
    ) -> CallFuture[PullResult]:
        """pull() from a given queue offset without a thread that waits, and without retries.

        The future's callbacks run on gRPC's own thread.
        """
        future: CallFuture[PullResult] = CallFuture()
        began_at_ms = wall_ms()

        def answered(outcome: PullResult | RmqliteError) -> None:
            if isinstance(outcome, PullResult):
                result, error = _readable(outcome, expression, inflate=True)
                outcome = error if error is not None and not result.messages else result
            found = outcome.messages if isinstance(outcome, PullResult) else outcome
            self._received(Queue(topic, queue_id), began_at_ms, found)
            future.settle(outcome)

        request = PullRequest(
            self.group,
            topic,
            queue_id,
            queue_offset,
            expression,
            max_messages,
            wait_ms=wait_ms,
            sql=given_sql(sql),
        )
        timeout_s = self._timeout_s + wait_ms / 1000
        try:
            started = self._connection.start(rpcs.PULL, request, timeout_s, answered)
        except RmqliteError as error:
            future.settle(error)
            raise
        future.give_up = started.cancel
        return future

    def position(self, queue: Queue) -> int:
        """The queue offset at which the next pull without a queue_offset starts."""
        at = self._positions.get(queue)
        if at is None:
            at = self.committed(queue)
            self._positions[queue] = at = self._range(queue).min_offset if at is None else at
        return at

    def commit(self, queue: Queue | None = None, queue_offset: int | None = None) -> None:
        """Store the group's progress at the broker.

        Without a queue: all positions of this consumer, so everything pulled counts as
        done.  With a queue: its position, or queue_offset, the next one to read; it may be lower
        than before.
        """
        if queue is None:
            if queue_offset is not None:
                raise InvalidValue("queue_offset", queue_offset, "left out if no queue is given")
            offsets = dict(self._positions)
        else:
            offsets = {queue: self.position(queue) if queue_offset is None else queue_offset}
        for commit in OffsetsCommit(self.group, offsets).parts():
            self._ask(rpcs.COMMIT_OFFSETS, commit)

    def committed(self, queue: Queue) -> int | None:
        """The group's committed offset; None before the first commit."""
        return self._ask(rpcs.QUERY_OFFSETS, OffsetsQuery(self.group, (queue,))).get(queue)

    def seek(self, queue: Queue, queue_offset: int) -> None:
        """Continue at this offset.  It is not checked before the pull, and not committed."""
        self._positions[queue] = queue_offset

    def seek_to_time(self, queue: Queue, timestamp_ms: int) -> int:
        """Continue at the first message stored at or after a time, or else at the end.

        Returns that queue offset.  timestamp_ms is compared with store timestamps.
        """
        self._positions[queue] = self._ask(rpcs.SEARCH_OFFSET, TimeQuery(queue, timestamp_ms))
        return self._positions[queue]

    def seek_to_begin(self, queue: Queue) -> int:
        """Continue at the oldest message; returns its queue offset."""
        self._positions[queue] = self._range(queue).min_offset
        return self._positions[queue]

    def seek_to_end(self, queue: Queue) -> int:
        """Continue at the next message to be stored; returns its queue offset."""
        self._positions[queue] = self._range(queue).max_offset
        return self._positions[queue]

    def close(self) -> None:
        """Disconnect, without a commit."""
        self._connection.close()

    def _received(
        self, queue: Queue, began_at_ms: int, found: Sequence[StoredMessage] | RmqliteError
    ) -> None:
        if self._spans is not None:
            self._spans.received(queue, began_at_ms, found)

    def _range(self, queue: Queue) -> QueueRange:
        ranges = self._ranges(queue.topic)
        for each in ranges:
            if each.queue == queue:
                return each
        raise QueueUnknown(queue.topic, queue.queue_id, len(ranges))

    def _ranges(self, topic: str) -> tuple[QueueRange, ...]:
        return self._ask(rpcs.GET_QUEUE_RANGES, topic)

    def _ask(self, rpc: Row[Q, A], value: Q, wait_ms: int = 0) -> A:
        timeout_s = self._timeout_s + wait_ms / 1000
        return self._connection.call_repeatedly(rpc, value, timeout_s, retries=RETRIES)


def _inflated_upto_error(
    messages: Sequence[StoredMessage],
) -> tuple[tuple[StoredMessage, ...], Refused | None]:
    """The messages before the first that cannot be inflated, and the error of that one."""
    readable: list[StoredMessage] = []
    for message in messages:
        try:
            readable.append(inflated(message))
        except Refused as error:
            return tuple(readable), error
    return tuple(readable), None


def _readable(
    result: PullResult, expression: str, *, inflate: bool
) -> tuple[PullResult, RmqliteError | None]:
    """The matching messages, inflated if wanted, up to the first that cannot be, and its error."""
    takes = parse_tags(expression).takes
    taken = [message for message in result.messages if takes(message)]
    messages, error = _inflated_upto_error(taken) if inflate else (tuple(taken), None)
    next_offset = taken[len(messages)].queue_offset if error else result.next_offset
    status = result.status
    if result.messages and not messages:
        status = PullStatus.NO_MATCHED_MESSAGE
    return replace(result, status=status, next_offset=next_offset, messages=messages), error

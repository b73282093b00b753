"""Reads a broker's log as raw bytes, in chunks; fetches the next while the caller decodes one.

Reads may be repeated, so the reader waits for a broker that restarts, and raises an error if it
stays away.  The bytes are exactly those of the broker's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from rmqlite.client.channel import Closing, Connection, Started
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import CallFuture
from rmqlite.features.raw_log.requests import (
    GET_LOG_SNAPSHOT,
    READ_BYTES_DEFAULT,
    READ_LOG,
    READ_QUEUE,
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.features.rows import Row
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.native.bytes import rpcs

RETRIES_MAX: Final = 100
"""More than fit into the patience: the time ends the attempts."""
COMMIT_S_MAX: Final = 5.0
_Q = TypeVar("_Q", LogReadRequest, QueueReadRequest)
_A = TypeVar("_A", LogRead, QueueRead)


class RawReader(Closing):
    """Reads from the broker at endpoint ("host:port").  Used by one thread.

    patience_ms: how long to wait for a broker that does not answer.  credentials: what they lack
    comes from the environment.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        patience_ms: float = 30_000,
        chunk_bytes: int = READ_BYTES_DEFAULT,
        credentials: Credentials | None = None,
    ) -> None:
        self._connection = Connection(endpoint, credentials=credentials)
        self._patience_s = patience_ms / 1000
        self._chunk_bytes = chunk_bytes
        self._has_met = False

    def snapshot(self, topics: Sequence[str] = (), *, is_known: bool = False) -> LogSnapshot:
        """The bounds of the log and of these topics' queues; no topics means all.

        The first snapshot fails at once, because the endpoint may be wrong; is_known: an earlier
        process met the broker there, so wait for it.  Raises TopicUnknown, and Unavailable when
        the broker cannot be reached.
        """
        request = LogSnapshotRequest(tuple(topics))
        retries = RETRIES_MAX if is_known or self._has_met else 0
        found = self._connection.call_repeatedly(
            GET_LOG_SNAPSHOT, request, self._patience_s, retries=retries
        )
        self._has_met = True
        return found

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at or after a time; the queue's end if none."""
        query = TimeQuery(Queue(topic, queue_id), timestamp_ms)
        return self._connection.call_repeatedly(
            rpcs.SEARCH_OFFSET, query, self._patience_s, retries=RETRIES_MAX
        )

    def log(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(physical offset, bytes) of the durable part of begin <= n < end, in order.

        A chunk may begin and end in the middle of a record.  Raises OffsetGone, InvalidValue,
        Unavailable.
        """

        def after(offset: int) -> LogReadRequest:
            return LogReadRequest(offset, end, self._chunk_bytes)

        at = begin
        for read in self._chunks(READ_LOG, after, begin, end, lambda read: read.next_offset):
            if read.data:
                yield at, read.data
            at = read.next_offset

    def queue(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[bytes]:
        """Whole records of the queue offsets begin <= n < end, in order, many per chunk.

        Raises TopicUnknown, QueueUnknown, OffsetGone, InvalidValue, StoreDamaged, Unavailable.
        """

        def after(offset: int) -> QueueReadRequest:
            return QueueReadRequest(topic, queue_id, offset, end, self._chunk_bytes)

        for read in self._chunks(
            READ_QUEUE, after, begin, end, lambda read: read.next_queue_offset
        ):
            if read.records:
                yield read.records

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Store a group's progress: per queue, the next queue offset to read.

        Raises GroupUnknown, TopicUnknown, QueueUnknown, InvalidValue, Unavailable.
        """
        for reached in OffsetsCommit(group, dict(offsets)).parts():
            self._connection.call(rpcs.COMMIT_OFFSETS, reached, COMMIT_S_MAX)

    def close(self) -> None:
        self._connection.close()

    def _chunks(
        self,
        rpc: Row[_Q, _A],
        request_at: Callable[[int], _Q],
        begin: int,
        end: int,
        next_of: Callable[[_A], int],
    ) -> Iterator[_A]:
        """Answers up to end, or to the end of the data; the next one is always requested ahead."""
        ahead: _Ahead[_Q, _A] | None = None
        at = begin
        try:
            while at < end:
                request = request_at(at)
                answer = ahead.answer() if ahead else None
                ahead = None
                if answer is None:
                    answer = self._connection.call_repeatedly(
                        rpc, request, self._patience_s, retries=RETRIES_MAX
                    )
                self._has_met = True
                following = next_of(answer)
                if following <= at:
                    return
                at = following
                if at < end:
                    ahead = _Ahead(self._connection, rpc, request_at(at), self._patience_s)
                yield answer
        finally:
            if ahead:
                ahead.call.cancel()


class _Ahead(Generic[_Q, _A]):
    """A call made before its answer is needed."""

    def __init__(
        self, connection: Connection, rpc: Row[_Q, _A], request: _Q, timeout_s: float
    ) -> None:
        self._outcome: CallFuture[_A] = CallFuture()
        try:
            self.call: Started = connection.start(rpc, request, timeout_s, self._outcome.settle)
        except RmqliteError as error:
            self._outcome.settle(error)
            raise

    def answer(self) -> _A | None:
        """Wait for the answer; None if the call may be repeated.  Raises any other error."""
        try:
            return self._outcome.result()
        except RmqliteError as error:
            if error.can_retry:
                return None
            raise

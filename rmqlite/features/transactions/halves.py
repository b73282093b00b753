"""The records of a transaction, as RocketMQ writes them (reference §10.1); which are open.

    topic                        record
    RMQ_SYS_TRANS_HALF_TOPIC     a half message; its properties name its destination
    RMQ_SYS_TRANS_OP_HALF_TOPIC  the end of a half message; the body is that one's queue offset
    the destination              the committed message: sys flag 8, and its prepared transaction
                                 offset is where the half message begins
    SCHEDULE_TOPIC_XXXX          the same, if the message has a delay level
    rmq_sys_wheel_timer          the same, if it waits for an instant
    TRANS_CHECK_MAX_TIME_TOPIC   a half message that is given up

All are made from the bytes of the half message; its properties change only where they must.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import islice
from typing import Final

from rmqlite.features.transactions.requests import TransactionQuestion
from rmqlite.kernel.admission import asked_ms, without_timer
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft, derived, fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import (
    COMMITTED,
    TRANSACTION_TYPE,
    Head,
    NewRecord,
    Written,
    delay_level,
    destination,
    read_outline,
)
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.routing import check_property_string, hidden, route_half, routed
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.message import (
    PGROUP,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    offset_message_id,
    unpack_host,
)
from rmqlite.kernel.words.names import (
    HALF_ENDS_TOPIC,
    HALF_TOPIC,
    TRANSACTION_GROUP,
    UNDECIDED_TOPIC,
)
from rmqlite.kernel.words.property_string import PropertyString

SAME_ID_MAX: Final = 32
"""How many records with one message id, or its hash, are looked at."""
HALVES: Final = (HALF_TOPIC, 0)
_ENDS: Final = (HALF_ENDS_TOPIC, 0)
_READ_AT_ONCE: Final = 256
_END_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d"
Destination = tuple[str, int]
"""Topic and queue id."""


class OpenHalves:
    """Which half messages are open: a set of the queue offsets of those that have ended.

    Opening makes the set from RocketMQ's offset of the half queue, below which all have ended, and
    the records of the ends behind it.  A crash may have kept what became of a half message, but not
    the record that ends it; so may RocketMQ, which stores them one after the other.  What became of
    it is found by the message's id then.
    """

    def __init__(self, parts: BrokerParts) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._offsets = parts.offsets
        self._appending = parts.appending
        self._store_host = parts.host
        self._ended = CompletedOffsets()
        queue = self.queue
        self._opened_at = queue.max_offset if queue else 0
        """Half messages before this queue offset are from before the opening."""
        if queue is not None:
            self._load(queue)

    @property
    def queue(self) -> ConsumeQueue | None:
        return self._store.queue(*HALVES)

    @property
    def count(self) -> int:
        """How many half messages are open."""
        queue = self.queue
        if queue is None:
            return 0
        return max(0, queue.max_offset - self._ended.below) - self._ended.count_above

    def oldest_open(self) -> int | None:
        """The physical offset of the oldest open half message; None if none is open."""
        queue = self.queue
        entry = queue.entry(self._ended.below) if queue else None
        return entry.physical_offset if entry else None

    @property
    def begin(self) -> int:
        """No half message before this queue offset is open."""
        return self._ended.below

    def is_open(self, queue_offset: int) -> bool:
        return self._ended.next_open(queue_offset) == queue_offset

    def between(self, begin: int, end: int) -> Iterator[int]:
        """The open half messages begin <= queue offset < end."""
        while (begin := self._ended.next_open(begin)) < end:
            yield begin
            begin += 1

    def end(self, queue_offsets: list[int], records: list[NewRecord]) -> list[Written]:
        """Append records, then the ends of half messages; where the records went."""
        now_ms = self._clock.now_ms()
        ends = [end_record(offset, now_ms, self._store_host) for offset in queue_offsets]
        written = self._appending.append(records + ends)
        for offset in queue_offsets:
            self._ended.add(offset, offset + 1)
        return written[: len(records)]

    def note_progress(self) -> None:
        """Commit RocketMQ's two offsets: all half messages before the first have ended.

        The second is the first end that was stored behind the oldest open half message: earlier
        ones end older messages.
        """
        queue = self.queue
        if queue is None:
            return
        ends = self._store.queue(*_ENDS)
        oldest = self.oldest_open()
        offsets = {Queue(*HALVES): min(self._ended.below, queue.max_offset)}
        if ends is not None:
            offsets[Queue(*_ENDS)] = ends.max_offset if oldest is None else ends.first_with(oldest)
        self._offsets.commit(TRANSACTION_GROUP, offsets)

    # ---- what a torn append, or a producer that sent twice, has left

    def is_settled(self, half: Record) -> bool:
        """Has something become of an open half message already?"""
        return (
            self.is_committed(half.head)
            or self.newer(half) is not None
            or next(self._with_id_of(half.head, UNDECIDED_TOPIC), None) is not None
        )

    def is_committed(self, head: Head) -> bool:
        """Is the committed message of an open half message there?"""
        if head.queue_offset >= self._opened_at:
            return False
        properties = PropertyString(head.properties)
        to = destination(properties)
        if to is None:
            return False
        return any(
            found.completes == head.physical_offset
            and found.sys_flag & TRANSACTION_TYPE == COMMITTED
            for topic in (*WAIT_TOPICS, to[0])
            for found in self._with_id_of(head, topic)
        )

    def newer(self, half: Record) -> Record | None:
        """The newest half message with the same id, producer group and topic, if it is a later one.

        It is a copy, or the same message sent again by a producer that has missed the answer.
        """
        for found in self._with_id_of(half.head, HALF_TOPIC):
            own = PropertyString(found.properties)
            if all(own.get(name) == half.properties.get(name) for name in (PGROUP, REAL_TOPIC)):
                return self._store.read_record(found.physical_offset)
        return None

    def _with_id_of(self, head: Head, topic: str) -> Iterator[Head]:
        """The later records of a topic with a message's id, newest first."""
        message_id = PropertyString(head.properties).get(UNIQ_KEY)
        if message_id is None:
            return
        store, key = self._store, message_id.decode("utf-8", "replace")
        begin_ms = head.store_timestamp_ms
        for offset in islice(store.index.find(topic, key, begin_ms=begin_ms), SAME_ID_MAX):
            if offset <= head.physical_offset:
                return
            size = int.from_bytes(store.read(offset, 4), "big")
            found = read_outline(store.read, offset, size)
            if found is None or found.topic != topic:
                continue
            if PropertyString(found.properties).get(UNIQ_KEY) == message_id:
                yield found

    # ---- inside

    def _load(self, queue: ConsumeQueue) -> None:
        """Find the half messages that have ended."""
        committed = self._offsets.of(TRANSACTION_GROUP).get(Queue(*HALVES), 0)
        self._ended.add(0, min(max(committed, queue.min_offset), queue.max_offset))
        ends, oldest = self._store.queue(*_ENDS), self.oldest_open()
        if ends is None or oldest is None:
            return
        for begin in range(ends.first_with(oldest), ends.max_offset, _READ_AT_ONCE):
            entries = ends.read(begin, _READ_AT_ONCE)
            for found in self._store.read_records(entries, check_bodies=False):
                offset = ended_by(found.body) if found and found.has_sound_body() else -1
                if 0 <= offset < queue.max_offset:
                    self._ended.add(offset, offset + 1)


def half_record(draft: Draft, *, cluster: str, store_host: bytes) -> NewRecord:
    """The half message of a draft whose queue is chosen.  Raises InvalidValue, MessageTooLarge."""
    own = PropertyString(draft.properties)
    if own.get(PGROUP) is None:
        raise InvalidValue(PGROUP, "", "the producer group that the broker asks for the outcome")
    if own.get(UNIQ_KEY) is None:
        own = own.edited({UNIQ_KEY: secrets.token_hex(16).upper()})
    place = route_half(draft.topic, draft.queue_id, cluster)
    properties = routed(own.encoded, place)
    check_property_string(properties)
    draft = draft._replace(sys_flag=draft.sys_flag & ~TRANSACTION_TYPE)
    return fresh(draft, store_host, place.topic, place.queue_id, properties)


def committed_record(half: Record, to: Destination, table: LevelTable, now_ms: int) -> NewRecord:
    """The message of a committed half; a delay begins now.

    Raises MessageTooLarge.
    """
    # With this property it would seem to complete the scheduled record that ends where the half
    # message begins.
    properties = half.properties.edited({}, frozenset({RESCHEDULED_FROM}))
    level = delay_level(properties)
    if level:
        properties = PropertyString(without_timer(properties.encoded))
    due_ms = 0 if level else asked_ms(properties, now_ms)
    key = to
    if level or due_ms:
        level = table.clamp(level) if level else 0
        key, properties = hidden(properties.encoded, *to, level=level, due_ms=due_ms)
        check_property_string(properties)
    record = derived(half, *key, properties=properties, completes=half.head.physical_offset)
    return record._replace(sys_flag=record.sys_flag & ~TRANSACTION_TYPE | COMMITTED)


def end_record(queue_offset: int, now_ms: int, store_host: bytes) -> NewRecord:
    """The record that ends the half message with this queue offset."""
    body = str(queue_offset).encode()
    draft = Draft(HALF_ENDS_TOPIC, 0, _END_PROPERTIES, body, now_ms, store_host)
    return fresh(draft, store_host)


def ended_by(body: bytes) -> int:
    """The queue offset of the half message that a record's body ends; -1 if it names none."""
    is_number = body.isdigit() and len(body) < 19
    return int(body) if is_number else -1


def copy_record(half: Record, times: int) -> NewRecord:
    """The same half message, of which a producer is asked so many times now."""
    changes = {TRANSACTION_CHECK_TIMES: str(times)}
    return derived(half, HALF_TOPIC, 0, properties=half.properties.edited(changes))


def undecided_record(half: Record) -> NewRecord:
    """A half message that is given up."""
    return derived(half, UNDECIDED_TOPIC, 0)


def times_asked(head: Head) -> int:
    """How many times a producer was asked of a half message."""
    return PropertyString(head.properties).number(TRANSACTION_CHECK_TIMES) or 0


def question(half: Record, copy: NewRecord, at: Written, to: Destination) -> TransactionQuestion:
    """The question of a half message whose copy was stored there; its answer names the copy."""
    shown = encode(
        copy._replace(topic=to[0], queue_id=to[1]),
        queue_offset=at.queue_offset,
        physical_offset=at.physical_offset,
        store_timestamp_ms=half.head.store_timestamp_ms,
    )
    return TransactionQuestion(
        half.properties.text(PGROUP),
        at.queue_offset,
        at.physical_offset,
        half.properties.text(UNIQ_KEY),
        offset_message_id(unpack_host(copy.store_host), at.physical_offset),
        shown,
    )

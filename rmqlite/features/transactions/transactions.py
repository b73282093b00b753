"""Ends transactions: as a producer says, or by rounds of checks.

A half message ends by one append: first what becomes of the message, then the record that ends
the half message.  A round looks at all open half messages, in steps: it copies one to ask a
producer about it, so that the count of questions is in the log, or gives it up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.features.transactions.halves import (
    HALVES,
    Destination,
    OpenHalves,
    committed_record,
    copy_record,
    half_record,
    question,
    times_asked,
    undecided_record,
)
from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import read_heads, record_at
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head, NewRecord, destination
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.sends.packing import HALF_SEND
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, PermissionMissing
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import CHECK_IMMUNITY_TIME_IN_SECONDS, PGROUP
from rmqlite.kernel.words.names import HALF_TOPIC, UNDECIDED_TOPIC, check_sendable
from rmqlite.kernel.words.property_string import PropertyString

STEP_HALVES: Final = 100
"""How many open half messages a step of a round looks at, in 3 ms."""
STEP_ENDS: Final = 40
"""How many of them it copies or gives up, in 8 ms."""
STEP_BYTES: Final = 1 << 20
"""The most bytes that it copies; a single message may be longer."""
FAR_HALVES: Final = 50_000
"""A half message with so many younger ones is copied behind them, so that the next start reads few
ends.  The open ones count four times, so that such copies are at most a third of the queue."""
_HOUR_MS: Final = 3_600_000

log = logging.getLogger(__name__)

HasProducer = Callable[[str], bool]
"""Is a producer of this group there, who can be asked?"""


class CheckRound(NamedTuple):
    """The half messages that a round of checks has still to look at: begin <= offset < end."""

    begin: int
    end: int


class Checked(NamedTuple):
    """What a step of a round did; the questions may be asked once the store is durable."""

    rest: CheckRound | None
    questions: list[TransactionQuestion]


class _Due(NamedTuple):
    """A half message that must be copied, to ask for its outcome, or else given up."""

    entry: Entry
    head: Head
    is_asked: bool


class Transactions:
    """The transactions of a store.  halves: those that are open."""

    def __init__(self, parts: BrokerParts) -> None:
        self._config = parts.config
        self._store = parts.store
        self._clock = parts.clock
        self._topics = parts.topics
        self._room = parts.room
        self._timers = parts.timers
        self._host = parts.host
        self.halves = OpenHalves(parts)

    # ---- the producer's word

    def half_of(self, draft: Draft) -> NewRecord:
        """The half message of a transaction.  Its delay begins when it is committed.

        Raises PermissionMissing, InvalidValue, MessageTooLarge.
        """
        if self._config.rejects_transactions:
            raise PermissionMissing(draft.topic, HALF_SEND, "rejectTransactionMessage=true")
        # Refused now: when it is committed, its producer does not listen any more.
        self._timers.due_ms(draft.properties, self._clock.now_ms())
        record = half_record(draft, cluster=self._config.cluster_name, store_host=self._host)
        self._topics.ensure(HALF_TOPIC, 1)
        return record

    def end(self, request: TransactionEnd) -> bool:
        """Commit a half message, or roll it back; False if it has ended before.

        If it was copied since, the copy ends.  Raises InvalidValue, MessageNotFound,
        MessageTooLarge, TopicUnknown, QueueUnknown, PermissionMissing, StoreUnavailable: then the
        half message stays open.
        """
        half = self._named(request)
        if not self.halves.is_open(half.head.queue_offset):
            newer = self.halves.newer(half)
            if newer is None or not self.halves.is_open(newer.head.queue_offset):
                return False
            half = newer
        records = []
        if request.is_commit and not self.halves.is_committed(half.head):
            to = self._destination(half.head)
            table, now_ms = self._store.levels.current, self._clock.now_ms()
            records.append(committed_record(half, to, table, now_ms))
        self.halves.end([half.head.queue_offset], records)
        return True

    def topic_of(self, request: TransactionEnd) -> str:
        """The topic that a half message goes to.  Raises MessageNotFound, InvalidValue."""
        to = destination(self._named(request).properties)
        return to[0] if to else ""

    def _named(self, request: TransactionEnd) -> Record:
        """The half message that a producer names, if it is the producer's own."""
        half = record_at(self._store, request.physical_offset)
        head = half.head
        if (head.topic, head.queue_id) != HALVES:
            raise MessageNotFound(request.physical_offset)
        if head.queue_offset != request.queue_offset:
            rule = f"{head.queue_offset}, the queue offset of the half message there"
            raise InvalidValue("tranStateTableOffset", request.queue_offset, rule)
        if half.properties.get(PGROUP) != request.group.encode():
            rule = f"{half.properties.text(PGROUP)}, the group that sent the half message"
            raise InvalidValue("producerGroup", request.group, rule)
        return half

    def _destination(self, head: Head) -> Destination:
        to = destination(PropertyString(head.properties))
        if to is None:
            rule = "a half message that names its destination (REAL_TOPIC, REAL_QID)"
            raise InvalidValue("commitLogOffset", head.physical_offset, rule)
        check_sendable(to[0])
        topic = self._topics.existing(to[0])
        check_queue(topic, to[1], max(topic.read_queues, topic.write_queues))
        return to

    # ---- rounds of checks

    def begin_round(self) -> CheckRound | None:
        """A round over all half messages that are open now; None if none is."""
        queue = self.halves.queue
        if queue is None or self.halves.begin >= queue.max_offset:
            return None
        return CheckRound(self.halves.begin, queue.max_offset)

    def check(self, wanted: CheckRound, has_producer: HasProducer) -> Checked:
        """Look at the next open half messages of a round: copy those of which a producer must be
        asked, and give up those that are too old or were asked of too often.

        Raises StoreUnavailable: then nothing has changed.
        """
        queue = self.halves.queue
        assert queue is not None
        offsets = list(islice(self.halves.between(*wanted), STEP_HALVES))
        entries = [queue.read(offset, 1)[0] for offset in offsets]
        done: list[int] = []
        due: list[_Due] = []
        size, upto = 0, wanted.end
        heads = read_heads(self._store, entries)
        for offset, entry, head in zip(offsets, entries, heads, strict=True):
            if head is None or (head.topic, head.queue_offset) != (HALF_TOPIC, offset):
                # Its record is gone.
                done.append(offset)
                continue
            is_asked = self._is_asked(head, has_producer)
            if is_asked is None:
                continue
            if len(due) == STEP_ENDS or (due and size + entry.size > STEP_BYTES):
                upto = offset
                break
            due.append(_Due(entry, head, is_asked))
            size += entry.size
        else:
            upto = offsets[-1] + 1 if len(offsets) == STEP_HALVES else wanted.end
        rest = CheckRound(upto, wanted.end) if upto < wanted.end else None
        return Checked(rest, self._settle(due, done))

    def _is_asked(self, head: Head, has_producer: HasProducer) -> bool | None:
        """True: ask for the outcome of a half message; False: give it up; None: wait."""
        config, properties = self._config, PropertyString(head.properties)
        times = times_asked(head)
        # Not since its birth: the producer's clock may be wrong.
        age_ms = self._clock.now_ms() - head.store_timestamp_ms
        if age_ms >= config.file_reserved_hours * _HOUR_MS or times >= config.transaction_check_max:
            return False
        spared_ms = config.transaction_timeout_ms
        own_s = properties.number(CHECK_IMMUNITY_TIME_IN_SECONDS)
        if own_s is not None:
            spared_ms = own_s * 1000
        if not times and age_ms < spared_ms:
            return None
        queue = self.halves.queue
        assert queue is not None
        younger = queue.max_offset - head.queue_offset
        is_far = younger > max(FAR_HALVES, 4 * self.halves.count)
        return True if is_far or has_producer(properties.text(PGROUP)) else None

    def _settle(self, due: list[_Due], done: list[int]) -> list[TransactionQuestion]:
        """End half messages by one append; the questions about those that are asked of.

        done: queue offsets of half messages of which nothing more becomes.
        """
        records: list[NewRecord] = []
        ends = list(done)
        asked: list[tuple[Record, NewRecord, int, Destination]] = []
        halves = self._store.read_records([each.entry for each in due], check_bodies=False)
        for (_, head, is_asked), half in zip(due, halves, strict=True):
            if half is None or self.halves.is_settled(half):
                ends.append(head.queue_offset)
                continue
            to = destination(half.properties)
            copy = copy_record(half, times_asked(head) + 1)
            if not is_asked or to is None or len(copy.properties.encoded) > PROPERTIES_BYTES_MAX:
                to, copy = None, undecided_record(half)
            if self._room.why_not_in(head, copy.topic, len(copy.properties.encoded)):
                # In a store with tiny log files a copy may not fit: the half message stays.
                continue
            if to is not None:
                asked.append((half, copy, len(records), to))
            else:
                self._note_given_up(half)
            records.append(copy)
            ends.append(head.queue_offset)
        if not ends:
            return []
        written = self.halves.end(ends, records)
        return [question(half, copy, written[at], to) for half, copy, at, to in asked]

    def _note_given_up(self, half: Record) -> None:
        self._topics.ensure(UNDECIDED_TOPIC, 1)
        log.error(
            "a half message is given up, it is in %s now group=%s physical_offset=%d",
            UNDECIDED_TOPIC,
            half.properties.text(PGROUP),
            half.head.physical_offset,
        )

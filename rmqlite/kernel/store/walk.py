"""The walk over an existing log: an opening, a reader and a check enter its records here.

Each record gets the entry that an append gives it, and completes the scheduled record that it
points back at.  What the walk writes goes to files in an opening, into memory in a reader, and
is compared with the files in a check.  plain() takes ordinary records in a fifth of the time that
enter() takes for each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import (
    is_completing,
    topic_ahead,
    wait_queue_left,
    waited_for,
)
from rmqlite.kernel.records.key_hashes import Keyed, topic_prefix
from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, Entry
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import (
    TIMERS,
    QueueKey,
    queue_of,
    wait_queue_of,
    when_due_ms,
)
from rmqlite.kernel.store.deleted_topics import DeletedTopics
from rmqlite.kernel.store.log.repaired_place import (
    RepairedPlace,
    explains_gap,
    is_anonymous,
    is_repaired,
)
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.property_string import PropertyString

_WAITING_BYTES: Final = 8192 * ENTRY_BYTES
"""Entries of a queue that are written at once."""
_WAITING_ENTRIES_MAX: Final = 1 << 20
"""Entries of all queues are written if more of them wait."""
_NEAR: Final = 8
"""Entries to look at before a search through a whole queue."""
_DELAY_MS: Final = 1_000
"""Every delay is a multiple of this, whatever the table."""
_NOT_PLAIN: Final = record.TRANSACTION_TYPE | record.BORN_HOST_V6 | record.STORE_HOST_V6
plain_run: Final = only_in_c("plain_run")
"""(data, at, base, upto, known, keyed) -> where the first record begins that is left to plain(),
the newest store timestamp, and the number of records; it adds to queues and keyed as plain() does.

keyed None: it also takes records that wait or complete others, and their entries have no due times.
"""
_HEAD: Final = record.layout_of_fields(
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_timestamp",
    "prepared_transaction_offset",
    "body_size",
)


class RedoQueue(Protocol):
    """What a walk needs of a queue: its files, a reader's memory, or a check of its files."""

    @property
    def max_offset(self) -> int: ...
    def entry(self, queue_offset: int) -> Entry | None: ...
    def read_beyond(self, queue_offset: int) -> Entry | None: ...
    def first_with(self, physical_offset: int) -> int: ...
    def begin_at(self, queue_offset: int) -> None: ...
    def write(self, queue_offset: int, entries: bytes) -> None: ...
    def advance(self, max_offset: int) -> None: ...


class RedoState(Protocol):
    """What a walk changes: a store's Dispatch, or what a reader or a check knows of a store."""

    levels: LevelHistory
    progress: ScheduleProgress
    deleted: DeletedTopics

    @property
    def queues(self) -> Mapping[QueueKey, RedoQueue]: ...
    def queue(self, topic: str, queue_id: int) -> RedoQueue: ...


class LogPlaces(Protocol):
    """The files of a log, for error sentences."""

    @property
    def segment_bytes(self) -> int: ...
    def path_at(self, position: int, /) -> Path: ...


class Plain(NamedTuple):
    """The records that Redo.plain() has taken; `at`: where the first other one begins."""

    at: int
    newest_timestamp_ms: int
    keyed: list[Keyed]


class Completing(NamedTuple):
    """A record that points back at the end of a scheduled one."""

    physical_offset: int
    topic: str
    completes: int
    stored_ms: int
    properties: PropertyString


class _Tail:
    """A queue in a walk; next: the queue offset of its next record; entries: not written yet."""

    __slots__ = ("entries", "key", "next", "prefix", "queue", "wait_queue")

    def __init__(self, key: QueueKey, queue: RedoQueue) -> None:
        self.key = key
        self.queue = queue
        self.wait_queue = wait_queue_of(*key)
        self.prefix = topic_prefix(key[0])
        self.next = queue.max_offset
        self.entries = bytearray()

    def entry(self, queue_offset: int) -> Entry | None:
        at = queue_offset - self.queue.max_offset
        if 0 <= at < self.next - self.queue.max_offset:
            return Entry._make(ENTRY.unpack_from(self.entries, at * ENTRY_BYTES))
        return self.queue.entry(queue_offset) if at < 0 else None

    def end_of(self, queue_offset: int) -> int | None:
        """Where an entry's record ends; None if there is no entry."""
        entry = self.entry(queue_offset)
        return entry.physical_offset + entry.size if entry is not None else None

    def write(self) -> None:
        if self.entries:
            # Write existing entries again, too: they may not be on disk.
            self.queue.write(self.queue.max_offset, bytes(self.entries))
            self.queue.advance(self.next)
            self.entries.clear()

    def begin_at(self, queue_offset: int) -> None:
        self.write()
        self.queue.begin_at(queue_offset)
        self.next = queue_offset

    def skip_to(self, queue_offset: int) -> None:
        """Go on at a later queue offset; the entries before it stay as they are."""
        self.write()
        self.queue.advance(queue_offset)
        self.next = queue_offset


class Redo:
    """Dispatches an existing log."""

    def __init__(
        self,
        dispatch: RedoState,
        log: LogPlaces,
        kept_before_ms: int = 0,
        see: Callable[[Record], None] | None = None,
        *,
        only_ends: bool = False,
    ) -> None:
        """kept_before_ms: records stored before this time keep their existing deliver times.

        see: is called with each record that has been dispatched by enter().  only_ends: only where
        the queues end must be right afterwards, not entries, progress and keys.
        """
        self._see = see
        self._only_ends = only_ends
        self._dispatch = dispatch
        self._log = log
        self._kept_before_ms = kept_before_ms
        self.started = set(dispatch.queues)
        """Queues whose maximum offset is right."""
        self._tails: dict[QueueKey, _Tail] = {}
        self._known: dict[tuple[bytes, int], _Tail] = {}
        """Queues for plain(), by length byte and topic, and queue id."""
        self._waiting = 0
        self._guesses: dict[int, int] = {}
        """Wait queue -> the queue offset behind the one that was completed last."""
        self._place: RepairedPlace | None = None
        """The last anonymous repaired place."""

    @property
    def entered(self) -> set[QueueKey]:
        """Queues that got entries."""
        return set(self._tails)

    def run(self, walk: Iterable[Record]) -> int:
        """Dispatch every record of a walk; returns their number."""
        count = 0
        for walked in walk:
            count += 1
            self.enter(walked)
        self.write()
        return count

    def enter(self, walked: Record, *, is_forced: bool = False) -> None:
        """Dispatch the next record; write() makes its entry visible.

        Raises StoreDamaged if records of its queue are missing before it; is_forced: only if
        the log before it has no room for them.  Then nothing has changed.
        """
        head = walked.head
        if record.has_entry(head.sys_flag):
            self._enter(walked, is_forced)
            wait_queue = wait_queue_of(head.topic, head.queue_id)
            if wait_queue:
                self._dispatch.progress.scheduled(wait_queue, topic_ahead(walked.properties))
            self.complete(walked)
            if self._see is not None:
                self._see(walked)
        elif is_anonymous(head):
            self._place = _place_of(head)
        elif is_repaired(head):
            self._enter(walked, is_forced)
            self._complete_lost(head.topic, head.queue_id, head.queue_offset, 1)

    def plain(self, data: bytes, at: int, base: int, upto: int, slow_max: int = INT64_MAX) -> Plain:
        """Take ordinary records of queues that enter() has met, which are their queues' next.

        data: bytes of one log file from physical offset `base` on; at: where to begin; upto:
        no record reaches beyond; slow_max: how many are taken that C leaves.  Their bodies fit
        their CRCs.  Nothing may have been given to see().
        """
        known = self._known
        keyed: list[Keyed] = []
        newest_ms = count = 0
        while upto - at >= record.OVERHEAD_BYTES and slow_max:
            run = plain_run(data, at, base, upto, known, None if self._only_ends else keyed)
            if run is not None and run[0] > at:
                at, newest_ms, count = run[0], max(newest_ms, run[1]), count + run[2]
                continue
            size, magic, crc, queue_id, queue_offset, place, flags, stored_ms, completes, length = (
                _HEAD.unpack_from(data, at)
            )
            end = at + size
            body = at + _HEAD.size
            topic = body + length
            if (
                magic != record.MAGIC
                or place != base + at
                or flags & _NOT_PLAIN
                or end > upto
                or not body <= topic <= end - 3
            ):
                break
            names = topic + 1 + data[topic]
            tail = known.get((data[topic:names], queue_id))
            if (
                tail is None
                or tail.next != queue_offset
                or names + 2 > end
                or (data[names] << 8 | data[names + 1]) != end - names - 2
                or zlib.crc32(data[body:topic]) & 0x7FFFFFFF != crc
                or b"\0" in (properties := data[names + 2 : end])
            ):
                break
            code = self._plain_code(tail, queue_offset, (place, size), stored_ms, properties)
            tail.entries += ENTRY.pack(place, size, code)
            tail.next += 1
            if len(tail.entries) > _WAITING_BYTES:
                tail.write()
            if completes and not self._only_ends:
                own = PropertyString(properties)
                if is_completing(tail.key[0], flags, own):
                    self._complete(Completing(place, tail.key[0], completes, stored_ms, own))
            keyed.append((tail.prefix, properties, place, stored_ms))
            if stored_ms > newest_ms:
                newest_ms = stored_ms
            at = end
            count += 1
            slow_max -= 1
        self._count(count)
        return Plain(at, newest_ms, keyed)

    def _plain_code(
        self,
        tail: _Tail,
        queue_offset: int,
        place: tuple[int, int],
        stored_ms: int,
        properties: bytes,
    ) -> int:
        """The tags code of an ordinary record, which is counted if it waits."""
        if self._only_ends:
            return 0
        if not tail.wait_queue:
            return record.tags_code(properties)
        code = when_due_ms(self._dispatch.levels, *tail.key, stored_ms, properties)
        if stored_ms < self._kept_before_ms:
            code = self._kept(tail, queue_offset, place, stored_ms) or code
        topic = topic_ahead(PropertyString(properties))
        self._dispatch.progress.scheduled(tail.wait_queue, topic)
        return code

    def begins(self, head: Head) -> bool:
        """Is it the first of its queue in this log, or was the topic deleted and made again?"""
        key = (head.topic, head.queue_id)
        is_begun = key in self.started and head.queue_offset >= self._tail(key).next
        return head.queue_offset >= 0 and not is_begun

    def write(self) -> None:
        """Write the entries of all records so far into their queues."""
        for tail in self._tails.values():
            tail.write()
        self._waiting = 0

    def skip_to(self, key: QueueKey, queue_offset: int) -> None:
        """Go on at a later queue offset of a queue; the log lacks the records before it."""
        self._tail(key).skip_to(queue_offset)

    def entry(self, key: QueueKey, queue_offset: int) -> Entry | None:
        """An entry of a queue, also one that is not written yet."""
        return self._tail(key).entry(queue_offset)

    def complete(self, walked: Record) -> None:
        """Complete the scheduled record that a record points back at, if it does."""
        head, own = walked.head, walked.properties
        if head.completes and is_completing(head.topic, head.sys_flag, own):
            place, stored_ms = head.physical_offset, head.store_timestamp_ms
            self._complete(Completing(place, head.topic, head.completes, stored_ms, own))

    def _tail(self, key: QueueKey) -> _Tail:
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = _Tail(key, self._dispatch.queue(*key))
        return tail

    def _count(self, records: int) -> None:
        self._waiting += records
        if self._waiting > _WAITING_ENTRIES_MAX:
            self.write()

    def _enter(self, walked: Record, is_forced: bool) -> None:
        head = walked.head
        key = (head.topic, head.queue_id)
        if self._dispatch.deleted.is_dead(*key, head.queue_offset, head.physical_offset):
            return
        tail = self._tail(key)
        if self.begins(head):
            self.started.add(key)
            tail.begin_at(head.queue_offset)
        elif head.queue_offset != tail.next:
            tail.write()
            self._enter_lost(tail, head, is_forced)
        name = head.topic.encode()
        self._known[bytes([len(name)]) + name, head.queue_id] = tail
        code = self._code(tail, walked)
        tail.entries += ENTRY.pack(head.physical_offset, head.size, code)
        tail.next += 1
        if len(tail.entries) > _WAITING_BYTES:
            tail.write()
        self._count(1)

    def _enter_lost(self, tail: _Tail, head: Head, is_forced: bool) -> None:
        """Enter lost records that a repaired place explains; raises StoreDamaged otherwise."""
        expected, place = tail.next, self._place
        missing = head.queue_offset - expected
        last = tail.queue.entry(expected - 1)
        last_offset = last.physical_offset if last else -1
        if not explains_gap(place, last_offset=last_offset, head=head, missing=missing):
            place = _place_of(head)
            if not (is_forced and explains_gap(place, last_offset=-1, head=head, missing=missing)):
                raise StoreDamaged(
                    str(self._log.path_at(head.physical_offset)),
                    head.physical_offset % self._log.segment_bytes,
                    f"queue offset {expected} of {head.topic} queue {head.queue_id}",
                    f"{head.queue_offset}",
                )
        assert place is not None
        code = when_due_ms(self._dispatch.levels, *tail.key, place.store_timestamp_ms, b"")
        tail.queue.write(expected, ENTRY.pack(place.physical_offset, place.size, code) * missing)
        tail.skip_to(head.queue_offset)
        self._complete_lost(*tail.key, expected, missing)

    def _complete_lost(self, topic: str, queue_id: int, queue_offset: int, count: int) -> None:
        """Complete the lost records of a wait queue, so that nobody waits for them."""
        wait_queue = wait_queue_of(topic, queue_id)
        if wait_queue:
            completed = self._dispatch.progress.of(wait_queue)
            completed.add(queue_offset, queue_offset + count)

    def _code(self, tail: _Tail, walked: Record) -> int:
        head, stored_ms = walked.head, walked.head.store_timestamp_ms
        if not tail.wait_queue:
            return record.tags_code(head.properties)
        encoded = walked.properties.encoded
        due_ms = when_due_ms(self._dispatch.levels, *tail.key, stored_ms, encoded)
        place = (head.physical_offset, head.size)
        return self._kept(tail, head.queue_offset, place, stored_ms) or due_ms

    def _kept(
        self, tail: _Tail, queue_offset: int, place: tuple[int, int], stored_ms: int
    ) -> int | None:
        """The deliver time that the files have, if it must be kept.

        RocketMQ set it by a table of levels that we may not have.  But its abnormal recovery
        writes a hash (reference §4.4), and a torn time is no whole delay.
        """
        if tail.wait_queue == TIMERS or stored_ms >= self._kept_before_ms:
            return None
        there = tail.queue.read_beyond(queue_offset)
        if there is None or there[:2] != place or there.tags_code <= stored_ms:
            return None
        return there.tags_code if (there.tags_code - stored_ms) % _DELAY_MS == 0 else None

    def _complete(self, completing: Completing) -> None:
        """Complete the scheduled record that this one ends the wait of."""
        topic, own = completing.topic, completing.properties
        left = wait_queue_left(topic, own)
        queue_offset = self._completed_by(left, completing.completes)
        if queue_offset is not None:
            self._dispatch.progress.complete_one(left, queue_offset, waited_for(topic, own))

    def _completed_by(self, wait_queue: int, completes: int) -> int | None:
        """The queue offset of the scheduled record that ends at `completes`."""
        if not wait_queue:
            return None
        tail = self._tail(queue_of(wait_queue))
        # It nearly always follows the record that was completed last.
        near = self._guesses.get(wait_queue, self._dispatch.progress.of(wait_queue).below)
        for queue_offset in range(near, near + _NEAR):
            end = tail.end_of(queue_offset)
            if end is None or end >= completes:
                break
        if end != completes:
            tail.write()
            queue_offset = tail.queue.first_with(completes) - 1
            if tail.end_of(queue_offset) != completes:
                return None
        self._guesses[wait_queue] = queue_offset + 1
        return queue_offset


def _place_of(head: Head) -> RepairedPlace:
    return RepairedPlace(head.physical_offset, head.size, head.store_timestamp_ms)

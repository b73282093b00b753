"""Delivers the due messages of a wait queue, and returns when to call again.

Due messages are delivered in slices, the earliest first.  A delivered record points back to the
end of the scheduled one, so after a crash the log itself shows which messages were delivered.  A
wait queue whose files cannot be read rests for a while.

Nearly always each of the due messages can be delivered.  Then the compiled form makes the records
of a slice straight from the log, and no object for any of them, which costs a tenth of the plain
form; every other slice is left to that.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.counts import Durations
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC, UNREADABLE
from rmqlite.kernel.records.drafts import derived
from rmqlite.kernel.records.encoding import PackedBytes
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.records.record import Head, NewRecord, Written, destination
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, queue_of
from rmqlite.kernel.schedule.undeliverable import dead_letter, why_undeliverable
from rmqlite.kernel.store.consume_queue import codes_in, runs_of
from rmqlite.kernel.store.log.raw_records import READ_BYTES_MAX, READ_GAP_BYTES_MAX, log_reads
from rmqlite.kernel.waits.wait_queue import PendingPlace, WaitQueue
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.limits import INT64_MAX, NEW_QUEUES_MAX
from rmqlite.kernel.words.message import pack_host
from rmqlite.kernel.words.property_string import PropertyString

pack_deliveries: Final = only_in_c("pack_deliveries")
"""(reads, entries, topic, queue_id, level) -> (PackedBytes, targets): the records that deliver
those behind the entries of a wait queue, whose topic and queue id these are.

reads: a physical offset, the log's bytes from there on, and how many of the next records lie in
them.  targets: the queues that the rows number, each a Target.
"""
Target = tuple[str, int, int, int, int]
"""Topic and queue id, how many messages go there, the longest body and record in bytes."""

SHARES: Final = 20
"""The number of shares in a second; at a lower rate, a share is one message."""
_SECOND_MS: Final = 1_000
_SHORTER: Final = 0.9
LATE_MS: Final = 1_000
"""A delivery is late from here on."""
_BETWEEN_LINES_MS: Final = 60_000
"""What is late again within this time adds to the next line."""

DELIVER_BYTES_MAX: Final = 4 << 20
"""The most bytes of scheduled records in one slice; a single record may be longer."""
REST_MS: Final = 1_000
"""How long a wait queue rests if its files cannot be read; the time doubles at each failure."""
REST_MS_MAX: Final = 8_000
_STORE_HOST: Final = pack_host("127.0.0.1:0")
"""The store host of a dead letter whose scheduled record cannot be read."""

log = logging.getLogger(__name__)


class Ready(NamedTuple):
    """A pending message and the record that completes it.

    reason: why it becomes a dead letter; "" if it does not.
    """

    place: PendingPlace
    topic: str
    """The topic that the message goes to; "" if its record names none."""
    record: NewRecord
    reason: str


class PackedSlice(NamedTuple):
    """Messages of one wait queue, and the records that deliver them."""

    known: WaitQueue
    queue_offsets: Sequence[int]
    due_ms: tuple[int, ...]
    """When each of them was due."""
    topics: Counter[str]
    """How many go to each topic."""
    packed: Packed


class Most(NamedTuple):
    """Limits of a slice; a single record may be longer."""

    messages: int
    record_bytes: int


class Schedule:
    """Delivers the messages of all wait queues of a store."""

    def __init__(self, parts: BrokerParts) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._topics = parts.topics
        self.room = parts.room
        self._wait_queues = parts.wait_queues
        self._appending = parts.appending
        self._packed = PackedSlices(parts)
        self._pace = Pace(parts.config.deliver_rate_max)
        self.delivered = 0
        """The number of due messages delivered since the start."""
        self.timers_delivered: Counter[str] = Counter()
        """Those of the timers, by topic."""
        self.undeliverable = 0
        self.appends = Durations()
        self._late_log = LateLog()

    def deliver(self, wait_queue: int, count_max: int) -> int | None:
        """Deliver up to count_max due messages of a wait queue, the earliest first.

        Returns when to call again, None if none waits.  Raises StoreUnavailable: then no message
        of the slice is delivered, and the next call begins with the same messages.
        """
        known = self._wait_queues[wait_queue]
        known.skip_removed()
        now_ms = self._clock.now_ms()
        due_ms = _next_ms(known)
        if due_ms is None or due_ms > now_ms:
            return due_ms
        count = self._pace.free(now_ms, count_max)
        if not count:
            return self._pace.free_at_ms(now_ms)
        packed = self._packed.next(known, now_ms, Most(count, DELIVER_BYTES_MAX))
        if packed is None:
            count = self._deliver(known, now_ms, count)
        else:
            count = self._complete_packed(packed)
        # Counted from the append's end: even a slow append must not bring two shares together.
        self._pace.take(self._clock.now_ms(), count)
        return _next_ms(known)

    def paced_until_ms(self) -> int:
        """When deliverRateMax lets another message be delivered; a time in the past if now."""
        now_ms = self._clock.now_ms()
        return 0 if self._pace.free(now_ms, 1) else self._pace.free_at_ms(now_ms)

    def complete(self, ready: Sequence[Ready], new: Sequence[NewRecord] = ()) -> list[Written]:
        """Append the records that complete pending messages, and advance their wait queues.

        new: all records, if there are others.  Raises StoreUnavailable: then nothing has changed.
        """
        # Append before the cursors move: a crash in between is found again in the log.
        written = self._appending.append(new or [each.record for each in ready], self.appends)
        by_queue = defaultdict[int, list[Ready]](list)
        for each in ready:
            by_queue[each.place.wait_queue].append(each)
        for number, mine in by_queue.items():
            offsets = [each.place.queue_offset for each in mine]
            due_ms = [each.place.due_ms for each in mine]
            topics = Counter([each.topic for each in mine])
            self._note_completed(self._wait_queues[number], offsets, due_ms, topics)
        return written

    def _complete_packed(self, ready: PackedSlice) -> int:
        """complete() and _count() for a packed slice; the number of its messages."""
        known, offsets, due_ms, topics, packed = ready
        # Append before the cursor moves, as in complete().
        self._appending.append_packed([packed], self.appends)
        self._note_completed(known, offsets, due_ms, topics)
        self._count_late(known, Counter(due_ms), self._store.newest_timestamp_ms)
        if known.id == TIMERS:
            self.timers_delivered.update(topics)
        return len(due_ms)

    def why_not(self, head: Head) -> str:
        """Why a scheduled record cannot be delivered; empty if it can."""
        properties = PropertyString(head.properties)
        target = destination(properties)
        return why_undeliverable(head, properties, target, self._topics, self.room)

    # ---- a slice

    def _deliver(self, known: WaitQueue, now_ms: int, count: int) -> int:
        """Deliver the first due messages; how many."""
        try:
            places = self._due(known, now_ms, count)
            # A damaged body is delivered with its old CRC: a pull checks it and reports it.
            records = self._store.read_records([at.entry for at in places], check_bodies=False)
        except StoreUnavailable as error:
            self._rest(known, error, now_ms)
            return 0
        if known.failures:
            known.failures = 0
            log.info("wait queue can be read again %s", _named(known.id))
        pairs = zip(places, records, strict=True)
        ready = self._with_few_new_queues([self._completing(*pair, now_ms) for pair in pairs])
        if ready:
            written = self.complete(ready)
            self._count(known, ready, written[0].store_timestamp_ms)
        return len(ready)

    def _due(self, known: WaitQueue, now_ms: int, count: int) -> list[PendingPlace]:
        """The first due messages, in due order; those before an entry that cannot be read."""
        found: list[PendingPlace] = []
        size = 0
        try:
            for place in islice(known.due(now_ms), count):
                size += place.entry.size
                if found and size > DELIVER_BYTES_MAX:
                    break
                found.append(place)
        except StoreUnavailable:
            if not found:
                raise
        return found

    def _completing(self, place: PendingPlace, waited: Record | None, now_ms: int) -> Ready:
        if waited is None:
            reason, topic, host = UNREADABLE, "", _STORE_HOST
        else:
            head, properties = waited.head, waited.properties
            target = destination(properties)
            reason = why_undeliverable(head, properties, target, self._topics, self.room)
            if target is not None and not reason:
                record = derived(waited, *target, properties=properties, completes=waited.end)
                return Ready(place, target[0], record, "")
            topic, host = target[0] if target else "", waited.head.store_host
        self._topics.ensure(UNDELIVERABLE_TOPIC, 1)
        record = dead_letter(place.wait_queue, place.entry, waited, reason, now_ms, host, self.room)
        return Ready(place, topic, record, reason)

    def _with_few_new_queues(self, ready: list[Ready]) -> list[Ready]:
        """The first messages, up to those that make NEW_QUEUES_MAX queues; the rest comes later."""
        queues: set[tuple[str, int]] = set()
        new = 0
        for count, (_, _, record, _) in enumerate(ready):
            key = (record.topic, record.queue_id)
            if key in queues:
                continue
            queues.add(key)
            if self._store.queue(*key) is None:
                if new == NEW_QUEUES_MAX:
                    return ready[:count]
                new += 1
        return ready

    def _note_completed(
        self,
        known: WaitQueue,
        queue_offsets: Sequence[int],
        due_ms: Sequence[int],
        topics: Mapping[str, int],
    ) -> None:
        for start, end in runs_of(queue_offsets):
            known.completed.add(start, end)
        self._store.progress.complete(known.id, start, end, topics)
        known.advance(due_ms, queue_offsets)

    def _count(self, known: WaitQueue, ready: Sequence[Ready], written_ms: int) -> None:
        late = Counter[int]()
        for place, topic, _, reason in ready:
            if not reason:
                late[place.due_ms] += 1
                if known.id == TIMERS:
                    self.timers_delivered[topic] += 1
                continue
            self.undeliverable += 1
            log.error(
                "scheduled message cannot be delivered, it is a dead letter in %s now %s"
                " physical_offset=%d reason=%s",
                UNDELIVERABLE_TOPIC,
                _named(known.id),
                place.entry.physical_offset,
                reason,
            )
        self._count_late(known, late, written_ms)

    def _count_late(self, known: WaitQueue, due_ms: Counter[int], written_ms: int) -> None:
        """due_ms: how many of the messages delivered were due at each time."""
        self.delivered += due_ms.total()
        for each_ms, count in due_ms.items():
            known.lateness.add(written_ms - each_ms, count)
        self._late_log.note(_named(known.id), due_ms, written_ms, known.next_due_ms())

    def _rest(self, known: WaitQueue, error: StoreUnavailable, now_ms: int) -> None:
        known.failures += 1
        rest_ms = min(REST_MS << (known.failures - 1), REST_MS_MAX)
        known.rests_until_ms = now_ms + rest_ms
        if known.failures == 1:
            name = _named(known.id)
            log.error("wait queue cannot be read, will be tried again %s error=%s", name, error)


def _next_ms(known: WaitQueue) -> int | None:
    """When a wait queue has something to deliver and can be read."""
    due_ms = known.next_due_ms()
    return None if due_ms is None else max(due_ms, known.rests_until_ms)


def _named(wait_queue: int) -> str:
    """A wait queue as a line of the log names it."""
    return "wait_queue=timers" if wait_queue == TIMERS else f"level={wait_queue}"


class LateLog:
    """Late deliveries since the last line."""

    def __init__(self) -> None:
        self._messages = 0
        self._latest_ms = 0
        self._names: set[str] = set()
        """The wait queues of these messages."""
        self._behind: set[str] = set()
        """Those whose next message is late, too."""
        self._logged_at_ms = -_BETWEEN_LINES_MS

    def note(
        self, name: str, due_ms: Mapping[int, int], written_ms: int, next_due_ms: int | None
    ) -> None:
        """A slice was delivered.  name: the wait queue.  due_ms: how many messages by due time.

        next_due_ms: when its next message is due; None if none waits.
        """
        if written_ms - min(due_ms, default=written_ms) >= LATE_MS:
            self._names.add(name)
            for each_ms, count in due_ms.items():
                if written_ms - each_ms >= LATE_MS:
                    self._messages += count
                    self._latest_ms = max(self._latest_ms, written_ms - each_ms)
        if not self._messages:
            return
        if next_due_ms is not None and next_due_ms <= written_ms - LATE_MS:
            self._behind.add(name)
        else:
            self._behind.discard(name)
        if not self._behind and written_ms - self._logged_at_ms >= _BETWEEN_LINES_MS:
            log.warning(
                "deliveries were late %s messages=%d latest_ms=%d",
                name if self._names == {name} else f"wait_queues={len(self._names)}",
                self._messages,
                self._latest_ms,
            )
            self._messages = self._latest_ms = 0
            self._names.clear()
            self._logged_at_ms = written_ms


class Pace:
    """Limits a rate: at most so many messages within any second.

    A second is divided into shares, so that messages are spread over it: within a span of time, at
    most one share may be done.  A span is a little shorter than its part of the second, so a caller
    that comes a few milliseconds late still reaches the rate.  A caller below the rate never waits.
    """

    def __init__(self, rate_max: int) -> None:
        """rate_max: messages per second; 0 means unlimited."""
        self.rate_max = rate_max
        self._share = -(-rate_max // SHARES)
        self._span_ms = int(_SHORTER * _SECOND_MS * self._share / rate_max) if rate_max else 0
        self._done: deque[tuple[int, int]] = deque()
        """(time, number of messages) of the last second."""
        self._in_second = 0

    def free(self, now_ms: int, wanted: int) -> int:
        """How many of the wanted messages may be done now."""
        if not self.rate_max:
            return wanted
        while self._done and self._done[0][0] <= now_ms - _SECOND_MS:
            self._in_second -= self._done.popleft()[1]
        left = self.rate_max - self._in_second
        return max(0, min(wanted, left, self._share - self._in_span(now_ms)))

    def take(self, now_ms: int, count: int) -> None:
        """Count messages that were done at now_ms."""
        if self.rate_max and count:
            self._done.append((now_ms, count))
            self._in_second += count

    def free_at_ms(self, now_ms: int) -> int:
        """When there is room again; valid only after free() returned 0."""
        if self._in_second >= self.rate_max:
            return self._done[0][0] + _SECOND_MS
        return self._span_ms + min(at for at, _ in self._done if at > now_ms - self._span_ms)

    def _in_span(self, now_ms: int) -> int:
        """How many were done in the span that ends now."""
        count = 0
        for at_ms, done in reversed(self._done):
            if at_ms <= now_ms - self._span_ms:
                break
            count += done
        return count


class PackedSlices:
    """Finds the next slice, and packs it if it is an ordinary one."""

    def __init__(self, parts: BrokerParts) -> None:
        self._store = parts.store
        self._topics = parts.topics
        self._room = parts.room

    def next(self, known: WaitQueue, now_ms: int, most: Most) -> PackedSlice | None:
        """The first due messages of a wait queue; None: the plain form's work."""
        if known.failures:
            return None
        try:
            offsets = known.first_due(now_ms, most.messages)
            return self._packed(known, offsets, now_ms, most) if offsets else None
        except StoreUnavailable:
            # The plain form meets the error again, and lets the queue rest.
            return None

    def _packed(
        self, known: WaitQueue, offsets: Sequence[int], now_ms: int, most: Most
    ) -> PackedSlice | None:
        raw = known.queue.entries_at(offsets)
        reads = log_reads(
            raw,
            # The schedule delivers whatever it has appended, synced or not.
            INT64_MAX,
            now_ms,
            len(offsets),
            most.record_bytes,
            READ_GAP_BYTES_MAX,
            READ_BYTES_MAX,
        )
        if not reads:
            return None
        count = sum([each[2] for each in reads])
        raw = raw[: ENTRY_BYTES * count]
        data = self._store.read_each([(begin, end - begin) for begin, end, _ in reads])
        topic, queue_id = queue_of(known.id)
        found = pack_deliveries(
            [(begin, part, each) for (begin, _, each), part in zip(reads, data, strict=True)],
            raw,
            topic.encode(),
            queue_id,
            known.id,
        )
        if found is None or not all(map(self._is_ordinary, found[1])):
            return None
        records, targets = found
        queues = [target[:2] for target in targets]
        if sum([self._store.queue(*key) is None for key in queues]) > NEW_QUEUES_MAX:
            return None
        topics = Counter[str]()
        for target in targets:
            topics[target[0]] += target[2]
        packed_bytes: PackedBytes = records
        packed = Packed(*packed_bytes, queues)
        return PackedSlice(known, offsets[:count], codes_in(raw), topics, packed)

    def _is_ordinary(self, target: Target) -> bool:
        """Can the messages to a queue be delivered there?"""
        topic, queue_id, _, body_bytes, record_bytes = target
        return (
            topic not in WAIT_TOPICS
            and self._room.surely_holds(record_bytes)
            and not self._topics.why_not_to((topic, queue_id), body_bytes)
        )

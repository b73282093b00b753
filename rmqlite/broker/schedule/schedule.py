"""Delivers due messages, and returns when to call again.

Due messages are delivered in slices, the earliest first across all wait queues.  A delivered
record points back to the end of the scheduled one, so after a crash the log itself shows which
messages were delivered.  A wait queue whose files cannot be read rests for a while and holds up
no other.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.broker.appending import Appending
from rmqlite.broker.histogram import Durations
from rmqlite.broker.room import Room
from rmqlite.broker.schedule.pace import Pace
from rmqlite.broker.schedule.packed_slice import Most, PackedSlice, PackedSlices
from rmqlite.broker.schedule.undeliverable import dead_letter, why_undeliverable
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.broker.waits.wait_queue import PendingPlace, WaitQueue
from rmqlite.broker.waits.wait_queues import WaitQueues
from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.errors import StoreUnavailable
from rmqlite.limits import NEW_QUEUES_MAX
from rmqlite.message import pack_host
from rmqlite.property_string import PropertyString
from rmqlite.requests.letters import UNREADABLE
from rmqlite.store.consume_queue import codes_in
from rmqlite.store.message_store import MessageStore
from rmqlite.store.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.store.records.drafts import derived
from rmqlite.store.records.record import Head, NewRecord, destination
from rmqlite.store.records.stored import Record
from rmqlite.store.records.written import Written

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


class Schedule:
    """Delivers the messages of all wait queues of a store."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        topics: TopicTable,
        wait_queues: WaitQueues,
        appending: Appending,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._topics = topics
        self.room = Room(store.log_file_bytes, config.max_message_bytes)
        self._wait_queues = wait_queues
        self._appending = appending
        self._packed = PackedSlices(config, store, topics, self.room)
        self._pace = Pace(config.deliver_rate_max)
        self.delivered = 0
        """The number of due messages delivered since the start."""
        self.undeliverable = 0
        self.appends = Durations()

    def deliver(self, count_max: int) -> int | None:
        """Deliver up to count_max due messages; returns when to call again, None if none waits.

        Raises StoreUnavailable: then no message of the slice is delivered, and the next call
        begins with the same messages.
        """
        for known in self._wait_queues:
            known.skip_removed()
        now_ms = self._clock.now_ms()
        due_ms = self._wait_queues.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return due_ms
        count = self._pace.free(now_ms, count_max)
        if not count:
            return self._pace.free_at_ms(now_ms)
        most = Most(count, DELIVER_BYTES_MAX)
        packed = self._packed.next(self._due_queues(now_ms), now_ms, most)
        if packed is None:
            ready = self._with_few_new_queues(self._ready(self._due(now_ms, count), now_ms))
            count = len(ready)
            if ready:
                written = self.complete(ready)
                self._count(ready, written[0].store_timestamp_ms)
        else:
            count = self._complete_packed(packed)
        # Counted from the append's end: even a slow append must not bring two shares together.
        self._pace.take(self._clock.now_ms(), count)
        return self._wait_queues.next_due_ms()

    def complete(self, ready: Sequence[Ready]) -> list[Written]:
        """Append the records that complete pending messages, and advance their wait queues.

        Raises StoreUnavailable: then nothing has changed.
        """
        # Append before the cursors move: a crash in between is found again in the log.
        written = self._appending.append([each.record for each in ready], self.appends)
        self._note_completed(ready)
        return written

    def _complete_packed(self, ready: PackedSlice) -> int:
        """complete() and _count() for a packed slice; the number of its messages."""
        known, first, due_ms, topics, packed = ready
        # Append before the cursor moves, as in complete().
        self._appending.append_packed(packed, self.appends)
        messages = due_ms.total()
        self._store.progress.complete(known.id, first, first + messages, topics)
        dues = codes_in(known.queue.bytes_at(first, messages))
        known.advance(zip(dues, range(first, first + messages), strict=True))
        self.delivered += messages
        for each_ms, count in due_ms.items():
            known.lateness.add(self._store.newest_timestamp_ms - each_ms, count)
        return messages

    def why_not(self, head: Head) -> str:
        """Why a scheduled record cannot be delivered; empty if it can."""
        properties = PropertyString(head.properties)
        target = destination(properties)
        return why_undeliverable(head, properties, target, self._topics, self._config, self.room)

    # ---- a slice

    def _due(self, now_ms: int, count: int) -> list[PendingPlace]:
        """The first due messages, in due order."""
        found: list[PendingPlace] = []
        size = 0
        for place in islice(self._all_due(now_ms), count):
            size += place.entry.size
            if found and size > DELIVER_BYTES_MAX:
                break
            found.append(place)
        return found

    def _all_due(self, now_ms: int) -> Iterable[PendingPlace]:
        queues = [self._due_in(known, now_ms) for known in self._due_queues(now_ms)]
        return queues[0] if len(queues) == 1 else merge(*queues)

    def _due_queues(self, now_ms: int) -> list[WaitQueue]:
        """The wait queues that have due messages."""
        return [
            known
            for known in self._wait_queues
            if known.rests_until_ms <= now_ms and (known.next_due_ms() or 0) <= now_ms
        ]

    def _due_in(self, known: WaitQueue, now_ms: int) -> Iterator[PendingPlace]:
        try:
            yield from known.due(now_ms)
        except StoreUnavailable as error:
            self._rest(known, error, now_ms)

    def _ready(self, places: Iterable[PendingPlace], now_ms: int) -> list[Ready]:
        """The records that complete these messages; queues that cannot be read are left out."""
        by_queue = defaultdict[int, list[PendingPlace]](list)
        for place in places:
            by_queue[place.wait_queue].append(place)
        found: list[list[Ready]] = []
        for number, mine in by_queue.items():
            known = self._wait_queues[number]
            try:
                # A damaged body is delivered with its old CRC: a pull checks it and reports it.
                entries = [place.entry for place in mine]
                records = self._store.read_records(entries, check_bodies=False)
            except StoreUnavailable as error:
                self._rest(known, error, now_ms)
                continue
            if known.failures:
                known.failures = 0
                log.info("level can be read again level=%d", number)
            found.append(
                [self._completing(*each, now_ms) for each in zip(mine, records, strict=True)]
            )
        return found[0] if len(found) == 1 else list(merge(*found))

    def _completing(self, place: PendingPlace, waited: Record | None, now_ms: int) -> Ready:
        if waited is None:
            reason, topic, host = UNREADABLE, "", _STORE_HOST
        else:
            head, properties = waited.head, waited.properties
            target = destination(properties)
            reason = why_undeliverable(
                head, properties, target, self._topics, self._config, self.room
            )
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

    def _note_completed(self, ready: Sequence[Ready]) -> None:
        progress = self._store.progress
        by_queue = defaultdict[int, list[Ready]](list)
        for each in ready:
            by_queue[each.place.wait_queue].append(each)
        for number, mine in by_queue.items():
            # Complete neighbours in the queue at once: nearly always these are all messages.
            start, end, topics = mine[0].place.queue_offset, -1, Counter[str]()
            for (_, _, queue_offset, _), topic, _, _ in mine:
                if queue_offset != end and topics:
                    progress.complete(number, start, end, topics)
                    start, topics = queue_offset, Counter[str]()
                end = queue_offset + 1
                topics[topic] += 1
            progress.complete(number, start, end, topics)
        for number, mine in by_queue.items():
            ended = [(each.place.due_ms, each.place.queue_offset) for each in mine]
            self._wait_queues[number].advance(ended)

    def _count(self, ready: Sequence[Ready], written_ms: int) -> None:
        late = Counter[tuple[int, int]]()
        for place, _, _, reason in ready:
            if not reason:
                late[place.wait_queue, place.due_ms] += 1
                continue
            self.undeliverable += 1
            log.error(
                "scheduled message cannot be delivered, it is a dead letter in %s now level=%d"
                " physical_offset=%d reason=%s",
                UNDELIVERABLE_TOPIC,
                place.wait_queue,
                place.entry.physical_offset,
                reason,
            )
        for (number, due_ms), count in late.items():
            self.delivered += count
            self._wait_queues[number].lateness.add(written_ms - due_ms, count)

    def _rest(self, known: WaitQueue, error: StoreUnavailable, now_ms: int) -> None:
        known.failures += 1
        rest_ms = min(REST_MS << (known.failures - 1), REST_MS_MAX)
        known.rests_until_ms = now_ms + rest_ms
        if known.failures == 1:
            log.error(
                "level cannot be read, will be tried again level=%d error=%s", known.id, error
            )

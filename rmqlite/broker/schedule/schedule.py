"""Deliver what is due, say when to come back.

Whatever is due leaves in slices, the earliest first across all levels.  A delivered record
points back to the end of the scheduled one, so after a crash the log itself says what was
delivered.  A level whose files cannot be read rests for a while and holds up no other.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.broker.histogram import Durations
from rmqlite.broker.room import Room
from rmqlite.broker.schedule.lateness import Lateness
from rmqlite.broker.schedule.level_queue import LevelQueue, PendingPlace, Run
from rmqlite.broker.schedule.pace import Pace
from rmqlite.broker.schedule.undeliverable import dead_letter, why_undeliverable
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.clock import Clock, elapsed_s
from rmqlite.config import BrokerConfig
from rmqlite.errors import StoreUnavailable
from rmqlite.message import pack_host
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.requests.letters import UNREADABLE
from rmqlite.requests.status import LevelStatus
from rmqlite.store.commit_log import Walked, Written
from rmqlite.store.completion import UNDELIVERABLE_TOPIC, topic_ahead
from rmqlite.store.consume_queue import Entry
from rmqlite.store.message_store import MessageStore
from rmqlite.store.record import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    Head,
    NewRecord,
    destination,
    tags_code,
)

DELIVER_BYTES_MAX: Final = 4 << 20
"""One slice of a delivery takes at most this much of the log, or one record."""
REST_MS: Final = 1_000
"""How long a level rests whose files cannot be read; twice as long each time."""
REST_MS_MAX: Final = 8_000
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
_STORE_HOST: Final = pack_host("127.0.0.1:0")
"""Of a dead letter whose record nobody can read."""
Appended = Callable[[str, int], None]

log = logging.getLogger(__name__)


class Ready(NamedTuple):
    """A pending message and the record that completes it; reason: why it is a dead letter."""

    place: PendingPlace
    topic: str
    """Where it was to be delivered; "" if that is not known."""
    record: NewRecord
    reason: str


class Schedule:
    """All levels of a store, those that only older tables had included."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, clock: Clock, topics: TopicTable
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._topics = topics
        self.room = Room(store.log_file_bytes, config.max_message_bytes)
        self._levels: dict[int, LevelQueue] = {}
        self._pace = Pace(config.deliver_rate_max)
        self.delivered = 0
        """Messages that were due, since the start."""
        self.undeliverable = 0
        self.appends = Durations()
        for topic, queue_id in store.queue_keys():
            if topic == SCHEDULE_TOPIC:
                self._level(queue_id + 1)

    def levels(self) -> list[int]:
        """Every level that has or had messages, and every one of the current table."""
        return sorted({*self._levels, *range(1, self._store.levels.current.max_level + 1)})

    def queues(self) -> list[LevelQueue]:
        """Of every level that has or had messages."""
        return [self._levels[level] for level in sorted(self._levels)]

    def next_due_ms(self, level: int | None = None) -> int | None:
        """When the earliest message is due, of a level or of all; None when none waits."""
        if level is not None:
            known = self._levels.get(level)
            return known.next_due_ms() if known else None
        times = []
        for known in self._levels.values():
            due_ms = known.next_due_ms()
            if due_ms is not None:
                times.append(max(due_ms, known.rests_until_ms))
        return min(times, default=None)

    def notice(self, level: int, queue_offset: int, due_ms: int, count: int = 1) -> bool:
        """Messages were scheduled, one behind the other; True when they are its earliest."""
        known = self._levels.get(level)
        if known is None:
            self._level(level)
            return True
        earliest_ms = known.next_due_ms()
        known.notice(queue_offset, due_ms, count)
        return earliest_ms is None or due_ms < earliest_ms

    def deliver(self, count_max: int, appended: Appended) -> int | None:
        """Deliver up to count_max messages that are due; when the next one is, or None.

        appended is told each topic and queue id.  Raises StoreUnavailable: nothing of the
        slice is delivered, and the next call begins with it.
        """
        for known in self._levels.values():
            known.skip_removed()
        now_ms = self._clock.now_ms()
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return due_ms
        count = self._pace.free(now_ms, count_max)
        if not count:
            return self._pace.free_at_ms(now_ms)
        ready = self._ready(self._due(now_ms, count), now_ms)
        if ready:
            written = self.complete(ready, appended)
            self._count(ready, written[0].store_timestamp_ms)
            # As of the append's end: the time it took must bring no two shares together.
            self._pace.take(self._clock.now_ms(), len(ready))
        return self.next_due_ms()

    def complete(self, ready: Sequence[Ready], appended: Appended) -> list[Written]:
        """Append what ends the wait of pending messages, and let their levels go on.

        Raises StoreUnavailable: then nothing has changed.
        """
        records = [each.record for each in ready]
        # Append before the cursors move: a crash in between is found again in the log.
        began_s = elapsed_s()
        written = self._store.append(records)
        self.appends.add(elapsed_s() - began_s)
        self._note_completed(ready)
        for topic, queue_id in {(record.topic, record.queue_id) for record in records}:
            if topic != SCHEDULE_TOPIC:
                appended(topic, queue_id)
        return written

    def status(self) -> list[LevelStatus]:
        """What waits in every level, and how late each delivered."""
        return [self._status(level) for level in self.levels()]

    def lateness(self, level: int) -> Lateness:
        """How late a level delivered since the broker started."""
        known = self._levels.get(level)
        return known.lateness if known else Lateness()

    def oldest_pending(self) -> tuple[int, Entry] | None:
        """Level and entry of the scheduled record that lies first in the log, of those that
        are still to be delivered."""
        pending = []
        for level, known in self._levels.items():
            entry = known.queue.entry(known.completed.below)
            if entry is not None:
                pending.append((level, entry))
        return min(pending, key=lambda each: each[1].physical_offset, default=None)

    def why_not(self, head: Head) -> str:
        """Why a scheduled record cannot be delivered; empty if it can."""
        target = destination(head.properties)
        return why_undeliverable(head, target, self._topics, self._config, self.room)

    # ---- a slice

    def _due(self, now_ms: int, count: int) -> list[PendingPlace]:
        """The first that are due, in due order."""
        found: list[PendingPlace] = []
        size = 0
        for place in islice(self._all_due(now_ms), count):
            size += place.entry.size
            if found and size > DELIVER_BYTES_MAX:
                break
            found.append(place)
        return found

    def _all_due(self, now_ms: int) -> Iterable[PendingPlace]:
        runs = [
            self._due_in(known, run, now_ms)
            for known in self._levels.values()
            if known.rests_until_ms <= now_ms
            for run in known.runs
            if run.head_due_ms <= now_ms
        ]
        return runs[0] if len(runs) == 1 else merge(*runs)

    def _due_in(self, known: LevelQueue, run: Run, now_ms: int) -> Iterator[PendingPlace]:
        try:
            for place in known.places(run, run.cursor):
                if place.due_ms > now_ms:
                    return
                yield place
        except StoreUnavailable as error:
            self._rest(known, error, now_ms)

    def _ready(self, places: Iterable[PendingPlace], now_ms: int) -> list[Ready]:
        """The records that complete these, without those of levels that cannot be read."""
        by_level = defaultdict[int, list[PendingPlace]](list)
        for place in places:
            by_level[place.level].append(place)
        found: list[list[Ready]] = []
        for level, mine in by_level.items():
            known = self._levels[level]
            try:
                # A body keeps its CRC, and who pulls it looks at it: a damaged one is no reason
                # to stop.
                entries = [place.entry for place in mine]
                records = self._store.read_records(entries, check_bodies=False)
            except StoreUnavailable as error:
                self._rest(known, error, now_ms)
                continue
            if known.failures:
                known.failures = 0
                log.info("level can be read again level=%d", level)
            found.append(
                [self._completing(*each, now_ms) for each in zip(mine, records, strict=True)]
            )
        return found[0] if len(found) == 1 else list(merge(*found))

    def _completing(self, place: PendingPlace, walked: Walked | None, now_ms: int) -> Ready:
        if walked is None:
            reason, topic, host = UNREADABLE, "", _STORE_HOST
        else:
            head = walked.head
            target = destination(head.properties)
            reason = why_undeliverable(head, target, self._topics, self._config, self.room)
            if target is not None and not reason:
                return Ready(place, target[0], restored(walked, *target), "")
            topic, host = topic_ahead(head.properties), head.store_host
        self._topics.ensure(UNDELIVERABLE_TOPIC, 1)
        record = dead_letter(place.level, place.entry, walked, reason, now_ms, host, self.room)
        return Ready(place, topic, record, reason)

    def _note_completed(self, ready: Sequence[Ready]) -> None:
        progress = self._store.progress
        by_level = defaultdict[int, list[Ready]](list)
        for each in ready:
            by_level[each.place.level].append(each)
        for level, mine in by_level.items():
            # Neighbours in the queue at once: nearly always that is all of them.
            start, end, topics = mine[0].place.queue_offset, -1, Counter[str]()
            for (_, _, queue_offset, _), topic, _, _ in mine:
                if queue_offset != end and topics:
                    progress.complete(level, start, end, topics)
                    start, topics = queue_offset, Counter[str]()
                end = queue_offset + 1
                topics[topic] += 1
            progress.complete(level, start, end, topics)
        for level in by_level:
            self._levels[level].advance()

    def _count(self, ready: Sequence[Ready], written_ms: int) -> None:
        late = Counter[tuple[int, int]]()
        for place, _, _, reason in ready:
            if not reason:
                late[place.level, place.due_ms] += 1
                continue
            self.undeliverable += 1
            log.error(
                "scheduled message cannot be delivered, it is a dead letter in %s now level=%d"
                " physical_offset=%d reason=%s",
                UNDELIVERABLE_TOPIC,
                place.level,
                place.entry.physical_offset,
                reason,
            )
        for (level, due_ms), count in late.items():
            self.delivered += count
            self._levels[level].lateness.add(written_ms - due_ms, count)

    def _rest(self, known: LevelQueue, error: StoreUnavailable, now_ms: int) -> None:
        known.failures += 1
        rest_ms = min(REST_MS << (known.failures - 1), REST_MS_MAX)
        known.rests_until_ms = now_ms + rest_ms
        if known.failures == 1:
            log.error(
                "level cannot be read, will be tried again level=%d error=%s", known.level, error
            )

    def _level(self, level: int) -> LevelQueue:
        known = self._levels.get(level)
        if known is None:
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            assert queue is not None, "a level is made when its queue has its first message"
            known = LevelQueue(level, queue, self._store.progress.level(level))
            self._levels[level] = known
        return known

    def _status(self, level: int) -> LevelStatus:
        table = self._store.levels.current
        delay = table.name(level) if level <= table.max_level else ""
        known = self._levels.get(level)
        if known is None:
            return LevelStatus(level, delay, 0, 0, 0, 0, 0, 0)
        late = known.lateness
        return LevelStatus(
            level,
            delay,
            known.pending,
            known.next_due_ms() or 0,
            late.count,
            late.quantile_ms(0.5),
            late.quantile_ms(0.99),
            late.max_ms,
        )


def restored(walked: Walked, topic: str, queue_id: int) -> NewRecord:
    """A scheduled record as it goes on from there: only header, topic, queue change."""
    head, data = walked
    return NewRecord(
        topic,
        queue_id,
        head.properties,
        data[head.body_position : head.body_end],
        head.body_crc,
        head.flag,
        head.sys_flag & ~_HOST_BITS,
        head.born_timestamp_ms,
        head.born_host,
        head.store_host,
        head.reconsume_times,
        head.physical_offset + head.size,
        tags_code(head.properties),
    )

"""The log as raw bytes, for clients that decode in bulk: a snapshot, any range, any queue.

Only durable bytes are returned.  Every call runs in steps of a few milliseconds, and other
calls may run between them; bytes that retention removes meanwhile are left out, and the next
call for them raises OffsetGone.  A queue can be read as long as the store has it, even if the
table of topics lacks it.  A queue that begins anew begins at 0; offsets of the old one are
then beyond its end.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from rmqlite.features.raw_log.requests import (
    READ_BYTES_DEFAULT,
    READ_BYTES_MAX,
    TOPICS_MAX,
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import end_before
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.requests.topics import Queue, QueueRange
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.waits.wait_queues import LevelChanges
from rmqlite.kernel.words.errors import (
    InvalidValue,
    OffsetGone,
    QueueUnknown,
    StoreDamaged,
    TopicUnknown,
)

STEP_BYTES: Final = 256 << 10
STEP_ENTRIES: Final = 2_000
STEP_QUEUES: Final = 200
STEP_KEYS: Final = 2_000


class RawReading:
    """Reads one broker's store."""

    def __init__(self, parts: BrokerParts, levels: LevelChanges) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._levels = levels
        self._clock = parts.clock
        self._readable_end = parts.readable_end

    def snapshot(self, request: LogSnapshotRequest) -> Steps[LogSnapshot]:
        """The present ranges of log and queues.  Raises TopicUnknown, InvalidValue."""
        if len(request.topics) > TOPICS_MAX:
            raise InvalidValue("topics", len(request.topics), f"at most {TOPICS_MAX} of them")
        end = self._readable_end()
        ranges = []
        newest = -1
        keys, wanted = yield from self._queues_of(request.topics)
        for number, key in enumerate(keys, 1):
            queue = Queue(*key)
            found = self._store.queue(queue.topic, queue.queue_id)
            upto = end_before(found, end) if found else 0
            last = found.entry(upto - 1) if found else None
            if last is not None:
                newest = max(newest, last.physical_offset)
            if queue.topic in wanted:
                stored_ms = self._stored_ms(last.physical_offset) if last else 0
                begin = min(found.min_offset, upto) if found else 0
                ranges.append(QueueRange(queue, begin, upto, stored_ms))
            if number % STEP_QUEUES == 0:
                yield
        return LogSnapshot(
            self._store.min_offset,
            max(end, self._store.min_offset),
            self._store.log_file_bytes,
            self._clock.now_ms(),
            self._stored_ms(newest) if newest >= 0 else 0,
            self._config.broker_name,
            self._levels.in_force().tables,
            tuple(ranges),
            self._store.deletions.topics.with_records_after(self._store.min_offset),
        )

    def read_log(self, request: LogReadRequest) -> Steps[LogRead]:
        """Bytes of the log, up to the end of a log file.  Raises OffsetGone, InvalidValue."""
        limit = _limit(request.max_bytes)
        begin, readable = request.begin_offset, self._readable_end()
        if 0 <= begin < self._store.min_offset:
            raise OffsetGone("the commit log", begin, self._store.min_offset)
        _check_range("offset", begin, request.end_offset, readable)
        segment_bytes = self._store.log_file_bytes
        file_end = begin - begin % segment_bytes + segment_bytes
        asked = readable if request.end_offset is None else request.end_offset
        end = min(readable, asked, file_end, begin + limit)
        parts = []
        at = begin
        while at < end and self._store.min_offset <= begin:
            data = self._store.read(at, min(STEP_BYTES, end - at))
            if not data:
                raise StoreDamaged("commitlog", at, "bytes that were synced", "none")
            parts.append(data)
            at += len(data)
            yield
        return LogRead(b"".join(parts), at)

    def read_queue(self, request: QueueReadRequest) -> Steps[QueueRead]:
        """Whole records of a queue, at least one if there is one.

        Raises TopicUnknown, QueueUnknown, OffsetGone, InvalidValue, StoreDamaged.
        """
        limit = _limit(request.max_bytes)
        queue = self._queue(request.topic, request.queue_id)
        readable = end_before(queue, self._readable_end()) if queue else 0
        least = queue.min_offset if queue else 0
        at = request.begin_queue_offset
        if 0 <= at < least:
            what = f"queue {request.queue_id} of topic {request.topic!r}"
            raise OffsetGone(what, at, least)
        _check_range("queue_offset", at, request.end_queue_offset, readable)
        end = readable if request.end_queue_offset is None else request.end_queue_offset
        end = min(end, readable)
        parts: list[bytes] = []
        total = 0
        # Ask anew in each step: retention may remove the rest of a queue between two steps.
        while queue is not None and queue.min_offset <= at < end and (not parts or total < limit):
            room = min(STEP_BYTES, limit - total)
            entries = _fitting(queue.read(at, min(STEP_ENTRIES, end - at)), room, total == 0)
            if not entries:
                break
            parts.append(self._store.read_raw(entries))
            total += sum([entry.size for entry in entries])
            at += len(entries)
            yield
        return QueueRead(b"".join(parts), at)

    def _queues_of(self, topics: Sequence[str]) -> Steps[tuple[list[QueueKey], Set[str]]]:
        """All queues of the store and of these topics, sorted; and the topics.

        No topics means all, including those that only the store has.
        """
        queue_ids: dict[str, set[int]] = {}
        for number, (topic, queue_id) in enumerate(tuple(self._store.queue_keys()), 1):
            queue_ids.setdefault(topic, set()).add(queue_id)
            if number % STEP_KEYS == 0:
                yield
        for topic in topics:
            if topic not in queue_ids and self._topics.get(topic) is None:
                raise TopicUnknown(topic)
        infos = self._topics.all()
        yield
        wanted = set(topics) or queue_ids.keys() | {info.topic for info in infos}
        for number, info in enumerate(infos, 1):
            if info.topic in wanted:
                queue_ids.setdefault(info.topic, set()).update(range(info.read_queues))
            if number % STEP_KEYS == 0:
                yield
        keys: list[QueueKey] = []
        for number, topic in enumerate(sorted(queue_ids), 1):
            keys += [(topic, queue_id) for queue_id in sorted(queue_ids[topic])]
            if number % STEP_KEYS == 0:
                yield
        return keys, wanted

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue; None if it never had a record.  Raises TopicUnknown, QueueUnknown."""
        found = self._store.queue(topic, queue_id)
        if found is None:
            info = self._topics.get(topic)
            queues = info.read_queues if info else 0
            if not info and all(key[0] != topic for key in self._store.queue_keys()):
                raise TopicUnknown(topic)
            if not 0 <= queue_id < queues:
                raise QueueUnknown(topic, queue_id, queues)
        return found

    def _stored_ms(self, physical_offset: int) -> int:
        return self._store.store_timestamp_ms(physical_offset) or 0


def _fitting(entries: Sequence[Entry], room: int, has_one: bool) -> Sequence[Entry]:
    """The first entries whose records fit into room bytes; has_one: at least one entry."""
    for count, entry in enumerate(entries):
        room -= entry.size
        if room < 0:
            return entries[: max(count, int(has_one))]
    return entries


def _check_range(field: str, begin: int, end: int | None, readable_end: int) -> None:
    if not 0 <= begin <= readable_end:
        raise InvalidValue(f"begin_{field}", begin, f"0 to {readable_end}, the present end")
    if end is not None and end < begin:
        raise InvalidValue(f"end_{field}", end, f"begin_{field}, {begin}, or more")


def _limit(max_bytes: int) -> int:
    if not 0 <= max_bytes <= READ_BYTES_MAX:
        rule = f"0 for the default, {READ_BYTES_DEFAULT}, or 1 to {READ_BYTES_MAX}"
        raise InvalidValue("max_bytes", max_bytes, rule)
    return max_bytes or READ_BYTES_DEFAULT

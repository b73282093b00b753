"""Finds the messages of a store that a filter takes, in the shortest way.

An offset message id contains its record's place.  Topics are found through their queues, as
far as these are trusted, and keys through the key index; everything else is a walk over the
log.  A range of times leaves out whole log files.  Each way gives the same messages in the
same order, that of the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.key_index import KeyIndex
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.log.raw_records import neighbours
from rmqlite.kernel.store.log.repaired_place import is_anonymous
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.store_tools.reading.message_filter import Matcher, MessageFilter
from rmqlite.store_tools.reading.queue_view import QueueView
from rmqlite.store_tools.reading.snapshot import Snapshot

ROWS_MAX: Final = 1 << 18
"""Queue entries that are sorted at a time."""
BATCH_BYTES: Final = 1 << 20
WALK_SHARE: Final = 0.7
"""If more than this share of all messages is wanted, a walk over the log costs less."""
SCANNED_BYTES: Final = 4_000
"""Bytes of the log that a text search scans in the time of one record read by its queue."""
PROBED_BYTES: Final = 10_000
"""Bytes of the log that a text search scans in the time of one record read by the index."""
PLACES_AT_ONCE: Final = 256
_ID_BYTES: Final = (16, 28)


_Row = tuple[int, int, int, int]
"""A queue entry: physical offset, size, number of its part, queue offset; in sorting order."""


class _Part(NamedTuple):
    """The entries begin <= n < end of a queue."""

    queue: QueueView
    begin: int
    end: int


class Search:
    """One search; `done` of `total`, without a unit, is its progress."""

    def __init__(
        self, snapshot: Snapshot, wanted: MessageFilter, *, skip_damaged: bool = False
    ) -> None:
        """skip_damaged: damaged places are counted and skipped; otherwise they are raised."""
        self.done = 0
        self.total = 1
        self.damaged = 0
        """The number of damaged places; a broken record is left out."""
        self.first_damage: StoreDamaged | None = None
        self.gone_before = 0
        """Files before this physical offset were removed before they were read; 0 for none."""
        self._snapshot = snapshot
        self._log = snapshot.log
        self._wanted = wanted
        self._skip_damaged = skip_damaged
        self._matcher = Matcher(wanted)
        self._chains = snapshot.chains()
        self._found: list[StoredMessage] = []
        self._newest_ms = 0

    def batches(self) -> Iterator[list[StoredMessage]]:
        """The messages in batches, some of them empty.

        Raises StoreDamaged, after all sound messages before the damage.
        """
        try:
            yield from self._find()
        except StoreDamaged:
            yield self._taken()
            raise

    # ---- the ways

    def _find(self) -> Iterator[list[StoredMessage]]:
        named = self._named_by_offset()
        if named is not None:
            yield [named]
            return
        snapshot = self._snapshot
        begin, end, damage = self._bounds()
        places = self._places(begin, end)
        parts = self._parts(begin, end) if places is None else None
        if places is not None:
            begin = max(begin, snapshot.known_end)
            self.total = 1 + len(places) + max(0, end - begin)
            yield from self._in_places(places)
        elif parts is not None:
            tail = max(begin, snapshot.known_end)
            self.total = 1 + sum(part.end - part.begin for part in parts) + max(0, end - tail)
            yield from self._in_queues(parts)
            begin = tail
        else:
            self.total = max(1, end - begin)
        if begin < end:
            yield from self._in_log(begin, end)
        if damage is not None:
            raise damage

    def _named_by_offset(self) -> StoredMessage | None:
        """The message that the filter names by its offset message id."""
        name = self._wanted.message_id.upper()
        try:
            raw = bytes.fromhex(name)
        except ValueError:
            return None
        position = int.from_bytes(raw[-8:], "big")
        if len(raw) not in _ID_BYTES or not self._snapshot.begin <= position < self._snapshot.end:
            return None
        found = self._log.sound_at(position)
        if found is None or found.head.store_host != raw[:-8]:
            return None
        return found.to_message() if self._matcher.takes(found.head, is_named=True) else None

    def _bounds(self) -> tuple[int, int, StoreDamaged | None]:
        """The physical offsets to search between, by whole files; and the damage at the end."""
        since_ms, until_ms = self._wanted.since_ms, self._wanted.until_ms
        begin, end = self._snapshot.begin, self._snapshot.end
        starts = [start for start in self._log.segments.starts if begin <= start < end]
        if since_ms is not None:
            for start in starts[1:]:
                first_ms = self._log.timestamp_at(start)
                if first_ms is None or first_ms >= since_ms:
                    break
                begin = start
        damage = self._snapshot.damage
        if until_ms is not None:
            for start in reversed(starts):
                first_ms = self._log.timestamp_at(start)
                if first_ms is None or first_ms < until_ms:
                    break
                end, damage = start, None
        if damage is not None and self._skip_damaged:
            end, damage = self._log.end_of_files, None
        return begin, end, damage

    def _places(self, begin: int, end: int) -> list[int] | None:
        """Places of records that may have the key or the id; None if the index is of no use."""
        matcher, snapshot = self._matcher, self._snapshot
        index = snapshot.key_index() if matcher.needle else None
        if index is None:
            return None
        upto = min(end, snapshot.known_end)
        topics = {topic for topic, _ in snapshot.queues if matcher.takes_record_of(topic)}
        key = self._wanted.message_id or self._wanted.key
        places = _places_of(index, topics, key, max(0, upto - begin) // PROBED_BYTES)
        return None if places is None else [each for each in places if begin <= each < upto]

    def _in_places(self, places: Sequence[int]) -> Iterator[list[StoredMessage]]:
        for place in places:
            found = self._log.head_at(place)
            if found is not None:
                self._take([found.head], found.buffer)
            elif self._log.is_gone(place):
                self._went(_next_file(place, self._log.segment_bytes))
            else:
                self._met(self._log.damage(place))
            self.done += 1
            if len(self._found) >= PLACES_AT_ONCE:
                yield self._taken()
        yield self._taken()

    def _parts(self, begin: int, end: int) -> list[_Part] | None:
        """The parts of queues to read; None if a walk over the log is shorter or safer."""
        wanted, snapshot = self._wanted, self._snapshot
        if wanted.message_id or not (wanted.topic or wanted.group or wanted.is_scheduled):
            return None
        parts = []
        for key, queue in snapshot.queues.items():
            if not self._matcher.takes_queue(key):
                continue
            low = max(queue.min_offset, wanted.from_offset or 0)
            high = queue.filed if wanted.to_offset is None else min(queue.filed, wanted.to_offset)
            if begin > snapshot.begin:
                low = max(low, queue.first_with(begin))
            if end < snapshot.known_end:
                high = min(high, queue.first_with(end))
            if low < high:
                parts.append(_Part(queue, low, high))
        entries = sum(part.end - part.begin for part in parts)
        most = sum(queue.max_offset - queue.low for queue in snapshot.queues.values())
        if self._matcher.needle:
            most = (end - begin) // SCANNED_BYTES
        return parts if entries <= most * WALK_SHARE else None

    def _in_queues(self, parts: Sequence[_Part]) -> Iterator[list[StoredMessage]]:
        size = 0
        for rows in self._rows(parts):
            for begin, end, group in neighbours(rows, self._log.segment_bytes):
                self._read(begin, end, group, parts)
                self.done += len(group)
                size += end - begin
                if size >= BATCH_BYTES:
                    yield self._taken()
                    size = 0
        yield self._taken()

    def _in_log(self, begin: int, end: int) -> Iterator[list[StoredMessage]]:
        log, done = self._log, self.done
        position: int | None = begin
        while position is not None:
            walk = LogWalk(log.segments, position, end, needle=self._matcher.needle)
            for heads, data in walk:
                if heads:
                    self._newest_ms = max(self._newest_ms, heads[-1].store_timestamp_ms)
                self._take(heads, data)
                yield self._taken()
                self.done = done + walk.position - begin
            self._went(walk.gone_before)
            position = None
            if walk.is_stuck:
                follows = log.log_end.next_sound(walk.position, self._newest_ms)
                if walk.position < self._snapshot.end or follows is not None:
                    self._met(log.damage(walk.position))
                position = follows

    # ---- the parts of a way

    def _rows(self, parts: Sequence[_Part]) -> Iterator[list[_Row]]:
        """The entries of several queues in the order of the log."""
        step = max(16, ROWS_MAX // max(1, len(parts)))
        nexts = [part.begin for part in parts]
        buffers: list[list[_Row]] = [[] for _ in parts]
        while True:
            for number, part in enumerate(parts):
                while not buffers[number] and nexts[number] < part.end:
                    upto = min(part.end, nexts[number] + step)
                    buffers[number] = self._load(number, part.queue, nexts[number], upto)
                    nexts[number] = upto
            # Rows up to the lowest of these places are complete: no part can add one between.
            unread = [
                rows[-1][0]
                for rows, part, at in zip(buffers, parts, nexts, strict=True)
                if rows and at < part.end
            ]
            if not any(buffers):
                return
            taken: list[_Row] = []
            for number, rows in enumerate(buffers):
                upto = bisect_right(rows, (min(unread) + 1,)) if unread else len(rows)
                taken += rows[:upto]
                buffers[number] = rows[upto:]
            yield sorted(taken)

    def _load(self, number: int, queue: QueueView, begin: int, end: int) -> list[_Row]:
        rows: list[_Row] = []
        place, expected = 0, begin
        for offset, data in queue.blocks(begin, end):
            if offset > expected:
                rows.append((place, 0, number, expected))
            for at, (position, size, _) in enumerate(ENTRY.iter_unpack(data), offset):
                # A missing entry sorts behind the sound ones before it, and is reported then.
                place, size = (position, size) if size > 0 else (place, 0)
                rows.append((place, size, number, at))
            expected = offset + len(data) // ENTRY_BYTES
        if expected < end:
            rows.append((place, 0, number, expected))
        return rows

    def _lacks(self, queue: QueueView, queue_offset: int) -> None:
        """Report a missing entry, or note that its file was removed with its record."""
        if queue.files.is_there(queue_offset):
            self._met(queue.damage(queue_offset, "an entry", "none"))
        else:
            self._went(self._log.begin)

    def _read(self, begin: int, end: int, rows: Sequence[_Row], parts: Sequence[_Part]) -> None:
        """Take the messages of rows that lie close together."""
        data = self._log.segments.read(begin, end - begin)
        heads: list[Head] = []
        for position, size, number, queue_offset in rows:
            key = parts[number].queue.key
            head = record.read_head(data, position - begin) if size else None
            if (
                head is not None
                and (head.physical_offset, head.size) == (position, size)
                and (
                    (head.topic, head.queue_id, head.queue_offset) == (*key, queue_offset)
                    or is_anonymous(head)
                )
            ):
                heads.append(head)
                continue
            self._take(heads, data)
            heads = []
            self._explain(parts[number].queue, queue_offset, position, size)
        self._take(heads, data)

    def _explain(self, queue: QueueView, queue_offset: int, position: int, size: int) -> None:
        """Report why an entry has not the record that it should have."""
        if not size:
            self._lacks(queue, queue_offset)
        elif self._log.is_gone(position):
            self._went(_next_file(position, self._log.segment_bytes))
        elif self._log.head_at(position) is None:
            topic, queue_id = queue.key
            self._met(self._log.damage(position, f"a record of {topic} queue {queue_id}"))
        else:
            found = f"{position}, where another record lies"
            self._met(queue.damage(queue_offset, "the place of its record", found))

    def _take(self, heads: Sequence[Head], data: bytes) -> None:
        """Keep the wanted ones of records that were read from the same bytes."""
        takes = self._matcher.takes
        wanted = [head for head in heads if takes(head)]
        while wanted:
            begin, last = wanted[0].physical_offset, wanted[-1]
            damage = self._chains.damage_in(begin, last.physical_offset + last.size)
            if damage is None:
                self._keep(wanted, data)
                return
            changed = int(Path(damage.path).name) + damage.position
            sound = [head for head in wanted if head.physical_offset + head.size <= changed]
            self._keep(sound, data)
            # This raises or counts the damage; in the second case all records are kept.
            self._met(damage)
            wanted = wanted[len(sound) :]

    def _keep(self, heads: Sequence[Head], data: bytes) -> None:
        for head in heads:
            if record.has_sound_body(head, data):
                self._found.append(record.to_message(head, data))
            else:
                expected = f"a body with CRC {head.body_crc:#010x}"
                self._met(self._log.damage(head.physical_offset, expected))

    def _taken(self) -> list[StoredMessage]:
        found, self._found = self._found, []
        return found

    def _met(self, damage: StoreDamaged) -> None:
        if not self._skip_damaged:
            raise damage
        self.damaged += 1
        self.first_damage = self.first_damage or damage

    def _went(self, physical_offset: int) -> None:
        self.gone_before = max(self.gone_before, physical_offset)


def _next_file(position: int, file_bytes: int) -> int:
    return position - position % file_bytes + file_bytes


def _places_of(index: KeyIndex, topics: Iterable[str], key: str, most: int) -> list[int] | None:
    """Physical offsets of records that may have a key, ascending; None if more than `most`."""
    found: set[int] = set()
    try:
        for topic in topics:
            found.update(islice(index.find(topic, key), most + 1 - len(found)))
            if len(found) > most:
                return None
    except (StoreUnavailable, struct.error):
        # A file was removed while we read it.
        return None
    return sorted(found)

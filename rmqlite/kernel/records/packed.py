"""Records of many messages at once, which are bytes already, but for their places.

It is the form of every append.  The compiled loops make them of new records and of drafts; and,
without an object for each message, of the body of a batch and of the log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rmqlite.kernel.compiled import KEY, ROW
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.encoding import EACH_ITS_OWN, pack_records, place
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.records.record import NewRecord, Place, Written
from rmqlite.kernel.records.wait_queues import TIMERS, QueueKey, queue_of, wait_queue_of

Chunk = bytes | bytearray
_TIMERS: Final = queue_of(TIMERS)


@dataclass
class Packed:
    """Records one behind the other; when they are appended, also where, and when they are due.

    rows: a ROW of each, which numbers its queue.  keys: a KEY for each of their keys.
    """

    data: bytearray
    rows: bytes
    keys: bytes
    queues: Sequence[QueueKey] = ()
    waiting: Mapping[QueueKey, Mapping[str, int]] = field(default_factory=dict)
    """How many wait in each wait queue, by the topic that they go to."""
    stored_ms: int = 0
    physical_offsets: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """The queue offset of the first record in each queue, and when those of the queue are due."""

    def __len__(self) -> int:
        return len(self.rows) // ROW.size

    @property
    def key_count(self) -> int:
        return len(self.keys) // KEY.size

    @cached_property
    def queue_offsets(self) -> Sequence[int]:
        if len(self.places) == 1:
            first = self.places[0][0]
            return range(first, first + len(self))
        following = [queue_offset for queue_offset, _ in self.places]
        offsets: list[int] = []
        for _, number, _ in ROW.iter_unpack(self.rows):
            offsets.append(following[number])
            following[number] += 1
        return offsets

    @cached_property
    def due_ms(self) -> Sequence[int]:
        """When each record is due: 0 for one that does not wait."""
        of_queues = [due_ms for _, due_ms in self.places]
        if not any(of_queues):
            return [0] * len(self)
        if len(of_queues) == 1 and of_queues[0] != EACH_ITS_OWN:
            return of_queues * len(self)
        return [
            code or self.stored_ms if of_queues[number] == EACH_ITS_OWN else of_queues[number]
            for _, number, code in ROW.iter_unpack(self.rows)
        ]

    def place(self, row: int) -> tuple[int, int, int]:
        """The queue offset, the physical offset and the due time of one record.

        The properties above, which are for all records, cost a single send more than its append.
        """
        queue_offset, due_ms = self.places[0]
        if len(self.places) > 1 or due_ms == EACH_ITS_OWN:
            queue_offset, due_ms = self.queue_offsets[row], self.due_ms[row]
        else:
            queue_offset += row
        return queue_offset, self.physical_offsets[row], due_ms

    def first_places(self) -> dict[QueueKey, Place]:
        """Where the first record of each queue went, and when it is due."""
        if _TIMERS not in self.queues:
            return dict(zip(self.queues, self.places, strict=True))
        first: dict[QueueKey, Place] = {}
        rows = ROW.iter_unpack(self.rows)
        for (_, number, _), *at in zip(rows, self.queue_offsets, self.due_ms, strict=True):
            first.setdefault(self.queues[number], (at[0], at[1]))
        return first

    def is_timer(self, row: int) -> bool:
        number: int = ROW.unpack_from(self.rows, row * ROW.size)[1]
        return self.queues[number] == _TIMERS

    def written(self) -> list[Written]:
        """Where each record went."""
        columns = zip(
            self.queue_offsets,
            self.physical_offsets,
            ROW.iter_unpack(self.rows),
            self.due_ms,
            strict=True,
        )
        stored_ms = self.stored_ms
        return [Written(at, position, row[0], stored_ms, due) for at, position, row, due in columns]


def packed_records(records: Sequence[NewRecord]) -> Packed:
    """New records."""
    found, queues = pack_records(records if isinstance(records, list) else [*records])
    packed = Packed(*found, queues)
    if any(wait_queue_of(*key) for key in queues):
        waiting: dict[QueueKey, Counter[str]] = defaultdict(Counter)
        for new in records:
            key = (new.topic, new.queue_id)
            if wait_queue_of(*key):
                waiting[key][topic_ahead(new.properties)] += 1
        packed.waiting = waiting
    return packed


class PackedRun:
    """Packed records on their way into the log: all that one append stores."""

    def __init__(
        self, packed: Sequence[Packed], place_of: Callable[[QueueKey], Place], stored_ms: int
    ) -> None:
        """place_of: where the next record of a queue goes, and when it is due."""
        self.packed = packed
        self.stored_ms = stored_ms
        places = {key: place_of(key) for key in {key for each in packed for key in each.queues}}
        self._next_offset = {key: queue_offset for key, (queue_offset, _) in places.items()}
        self._due_ms = {key: due_ms for key, (_, due_ms) in places.items()}
        self._number = self._byte = 0
        self.entries: defaultdict[QueueKey, list[bytes]] = defaultdict(list)
        """Parts of the bytes to write into each queue."""
        self.hashes: list[int] = []
        """Of the keys, in the order of the index."""
        self.places: list[int] = []
        """The physical offset of each key's record."""

    def __len__(self) -> int:
        return sum(map(len, self.packed))

    @property
    def is_over(self) -> bool:
        """Are all encoded?"""
        return self._number == len(self.packed)

    def encode(self, begin: int, end_max: int) -> tuple[list[Chunk], int]:
        """The next records, as chunks that the caller joins, and their end.

        It stops at the first record that would end behind end_max.
        """
        chunks: list[Chunk] = []
        for packed in self.packed[self._number :]:
            first, whole = self._byte, packed.data
            size = self._place(packed, begin, end_max)
            if size:
                chunks.append(whole if size == len(whole) else whole[first : first + size])
            begin += size
            if len(packed.physical_offsets) < len(packed):
                self._byte += size
                break
            self._number += 1
            self._byte = 0
        return chunks, begin

    def next_bytes(self) -> int:
        """The length of the next record, if not all are encoded."""
        packed = self.packed[self._number]
        size: int = ROW.unpack_from(packed.rows, len(packed.physical_offsets) * ROW.size)[0]
        return size

    def _place(self, packed: Packed, begin: int, end_max: int) -> int:
        """Write places into the next records; how many bytes these have."""
        following = self._next_offset
        if not packed.places:
            packed.places = [(following[key], self._due_ms[key]) for key in packed.queues]
        size, positions, entries, hashes, places = place(
            packed.data,
            packed.rows,
            packed.keys,
            len(packed.physical_offsets),
            self._byte,
            begin,
            end_max,
            self.stored_ms,
            [(key[1], following[key], self._due_ms[key]) for key in packed.queues],
        )
        for key, mine in zip(packed.queues, entries, strict=True):
            if mine:
                self.entries[key].append(mine)
                following[key] += len(mine) // ENTRY_BYTES
        packed.stored_ms = self.stored_ms
        packed.physical_offsets += positions
        self.hashes += hashes
        self.places += places
        return size

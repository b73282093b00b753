"""Records of many messages at once, which are bytes already, but for their places.

The compiled loops make them of new records and of drafts; and, without an object for each message,
of the body of a batch and of the log.  All that is out of the ordinary is left to NewRun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqlite import compiled
from rmqlite.compiled import KEY, ROW
from rmqlite.compression import COMPRESSED
from rmqlite.limits import KEYS_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.records.drafts import DraftBatch
from rmqlite.records.encoding import Chunk
from rmqlite.records.queue_entry import ENTRY_BYTES
from rmqlite.records.record import (
    BORN_HOST_V6,
    HEAD,
    INNER_BATCH,
    MAGIC,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TRANSACTION_TYPE,
    NewRecord,
)
from rmqlite.records.wait_queues import TIMERS, QueueKey, queue_of
from rmqlite.records.written import Place, Written

_NOT_OF_CLIENTS: Final = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_TYPE
_TIMERS: Final = queue_of(TIMERS)
_ODD: Final = COMPRESSED | INNER_BATCH | NEED_UNWRAP


@dataclass(slots=True)
class Packed:
    """Records one behind the other, and where they were appended.

    rows: a ROW of each, which numbers its queue.  keys: a KEY for each of their keys.
    """

    data: bytearray
    rows: bytes
    keys: bytes
    queues: Sequence[QueueKey] = ()
    waiting: Mapping[QueueKey, Mapping[str, int]] = field(default_factory=dict)
    """How many wait in each wait queue, by the topic that they go to."""
    places: list[Place] = field(default_factory=list)
    """Of the first one in each queue."""
    physical_offsets: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows) // ROW.size

    @property
    def key_count(self) -> int:
        return len(self.keys) // KEY.size


class Limits(NamedTuple):
    """The longest body and record, in bytes."""

    body_bytes: int
    record_bytes: int


def packed_batch(
    batch: DraftBatch,
    topic: str,
    ending: bytes,
    store_host: bytes,
    prefix: int,
    limits: Limits,
    timers: tuple[int, int] = (0, 0),
) -> Packed | None:
    """The records of a batch; None if the plain form has to make them, or to refuse them.

    topic: where they are stored.  ending: the pairs that the broker adds to each message.  prefix:
    of the topic's keys.  timers: the time, and how much later a message may be due, if each waits
    for an instant of its own.
    """
    shared = batch.shared
    is_odd = shared.sys_flag & _ODD or len(shared.born_host) + len(store_host) != 16
    if is_odd or not compiled.is_on:
        return None
    head = HEAD.pack(
        0,
        MAGIC,
        0,
        0,
        0,
        0,
        0,
        shared.sys_flag & ~_NOT_OF_CLIENTS,
        shared.born_timestamp_ms,
        shared.born_host,
        0,
        store_host,
        shared.reconsume_times,
        0,
        0,
    )
    found = compiled.loops.pack_batch(
        shared.body,
        batch.spans,
        head,
        topic.encode(),
        shared.properties,
        ending,
        prefix,
        *timers,
        limits.body_bytes,
        SENT_PROPERTIES_BYTES_MAX,
        limits.record_bytes,
        KEYS_MAX,
    )
    return None if found is None else Packed(*found)


def packed_records(records: Sequence[NewRecord]) -> Packed | None:
    """New records; None if the plain form has to encode them."""
    if not compiled.is_on:
        return None
    found = compiled.loops.pack_records(records if isinstance(records, list) else [*records])
    return None if found is None else Packed(*found[0], found[1])


class PackedRun:
    """Packed records on their way into the log: all that one append stores."""

    def __init__(
        self, packed: Sequence[Packed], place: Callable[[QueueKey], Place], stored_ms: int
    ) -> None:
        """place: where the next record of a queue goes, and when it is due."""
        self.packed = packed
        self.stored_ms = stored_ms
        places = {key: place(key) for key in {key for each in packed for key in each.queues}}
        self._next_offset = {key: queue_offset for key, (queue_offset, _) in places.items()}
        self._first = dict(self._next_offset)
        self._due_ms = {key: due_ms for key, (_, due_ms) in places.items()}
        self._number = self._row = self._byte = 0
        self.entries: defaultdict[QueueKey, list[bytes]] = defaultdict(list)
        """Parts of the bytes to write into each queue."""
        self.hashes: list[int] = []
        """Of the keys, in the order of the index."""
        self.places: list[int] = []
        """The physical offset of each key's record."""

    @property
    def is_over(self) -> bool:
        return self._number == len(self.packed)

    def encode(self, begin: int, end_max: int) -> tuple[list[Chunk], int]:
        """See encoding.Run."""
        chunks: list[Chunk] = []
        for packed in self.packed[self._number :]:
            first, whole = self._byte, packed.data
            count, size = self._place(packed, begin, end_max)
            if size:
                chunks.append(whole if size == len(whole) else whole[first : first + size])
            begin += size
            if self._row + count < len(packed):
                self._row += count
                self._byte += size
                break
            self._number += 1
            self._row = self._byte = 0
        return chunks, begin

    def __len__(self) -> int:
        return sum(map(len, self.packed))

    def written(self, packed: Packed) -> list[Written]:
        """Where each record of one went; valid when all are encoded."""
        queues = [[self._first[key], self._due_ms[key]] for key in packed.queues]
        found: list[Written] = []
        rows = ROW.iter_unpack(packed.rows)
        timers = _timers_in(packed)
        for physical_offset, (size, number, code) in zip(
            packed.physical_offsets, rows, strict=True
        ):
            queue = queues[number]
            due_ms = code if number == timers else queue[1]
            found.append(Written(queue[0], physical_offset, size, self.stored_ms, due_ms))
            queue[0] += 1
        return found

    def next_bytes(self) -> int:
        """See encoding.Run."""
        size: int = ROW.unpack_from(self.packed[self._number].rows, self._row * ROW.size)[0]
        return size

    def _place(self, packed: Packed, begin: int, end_max: int) -> tuple[int, int]:
        """Write places into the next records; how many, and how many bytes."""
        following = self._next_offset
        if not packed.places:
            packed.places = [(following[key], self._due_ms[key]) for key in packed.queues]
            timers = _timers_in(packed)
            if timers is not None:
                rows = ROW.iter_unpack(packed.rows)
                due_ms = next(code for _, number, code in rows if number == timers)
                packed.places[timers] = packed.places[timers][0], due_ms
        count, size, positions, entries, hashes, places = compiled.loops.place(
            packed.data,
            packed.rows,
            packed.keys,
            self._row,
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
        packed.physical_offsets += positions
        self.hashes += hashes
        self.places += places
        return count, size


def _timers_in(packed: Packed) -> int | None:
    """The number of the timers' queue; None if no record goes there.  Its codes are due times."""
    return packed.queues.index(_TIMERS) if _TIMERS in packed.queues else None

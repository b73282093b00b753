"""A slice of due messages whose records the compiled form makes straight from the log.

Nearly always each of the due messages can be delivered.  Then no object is made for any of them,
which costs a tenth of the plain form; every other slice is left to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.encoding import PackedBytes
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES, codes_in
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, queue_of
from rmqlite.kernel.schedule.undeliverable import why_not_to
from rmqlite.kernel.store.log.raw_records import READ_BYTES_MAX, READ_GAP_BYTES_MAX, log_reads
from rmqlite.kernel.waits.wait_queue import WaitQueue
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.limits import INT64_MAX, NEW_QUEUES_MAX

pack_deliveries: Final = only_in_c("pack_deliveries")
"""(reads, entries, topic, queue_id, level) -> (PackedBytes, targets): the records that deliver
those behind the entries of a wait queue, whose topic and queue id these are.

reads: a physical offset, the log's bytes from there on, and how many of the next records lie in
them.  targets: the queues that the rows number, each a Target.
"""


class PackedSlice(NamedTuple):
    """Messages of one wait queue, and the records that deliver them."""

    known: WaitQueue
    queue_offsets: Sequence[int]
    due_ms: tuple[int, ...]
    """When each of them was due."""
    topics: Counter[str]
    """How many go to each topic."""
    packed: Packed


Target = tuple[str, int, int, int, int]
"""Topic and queue id, how many messages go there, the longest body and record in bytes."""


class Most(NamedTuple):
    """Limits of a slice; a single record may be longer."""

    messages: int
    record_bytes: int


class PackedSlices:
    """Finds the next slice, and packs it if it is an ordinary one."""

    def __init__(self, parts: BrokerParts) -> None:
        self._config = parts.config
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
            and not why_not_to((topic, queue_id), body_bytes, self._topics, self._config)
        )

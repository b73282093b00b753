"""A slice of due messages whose records the compiled form makes straight from the log.

Nearly always the due messages are neighbours in one wait queue and in the log, and each can be
delivered.  Then no object is made for any of them, which costs a tenth of the plain form; every
other slice is left to that.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from rmqlite.broker.admission import Room
from rmqlite.broker.schedule.undeliverable import why_not_to
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.broker.waits.wait_queue import WaitQueue
from rmqlite.compiled import only_in_c
from rmqlite.config import BrokerConfig
from rmqlite.errors import StoreUnavailable
from rmqlite.limits import NEW_QUEUES_MAX
from rmqlite.records.encoding import PackedBytes
from rmqlite.records.packed import Packed
from rmqlite.records.queue_entry import ENTRY_BYTES, codes_in
from rmqlite.records.wait_queues import WAIT_TOPICS, QueueKey, queue_of
from rmqlite.store.log.raw_records import READ_BYTES_MAX, READ_GAP_BYTES_MAX, log_reads
from rmqlite.store.message_store import MessageStore

pack_deliveries: Final = only_in_c("pack_deliveries")
"""(data, base, entries, topic, queue_id, level) -> (PackedBytes, targets): the records that deliver
those behind the entries of a wait queue, whose topic and queue id these are.

data: bytes of the log from the physical offset base on.  targets: the queues that the rows number,
each a Target.
"""
_ANY_END: Final = 2**63 - 1
"""The schedule delivers whatever it has appended, synced or not."""


class PackedSlice(NamedTuple):
    """Messages of one wait queue, from a queue offset on, and the records that deliver them."""

    known: WaitQueue
    queue_offset: int
    due_ms: tuple[int, ...]
    """When each of them was due."""
    topics: Counter[str]
    """How many go to each topic."""
    packed: list[Packed]


Target = tuple[str, int, int, int, int]
"""Topic and queue id, how many messages go there, the longest body and record in bytes."""


class Most(NamedTuple):
    """Limits of a slice; a single record may be longer."""

    messages: int
    record_bytes: int


class PackedSlices:
    """Finds the next slice, and packs it if it is an ordinary one."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, topics: TopicTable, room: Room
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._room = room

    def next(self, known: WaitQueue, now_ms: int, most: Most) -> PackedSlice | None:
        """The first due messages of a wait queue; None: the plain form's work."""
        if known.failures:
            return None
        try:
            front = known.front(now_ms, most.messages)
            return self._packed(known, *front, now_ms, most) if front else None
        except StoreUnavailable:
            # The plain form meets the error again, and lets the queue rest.
            return None

    def _packed(
        self, known: WaitQueue, first: int, end: int, now_ms: int, most: Most
    ) -> PackedSlice | None:
        raw = known.queue.bytes_at(first, end - first)
        reads = log_reads(
            raw,
            _ANY_END,
            now_ms,
            end - first,
            most.record_bytes,
            READ_GAP_BYTES_MAX,
            READ_BYTES_MAX,
        )
        if not reads:
            return None
        # One for each read of the log; nearly always there is one.
        packed: list[Packed] = []
        topics = Counter[str]()
        new = set[QueueKey]()
        done = 0
        for base, upto, count in reads:
            data = self._store.read(base, upto - base)
            entries = raw[ENTRY_BYTES * done : ENTRY_BYTES * (done + count)]
            done += count
            topic, queue_id = queue_of(known.id)
            found = pack_deliveries(data, base, entries, topic.encode(), queue_id, known.id)
            if found is None or not all(map(self._is_ordinary, found[1])):
                return None
            records, targets = found
            queues = [target[:2] for target in targets]
            packed_bytes: PackedBytes = records
            packed.append(Packed(*packed_bytes, queues))
            new.update(key for key in queues if self._store.queue(*key) is None)
            for target in targets:
                topics[target[0]] += target[2]
        if len(new) > NEW_QUEUES_MAX:
            return None
        due_ms = codes_in(raw[: ENTRY_BYTES * done])
        return PackedSlice(known, first, due_ms, topics, packed)

    def _is_ordinary(self, target: Target) -> bool:
        """Can the messages to a queue be delivered there?"""
        topic, queue_id, _, body_bytes, record_bytes = target
        return (
            topic not in WAIT_TOPICS
            and self._room.surely_holds(record_bytes)
            and not why_not_to((topic, queue_id), body_bytes, self._topics, self._config)
        )

"""Messages that come one by one, of many callers, as packed records of one append.

The compiled form makes them straight from the drafts, which costs half of the plain form: no
record, no property string and no place of its own for each.  If one of them is out of the ordinary,
or has to be refused, all are left to that, so that they keep their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rmqlite import compiled
from rmqlite.broker.admission import Room, TimerRules
from rmqlite.broker.retention import Retention
from rmqlite.broker.routing import Routing, route
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.clock import Clock
from rmqlite.compiled import ROW
from rmqlite.errors import RmqliteError
from rmqlite.limits import KEYS_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.message import REAL_QID, REAL_TOPIC
from rmqlite.names import SCHEDULE_TOPIC, TIMER_TOPIC, check_sendable, group_of
from rmqlite.records.drafts import Draft, DraftBatch
from rmqlite.records.packed import Limits, Packed, packed_batch
from rmqlite.records.wait_queues import TIMERS, QueueKey, queue_of
from rmqlite.store.message_store import MessageStore

_TIMER: Final = 127
"""Stands for a level where pack_drafts() says that a message waits for an instant."""


class Target(NamedTuple):
    """A topic that may be sent to.

    ending: of each property string there.  waiting: what comes before the queue id at the end of
    that of a message that waits.
    """

    write_queues: int
    ending: bytes
    waiting: bytes


class PackedDrafts:
    """Packs the single messages of one step."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        topics: TopicTable,
        retention: Retention,
        room: Room,
        timers: TimerRules,
        cluster: str,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._topics = topics
        self._retention = retention
        self._room = room
        self._cluster = cluster
        self._store_host = store_host

    def target(self, topic: str) -> Target | None:
        """None if the plain form has to look at each message to this topic."""
        if not compiled.is_on or group_of(topic) is not None:
            return None
        try:
            self._retention.check_room(is_send=False)
            check_sendable(topic)
            info = self._topics.get(topic)
            if info is None:
                return None
            self._topics.wanted(topic)
        except RmqliteError:
            return None
        ending = route(topic, 0, 0, self._cluster).ending
        real = f"{REAL_TOPIC}\x01{topic}\x02{REAL_QID}\x01".encode()
        return Target(info.write_queues, ending, ending + b"\x02" + real if ending else real)

    def packed(self, drafts: list[Draft], targets: Mapping[str, Target | None]) -> Packed | None:
        """The records of messages; None if the plain form has to take them."""
        found = compiled.loops.pack_drafts(
            drafts,
            {topic: target[1:] for topic, target in targets.items() if target is not None},
            SCHEDULE_TOPIC,
            len(self._store.levels.current.delays_ms),
            TIMER_TOPIC,
            self._clock.now_ms(),
            self._timers.packed_ms_max,
            self._store_host,
            self._room.body_bytes_max,
            SENT_PROPERTIES_BYTES_MAX,
            self._room.record_bytes_max,
            KEYS_MAX,
        )
        if found is None:
            return None
        records, queues, levels = found
        if any(self._store.queue(*key) is None for key in queues):
            # To make one takes a turn of its own.
            return None
        packed = Packed(*records, queues)
        if any(levels):
            packed.waiting = _waiting(drafts, levels)
        return packed

    def batch(self, batch: DraftBatch, place: Routing) -> Packed | None:
        """The records of a batch that is stored at a place; None if the plain form makes them."""
        is_timers = place.topic == TIMER_TOPIC
        return packed_batch(
            batch,
            place.topic,
            place.ending,
            self._store_host,
            self._store.index.prefix(place.topic),
            Limits(self._room.body_bytes_max, self._room.record_bytes_max),
            (self._clock.now_ms(), self._timers.packed_ms_max) if is_timers else (0, 0),
        )


def queue_places(packed: Packed) -> list[tuple[int, int]]:
    """Of each record, once they are appended: its queue offset, and the instant of a timer or 0."""
    following = [queue_offset for queue_offset, _ in packed.places]
    waits = [topic == TIMER_TOPIC for topic, _ in packed.queues]
    places: list[tuple[int, int]] = []
    for _, number, code in ROW.iter_unpack(packed.rows):
        places.append((following[number], code if waits[number] else 0))
        following[number] += 1
    return places


def _waiting(drafts: Sequence[Draft], levels: bytes) -> dict[QueueKey, Counter[str]]:
    waiting: dict[QueueKey, Counter[str]] = defaultdict(Counter)
    for draft, level in zip(drafts, levels, strict=True):
        if level:
            waiting[queue_of(TIMERS if level == _TIMER else level)][draft.topic] += 1
    return waiting

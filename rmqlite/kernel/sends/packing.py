"""Drafts as packed records, in C, without an object for each message.

It costs half of the plain form for a single message, and a tenth for one of a batch.  It has no
rule of its own: if one message has to be refused, or has a property that the broker gives a
meaning to, all are left to the plain form (plain_records.py), which makes the same bytes of the
others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.encoding import PackedBytes
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.wait_queues import TIMERS, QueueKey, queue_of
from rmqlite.kernel.routing import route
from rmqlite.kernel.words.limits import KEYS_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC, group_of

_TIMER: Final = 127
"""Stands for a level where pack_drafts() says that a message waits for an instant."""


class PropertyEnding(NamedTuple):
    """How property strings of messages to a topic end.

    waiting: of one that waits, the part before its queue id.
    """

    usual: bytes
    waiting: bytes


pack_drafts: Final = only_in_c("pack_drafts")
"""(drafts, endings, topic of the levels, how many levels there are, topic of the timers, now_ms,
longest delay of a timer, store_host, most bytes of a body, a property string and a record, most
keys) -> (PackedBytes, queues, levels); None leaves all to plain_records.py.

endings: by topic an Ending; a message to another topic is left, too.  queues: those that the rows
number.  levels: a byte for each message: the level at which it waits, 127 if it waits for an
instant, or 0.
"""


class Packing:
    """Packs the drafts of one broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._room = parts.room
        self._timers = parts.timers
        self._cluster = parts.config.cluster_name
        self._store_host = parts.host

    def packed(self, drafts: list[Draft]) -> Packed | None:
        """The records of drafts whose queues are chosen; None: the plain form's work."""
        topics = {draft.topic for draft in drafts}
        endings = {each: _ending(each, self._cluster) for each in topics if group_of(each) is None}
        found = pack_drafts(
            drafts,
            endings,
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
        packed_bytes: PackedBytes = records
        packed = Packed(*packed_bytes, queues)
        if any(levels):
            packed.waiting = _waiting(drafts, levels)
        return packed


@lru_cache(maxsize=4096)
def _ending(topic: str, cluster: str) -> PropertyEnding:
    usual = route(topic, 0, 0, cluster).ending
    real = f"{REAL_TOPIC}\x01{topic}\x02{REAL_QID}\x01".encode()
    return PropertyEnding(usual, usual + b"\x02" + real if usual else real)


def _waiting(drafts: Sequence[Draft], levels: bytes) -> dict[QueueKey, Counter[str]]:
    waiting: dict[QueueKey, Counter[str]] = defaultdict(Counter)
    begin = 0
    for draft in drafts:
        end = begin + draft.messages
        for level in set(levels[begin:end]) - {0}:
            key = queue_of(TIMERS if level == _TIMER else level)
            waiting[key][draft.topic] += levels.count(level, begin, end)
        begin = end
    return waiting

"""Drafts as records: packed in C without an object for each message, or by the plain form.

C costs half of the plain form for a single message, and a tenth for one of a batch.  It has no
rule of its own: if one message has to be refused, or has a property that the broker gives a
meaning to, all are left to the plain form, PlainRecords, which makes the same bytes of the others.
What comes to a retry or dead-letter topic and what begins a transaction are its work alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.admission import check_draft, has_timer, is_half, level_of, without_timer
from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.encoding import PackedBytes
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.record import TRANSACTION_TYPE, NewRecord
from rmqlite.kernel.records.wait_queues import TIMERS, QueueKey, queue_of
from rmqlite.kernel.routing import record_of, route
from rmqlite.kernel.sends.calls import (
    BATCH_WORK_MAX,
    NEW_QUEUE_WORK,
    STEP_MESSAGES,
    DraftCall,
    check_work,
    work_of,
)
from rmqlite.kernel.words.errors import PermissionMissing
from rmqlite.kernel.words.limits import KEYS_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC, WAIT
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC, group_of, is_retry
from rmqlite.kernel.words.property_string import PropertyString

_WAIT_PAIR: Final = f"{WAIT}\x01".encode()
_WAIT_ONLY: Final = frozenset({WAIT})
HALF_SEND: Final = "sending a message of a transaction to"

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
keys) -> (PackedBytes, queues, levels); None leaves all to PlainRecords.

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


class PlainRecords:
    """Makes the records of one broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self._config = parts.config
        self._store = parts.store
        self._clock = parts.clock
        self._timers = parts.timers
        self._topics = parts.topics
        self._room = parts.room
        self._store_host = parts.host
        self.half_of: Callable[[Draft], NewRecord] = _refused_half
        """The half message of a draft that begins a transaction.  Raises what refuses it."""
        self.check = check_draft

    def of(self, call: DraftCall) -> Steps[tuple[list[NewRecord], int]]:
        """The records of a call whose queues are chosen, and their work; in steps.

        Raises what Broker.send() raises.
        """
        records: list[NewRecord] = []
        new = set[QueueKey]()
        work = done = 0
        is_batch, is_alone = call.is_batch, call.is_alone
        for shared in call.drafts:
            for draft in shared.singles():
                if work - done >= STEP_MESSAGES:
                    done = work
                    yield
                if group_of(draft.topic) is None:
                    # Others have been checked before they were changed.
                    self.check(draft, is_alone=is_alone)
                self._room.check_body(len(draft.body))
                work += work_of(draft)
                if draft.sys_flag & TRANSACTION_TYPE:
                    draft = draft._replace(sys_flag=draft.sys_flag & ~TRANSACTION_TYPE)
                # RocketMQ stores no item of a batch as half of a transaction.
                if is_alone and is_half(draft):
                    record = self.half_of(draft)
                else:
                    record = self._record_of(draft, is_in_batch=is_batch)
                # Where it is stored: the topic of a message that waits may have no queue yet.
                key = (record.topic, record.queue_id)
                if key not in new and self._store.queue(*key) is None:
                    new.add(key)
                    work += NEW_QUEUE_WORK
                records.append(record)
                if is_batch:
                    check_work(work, BATCH_WORK_MAX)
        return records, work

    def _record_of(self, draft: Draft, *, is_in_batch: bool) -> NewRecord:
        level = self._store.levels.current.clamp(level_of(draft.properties))
        due_ms = 0
        if has_timer(draft.properties):
            if level or (is_retry(draft.topic) and draft.reconsume_times > 0):
                # As in RocketMQ, a level wins.
                draft = draft._replace(properties=without_timer(draft.properties))
            else:
                due_ms = self._timers.due_ms(draft.properties, self._clock.now_ms())
        if not level and not due_ms and _WAIT_PAIR in draft.properties and not is_in_batch:
            draft = draft._replace(properties=without_wait(draft.properties))
        return record_of(
            draft, level, due_ms, cluster=self._config.cluster_name, store_host=self._store_host
        )


def _refused_half(draft: Draft) -> NewRecord:
    """Not even stored as an ordinary message: consumers would see what may be rolled back."""
    raise PermissionMissing(draft.topic, HALF_SEND, "this broker has no transactions")


def without_wait(properties: bytes) -> bytes:
    """A property string without WAIT, which only says whether the sender waits for the disk.

    As RocketMQ stores it, except for messages of batches, halves and those that wait.
    """
    own = PropertyString(properties)
    return properties if own.get(WAIT) is None else own.edited({}, _WAIT_ONLY).encoded

"""The records of drafts: the plain form, which decides and refuses.

What comes to a retry or dead-letter topic, what begins a transaction, and every message that is
refused are its work alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqlite.kernel.admission import check_draft, has_timer, is_half, level_of, without_timer
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import TRANSACTION_TYPE, NewRecord
from rmqlite.kernel.records.wait_queues import QueueKey
from rmqlite.kernel.routing import record_of
from rmqlite.kernel.sends.calls import (
    BATCH_WORK_MAX,
    NEW_QUEUE_WORK,
    STEP_MESSAGES,
    DraftCall,
    check_work,
    work_of,
)
from rmqlite.kernel.steps import Steps
from rmqlite.kernel.words.errors import PermissionMissing
from rmqlite.kernel.words.message import WAIT
from rmqlite.kernel.words.names import group_of, is_retry
from rmqlite.kernel.words.property_string import PropertyString

_WAIT_PAIR: Final = f"{WAIT}\x01".encode()
_WAIT_ONLY: Final = frozenset({WAIT})
HALF_SEND: Final = "sending a message of a transaction to"


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
                    check_draft(draft, is_alone=is_alone)
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

"""The records of messages that come as drafts: the plain form, which decides and refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rmqlite.broker.admission import (
    Room,
    TimerRules,
    check_draft,
    has_timer,
    level_of,
    without_timer,
)
from rmqlite.broker.counts import Counts
from rmqlite.broker.sending import record_of
from rmqlite.broker.sends.failed_drafts import LOOK_WORK, FailedDrafts
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.groups import GroupTable, OnDemand
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.broker.transactions.halves import half_record, is_half
from rmqlite.clock import Clock
from rmqlite.compression import COMPRESSED
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, MessageTooLarge, PermissionMissing
from rmqlite.limits import KEYS_MAX
from rmqlite.message import (
    KEYS,
    WAIT,
)
from rmqlite.names import HALF_TOPIC, check_sendable, group_of, is_retry
from rmqlite.property_string import PropertyString
from rmqlite.records.drafts import Draft, DraftBatch
from rmqlite.records.record import TRANSACTION_TYPE, NewRecord
from rmqlite.store.message_store import MessageStore

STEP_MESSAGES: Final = 256
"""After so many messages, 4 ms, or as much work, other calls may run."""
BATCH_WORK_MAX: Final = 6_000
"""The work of one batch, whose records are made in steps but stored by one append."""
BODY_BYTES: Final = 16 << 10
"""So many bytes of bodies are as much work as one more message."""
_STRING_BYTES: Final = 1 << 10
"""So many bytes of a property string are, too: it may have hundreds of pairs."""
NEW_QUEUE_WORK: Final = 25
"""The first message of a queue makes folders and a file: so many times the work of another."""
INFLATE_WORK: Final = 16
"""The first bytes of a compressed body are inflated: 16 hostile ones take 8 ms."""
KEYS_WORK: Final = 4
"""So many further keys are as much work as one more message."""
_WAIT_PAIR: Final = f"{WAIT}\x01".encode()
_WAIT_ONLY: Final = frozenset({WAIT})
_KEYS_PAIR: Final = f"{KEYS}\x01".encode()


class DraftCall(NamedTuple):
    """One call: a message, or a batch of which all are stored or none.

    queue_id of a draft: -1 lets the broker choose.  max_reconsume_times: of a consumer that
    sends a failed message to its retry topic itself; None means the group's.
    """

    drafts: Sequence[Draft] | DraftBatch
    max_reconsume_times: int | None = None


class Made(NamedTuple):
    """The records of a call, the queue that they go to, also if they wait for now, and the work
    that it was to make and append them."""

    records: list[NewRecord]
    queue_id: int
    work: int


class DraftRecords:
    """Makes the records of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        timers: TimerRules,
        topics: TopicTable,
        groups: GroupTable,
        room: Room,
        counts: Counts,
        needed: Callable[[int], OnDemand],
        store_host: bytes,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._store = store
        self._topics = topics
        self._room = room
        self._failed = FailedDrafts(store, topics, groups, counts)
        self._needed = needed
        self._store_host = store_host

    def of(self, call: DraftCall) -> Steps[Made]:
        """The records of a call; of a long batch, in steps.  Raises what Broker.send() raises."""
        while True:
            table = self._store.levels.current
            made = yield from self._made(call)
            if self._store.levels.current is table:
                return made

    def _made(self, call: DraftCall) -> Steps[Made]:
        records: list[NewRecord] = []
        work = done = 0
        # RocketMQ stores no item of a batch as half of a transaction.
        is_alone = len(call.drafts) == 1
        is_batch = isinstance(call.drafts, DraftBatch)
        queue_id = -1
        for draft in call.drafts:
            is_failed = is_retry(draft.topic) and draft.reconsume_times > 0
            check_draft(draft, is_alone=is_alone, is_failed=is_failed)
            if group_of(draft.topic) is not None:
                draft = self._failed.of(draft, call.max_reconsume_times, is_alone=is_alone)
                work += LOOK_WORK if is_alone else 1
            check_sendable(draft.topic)
            self._room.check_body(len(draft.body))
            # A batch goes into one queue.
            if not records:
                queue_id = self.queue_for(draft)
            work += work_of(draft)
            if queue_id != draft.queue_id or draft.sys_flag & TRANSACTION_TYPE:
                sys_flag = draft.sys_flag & ~TRANSACTION_TYPE
                draft = draft._replace(queue_id=queue_id, sys_flag=sys_flag)
            if is_alone and is_half(draft):
                record = self._half_of(draft)
            else:
                record = self._record_of(draft, is_in_batch=is_batch)
            # Where it is stored: the topic of a message that waits may have no queue yet.
            if self._store.queue(record.topic, record.queue_id) is None:
                work += NEW_QUEUE_WORK
            records.append(record)
            if work - done >= STEP_MESSAGES and len(records) < len(call.drafts):
                check_work(work, BATCH_WORK_MAX)
                done = work
                yield
        if not records:
            raise InvalidValue("messages", 0, "at least one")
        if done:
            # Between two steps its topic may have been deleted.
            self.queue_for(draft)
        return Made(records, queue_id, work)

    def queue_for(self, draft: Draft) -> int:
        """The queue of a draft; a topic that is missing is made at once, for this call alone."""
        info = self._topics.get(draft.topic)
        queue_id = draft.queue_id
        if info is not None and 0 <= queue_id < info.write_queues:
            self._topics.wanted(draft.topic)
            return queue_id
        needed = self._needed(queue_id)
        queue_id = needed.queue_for(draft.topic, queue_id)
        needed.make()
        return queue_id

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

    def _half_of(self, draft: Draft) -> NewRecord:
        """The half message of a transaction.  Its delay begins when it is committed."""
        if self._config.rejects_transactions:
            operation = "sending a message of a transaction to"
            raise PermissionMissing(draft.topic, operation, "rejectTransactionMessage=true")
        # Refused now: when it is committed, its producer does not listen any more.
        self._timers.due_ms(draft.properties, self._clock.now_ms())
        record = half_record(draft, cluster=self._config.cluster_name, store_host=self._store_host)
        self._topics.ensure(HALF_TOPIC, 1)
        return record


def without_wait(properties: bytes) -> bytes:
    """A property string without WAIT, which only says whether the sender waits for the disk.

    As RocketMQ stores it, except for messages of batches, halves and those that wait.
    """
    own = PropertyString(properties)
    return properties if own.get(WAIT) is None else own.edited({}, _WAIT_ONLY).encoded


def check_work(work: int, most: int) -> None:
    """Raises MessageTooLarge for a batch that one append cannot store in one turn of the loop."""
    if work > most:
        rule = f"at most {most} ordinary messages, or as much work, in one batch"
        raise MessageTooLarge("messages", f"{work} or more", rule)


def work_of(draft: Draft) -> int:
    """How many ordinary messages it takes as long as.  Raises MessageTooLarge for too many keys."""
    work = 1 + len(draft.body) // BODY_BYTES + len(draft.properties) // _STRING_BYTES
    if draft.sys_flag & COMPRESSED:
        work += INFLATE_WORK
    if _KEYS_PAIR not in draft.properties:
        return work
    count = (PropertyString(draft.properties).get(KEYS) or b"").count(b" ")
    if count >= KEYS_MAX:
        raise MessageTooLarge("keys", f"{count + 1} of them", f"at most {KEYS_MAX} in a message")
    return work + count // KEYS_WORK

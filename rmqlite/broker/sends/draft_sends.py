"""Sends of messages that come as drafts, each call with its own outcome (reference §8, §7.2).

A protocol that pipelines hands over everything that has arrived, of many callers, at once.  All
of it becomes one append, and a call that is refused refuses none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.broker.appending import Appending
from rmqlite.broker.counts import Counts
from rmqlite.broker.retention import Retention
from rmqlite.broker.room import Room
from rmqlite.broker.routing import route
from rmqlite.broker.sending import record_of
from rmqlite.broker.sends.packed_drafts import PackedDrafts, Single, Target, queue_offsets
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.groups import GroupTable
from rmqlite.broker.tables.on_demand import OnDemand
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.broker.transactions.halves import half_record, is_half
from rmqlite.config import BrokerConfig
from rmqlite.errors import (
    FlushFailed,
    InvalidValue,
    MessageTooLarge,
    PermissionMissing,
    RmqliteError,
)
from rmqlite.limits import KEYS_MAX
from rmqlite.message import (
    BODY_RULE,
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    host_text,
    pack_host,
)
from rmqlite.names import HALF_TOPIC, check_sendable, dlq_topic, group_of, is_retry
from rmqlite.property_string import PropertyString
from rmqlite.requests.messages import SendBatch, SentBatch
from rmqlite.store.message_store import MessageStore
from rmqlite.store.records.drafts import Draft, DraftBatch
from rmqlite.store.records.packed import Packed
from rmqlite.store.records.record import TRANSACTION_TYPE, NewRecord

STEP_MESSAGES: Final = 256
"""After so many messages, 4 ms, or as much work, they are appended, and other calls may run."""
_BODY_BYTES: Final = 16 << 10
"""So many bytes of bodies are as much work as one more message."""
_STRING_BYTES: Final = 1 << 10
"""So many bytes of a property string are, too: it may have hundreds of pairs."""
_NEW_QUEUE_WORK: Final = 25
"""The first message of a queue makes folders and a file: so many times the work of another."""
_KEYS_OF_ONE: Final = 2
"""The keys that a message usually has: its id, and one more."""
_KEYS_WORK: Final = 4
"""So many further keys are as much work as one more message."""
_DELAY_PAIR: Final = f"{DELAY}\x01".encode()
_KEYS_PAIR: Final = f"{KEYS}\x01".encode()


class DraftCall(NamedTuple):
    """One call: a message, or a batch of which all are stored or none.

    queue_id of a draft: -1 lets the broker choose.  max_reconsume_times: of a consumer that
    sends a failed message to its retry topic itself; None means the group's.
    """

    drafts: Sequence[Draft] | DraftBatch
    max_reconsume_times: int | None = None


class Stored(NamedTuple):
    """Where the messages of a call are.

    queue_id: of the queue that they go to, also if they wait for now.  queue_offset: of the first.
    """

    queue_id: int
    queue_offset: int
    physical_offsets: Sequence[int]


NumberedCall = tuple[int, DraftCall]
Outcome = Stored | RmqliteError
_NOWHERE: Final = Stored(-1, -1, ())
"""Until a call is stored or refused."""


@dataclass(slots=True)
class _Part:
    """What one append will store: the records, and the calls that they belong to."""

    records: list[NewRecord] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of the call, queue id and number of its messages."""
    singles: list[Single] = field(default_factory=list)
    """Calls of one message, for the compiled form."""
    targets: dict[str, Target | None] = field(default_factory=dict)
    """By topic, as far as singles have asked."""
    packed: list[tuple[int, Packed]] = field(default_factory=list)
    """Calls of which the compiled form has made the records; they come behind the others."""
    work: int = 0


class DraftSends:
    """The calls of protocols whose messages come with a property string of their own."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        retention: Retention,
        room: Room,
        appending: Appending,
        counts: Counts,
        needed: Callable[[], OnDemand],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._retention = retention
        self._room = room
        self._log = appending
        self._counts = counts
        self._cluster = config.cluster_name
        self._store_host_text = host_text(config.broker_ip, config.listen_port)
        self._store_host = pack_host(self._store_host_text)
        self._needed = needed
        self._packing = PackedDrafts(
            store, topics, retention, room, self._cluster, self._store_host
        )

    def send(self, calls: Sequence[DraftCall]) -> Steps[list[Outcome]]:
        """The outcome of each call, in steps; valid once the store is durable, up to its end.

        Raises only FlushFailed.
        """
        outcomes: list[Outcome] = [_NOWHERE] * len(calls)
        left = yield from self._send_all(list(enumerate(calls)), outcomes, packs=True)
        if left:
            yield from self._send_all(left, outcomes, packs=False)
        return outcomes

    def _send_all(
        self, calls: Sequence[NumberedCall], outcomes: list[Outcome], *, packs: bool
    ) -> Steps[list[NumberedCall]]:
        """Note the outcomes; the calls that the plain form has to take.

        packs: does the compiled form take those of one message?
        """
        left: list[NumberedCall] = []
        part = _Part()
        for position, (number, call) in enumerate(calls, 1):
            with _refusing((number,), outcomes):
                if not (packs and self._take_single(number, call, part)):
                    self._take(number, call, part)
            if part.work >= STEP_MESSAGES and position < len(calls):
                left += self._append(part, outcomes)
                part = _Part()
                yield
        left += self._append(part, outcomes)
        return left

    def _take_single(self, number: int, call: DraftCall, part: _Part) -> bool:
        """Leave a call of one ordinary message to the compiled form; False if it is none."""
        if len(call.drafts) != 1 or isinstance(call.drafts, DraftBatch):
            return False
        draft = call.drafts[0]
        if draft.topic not in part.targets:
            part.targets[draft.topic] = self._packing.target(draft.topic)
        target = part.targets[draft.topic]
        if target is None or not 0 <= draft.queue_id < target.write_queues:
            return False
        # A message that waits is stored elsewhere.
        is_new = self._store.queue(draft.topic, draft.queue_id) is None
        if is_new and _DELAY_PAIR not in draft.properties:
            return False
        part.singles.append(Single(number, draft))
        part.work += 1 + len(draft.body) // _BODY_BYTES + len(draft.properties) // _STRING_BYTES
        if _KEYS_PAIR in draft.properties:
            part.work += _work_of_keys(draft)
        return True

    def _take(self, number: int, call: DraftCall, part: _Part) -> None:
        """Make the records of a call.  Raises what Broker.send() raises; then it adds none."""
        self._retention.check_room()
        if isinstance(call.drafts, DraftBatch) and self._take_packed(number, call.drafts, part):
            return
        records: list[NewRecord] = []
        body_bytes = work = 0
        # RocketMQ stores no item of a batch as half of a transaction.
        is_alone = len(call.drafts) == 1
        queue_id = -1
        for draft in call.drafts:
            if is_retry(draft.topic):
                draft = self._of_consumer(draft, call.max_reconsume_times)
            check_sendable(draft.topic)
            size = len(draft.body)
            if not size:
                raise InvalidValue("body", "", BODY_RULE)
            self._room.check_body(size)
            body_bytes += size
            # A batch goes into one queue.
            if not records:
                queue_id = self._queue_for(draft)
            work += 1 + len(draft.properties) // _STRING_BYTES
            if _KEYS_PAIR in draft.properties:
                work += _work_of_keys(draft)
            if queue_id != draft.queue_id or draft.sys_flag & TRANSACTION_TYPE:
                sys_flag = draft.sys_flag & ~TRANSACTION_TYPE
                draft = draft._replace(queue_id=queue_id, sys_flag=sys_flag)
            record = self._half_of(draft) if is_alone and is_half(draft) else self._record_of(draft)
            # Where it is stored: the topic of a message that waits may have no queue yet.
            if self._store.queue(record.topic, record.queue_id) is None:
                work += _NEW_QUEUE_WORK
            records.append(record)
        if not records:
            raise InvalidValue("messages", 0, "at least one")
        part.records += records
        part.calls.append((number, queue_id, len(records)))
        part.work += work + body_bytes // _BODY_BYTES

    def _take_packed(self, number: int, batch: DraftBatch, part: _Part) -> bool:
        """_take() by the compiled form; False if it is not there, or the batch not an ordinary one.

        It costs a tenth, because it makes no object for a message.
        """
        topic = batch.shared.topic
        if is_retry(topic):
            return False
        check_sendable(topic)
        packed = self._packing.batch(batch, route(topic, 0, 0, self._cluster))
        if packed is None:
            return False
        packed.queues = ((topic, self._queue_for(batch.shared)),)
        is_new = self._store.queue(*packed.queues[0]) is None
        count = len(packed)
        keys = max(0, packed.key_count - _KEYS_OF_ONE * count) // _KEYS_WORK
        part.packed.append((number, packed))
        part.work += count + keys + len(packed.data) // _BODY_BYTES + is_new * _NEW_QUEUE_WORK
        return True

    def send_batch(self, batch: SendBatch, born_host: bytes) -> SentBatch | None:
        """What Broker.send() does, by the compiled form; None if that has to do it.

        Raises what Broker.send() raises.
        """
        self._retention.check_room()
        topic, table = batch.topic, self._store.levels.current
        check_sendable(topic)
        needed = self._needed()
        queue_id = needed.queue_for(topic, batch.queue_id)
        needed.make()
        level = table.level_lasting(batch.delay) if batch.delay else batch.delay_level
        level = table.clamp(level)
        shared = Draft(topic, queue_id, b"", batch.buffer, batch.born_at_ms, born_host)
        place = route(topic, queue_id, level, self._cluster)
        packed = self._packing.batch(DraftBatch(shared, batch.spans), place)
        if packed is None:
            return None
        key = (place.topic, place.queue_id)
        packed.queues = (key,)
        packed.waiting = {key: {topic: len(packed)}} if level else {}
        self._log.append_packed([packed])
        self._counts.sent += len(packed)
        ((queue_offset, due_ms),) = packed.places
        return SentBatch(
            topic,
            queue_id,
            queue_offset,
            batch.message_ids,
            packed.physical_offsets,
            due_ms,
            self._store_host_text,
        )

    def _append(self, part: _Part, outcomes: list[Outcome]) -> list[NumberedCall]:
        """Append all of a part; the calls that the plain form has to take."""
        left = self._append_singles(part, outcomes) if part.singles else []
        if part.records:
            numbers = [number for number, _, _ in part.calls]
            with _refusing(numbers, outcomes):
                written = iter(self._log.append(part.records))
                for number, queue_id, count in part.calls:
                    mine = list(islice(written, count))
                    offsets = [at.physical_offset for at in mine]
                    outcomes[number] = Stored(queue_id, mine[0].queue_offset, offsets)
                self._counts.sent += len(part.records)
        if part.packed:
            with _refusing([number for number, _ in part.packed], outcomes):
                self._log.append_packed([packed for _, packed in part.packed])
                for number, packed in part.packed:
                    ((_, queue_id),) = packed.queues
                    ((queue_offset, _),) = packed.places
                    outcomes[number] = Stored(queue_id, queue_offset, packed.physical_offsets)
                    self._counts.sent += len(packed)

        return left

    def _append_singles(self, part: _Part, outcomes: list[Outcome]) -> list[NumberedCall]:
        packed, taken, left = self._packing.packed(part.singles, part.targets)
        if packed is not None:
            with _refusing([number for number, _ in taken], outcomes):
                self._log.append_packed([packed])
                rows = zip(taken, queue_offsets(packed), packed.physical_offsets, strict=True)
                for (number, draft), queue_offset, physical_offset in rows:
                    outcomes[number] = Stored(draft.queue_id, queue_offset, (physical_offset,))
                self._counts.sent += len(packed)
        return [(number, DraftCall((draft,))) for number, draft in left]

    def _queue_for(self, draft: Draft) -> int:
        """The queue of a draft; a topic that is missing is made at once, for this call alone."""
        info = self._topics.get(draft.topic)
        queue_id = draft.queue_id
        if info is not None and 0 <= queue_id < info.write_queues:
            self._topics.wanted(draft.topic)
            return queue_id
        needed = self._needed()
        queue_id = needed.queue_for(draft.topic, queue_id)
        needed.make()
        return queue_id

    def _record_of(self, draft: Draft) -> NewRecord:
        level = self._level_of(draft) if _DELAY_PAIR in draft.properties else 0
        return record_of(draft, level, cluster=self._cluster, store_host=self._store_host)

    def _half_of(self, draft: Draft) -> NewRecord:
        """The half message of a transaction.  Its delay begins when it is committed."""
        if self._config.rejects_transactions:
            operation = "sending a message of a transaction to"
            raise PermissionMissing(draft.topic, operation, "rejectTransactionMessage=true")
        record = half_record(draft, cluster=self._config.cluster_name, store_host=self._store_host)
        self._topics.ensure(HALF_TOPIC, 1)
        return record

    def _level_of(self, draft: Draft) -> int:
        level = PropertyString(draft.properties).number(DELAY)
        return self._store.levels.current.clamp(level) if level else 0

    def _of_consumer(self, draft: Draft, limit: int | None) -> Draft:
        """A failed message that its consumer sends itself: a retry, or at the limit a dead letter.

        RocketMQ's Java consumer does so if it could not send a message back.
        """
        group = group_of(draft.topic) or ""
        info = self._groups.wanted(group)
        if draft.reconsume_times < (info.max_reconsume_times if limit is None else limit):
            return draft
        own = PropertyString(draft.properties)
        changes: dict[str, str | bytes] = {
            DELAY: "0",
            DLQ_ORIGIN_TOPIC: own.get(RETRY_TOPIC) or draft.topic.encode(),
            DELIVERY_ATTEMPTS: str(draft.reconsume_times),
        }
        origin = own.get(ORIGIN_MESSAGE_ID)
        if origin:
            changes[DLQ_ORIGIN_MESSAGE_ID] = origin
        self._topics.ensure(dlq_topic(group), 1)
        self._counts.dead[group] += 1
        return draft._replace(
            topic=dlq_topic(group), queue_id=0, properties=own.edited(changes).encoded
        )


@contextmanager
def _refusing(numbers: Iterable[int], outcomes: list[Outcome]) -> Iterator[None]:
    """If the append fails, it has failed for these calls."""
    try:
        yield
    except FlushFailed:
        raise
    except RmqliteError as error:
        for number in numbers:
            outcomes[number] = error.with_traceback(None)


def _work_of_keys(draft: Draft) -> int:
    """The work of a message's keys, beyond that of one key.  Raises MessageTooLarge."""
    count = (PropertyString(draft.properties).get(KEYS) or b"").count(b" ")
    if count >= KEYS_MAX:
        raise MessageTooLarge("keys", f"{count + 1} of them", f"at most {KEYS_MAX} in a message")
    return count // _KEYS_WORK

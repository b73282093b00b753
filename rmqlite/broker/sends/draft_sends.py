"""Sends of messages that come as drafts, each call with its own outcome (reference §8, §7.2).

A protocol that pipelines hands over everything that has arrived, of many callers, at once.  All
of it becomes one append, and a call that is refused refuses none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from rmqlite.broker.admission import DELAY_PAIR, Room, TimerRules, check_draft, has_timer
from rmqlite.broker.appending import Appending
from rmqlite.broker.counts import Counts
from rmqlite.broker.retention import Retention
from rmqlite.broker.routing import route, route_timer
from rmqlite.broker.sends.draft_records import (
    BODY_BYTES,
    KEYS_WORK,
    NEW_QUEUE_WORK,
    STEP_MESSAGES,
    DraftCall,
    DraftRecords,
    check_work,
    work_of,
)
from rmqlite.broker.sends.packed_drafts import PackedDrafts, Target, queue_places
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.groups import GroupTable, OnDemand
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.clock import Clock
from rmqlite.compiled import ROW, SPAN
from rmqlite.config import KEYS, BrokerConfig
from rmqlite.errors import FlushFailed, MessageTooLarge, RmqliteError
from rmqlite.message import host_text, pack_host
from rmqlite.names import check_sendable, group_of, is_retry
from rmqlite.records.drafts import Draft, DraftBatch
from rmqlite.records.packed import Packed
from rmqlite.records.record import NewRecord
from rmqlite.records.wait_queues import TIMERS, wait_queue_of
from rmqlite.requests.messages import SendBatch, SendRequest, SentBatch
from rmqlite.store.message_store import MessageStore

PACKED_WORK_MAX: Final = 80_000
"""The work of one batch of which the compiled form makes the records."""
PACKED_MESSAGES: Final = 4_096
"""The messages of a batch for which it does so in one step of 2 ms."""
_KEYS_OF_ONE: Final = 2
"""The keys that a message usually has: its id, and one more."""


class Stored(NamedTuple):
    """Where the messages of a call are.

    queue_id: of the queue that they go to, also if they wait for now.  queue_offset: of the first.
    timer_out_ms: for when the message waits, if it is the only one, and a timer; else 0.
    """

    queue_id: int
    queue_offset: int
    physical_offsets: Sequence[int]
    timer_out_ms: int = 0


NumberedCall = tuple[int, DraftCall]
Outcome = Stored | RmqliteError
_NOWHERE: Final = Stored(-1, -1, ())
"""Until a call is stored or refused."""


@dataclass(slots=True)
class _Part:
    """What the next append will store, of one of three kinds, and the calls that it belongs to."""

    records: list[NewRecord] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of the call, queue id and number of its messages."""
    singles: list[Draft] = field(default_factory=list)
    """Calls of one message, for the compiled form."""
    numbers: list[int] = field(default_factory=list)
    """Of these calls."""
    targets: dict[str, Target | None] = field(default_factory=dict)
    """By topic, as far as singles have asked."""
    packed: list[tuple[int, int, Sequence[Packed]]] = field(default_factory=list)
    """Number and queue id of each call of which the compiled form has made the records, in one or
    more parts."""
    work: int = 0


class DraftSends:
    """The calls of protocols whose messages come with a property string of their own."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        timers: TimerRules,
        topics: TopicTable,
        groups: GroupTable,
        retention: Retention,
        room: Room,
        appending: Appending,
        counts: Counts,
        needed: Callable[[int], OnDemand],
    ) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._retention = retention
        self._batch_bytes_max = config.max_message_bytes
        self._log = appending
        self._counts = counts
        self._cluster = config.cluster_name
        self._store_host_text = host_text(config.broker_ip, config.listen_port)
        store_host = pack_host(self._store_host_text)
        self._records = DraftRecords(
            config, store, clock, timers, topics, groups, room, counts, needed, store_host
        )
        self._packing = PackedDrafts(
            store, clock, topics, retention, room, timers, self._cluster, store_host
        )

    def check(self, draft: Draft) -> None:
        """Raises what refuses a message that is passed on before it is stored."""
        check_draft(draft)
        self._timers.due_ms(draft.properties, self._clock.now_ms())

    def send(self, calls: Sequence[DraftCall]) -> Steps[list[Outcome]]:
        """The outcome of each call, in steps; valid once the store is durable, up to its end.

        Raises only FlushFailed.
        """
        outcomes: list[Outcome] = [_NOWHERE] * len(calls)
        yield from self._send_all(list(enumerate(calls)), outcomes, packs=True)
        return outcomes

    def _send_all(
        self, calls: Sequence[NumberedCall], outcomes: list[Outcome], *, packs: bool
    ) -> Steps[None]:
        """Store calls in their order, and note the outcomes.

        packs: does the compiled form take those of one message?
        """
        part = _Part()
        for position, (number, call) in enumerate(calls, 1):
            single = self._single(call, part) if packs else None
            if part.singles and single is None:
                yield from self._append_singles(part, outcomes)
            try:
                if single is None:
                    yield from self._take(number, call, part, outcomes)
                else:
                    self._take_single(number, single, part, outcomes)
            except RmqliteError as error:
                _refuse((number,), error, outcomes)
            if part.work >= STEP_MESSAGES and position < len(calls):
                yield from self._append_singles(part, outcomes)
                self._append(part, outcomes)
                part = _Part()
                yield
        yield from self._append_singles(part, outcomes)
        self._append(part, outcomes)

    def _single(self, call: DraftCall, part: _Part) -> Draft | None:
        """The one message of a call, if the compiled form can probably take it."""
        if len(call.drafts) != 1 or isinstance(call.drafts, DraftBatch):
            return None
        draft = call.drafts[0]
        if draft.topic not in part.targets:
            part.targets[draft.topic] = self._packing.target(draft.topic)
        target = part.targets[draft.topic]
        if target is None or not 0 <= draft.queue_id < target.write_queues:
            return None
        # A message that waits is stored elsewhere.
        is_new = self._store.queue(draft.topic, draft.queue_id) is None
        waits = DELAY_PAIR in draft.properties or has_timer(draft.properties)
        return None if is_new and not waits else draft

    def _take_single(self, number: int, draft: Draft, part: _Part, outcomes: list[Outcome]) -> None:
        work = work_of(draft)
        self._append(part, outcomes)
        part.singles.append(draft)
        part.numbers.append(number)
        part.work += work

    def _take(
        self, number: int, call: DraftCall, part: _Part, outcomes: list[Outcome]
    ) -> Steps[None]:
        """Make the records of a call.  Raises what Broker.send() raises; then it adds none."""
        self._retention.check_room()
        if isinstance(call.drafts, DraftBatch):
            self._check_batch(len(call.drafts.shared.body))
            if len(call.drafts) > STEP_MESSAGES:
                # A table of levels may come into force between its steps.
                self._append(part, outcomes)
            queue_id, packed = yield from self._packed(call.drafts)
            if packed:
                self._take_packed(number, queue_id, packed, part, outcomes)
                return
        made = yield from self._records.of(call)
        if part.packed:
            # In the order of the calls.
            self._append(part, outcomes)
        part.records += made.records
        part.calls.append((number, made.queue_id, len(made.records)))
        part.work += made.work

    def _check_batch(self, size: int) -> None:
        """As RocketMQ does: it limits the bytes of a batch as it was sent, not its messages."""
        if size > self._batch_bytes_max:
            rule = f"at most {self._batch_bytes_max} bytes ({KEYS['max_message_bytes']})"
            raise MessageTooLarge("batch", size, rule)

    def _packed(self, batch: DraftBatch) -> Steps[tuple[int, list[Packed]]]:
        """A batch by the compiled form, for a tenth, because it makes no object for a message; and
        the queue that it goes to.

        In parts, one for each step; none if that form is not there, or the batch not an ordinary
        one.
        """
        shared = batch.shared
        topic = shared.topic
        if group_of(topic) is not None:
            return -1, []
        check_sendable(topic)
        place = route(topic, 0, 0, self._cluster)
        are_timers = has_timer(shared.body)
        if are_timers:
            shared = shared._replace(queue_id=self._records.queue_for(shared))
            place = route_timer(topic, shared.queue_id, self._cluster)
        parts: list[Packed] = []
        for each in batch.parts(PACKED_MESSAGES):
            if parts:
                yield
            packed = self._packing.batch(each, place)
            if packed is None:
                return -1, []
            parts.append(packed)
            check_work(_work_of(parts), PACKED_WORK_MAX)
        if len(parts) > 1:
            # The append of a long batch takes a step of its own, in which its topic still exists.
            yield
        queue_id = self._records.queue_for(shared)
        for packed in parts:
            packed.queues = ((place.topic, place.queue_id if are_timers else queue_id),)
            packed.waiting = {packed.queues[0]: {topic: len(packed)}} if are_timers else {}
        return queue_id, parts

    def _take_packed(
        self,
        number: int,
        queue_id: int,
        packed: Sequence[Packed],
        part: _Part,
        outcomes: list[Outcome],
    ) -> None:
        if part.records:
            self._append(part, outcomes)
        is_new = self._store.queue(*packed[0].queues[0]) is None
        part.packed.append((number, queue_id, packed))
        part.work += _work_of(packed) + is_new * NEW_QUEUE_WORK

    def send_batch(self, batch: SendBatch, born_host: bytes) -> SentBatch | SendRequest:
        """What Broker.send() does, by the compiled form; the request for it if that has to do it.

        Raises what Broker.send() raises.
        """
        topic, table = batch.topic, self._store.levels.current
        if is_retry(topic):
            return batch.plain()
        self._retention.check_room()
        check_sendable(topic)
        shared = Draft(topic, batch.queue_id, b"", batch.buffer, batch.born_at_ms, born_host)
        queue_id = self._records.queue_for(shared)
        level = table.level_lasting(batch.delay) if batch.delay else batch.delay_level
        level = table.clamp(level)
        are_timers = not level and _are_timers(batch)
        place = (
            route_timer(topic, queue_id, self._cluster)
            if are_timers
            else route(topic, queue_id, level, self._cluster)
        )
        packed = self._packing.batch(DraftBatch(shared, batch.spans), place)
        if packed is None:
            # The call has had its turn.
            return replace(batch.plain(), queue_id=queue_id)
        key = (place.topic, place.queue_id)
        packed.queues = (key,)
        packed.waiting = {key: {topic: len(packed)}} if level or are_timers else {}
        self._log.append_packed([packed])
        self._counts.sent += len(packed)
        ((queue_offset, due_ms),) = packed.places
        return SentBatch(
            topic,
            queue_id,
            queue_offset,
            batch.message_ids,
            packed.physical_offsets,
            [due_ms for _, _, due_ms in ROW.iter_unpack(packed.rows)] if are_timers else due_ms,
            self._store_host_text,
        )

    def _append(self, part: _Part, outcomes: list[Outcome]) -> None:
        """Append all of a part but its singles."""
        if part.records:
            try:
                written = zip(part.records, self._log.append(part.records), strict=True)
                for number, queue_id, count in part.calls:
                    mine = list(islice(written, count))
                    first, place = mine[0]
                    is_timer = wait_queue_of(first.topic, first.queue_id) == TIMERS
                    out_ms = place.due_ms if count == 1 and is_timer else 0
                    offsets = [at.physical_offset for _, at in mine]
                    outcomes[number] = Stored(queue_id, place.queue_offset, offsets, out_ms)
                self._counts.sent += len(part.records)
            except RmqliteError as error:
                _refuse([number for number, _, _ in part.calls], error, outcomes)
            part.records, part.calls = [], []
        if part.packed:
            try:
                self._log.append_packed([packed for _, _, parts in part.packed for packed in parts])
                for number, queue_id, parts in part.packed:
                    ((queue_offset, _),) = parts[0].places
                    offsets = [each for packed in parts for each in packed.physical_offsets]
                    outcomes[number] = Stored(queue_id, queue_offset, offsets)
                    self._counts.sent += len(offsets)
            except RmqliteError as error:
                _refuse([number for number, _, _ in part.packed], error, outcomes)
            part.packed = []

    def _append_singles(self, part: _Part, outcomes: list[Outcome]) -> Steps[None]:
        drafts, part.singles = part.singles, []
        numbers, part.numbers = part.numbers, []
        if not drafts:
            return
        packed = self._packing.packed(drafts, part.targets)
        if packed is None:
            calls = [(at, DraftCall((draft,))) for at, draft in zip(numbers, drafts, strict=True)]
            yield from self._send_all(calls, outcomes, packs=False)
            return
        try:
            self._log.append_packed([packed])
            rows = zip(numbers, drafts, queue_places(packed), packed.physical_offsets, strict=True)
            for number, draft, (queue_offset, out_ms), physical_offset in rows:
                offsets = (physical_offset,)
                outcomes[number] = Stored(draft.queue_id, queue_offset, offsets, out_ms)
            self._counts.sent += len(packed)
        except RmqliteError as error:
            _refuse(numbers, error, outcomes)


def _are_timers(batch: SendBatch) -> bool:
    """Do its messages ask for instants?  If the first one does, all do."""
    _, _, _, begin, end = SPAN.unpack_from(batch.spans)
    return has_timer(batch.buffer[begin:end])


def _work_of(parts: Sequence[Packed]) -> int:
    count, keys = sum(map(len, parts)), sum([packed.key_count for packed in parts])
    size = sum([len(packed.data) for packed in parts])
    return count + max(0, keys - _KEYS_OF_ONE * count) // KEYS_WORK + size // BODY_BYTES


def _refuse(numbers: Iterable[int], error: RmqliteError, outcomes: list[Outcome]) -> None:
    """An append has failed for these calls.  Raises FlushFailed."""
    if isinstance(error, FlushFailed):
        raise error
    for number in numbers:
        outcomes[number] = error.with_traceback(None)

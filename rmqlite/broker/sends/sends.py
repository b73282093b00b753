"""The one way in for messages that are sent: check, choose the queue, pack, append.

A protocol hands over calls of drafts, each with its own outcome: one, or everything that has
arrived of many callers.  All calls of a step become one append, and a call that is refused refuses
none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from rmqlite.broker.admission import DELAY_PAIR, Room, TimerRules, check_draft, has_timer
from rmqlite.broker.appending import Appending
from rmqlite.broker.counts import Counts
from rmqlite.broker.retention import Retention
from rmqlite.broker.sends.calls import (
    BODY_BYTES,
    KEYS_WORK,
    NEW_QUEUE_WORK,
    STEP_MESSAGES,
    DraftCall,
    Outcome,
    Stored,
    check_work,
    work_of,
)
from rmqlite.broker.sends.failed_drafts import LOOK_WORK, FailedDrafts
from rmqlite.broker.sends.packing import Packing
from rmqlite.broker.sends.plain_records import PlainRecords
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.groups import GroupTable, OnDemand
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.clock import Clock
from rmqlite.compiled import SPAN
from rmqlite.config import BrokerConfig
from rmqlite.errors import FlushFailed, InvalidValue, RmqliteError
from rmqlite.levels import LevelTable
from rmqlite.message import DELAY, host_text, pack_host
from rmqlite.names import check_sendable, group_of, is_retry
from rmqlite.records.drafts import Draft, joined
from rmqlite.records.packed import Packed, packed_records
from rmqlite.store.message_store import MessageStore

PACKED_WORK_MAX: Final = 80_000
"""The work of one call whose records are made in C."""
PACKED_MESSAGES: Final = 4_096
"""The messages of a batch for which C makes them in one step of 2 ms."""
_KEYS_OF_ONE: Final = 2
"""The keys that a message usually has: its id, and one more."""
_NOWHERE: Final = Stored((), (), (), ())
"""Until a call is stored or refused."""


class _Numbered(NamedTuple):
    """A call whose queues are chosen, and its number in the outcomes."""

    number: int
    call: DraftCall

    @property
    def messages(self) -> int:
        drafts = self.call.drafts
        return drafts[0].messages if len(drafts) == 1 else sum([each.messages for each in drafts])


@dataclass(slots=True)
class _Part:
    """What the next append will store.

    singles: calls that are still to be packed together.  taken: calls that are packed, each with
    the packed records that it has a part in, its first row there, and how many rows are its.
    queues: what _queues_to_choose() has said in this step.
    """

    singles: list[_Numbered] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    taken: list[tuple[_Numbered, Sequence[Packed], int, int]] = field(default_factory=list)
    queues: dict[str, int] = field(default_factory=dict)
    work: int = 0

    def take(self, calls: Iterable[_Numbered], packed: Sequence[Packed]) -> None:
        """Calls whose records are packed, in their order."""
        self.packed += packed
        first = 0
        for numbered in calls:
            count = numbered.messages
            self.taken.append((numbered, packed, first, count))
            first += count


class Sends:
    """The sends of one broker."""

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
        self._topics = topics
        self._retention = retention
        self._log = appending
        self._counts = counts
        self._needed = needed
        self._failed = FailedDrafts(store, topics, groups, counts, config.cluster_name)
        host = pack_host(host_text(config.broker_ip, config.listen_port))
        self._plain = PlainRecords(config, store, clock, timers, topics, room, host)
        self._packing = Packing(store, clock, room, timers, config.cluster_name, host)

    def check(self, draft: Draft) -> None:
        """Raises what refuses a message that is passed on before it is stored."""
        check_draft(draft)
        self._timers.due_ms(draft.properties, self._clock.now_ms())

    def send(self, calls: Sequence[DraftCall]) -> Steps[list[Outcome]]:
        """The outcome of each call, in steps; valid once the store is durable, up to its end.

        Raises only FlushFailed.
        """
        outcomes: list[Outcome] = [_NOWHERE] * len(calls)
        part = _Part()
        for number, call in enumerate(calls):
            try:
                if not self._takes_one(number, call, part):
                    part.queues.clear()
                    yield from self._take(number, call, part, outcomes)
            except RmqliteError as error:
                _refuse((number,), error, outcomes)
            if part.work >= STEP_MESSAGES and number + 1 < len(calls):
                part.queues.clear()
                yield from self._store_part(part, outcomes)
                yield
        yield from self._store_part(part, outcomes)
        return outcomes

    def _takes_one(self, number: int, call: DraftCall, part: _Part) -> bool:
        """Take a call of one message or a short batch, as nearly all are; else leave it to _take().

        That would take twice as long.  Raises what _take() raises.
        """
        draft = call.drafts[0] if len(call.drafts) == 1 else None
        if draft is None or (draft.spans and len(draft.body) > BODY_BYTES):
            return False
        queues = part.queues.get(draft.topic)
        if queues is None:
            queues = part.queues[draft.topic] = self._queues_to_choose(draft.topic)
        work = work_of(draft)
        if not queues or work + NEW_QUEUE_WORK >= STEP_MESSAGES:
            return False
        if not 0 <= draft.queue_id < queues:
            queue_id = self._needed(draft.queue_id).queue_for(draft.topic, draft.queue_id)
            # Not _replace(): it takes three times as long.
            draft = Draft(draft.topic, queue_id, *draft[2:])
            call = DraftCall((draft,), call.max_reconsume_times)
        if draft.delay:
            self._store.levels.current.level_lasting(draft.delay)
        part.singles.append(_Numbered(number, call))
        part.work += work + self._new_queue_work(draft)
        return True

    def _queues_to_choose(self, topic: str) -> int:
        """The queues of an ordinary topic that may be sent to; 0 leaves its sends to _take().

        Raises what _take() raises.
        """
        info = self._topics.get(topic)
        if info is None or group_of(topic) is not None:
            return 0
        self._retention.check_room()
        check_sendable(topic)
        return self._topics.wanted(topic).write_queues

    def _take(
        self, number: int, call: DraftCall, part: _Part, outcomes: list[Outcome]
    ) -> Steps[None]:
        """Add a call to a part.  Raises what Broker.send() raises; then it adds none."""
        self._retention.check_room()
        placed = _Numbered(number, self._placed(call))
        for draft in placed.call.drafts:
            _with_level(draft, self._store.levels.current)
        if not call.is_batch:
            work = sum(map(self._work_of, placed.call.drafts))
            if work < STEP_MESSAGES:
                part.singles.append(placed)
                part.work += work
                return
        yield from self._pack_singles(part, outcomes)
        size = sum([len(draft.body) for draft in placed.call.drafts])
        if placed.messages + size // BODY_BYTES >= STEP_MESSAGES:
            # A table of levels may come into force between its steps.
            self._append(part, outcomes)
        yield from self._pack(placed, part)

    def _placed(self, call: DraftCall) -> DraftCall:
        """The call with the queue of each draft; topics that are missing are made at once."""
        if not call.drafts:
            raise InvalidValue("messages", 0, "at least one")
        needed: OnDemand | None = None
        chosen: dict[tuple[str, int], int] = {}
        drafts: list[Draft] = []
        for draft in self._failures_known(call):
            topic, queue_id = draft.topic, draft.queue_id
            check_sendable(topic)
            info = self._topics.get(topic)
            if info is not None and 0 <= queue_id < info.write_queues:
                self._topics.wanted(topic)
            else:
                needed = needed or self._needed(queue_id)
                if (topic, queue_id) not in chosen:
                    chosen[topic, queue_id] = needed.queue_for(topic, queue_id)
                draft = draft._replace(queue_id=chosen[topic, queue_id])
            drafts.append(draft)
        if needed is not None:
            needed.make()
        return call._replace(drafts=drafts)

    def _failures_known(self, call: DraftCall) -> Iterable[Draft]:
        """The drafts; what those to retry and dead-letter topics say of failures is the log's."""
        for draft in call.drafts:
            if group_of(draft.topic) is None:
                yield draft
                continue
            for single in draft.singles():
                is_failed = is_retry(draft.topic)
                check_draft(single, is_alone=call.is_alone, is_failed=is_failed)
                known = self._failed.of(single, call.max_reconsume_times, is_alone=call.is_alone)
                if draft.spans:
                    # Still one of a batch, with all of its properties at the end.
                    known = known._replace(spans=SPAN.pack(known.flag, 0, len(known.body), 0, 0))
                yield known

    def _work_of(self, draft: Draft) -> int:
        """The work of a single draft.  Raises MessageTooLarge."""
        work = work_of(draft)
        if group_of(draft.topic) is not None:
            return work + LOOK_WORK
        return work + self._new_queue_work(draft)

    def _new_queue_work(self, draft: Draft) -> int:
        if self._store.queue(draft.topic, draft.queue_id) is not None:
            return 0
        # A message that waits is stored elsewhere.
        waits = DELAY_PAIR in draft.properties or has_timer(draft.properties) or draft.delay
        return 0 if waits else NEW_QUEUE_WORK

    def _pack_singles(self, part: _Part, outcomes: list[Outcome]) -> Steps[None]:
        """Pack the calls of single drafts together, or, if that cannot be, each by itself."""
        singles, part.singles = part.singles, []
        if not singles:
            return
        table = self._store.levels.current
        drafts = [
            _with_level(draft, table) if draft.delay else draft
            for each in singles
            for draft in each.call.drafts
        ]
        packed = self._packing.packed(drafts)
        if packed is not None and not self._has_new_queues(packed):
            part.take(singles, [packed])
            return
        part.work = 0
        for place, numbered in enumerate(singles, 1):
            try:
                yield from self._pack_plainly(numbered, part)
            except RmqliteError as error:
                _refuse((numbered.number,), error, outcomes)
            if part.work >= STEP_MESSAGES and place < len(singles):
                self._append(part, outcomes)
                yield

    def _has_new_queues(self, packed: Packed) -> bool:
        """To make some takes turns of their own, which only the plain form takes."""
        new = sum([self._store.queue(*key) is None for key in packed.queues])
        return new * NEW_QUEUE_WORK >= STEP_MESSAGES

    def _pack(self, numbered: _Numbered, part: _Part) -> Steps[None]:
        """Pack one call: in C, in parts, one for each step; else by the plain form."""
        drafts = numbered.call.drafts
        while True:
            table = self._store.levels.current
            parts: list[Packed] = []
            for each in _parts_of(drafts):
                if parts:
                    yield
                packed = self._packing.packed([_with_level(draft, table) for draft in each])
                if packed is None:
                    yield from self._pack_plainly(numbered, part)
                    return
                parts.append(packed)
                check_work(_work_of(parts), PACKED_WORK_MAX)
            if len(parts) > 1:
                # The append of a long batch takes a step of its own, in which its topics exist.
                yield
                self._placed(numbered.call)
            if self._store.levels.current is table:
                break
        new = {key for each in parts for key in each.queues if self._store.queue(*key) is None}
        part.take([numbered], parts)
        part.work += _work_of(parts) + NEW_QUEUE_WORK * len(new)

    def _pack_plainly(self, numbered: _Numbered, part: _Part) -> Steps[None]:
        call, steps = numbered.call, 0
        while True:
            table = self._store.levels.current
            drafts = [_with_level(draft, table) for draft in call.drafts]
            making = self._plain.of(call._replace(drafts=drafts))
            try:
                while True:
                    next(making)
                    steps += 1
                    yield
            except StopIteration as end:
                records, work = end.value
            if self._store.levels.current is table:
                break
        if steps:
            # Between two steps its topic may have been deleted.
            self._placed(call)
        part.take([numbered], [packed_records(records)])
        part.work += work

    def _store_part(self, part: _Part, outcomes: list[Outcome]) -> Steps[None]:
        yield from self._pack_singles(part, outcomes)
        self._append(part, outcomes)

    def _append(self, part: _Part, outcomes: list[Outcome]) -> None:
        """Store what is packed, and begin anew."""
        packed, part.packed = part.packed, []
        taken, part.taken = part.taken, []
        part.work = 0
        if not packed:
            return
        try:
            self._log.append_packed(packed)
        except RmqliteError as error:
            _refuse([each.number for each, *_ in taken], error, outcomes)
            return
        self._counts.sent += sum(map(len, packed))
        for numbered, mine, first, count in taken:
            outcomes[numbered.number] = _stored(numbered.call, mine, first, count)


def _parts_of(drafts: Sequence[Draft]) -> Iterable[list[Draft]]:
    """The drafts of a call in parts, each with at most PACKED_MESSAGES messages of a batch."""
    if not any(draft.spans for draft in drafts):
        return [[*drafts]]
    return ([part] for draft in drafts for part in draft.parts(PACKED_MESSAGES))


def _with_level(draft: Draft, table: LevelTable) -> Draft:
    """A draft whose delay is a level.  The sender may know an older table.

    Raises DelayUnknown.
    """
    if not draft.delay:
        return draft
    pair = f"{DELAY}\x01{table.level_lasting(draft.delay)}".encode()
    return draft._replace(properties=joined(draft.properties, pair), delay="")


def _stored(call: DraftCall, packed: Sequence[Packed], first: int, count: int) -> Stored:
    if len(packed) == 1 and count == 1:
        (one,) = packed
        queue_offset, physical_offset, due = one.place(first)
        timer_ms = due if due and call.is_alone and one.is_timer(first) else 0
        queue_id = call.drafts[0].queue_id
        return Stored((queue_id,), (queue_offset,), (physical_offset,), (due,), timer_ms)
    rows = slice(first, first + count)
    columns = [(each.queue_offsets, each.physical_offsets, each.due_ms) for each in packed]
    queue_offsets: Sequence[int]
    if len(packed) > 1 and len({key for each in packed for key in each.queues}) == 1:
        # A long batch: a list for each column would take milliseconds of the append's turn.
        first = packed[0].queue_offsets[0]
        queue_offsets = range(first, first + count)
        physical_offsets = [*chain.from_iterable([each.physical_offsets for each in packed])]
        due_ms = [*chain.from_iterable([each.due_ms for each in packed])]
    elif len(packed) > 1:
        queue_offsets, physical_offsets, due_ms = (
            [*chain.from_iterable(column)] for column in zip(*columns, strict=True)
        )
    else:
        queue_offsets, physical_offsets, due_ms = ([*column[rows]] for column in columns[0])
    queue_ids = [draft.queue_id for draft in call.drafts]
    return Stored(queue_ids, queue_offsets, physical_offsets, due_ms)


def _work_of(parts: Sequence[Packed]) -> int:
    count, keys = sum(map(len, parts)), sum([packed.key_count for packed in parts])
    size = sum([len(packed.data) for packed in parts])
    return count + max(0, keys - _KEYS_OF_ONE * count) // KEYS_WORK + size // BODY_BYTES


def _refuse(numbers: Iterable[int], error: RmqliteError, outcomes: list[Outcome]) -> None:
    """These calls are refused.  Raises FlushFailed."""
    if isinstance(error, FlushFailed):
        raise error
    for number in numbers:
        outcomes[number] = error.with_traceback(None)

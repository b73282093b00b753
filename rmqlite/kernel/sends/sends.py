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

from rmqlite.kernel import Steps
from rmqlite.kernel.admission import DELAY_PAIR, check_draft, has_timer
from rmqlite.kernel.compiled import SPAN
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft, joined
from rmqlite.kernel.records.packed import Packed, packed_records
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.sends.calls import (
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
from rmqlite.kernel.sends.failed_drafts import LOOK_WORK, FailedDrafts
from rmqlite.kernel.sends.packing import Packing, PlainRecords
from rmqlite.kernel.tables.groups import OnDemand
from rmqlite.kernel.words.errors import FlushFailed, InvalidValue, RmqliteError
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.message import DELAY, UNIQUE_ID
from rmqlite.kernel.words.names import check_sendable, group_of, is_retry

PACKED_WORK_MAX: Final = 80_000
"""The work of one call whose records are made in C."""
PACKED_MESSAGES: Final = 4_096
"""The messages of a batch for which C makes them in one step of 2 ms."""
_KEYS_OF_ONE: Final = 2
"""The keys that a message usually has: its id, and one more."""
_UNIQUE_ID: Final = f"{UNIQUE_ID}\x01".encode()
_NOWHERE: Final = Stored((), (), (), ())
"""Until a call is stored or refused."""


class _Placed(NamedTuple):
    """A call whose queues and levels are chosen, and its number in the outcomes.

    missing: what has to be made before its records are stored.
    """

    number: int
    call: DraftCall
    missing: OnDemand | None = None

    @property
    def messages(self) -> int:
        drafts = self.call.drafts
        return drafts[0].messages if len(drafts) == 1 else sum([each.messages for each in drafts])


@dataclass(slots=True)
class _Part:
    """What the next append will store.

    short: calls that are still to be packed together.  taken: calls that are packed, each with
    the packed records that it has a part in, its first row there, and how many rows are its.
    queues: what _queues_to_choose() has said in this step.
    """

    short: list[_Placed] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    taken: list[tuple[_Placed, Sequence[Packed], int, int]] = field(default_factory=list)
    queues: dict[str, int] = field(default_factory=dict)
    work: int = 0

    def take(self, calls: Iterable[_Placed], packed: Sequence[Packed]) -> None:
        """Calls whose records are packed, in their order."""
        self.packed += packed
        first = 0
        for placed in calls:
            count = placed.messages
            self.taken.append((placed, packed, first, count))
            first += count


class Sends:
    """The sends of one broker: each call is placed, packed, appended.

    Short calls are packed and appended together, in one step; a long one is packed by itself, in
    steps, and appended when it is complete.
    """

    def __init__(self, parts: BrokerParts, retention: Retention) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._timers = parts.timers
        self._topics = parts.topics
        self._counts = parts.counts
        self._log = parts.appending
        self._retention = retention
        self._on_demand = parts.on_demand
        self._turn = 0
        self._failed = FailedDrafts(parts)
        self.plain = PlainRecords(parts)
        self._packing = Packing(parts)
        self.once: Callable[[DraftCall], Steps[Stored]] | None = None  # for unique ids

    def check(self, draft: Draft) -> None:
        """Raises what refuses a message that is passed on before it is stored."""
        self.plain.check(draft)
        self._timers.due_ms(draft.properties, self._clock.now_ms())

    def needed(self, queue_id: int = -1) -> OnDemand:
        """The topics and groups of one send; those that name no queue take the next in turn."""
        self._turn += queue_id < 0
        return self._on_demand(self._turn)

    def send(self, calls: Sequence[DraftCall]) -> Steps[list[Outcome]]:
        """The outcome of each call, in steps; valid once the store is durable, up to its end.

        Raises only FlushFailed.
        """
        outcomes: list[Outcome] = [_NOWHERE] * len(calls)
        part = _Part()
        for number, call in enumerate(calls):
            try:
                if self.once is not None and _has_unique_id(call):
                    work = part.work + 8 * _work_of_call(call)  # each is as much work as 8 others
                    yield from self._store_part(part, outcomes)
                    outcomes[number] = yield from self.once(call)
                    part.work = work
                elif (work := _work_of_call(call)) < STEP_MESSAGES:
                    placed = self._placed(number, call, part.queues)
                    part.short.append(placed)
                    part.work += work + self._work_of_new_queues(placed.call)
                else:
                    yield from self._store_part(part, outcomes)
                    yield from self._store_long(number, call, outcomes)
            except RmqliteError as error:
                _refuse((number,), error, outcomes)
            if part.work >= STEP_MESSAGES and number + 1 < len(calls):
                yield from self._store_part(part, outcomes)
                yield
        yield from self._store_part(part, outcomes)
        return outcomes

    # ---- where its messages go

    def _placed(self, number: int, call: DraftCall, queues: dict[str, int]) -> _Placed:
        """The call with the queue and level of each draft.

        Raises InvalidValue, InvalidName, DelayUnknown, TopicUnknown, QueueUnknown,
        PermissionMissing, DiskFull, StoreUnavailable.
        """
        if len(call.drafts) == 1:
            # Nearly all are one message, or one batch, to a topic that is there.
            draft = call.drafts[0]
            topic, queue_id = draft.topic, draft.queue_id
            count = queues.get(topic)
            if count is None:
                count = queues[topic] = self._queues_to_choose(topic)
            if count:
                if 0 <= queue_id < count and not draft.delay:
                    return _Placed(number, call)
                if not 0 <= queue_id < count:
                    queue_id = self.needed(queue_id).queue_for(topic, queue_id)
                    # Not _replace(): it takes three times as long.
                    draft = Draft(topic, queue_id, *draft[2:])
                draft = _with_level(draft, self._store.levels.current)
                return _Placed(number, DraftCall((draft,), call.max_reconsume_times))
        queues.clear()
        return self.any_placed(number, call)

    def _queues_to_choose(self, topic: str) -> int:
        """The queues of an ordinary topic that may be sent to; 0 leaves it to any_placed()."""
        info = self._topics.get(topic)
        if info is None or group_of(topic) is not None:
            return 0
        check_sendable(topic)
        return self._topics.wanted(topic).write_queues

    def any_placed(self, number: int, call: DraftCall) -> _Placed:
        """_placed() for every call."""
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
                needed = needed or self.needed(queue_id)
                if (topic, queue_id) not in chosen:
                    chosen[topic, queue_id] = needed.queue_for(topic, queue_id)
                draft = draft._replace(queue_id=chosen[topic, queue_id])
            drafts.append(_with_level(draft, self._store.levels.current))
        if needed is not None:
            self._retention.check_room()
            if not needed.is_missing:
                needed.make()
                needed = None
        return _Placed(number, call._replace(drafts=drafts), needed)

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

    def _work_of_new_queues(self, call: DraftCall) -> int:
        """Of a call whose queues are chosen."""
        work = 0
        for draft in call.drafts:
            if self._store.queue(draft.topic, draft.queue_id) is None:
                # A message that waits is stored elsewhere.
                waits = DELAY_PAIR in draft.properties or has_timer(draft.properties)
                work += 0 if waits else NEW_QUEUE_WORK
        return work

    # ---- its records

    def _store_part(self, part: _Part, outcomes: list[Outcome]) -> Steps[None]:
        """Pack the short calls together, or, if that cannot be, each by itself; append them."""
        short, part.short = part.short, []
        part.queues.clear()
        # A call that is refused makes no topic; so those that need one are packed by themselves.
        if short and not any([placed.missing for placed in short]):
            packed = self._packing.packed([draft for each in short for draft in each.call.drafts])
            if packed is not None and self._new_queue_work([packed]) < STEP_MESSAGES:
                part.take(short, [packed])
                short = []
        part.work = 0
        for place, placed in enumerate(short, 1):
            try:
                packed_alone, work = yield from self._packed(placed.call)
                if placed.missing:
                    placed.missing.make()
            except RmqliteError as error:
                _refuse((placed.number,), error, outcomes)
                continue
            part.take([placed], packed_alone)
            part.work += work
            if part.work >= STEP_MESSAGES and place < len(short):
                self._append(part, outcomes)
                yield
        self._append(part, outcomes)

    def _store_long(self, number: int, call: DraftCall, outcomes: list[Outcome]) -> Steps[None]:
        """Pack one call in steps, and append it in a step of its own.  Raises what refuses it."""
        while True:
            table = self._store.levels.current
            placed = self.any_placed(number, call)
            packed, _ = yield from self._packed(placed.call)
            yield
            if self._store.levels.current is table:
                break
        # Between two steps its topic may have been deleted.
        needed = self.needed(0)
        for queue in {(draft.topic, draft.queue_id) for draft in placed.call.drafts}:
            needed.queue_for(*queue)
        needed.make()
        part = _Part()
        part.take([placed], packed)
        self._append(part, outcomes)

    def _packed(self, call: DraftCall) -> Steps[tuple[list[Packed], int]]:
        """The records of one call, in C, or else by the plain form; and their work; in steps.

        Raises what refuses the call.
        """
        packed: list[Packed] = []
        for drafts in _parts_of(call.drafts):
            if packed:
                yield
            part = self._packing.packed(drafts)
            if part is None:
                break
            packed.append(part)
            check_work(_work_of(packed), PACKED_WORK_MAX)
        else:
            return packed, _work_of(packed) + self._new_queue_work(packed)
        records, work = yield from self.plain.of(call)
        return [packed_records(records)], work

    def _new_queue_work(self, packed: Sequence[Packed]) -> int:
        """To make the first file of a queue takes long."""
        queues = {key for each in packed for key in each.queues}
        return NEW_QUEUE_WORK * sum([self._store.queue(*key) is None for key in queues])

    def _append(self, part: _Part, outcomes: list[Outcome]) -> None:
        """Store what is packed, and begin anew."""
        packed, part.packed = part.packed, []
        taken, part.taken = part.taken, []
        part.work = 0
        if not packed:
            return
        try:
            # Last of all: who is refused for good need not try again while the disk is full.
            self._retention.check_room()
            self._log.append_packed(packed)
        except RmqliteError as error:
            _refuse([each.number for each, *_ in taken], error, outcomes)
            return
        self._counts.sent += sum(map(len, packed))
        for placed, mine, first, count in taken:
            outcomes[placed.number] = _stored(placed.call, mine, first, count)


def _has_unique_id(call: DraftCall) -> bool:
    for draft in call.drafts:
        if _UNIQUE_ID in draft.properties or (draft.spans and _UNIQUE_ID in draft.body):
            return True
    return False


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


def _work_of_call(call: DraftCall) -> int:
    """The work of a call, without that of new queues.  Raises MessageTooLarge."""
    work = 0
    for draft in call.drafts:
        work += work_of(draft)
        if group_of(draft.topic) is not None:
            work += LOOK_WORK
    return work


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

"""Cancel, fire, reschedule, bury: four more ways to end the wait of a pending message.

A change appends one record that completes the scheduled one (see kernel/records/completion.py).
So it is as atomic and as safe from a crash as a delivery, and if the two race, only the first
has an effect.  Changes are made in slices; the caller continues at the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rmqlite.features.changes.burying import buried, check_burying
from rmqlite.features.changes.pending import Found, Pending
from rmqlite.features.changes.requests import (
    CHANGED_IDS_MAX,
    CHANGES_DEFAULT,
    CHANGES_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    ChangeOutcome,
    RecallHandle,
)
from rmqlite.features.finding.finding import how_it_ended
from rmqlite.features.finding.matching import offset_id_of, unique_key_of
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.completion import Completion, topic_ahead
from rmqlite.kernel.records.drafts import SPARED, derived, left_after_sparing
from rmqlite.kernel.records.record import Head, NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.routing import hidden
from rmqlite.kernel.schedule.schedule import Ready, Schedule
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, MessageTooLarge
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.limits import SEARCH_BYTES_MAX, check_length
from rmqlite.kernel.words.message import (
    CLUSTER,
    DELAY,
    FIRED,
    REAL_QID,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    UNIQ_KEY,
    UNIQUE_ID,
    WAIT,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, dlq_topic, group_of
from rmqlite.kernel.words.property_string import PropertyString

SLICE_MAX: Final = 100
"""The most messages changed in one step; then other calls may run."""
SLICE_BYTES_MAX: Final = 4 << 20
"""The most bytes of scheduled records changed in one step; a single record may be longer."""
SLICE_IDS_MAX: Final = 20
CALL_SLICES_MAX: Final = 100
"""After this many slices a call returns, even if more messages fit: its caller sees progress."""
_OUTCOMES: Final = {
    Completion.DELIVERED: ChangeOutcome.ALREADY_DELIVERED,
    Completion.FIRED: ChangeOutcome.ALREADY_DELIVERED,
    Completion.CANCELLED: ChangeOutcome.ALREADY_CANCELLED,
    Completion.UNDELIVERABLE: ChangeOutcome.UNDELIVERABLE,
    # The record that replaced it would be newer, but the store does not have it any more.
    Completion.RESCHEDULED: ChangeOutcome.NOT_FOUND,
    Completion.CARRIED: ChangeOutcome.NOT_FOUND,
}
_NEW_TIMES: Final = ("delay_level", "deliver_at_ms", "deliver_after_ms")
_OF_THE_WAIT: Final = frozenset({DELAY}) | TIMER_PROPERTIES
"""The properties that name the level or the instant; a reschedule writes its own."""
_OF_THE_MESSAGE: Final[tuple[str, ...]] = (UNIQ_KEY, REAL_TOPIC, REAL_QID)
"""The properties of the message that its cancellation record has, too."""


_SPARED: Final = (CLUSTER, WAIT, *SPARED)
"""What the broker itself has added, and neither delivery nor a consumer needs."""


class Changes:
    """Changes pending messages; an answer is valid once the log is durable up to its end."""

    def __init__(self, parts: BrokerParts, schedule: Schedule, pending: Pending) -> None:
        self._store = parts.store
        self._schedule = schedule
        self._topics = parts.topics
        self._pending = pending
        self._timers = parts.timers
        self._clock = parts.clock
        self._counts = parts.counts
        """The number of messages changed since the start, by action."""

    def by_ids(self, request: ChangeByIds) -> Steps[tuple[ChangedId, ...]]:
        """Change messages by id; returns the outcome of each id, in the order of the request.

        Raises InvalidValue before any change.  Raises StoreUnavailable, MessageNotFound,
        MessageTooLarge; then the changes of earlier steps stay.
        """
        self._check_new_time(request)
        if not 1 <= len(request.message_ids) <= CHANGED_IDS_MAX:
            rule = f"1 to {CHANGED_IDS_MAX} in one call"
            raise InvalidValue("message_ids", f"{len(request.message_ids)} of them", rule)
        for message_id in request.message_ids:
            check_length("message_ids", message_id, SEARCH_BYTES_MAX)
        if "" in request.message_ids:
            raise InvalidValue("message_ids", "", "the id of a message, as send returns it")
        changed: dict[str, ChangedId] = {}
        for number, message_id in enumerate(dict.fromkeys(request.message_ids), 1):
            changed[message_id] = yield from self._by_id(message_id, request)
            if number % SLICE_IDS_MAX == 0:
                yield
        return tuple(changed[message_id] for message_id in request.message_ids)

    def by_filter(self, request: ChangeByFilter) -> Steps[ChangedPage]:
        """Change the next messages that fit.  Raises as by_ids()."""
        self._check_new_time(request)
        limit = request.max_messages or CHANGES_DEFAULT
        if not 1 <= limit <= CHANGES_MAX:
            rule = f"0 for the default, {CHANGES_DEFAULT}, or 1 to {CHANGES_MAX}"
            raise InvalidValue("max_messages", request.max_messages, rule)
        changed, cursor = 0, request.cursor
        for _ in range(CALL_SLICES_MAX):
            count_max = min(SLICE_MAX, limit - changed)
            found, cursor = self._pending.slice(request.filter, cursor, count_max)
            yield
            for part in _by_size(found):
                changed += self._change(request, part)[0]
                if part is not found:
                    yield
            if not cursor or changed >= limit:
                break
            yield
        return ChangedPage(changed, cursor)

    def recall(self, handle: RecallHandle) -> Steps[ChangedId]:
        """Cancel the timer that a handle names; a message that was moved is another one.

        Raises StoreUnavailable, MessageTooLarge.
        """
        request = ChangeByIds(ScheduleAction.CANCEL, (handle.message_id,), handle.topic)
        return self._by_id(handle.message_id, request, handle.timer_out_ms)

    # ---- inside

    def _check_new_time(self, request: ChangeByIds | ChangeByFilter) -> None:
        check_burying(request)
        action, most = request.action, self._store.levels.current.max_level
        given = {name: value for name in _NEW_TIMES if (value := getattr(request, name))}
        if action is not ScheduleAction.RESCHEDULE:
            for name, value in given.items():
                raise InvalidValue(name, value, f"left out: {action.name} takes no new time")
            return
        name, *others = given or ("delay_level",)
        value = getattr(request, name)
        if others:
            raise InvalidValue(name, value, f"left out if {others[0]} is given")
        if name == "delay_level" and not 1 <= value <= most:
            raise InvalidValue(name, value, f"a level of the table in force, 1 to {most}")
        if value < 0:
            raise InvalidValue(name, value, "more than 0")
        self._due_ms(request)

    def _due_ms(self, request: ChangeByIds | ChangeByFilter) -> int:
        """A reschedule's instant, now if that has passed; 0 for a level.  Raises InvalidValue."""
        now_ms = self._clock.now_ms()
        at_ms, after_ms = request.deliver_at_ms, request.deliver_after_ms
        if after_ms:
            self._timers.check("deliver_after_ms", after_ms, after_ms)
            return now_ms + after_ms
        if at_ms:
            check_not_long_ago("deliver_at_ms", at_ms)
            self._timers.check("deliver_at_ms", at_ms, at_ms - now_ms)
            # A message that is due at once is not late.
            return max(at_ms, now_ms)
        return 0

    def _by_id(
        self, message_id: str, request: ChangeByIds, timer_out_ms: int | None = None
    ) -> Steps[ChangedId]:
        waiting, newest = yield from self._pending.with_id(message_id, request.topic, timer_out_ms)
        if waiting:
            count = due_ms = 0
            for begin in range(0, len(waiting), SLICE_MAX):
                if begin:
                    yield
                changed, at_ms = self._change(request, waiting[begin : begin + SLICE_MAX])
                count, due_ms = count + changed, max(due_ms, at_ms)
            if not count:
                return ChangedId(message_id, ChangeOutcome.UNDELIVERABLE)
            return ChangedId(message_id, ChangeOutcome.DONE, count, due_ms)
        return ChangedId(message_id, self._outcome(newest))

    def _outcome(self, scheduled: Head | None) -> ChangeOutcome:
        """How the wait of a scheduled record ended; the record must not be pending."""
        if scheduled is None:
            return ChangeOutcome.NOT_FOUND
        end = scheduled.physical_offset + scheduled.size
        own = PropertyString(scheduled.properties)
        own_id = unique_key_of(scheduled) or offset_id_of(scheduled)
        ended = how_it_ended(self._store, end, own_id, topic_ahead(own), own.text(UNIQUE_ID))
        return _OUTCOMES[ended]

    def _change(
        self, request: ChangeByIds | ChangeByFilter, found: Sequence[Found]
    ) -> tuple[int, int]:
        """Change the messages that still wait; their number, and their new due time or 0.

        A message that cannot be delivered is not fired and not counted.
        """
        # Each once: RocketMQ's key index may name a record twice.
        each_once = {each.place: each for each in found if self._pending.is_open(each.place)}
        found = list(each_once.values())
        if request.action is ScheduleAction.FIRE:
            # For example, a message fired into a deleted topic would be lost.
            found = [each for each in found if not self._schedule.why_not(each.head)]
        if request.dry_run or not found:
            return len(found), 0
        if request.action is ScheduleAction.CANCEL:
            self._topics.ensure(CANCELLED_TOPIC, 1)
            records = [_cancellation(each) for each in found]
        else:
            if request.action is ScheduleAction.BURY:
                self._topics.ensure(dlq_topic(group_of(found[0].topic) or ""), 1)
            records = self._with_bodies(request, found)
        ready = [
            Ready(each.place, each.topic, record, "")
            for each, record in zip(found, records, strict=True)
        ]
        written = self._schedule.complete(ready)
        self._counts.changed[request.action] += len(ready)
        if request.action is ScheduleAction.BURY:
            self._counts.dead[group_of(found[0].topic) or ""] += len(ready)
        return len(ready), written[-1].due_ms

    def _with_bodies(
        self, request: ChangeByIds | ChangeByFilter, found: Sequence[Found]
    ) -> list[NewRecord]:
        due_ms = self._due_ms(request)
        entries = [each.place.entry for each in found]
        records = []
        for each, walked in zip(
            found, self._store.read_records(entries, check_bodies=False), strict=True
        ):
            if walked is None:
                raise MessageNotFound(each.place.entry.physical_offset)
            own = walked.properties
            if request.action is ScheduleAction.FIRE:
                key = (each.topic, each.queue_id)
                properties = own.edited({FIRED: str(each.place.due_ms)})
            elif request.action is ScheduleAction.BURY:
                key = (dlq_topic(group_of(each.topic) or ""), 0)
                properties = buried(walked, request.reason)
            else:
                added = {RESCHEDULED_FROM: str(each.place.wait_queue)}
                if due_ms:
                    added[TIMER_DELIVER_MS] = str(due_ms)
                key, properties = hidden(
                    own.edited(added, _OF_THE_WAIT).encoded,
                    each.topic,
                    each.queue_id,
                    level=request.delay_level,
                    due_ms=due_ms,
                )
            size_max = self._schedule.room.for_properties(each.head, each.topic)
            properties = _fitting(properties, walked, size_max)
            records.append(derived(walked, *key, properties=properties, completes=walked.end))
        return records


def _cancellation(found: Found) -> NewRecord:
    """The record that completes a cancelled message; it has no body."""
    scheduled, own = Record(found.head, b""), found.properties
    copied = {name: value for name in _OF_THE_MESSAGE if (value := own.get(name)) is not None}
    # The index finds it by this id, so that later calls hear what became of the message.
    copied.setdefault(UNIQ_KEY, offset_id_of(found.head).encode())
    if found.place.wait_queue == TIMERS:
        copied[TIMER_OUT_MS] = own.get(TIMER_OUT_MS) or str(found.place.due_ms).encode()
    else:
        copied[DELAY] = str(found.place.wait_queue).encode()
    properties = PropertyString(b"").edited(copied)
    return derived(
        scheduled,
        CANCELLED_TOPIC,
        0,
        properties=properties,
        body=b"",
        completes=scheduled.end,
    )


def _fitting(properties: PropertyString, waiting: Record, size_max: int) -> PropertyString:
    """The property string of a changed record, not longer than this.  Raises MessageTooLarge."""
    left = left_after_sparing(properties, size_max, _SPARED)
    if left is None:
        rule = (
            f"at most {size_max} bytes; the properties of the message at physical offset"
            f" {waiting.head.physical_offset} leave no room for the change"
        )
        raise MessageTooLarge("properties", len(properties.encoded), rule)
    return left.of(properties)


def _by_size(found: list[Found]) -> Iterator[list[Found]]:
    """The messages in parts, each small enough for one step."""
    size = sum(each.place.entry.size for each in found)
    if size <= SLICE_BYTES_MAX:
        yield found
        return
    part: list[Found] = []
    size = 0
    for each in found:
        size += each.place.entry.size
        if part and size > SLICE_BYTES_MAX:
            yield part
            part, size = [], each.place.entry.size
        part.append(each)
    yield part

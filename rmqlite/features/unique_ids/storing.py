"""Stores calls in which messages have unique ids: each id once, or in the place of another.

A message that takes the place of one that waits is the record that completes that one, as a
reschedule or a delivery at once would be.  So a crash leaves one of the two.

Between the last look for others with the same ids and the append no other call has a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rmqlite.features.first_messages import (
    HOUR_MS,
    Asked,
    Choice,
    First,
    FirstMessages,
    choice_of,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.admission import check_sent_properties, is_half
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import NewRecord, Written
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.routing import check_property_string
from rmqlite.kernel.schedule.schedule import Ready
from rmqlite.kernel.sends.calls import STEP_MESSAGES, DraftCall, Stored
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge
from rmqlite.kernel.words.message import (
    DELAY,
    FIRED,
    KEY_SEPARATOR,
    KEYS,
    RESCHEDULED_FROM,
    TIMER_OUT_MS,
    UNIQ_KEY,
    UNIQUE_ID,
    UNIQUE_ID_REPLACE,
    find_property,
    offset_message_id,
    property_marker,
)
from rmqlite.kernel.words.names import group_of
from rmqlite.kernel.words.property_string import PropertyString, check_unique_id

IDS_MAX: Final = 1_000
"""The unique ids of one call: they are looked for once more in the step of its append."""
_UNIQUE_ID: Final = property_marker(UNIQUE_ID)
_DELAY_ONLY: Final = frozenset({DELAY})
_SWITCH: Final = {None: False, b"false": False, b"true": True}


class OncePlace(NamedTuple):
    """Where a message is, and by which id it is known."""

    queue_offset: int
    physical_offset: int
    due_ms: int
    is_timer: bool
    queue_id: int
    message_id: str


class StoringOnce:
    """Stores the calls of one broker."""

    def __init__(self, broker: Broker) -> None:
        parts = broker.parts
        self._parts = parts
        self._store = parts.store
        self._clock = parts.clock
        self._drafts = broker.drafts
        self._schedule = broker.schedule
        self._retention = broker.retention
        self._window_ms = parts.config.dedup_hours * HOUR_MS

    def stored(self, call: DraftCall) -> Steps[Stored]:
        """Store a call, all or none, in steps.  Raises what refuses it."""
        while True:
            table = self._store.levels.current
            placed = self._drafts.any_placed(0, call).call
            _check_half(placed)
            records, work = yield from self._drafts.plain.of(placed)
            asked: list[Asked | None] = []
            for position, topic in enumerate(_topics(placed.drafts)):
                each, records[position] = _asked(topic, records[position])
                asked.append(each)
            end = self._store.end
            names = [each for each in asked if each is not None]
            if len(names) > IDS_MAX:
                rule = f"at most {IDS_MAX} in one call"
                raise MessageTooLarge("unique_id", f"{len(names)} of them", rule)
            looking = FirstMessages(self._store, names, self._clock.now_ms() - self._window_ms)
            firsts = yield from looking.first_messages()
            choice = choice_of(asked, firsts, looking)
            if work >= STEP_MESSAGES:
                yield
            if self._store.levels.current is table and not looking.has_newer(end):
                break
        written = self._append(placed, records, asked, choice)
        return _stored(placed, self._places(placed, records, choice, written), choice)

    # ---- inside

    def _append(
        self,
        call: DraftCall,
        records: Sequence[NewRecord],
        asked: Sequence[Asked | None],
        choice: Choice,
    ) -> list[Written]:
        if not choice.stored:
            return []
        # Last of all: who is refused for good need not try again while the disk is full.
        self._retention.check_room()
        needed = self._drafts.needed(0)
        for queue in {(draft.topic, draft.queue_id) for draft in call.drafts}:
            needed.queue_for(*queue)
        new: list[NewRecord] = []
        ready: list[Ready] = []
        for position in choice.stored:
            record, each = records[position], asked[position]
            if (first := choice.replaced.get(position)) is not None and first.place and each:
                record = _replacing(record, first)
                ready.append(Ready(first.place, each.topic, record, ""))
            new.append(record)
        needed.make()
        if ready:
            written = self._schedule.complete(ready, new)
        else:
            written = self._parts.appending.append(new)
        self._parts.counts.sent += len(new)
        self._parts.counts.changed[ScheduleAction.CANCEL] += len(ready)
        return written

    def _places(
        self,
        call: DraftCall,
        records: Sequence[NewRecord],
        choice: Choice,
        written: Sequence[Written],
    ) -> list[OncePlace]:
        """Of each message the place, its own or that of the one that has its id."""
        queue_ids = [each.queue_id for each in call.drafts for _ in range(each.messages)]
        own: dict[int, OncePlace] = {}
        for position, at in zip(choice.stored, written, strict=True):
            record = records[position]
            message_id = record.properties.text(UNIQ_KEY)
            if not message_id:
                message_id = offset_message_id(self._parts.store_host, at.physical_offset)
            is_timer = wait_queue_of(record.topic, record.queue_id) == TIMERS
            to = queue_ids[position], message_id
            own[position] = OncePlace(at.queue_offset, at.physical_offset, at.due_ms, is_timer, *to)
        return [self._place_of(position, own, choice) for position in range(len(records))]

    def _place_of(self, position: int, own: dict[int, OncePlace], choice: Choice) -> OncePlace:
        if position in own:
            return own[position]
        instead = choice.instead[position]
        if isinstance(instead, int):
            return self._place_of(instead, own, choice)
        head, place = instead.head, instead.place
        return OncePlace(
            head.queue_offset,
            head.physical_offset,
            place.due_ms if place else 0,
            place is not None and place.wait_queue == TIMERS,
            instead.queue_id,
            instead.message_id,
        )


def _check_half(call: DraftCall) -> None:
    draft = call.drafts[0]
    if call.is_alone and is_half(draft):
        unique_id = PropertyString(draft.properties).text(UNIQUE_ID)
        if unique_id:
            rule = "left out of a transaction: nobody knows yet whether its message will be there"
            raise InvalidValue(UNIQUE_ID, unique_id, rule)


def _topics(drafts: Sequence[Draft]) -> Iterator[str]:
    return (each.topic for each in drafts for _ in range(each.messages))


def _asked(topic: str, record: NewRecord) -> tuple[Asked | None, NewRecord]:
    """What a message asks for, and its record, which the key index finds by the unique id.

    None without a unique id, and for what a consumer sends to a retry topic with the properties of
    a failed message.  Raises InvalidValue, MessageTooLarge.
    """
    own = record.properties
    value = find_property(own.encoded, _UNIQUE_ID)
    if value is None or group_of(topic) is not None:
        return None, record
    unique_id = value.decode("utf-8", "surrogateescape")
    check_unique_id(unique_id)
    replaces = own.get(UNIQUE_ID_REPLACE)
    if replaces not in _SWITCH:
        raise InvalidValue(UNIQUE_ID_REPLACE, own.text(UNIQUE_ID_REPLACE), '"true" or "false"')
    asked = Asked(topic, unique_id, own.text(UNIQ_KEY), _SWITCH[replaces])
    keys = own.text(KEYS).split(KEY_SEPARATOR)
    if unique_id in keys or unique_id == asked.message_id:
        return asked, record
    own = own.edited({KEYS: KEY_SEPARATOR.join([*filter(None, keys), unique_id])})
    check_sent_properties(own.encoded)
    return asked, record._replace(properties=own)


def _replacing(record: NewRecord, first: First) -> NewRecord:
    """A record that completes a message that waits, and is another one.

    If it waits, too, it is that message rescheduled; if not, it is that message delivered at once.
    """
    place, head = first.place, first.head
    assert place is not None
    wait_queue, changes = str(place.wait_queue), dict[str, str | bytes]()
    without = frozenset[str]()
    if record.topic in WAIT_TOPICS:
        changes[RESCHEDULED_FROM] = wait_queue
    elif place.wait_queue == TIMERS:
        out_ms = PropertyString(head.properties).get(TIMER_OUT_MS)
        changes |= {FIRED: str(place.due_ms), TIMER_OUT_MS: out_ms or str(place.due_ms)}
        without = _DELAY_ONLY
    else:
        changes |= {FIRED: str(place.due_ms), DELAY: wait_queue}
    properties = record.properties.edited(changes, without)
    check_property_string(properties)
    return record._replace(properties=properties, completes=head.physical_offset + head.size)


def _stored(call: DraftCall, places: Sequence[OncePlace], choice: Choice) -> Stored:
    duplicates = {at: (places[at].queue_id, places[at].message_id) for at in choice.instead}
    queue_ids = [draft.queue_id for draft in call.drafts]
    if len(places) == 1:
        queue_ids = [places[0].queue_id]
    return Stored(
        queue_ids,
        [each.queue_offset for each in places],
        [each.physical_offset for each in places],
        [each.due_ms for each in places],
        places[0].due_ms if call.is_alone and places[0].is_timer else 0,
        duplicates,
    )

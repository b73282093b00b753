"""The whole history of a message, rebuilt from the log: all its records, in their order.

A message has a record in each place where it was, under the same UNIQ_KEY; a redrive gives
it another one, made of the place of the dead letter.  So the key index leads from any id of a
history to all its records, forwards and back.  Records without a UNIQ_KEY are joined by their
references to each other, as far as these go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
from typing import Final

from rmqlite.features.dead_letters.reading import INT32_MAX
from rmqlite.features.dead_letters.redriven import EARLIER, IMPORTED, Redriven
from rmqlite.features.dead_letters.requests import (
    EVENTS_MAX,
    EventKind,
    History,
    HistoryEvent,
    HistoryQuery,
)
from rmqlite.features.finding.finding import offset_in
from rmqlite.features.finding.matching import (
    has_key,
    has_offset_id,
    number_of,
    reason_of,
    redriven_from,
    unique_key_of,
)
from rmqlite.features.finding.requests import Place
from rmqlite.features.finding.waits import wait_of
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import is_entered, outline_at
from rmqlite.kernel.records.completion import (
    UNDELIVERABLE_TOPIC,
    Completion,
    completed_queue,
    completion_of,
    topic_ahead,
    wait_queue_left,
)
from rmqlite.kernel.records.record import Head, destination
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, queue_of
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    KEY_SEPARATOR,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REDRIVE_ID_PREFIX,
    REDRIVEN_BY,
    REDRIVEN_MESSAGE_ID,
    decode_properties,
    find_property,
    offset_message_id,
    property_marker,
    senders_limit,
    unpack_host,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, group_of, is_dlq, is_retry
from rmqlite.kernel.words.property_string import PropertyString

_REDRIVEN_BY: Final = property_marker(REDRIVEN_BY)
_ATTEMPTS: Final = property_marker(DELIVERY_ATTEMPTS)
_WITH_REASON: Final = (EventKind.FAILED, EventKind.DEAD, EventKind.UNDELIVERABLE)
IDS_MAX: Final = 100
"""The most message ids through which one history is followed."""
STEP_TOPICS: Final = 20
STEP_RECORDS: Final = 200
READS_MAX: Final = 5 * EVENTS_MAX
"""The most records read for one id: other keys may have the same hash."""
EVENTS_BYTES_MAX: Final = 4 << 20
"""The most bytes of properties of all records in an answer."""
_KEYS: Final = property_marker(KEYS)
_ORIGIN: Final = property_marker(ORIGIN_MESSAGE_ID)
_REDRIVEN_ID: Final = property_marker(REDRIVEN_MESSAGE_ID)


def event_of(
    store: MessageStore, committed: Callable[[Queue], Mapping[str, int]], head: Head
) -> HistoryEvent:
    """The event that a record is; committed(queue) returns the committed offset of each group.

    Its kind follows from the record's topic, its destination, and the record that it completes;
    RocketMQ's own deliveries complete none, but still say that they have waited.
    """
    kind = kind_of(head)
    wait = wait_of(store, head)
    host = unpack_host(head.store_host)
    own_id = offset_message_id(host, head.physical_offset)
    job = find_property(head.properties, _REDRIVEN_BY) if kind is EventKind.REDRIVEN else None
    return HistoryEvent(
        kind=kind,
        at_ms=head.store_timestamp_ms,
        topic=head.topic,
        queue_id=head.queue_id,
        queue_offset=head.queue_offset,
        physical_offset=head.physical_offset,
        offset_message_id=own_id,
        message_id=unique_key_of(head) or own_id,
        group=_group(head),
        attempt=_attempt(head),
        level=wait.wait_queue if wait else 0,
        due_ms=wait.due_ms if wait else 0,
        is_pending=wait is not None and wait.is_pending,
        reason=reason_of(head) if kind in _WITH_REASON else "",
        job_id=(job or b"").decode("utf-8", "replace"),
        readers=_readers(committed, head),
        max_reconsume_times=senders_limit(decode_properties(head.properties)),
    )


def kind_of(head: Head) -> EventKind:
    """The kind of event that a record is."""
    if head.topic in WAIT_TOPICS:
        return _scheduled(head)
    if head.topic == CANCELLED_TOPIC:
        return EventKind.CANCELLED
    properties = PropertyString(head.properties)
    is_completing = completed_queue(head, properties) != 0
    if head.topic == UNDELIVERABLE_TOPIC and is_completing:
        return EventKind.UNDELIVERABLE
    if is_dlq(head.topic):
        return EventKind.DEAD
    if is_completing and completion_of(head.topic, properties) is Completion.FIRED:
        return EventKind.FIRED
    is_delivered = is_completing or _rocketmq_has_delivered(head, properties)
    if is_retry(head.topic):
        return EventKind.RETRIED if is_delivered or not _is_back(head) else EventKind.REDRIVEN
    if is_delivered:
        return EventKind.DELIVERED
    return EventKind.REDRIVEN if redriven_from(head.properties) else EventKind.SENT


def _scheduled(head: Head) -> EventKind:
    properties = PropertyString(head.properties)
    completion = completion_of(head.topic, properties)
    # A carried timer stands for the record that it completes, which goes with its log file.
    if completed_queue(head, properties) and completion is Completion.RESCHEDULED:
        return EventKind.RESCHEDULED
    ahead = topic_ahead(properties)
    if (is_retry(ahead) or is_dlq(ahead)) and not _is_back(head):
        # In RocketMQ a dead letter that a consumer sends itself may wait, too.
        return EventKind.FAILED
    return EventKind.REDRIVEN if redriven_from(head.properties) else EventKind.SCHEDULED


def _is_back(head: Head) -> bool:
    """Has a redrive sent this to the group that failed?  Every failure counts at least one."""
    return not head.reconsume_times and bool(redriven_from(head.properties))


def _rocketmq_has_delivered(head: Head, properties: PropertyString) -> bool:
    """Has a record the properties of one that waited in RocketMQ's schedule?"""
    has_waited = wait_queue_left(head.topic, properties) != 0
    return has_waited and destination(properties) == (head.topic, head.queue_id)


def _group(head: Head) -> str:
    """The group of a failure, retry or dead letter, also while the message waits for it."""
    if head.topic in (*WAIT_TOPICS, CANCELLED_TOPIC, UNDELIVERABLE_TOPIC):
        return group_of(topic_ahead(PropertyString(head.properties))) or ""
    return group_of(head.topic) or ""


def _attempt(head: Head) -> int:
    reported = number_of(head.properties, _ATTEMPTS) if is_dlq(head.topic) else 0
    return max(0, head.reconsume_times, reported if reported and reported <= INT32_MAX else 0)


def _readers(committed: Callable[[Queue], Mapping[str, int]], head: Head) -> tuple[str, ...]:
    if head.topic in (*WAIT_TOPICS, CANCELLED_TOPIC) or is_dlq(head.topic):
        return ()
    offsets = committed(Queue(head.topic, head.queue_id))
    return tuple(sorted(group for group, at in offsets.items() if at > head.queue_offset))


class Histories:
    """Finds histories in one broker's store."""

    def __init__(self, parts: BrokerParts, redriven: Redriven) -> None:
        self._store = parts.store
        self._offsets = parts.offsets
        self._redriven = redriven
        self._readable_end = parts.readable_end

    def history(self, query: HistoryQuery) -> Steps[History]:
        """The history of a message, in steps; without events if the store has no record of it.

        Raises InvalidValue, StoreUnavailable.
        """
        if not query.message_id:
            raise InvalidValue("message_id", "", "the id of a message, as send returns it")
        search = _Search(self._store, self._redriven, self._readable_end())
        yield from search.run(query.message_id)
        # Cached: every event asks, but there are few queues.
        committed = cache(self._offsets.committed)
        newest: list[HistoryEvent] = []
        size = 0
        for _, head in sorted(search.heads.items(), reverse=True):
            size += len(head.properties)
            if len(newest) == EVENTS_MAX or size > EVENTS_BYTES_MAX:
                search.is_cut = True
                break
            newest.append(event_of(self._store, committed, head))
            if len(newest) % STEP_RECORDS == 0:
                yield
        events = tuple(reversed(newest))
        message_id = events[0].message_id if events else query.message_id
        return History(message_id, events, search.is_cut)


class _Search:
    """The records of one history that were found so far, by physical offset."""

    def __init__(self, store: MessageStore, redriven: Redriven, readable_end: int) -> None:
        self._store = store
        self._redriven = redriven
        self._readable_end = readable_end
        self._topics = sorted({topic for topic, _ in store.queue_keys()})
        self._ids: dict[str, None] = {}
        """A dict, because it keeps the order in which the ids were found."""
        self._met: list[Head] = []
        """The heads that may still lead to others."""
        self._joined: set[tuple[str, str]] = set()
        """Keys of messages without UNIQ_KEY that were searched, with their origin."""
        self.heads: dict[int, Head] = {}
        self.is_cut = False

    def run(self, message_id: str) -> Steps[None]:
        """Find all records of the history to which an id belongs."""
        self._ids[message_id] = None
        self._meet(self._record_at(message_id))
        done = 0
        while len(self.heads) <= EVENTS_MAX:
            if self._met:
                yield from self._take(self._met.pop())
            elif done == len(self._ids):
                return
            elif done == IDS_MAX:
                break
            else:
                key = list(self._ids)[done]
                for head in (yield from self._with_key(key, unique_key_of)):
                    self._meet(head)
                done += 1
                yield
        self.is_cut = True

    def _meet(self, head: Head | None) -> None:
        """Add a record to the history; its references are followed later."""
        if head is not None and head.physical_offset not in self.heads:
            self.heads[head.physical_offset] = head
            self._met.append(head)

    def _take(self, head: Head) -> Steps[None]:
        """Go on to the ids and records that a record of the history leads to."""
        unique = unique_key_of(head)
        if unique:
            self._ids.setdefault(unique)
        else:
            yield from self._join(head)
        if is_dlq(head.topic):
            place = (head.topic, head.queue_id, head.queue_offset)
            own = REDRIVE_ID_PREFIX + ":".join(map(str, place))
            self._ids.setdefault(own)
            for job_id in self._redriven.jobs_of(*place):
                # A job with again=True has its own id in the message id.
                if job_id not in (EARLIER, IMPORTED):
                    self._ids.setdefault(f"{own}:{job_id}")
        origin = redriven_from(head.properties)
        if origin:
            self._meet(self._dead_letter_at(origin.decode("utf-8", "replace")))
            first = find_property(head.properties, _REDRIVEN_ID)
            if first:
                # Retention may have removed the dead letter, but not all records before it.
                self._ids.setdefault(first.decode("utf-8", "replace"))

    def _with_key(self, key: str, key_of: Callable[[Head], str]) -> Steps[list[Head]]:
        """The newest records of any topic for which key_of() returns key."""
        offsets: set[int] = set()
        for number, topic in enumerate(self._topics, 1):
            offsets.update(islice(self._store.index.find(topic, key), READS_MAX))
            if number % STEP_TOPICS == 0:
                yield
        found: list[Head] = []
        for number, physical_offset in enumerate(sorted(offsets, reverse=True), 1):
            if len(found) > EVENTS_MAX or number > READS_MAX:
                self.is_cut = True
                break
            head = self._readable(physical_offset)
            if head is not None and key_of(head) == key:
                found.append(head)
            if number % STEP_RECORDS == 0:
                yield
        return found

    def _join(self, head: Head) -> Steps[None]:
        """For a message without UNIQ_KEY: add its first record, and others with its first key."""
        origin = _origin_id(head)
        first = self._record_at(origin)
        if first is not None and not unique_key_of(first):
            self._meet(first)
        self._meet(self._completed_by(head))
        keys = (find_property(head.properties, _KEYS) or b"").decode("utf-8", "replace")
        key = next((each for each in keys.split(KEY_SEPARATOR) if each), "")
        if not key or (key, origin) in self._joined:
            return
        self._joined.add((key, origin))
        same = yield from self._with_key(key, lambda each: key if has_key(each, key) else "")
        for each in same:
            if not unique_key_of(each) and _origin_id(each) == origin:
                self._meet(each)

    def _completed_by(self, head: Head) -> Head | None:
        """The scheduled record that a record completes."""
        level = completed_queue(head, PropertyString(head.properties))
        queue = self._store.queue(*queue_of(level)) if level else None
        entry = queue.entry(queue.first_with(head.completes) - 1) if queue else None
        if entry is None or entry.physical_offset + entry.size != head.completes:
            return None
        return self._readable(entry.physical_offset)

    def _record_at(self, message_id: str) -> Head | None:
        """The record with this offset message id; None if there is none."""
        physical_offset = offset_in(message_id)
        head = None if physical_offset is None else self._readable(physical_offset)
        if head is None or not has_offset_id(head, message_id):
            return None
        return head if is_entered(self._store, head) else None

    def _dead_letter_at(self, text: str) -> Head | None:
        """The dead letter at topic:queue id:queue offset; None if there is none."""
        place = Place.read(text)
        if place is None or not is_dlq(place.topic):
            return None
        queue = self._store.queue(place.topic, place.queue_id)
        entry = queue.entry(place.queue_offset) if queue else None
        return self._readable(entry.physical_offset) if entry else None

    def _readable(self, physical_offset: int) -> Head | None:
        head = outline_at(self._store, physical_offset)
        is_durable = head is not None and physical_offset + head.size <= self._readable_end
        return head if is_durable else None


def _origin_id(head: Head) -> str:
    """The offset message id of the record that failed first; its own if none failed."""
    origin = find_property(head.properties, _ORIGIN)
    if origin:
        return origin.decode("utf-8", "replace")
    return offset_message_id(unpack_host(head.store_host), head.physical_offset)

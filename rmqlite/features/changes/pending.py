"""Finds pending messages by time, level, destination, key or id; counts them, also by due time.

The runs of all wait queues are merged in due order, and a cursor names a place in that order.
So the cost of a page depends on the messages that it shows, not on all that wait, and the broker
stores nothing between two pages.  Only header and properties of a record are read.  The key
index finds messages with a key or an id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from heapq import merge
from itertools import chain, islice
from typing import Final, NamedTuple

from rmqlite.features.changes.requests import (
    PAGE_DEFAULT,
    PENDING_PAGE_MAX,
    TIMELINE_BOUNDS_MAX,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.features.cursors import cursor_text, read_cursor
from rmqlite.features.finding.finding import named_offsets
from rmqlite.features.finding.matching import check_wanted, has_all
from rmqlite.features.finding.waits import wait_of
from rmqlite.kernel import Steps
from rmqlite.kernel.reading import outlines, read_heads
from rmqlite.kernel.records.completion import Completion, completed_queue, completion_of
from rmqlite.kernel.records.record import Head, destination
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queue import PendingPlace, WaitQueue
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.limits import check_length
from rmqlite.kernel.words.message import (
    KEYS,
    TAGS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
    unpack_host,
)
from rmqlite.kernel.words.names import TOPIC_BYTES_MAX, is_retry
from rmqlite.kernel.words.property_string import PropertyString

SMALL_AT_ONCE: Final = 100
SCAN_MAX: Final = 500
"""The most pending messages that one slice looks at, in 5 ms."""
PAGE_SLICES_MAX: Final = 40
"""After this many slices a page is returned, full or not."""
CANDIDATES_MAX: Final = 250
"""The most records with one hash that a slice reads, in 8 ms; other keys may have that hash."""
ID_RECORDS_STEP: Final = 60
"""The most records that with_id() reads in one step, in 8 ms: those of many ids together."""
ID_RECORDS_MAX: Final = 1_000
"""The most scheduled records with one message id that a call reads."""


class Found(NamedTuple):
    """A pending message, its record without the body, and where it goes."""

    place: PendingPlace
    head: Head
    properties: PropertyString
    topic: str
    """"" if the record names none; then the queue id is -1."""
    queue_id: int

    @classmethod
    def at(cls, place: PendingPlace, head: Head) -> Found:
        properties = PropertyString(head.properties)
        return cls(place, head, properties, *(destination(properties) or ("", -1)))


class Cursor(NamedTuple):
    """The place at which a page ends; later pages leave out records at or behind log_end."""

    due_ms: int
    wait_queue: int
    queue_offset: int
    log_end: int

    def text(self) -> str:
        return cursor_text(*self)

    @classmethod
    def read(cls, text: str, log_end: int) -> Cursor:
        """The inverse of text(); an empty text is the beginning.  Raises InvalidValue."""
        if not text:
            return cls(-1, 0, 0, log_end)
        return cls(*read_cursor(text, len(cls._fields), signed=True))


class Pending:
    """Reads the wait queues; changes nothing."""

    def __init__(self, store: MessageStore, wait_queues: WaitQueues) -> None:
        self._store = store
        self._wait_queues = wait_queues
        self._id_records = 0

    def pages(self, query: PendingQuery) -> Steps[PendingPage]:
        """The next page, in steps.  Raises InvalidValue, StoreUnavailable."""
        limit = query.max_messages or PAGE_DEFAULT
        if not 1 <= limit <= PENDING_PAGE_MAX:
            rule = f"0 for the default, {PAGE_DEFAULT}, or 1 to {PENDING_PAGE_MAX}"
            raise InvalidValue("max_messages", query.max_messages, rule)
        messages: list[PendingMessage] = []
        cursor = query.cursor
        for _ in range(PAGE_SLICES_MAX):
            found, cursor = self.slice(query.filter, cursor, limit - len(messages))
            messages += [_described(each) for each in found]
            if not cursor or len(messages) >= limit:
                break
            yield
        return PendingPage(tuple(messages), cursor)

    def slice(self, wanted: PendingFilter, cursor: str, count_max: int) -> tuple[list[Found], str]:
        """The next messages that fit, in due order, at most count_max; and the cursor behind them.

        A slice looks at up to SCAN_MAX messages; an empty cursor means that there are no more.
        If more than CANDIDATES_MAX records have the key or id, each CANDIDATES_MAX of them are
        in due order, and newer records come first.  Raises InvalidValue, StoreUnavailable.
        """
        check_filter(wanted)
        at = Cursor.read(cursor, self._store.end)
        if wanted.key or wanted.ids:
            return self._indexed(wanted, at, count_max)
        places = self._places(wanted, at)
        found: list[Found] = []
        for place, head in self._with_heads(islice(places, SCAN_MAX)):
            each = _fitting(place, head, wanted, at.log_end)
            if each:
                found.append(each)
                if len(found) == count_max:
                    break
        else:
            if next(places, None) is None:
                return found, ""
        return found, Cursor(*place[:3], at.log_end).text()

    def counts(self) -> Steps[tuple[PendingCount, ...]]:
        """The number of waiting messages by level and topic, in steps."""
        pending = self._store.progress.pending
        counts: list[PendingCount] = []
        for level in sorted(pending):
            topics = sorted(pending[level].items())
            counts += [PendingCount(level, topic, count) for topic, count in topics if count]
            yield
        return tuple(counts)

    def timeline(self, request: TimelineRequest) -> Steps[tuple[LevelTimeline, ...]]:
        """The numbers of messages due between bounds, by level, in steps.  Raises InvalidValue."""
        bounds = request.bounds_ms
        if not 1 <= len(bounds) <= TIMELINE_BOUNDS_MAX:
            raise InvalidValue("bounds_ms", f"{len(bounds)} of them", f"1 to {TIMELINE_BOUNDS_MAX}")
        if list(bounds) != sorted(set(bounds)):
            raise InvalidValue("bounds_ms", "not ascending", "instants, each after the one before")
        lines = []
        for known in self._of_levels(request.levels):
            sums = yield from known.timeline(bounds)
            lines.append(LevelTimeline(known.id, sums))
        return tuple(lines)

    def with_id(
        self, message_id: str, topic: str, timer_out_ms: int | None = None
    ) -> Steps[tuple[list[Found], Head | None]]:
        """The waiting messages with this id, and the newest scheduled record with it, in steps.

        message_id: the producer's, or the offset message id or the place of a scheduled record.
        The newest record may wait or not.  topic: the destination; empty means any.
        timer_out_ms: only timers with this TIMER_OUT_MS.
        """
        waiting: list[Found] = []
        newest: Head | None = None
        wanted = PendingFilter(topic=topic, ids=(message_id,))
        named = named_offsets(self._store, (message_id,))
        heads = islice(self._scheduled((message_id,), named), ID_RECORDS_MAX)
        for head in heads:
            # Counted over all ids: a message has one record for each time that it was moved.
            self._id_records += 1
            if self._id_records % ID_RECORDS_STEP == 0:
                yield
            to = destination(PropertyString(head.properties)) or ("", -1)
            if not _fits(head, to[0], wanted) or not _is_out_at(head, timer_out_ms):
                continue
            newest = newest or head
            place = self._place_of(head)
            if place is not None:
                waiting.append(Found.at(place, head))
        return waiting, newest

    def is_open(self, place: PendingPlace) -> bool:
        """Does the message there still wait?"""
        return self._wait_queues[place.wait_queue].is_open(place.queue_offset)

    # ---- inside

    def _places(self, wanted: PendingFilter, at: Cursor) -> Iterator[PendingPlace]:
        """All places behind a cursor that fit a filter's times and levels, in due order."""
        # Of one due time the timers come first: their id is the smallest.
        begin = max(at[:3], (wanted.due_from_ms, TIMERS, -1))
        places = chain(*[each.places_behind(*begin) for each in self._of_levels(wanted.levels)])
        until_ms = wanted.due_until_ms
        for place in merge(*places):
            if until_ms is not None and place.due_ms >= until_ms:
                return
            yield place

    def _of_levels(self, levels: Sequence[int]) -> list[WaitQueue]:
        return [known for known in self._wait_queues if not levels or known.id in levels]

    def _with_heads(
        self, places: Iterator[PendingPlace]
    ) -> Iterator[tuple[PendingPlace, Head | None]]:
        """Each place with its record; small neighbours are read at once.

        At most SMALL_AT_ONCE places are read beyond the last one that the caller takes.
        """
        while several := list(islice(places, SMALL_AT_ONCE)):
            heads = read_heads(self._store, [place.entry for place in several])
            yield from zip(several, heads, strict=True)

    def _indexed(
        self, wanted: PendingFilter, at: Cursor, count_max: int
    ) -> tuple[list[Found], str]:
        """A slice of the messages that the key index finds before log_end."""
        keys = wanted.ids or (wanted.key,)
        named = named_offsets(self._store, wanted.ids)
        candidates = self._scheduled(keys, named, at.log_end)
        heads = list(islice(candidates, CANDIDATES_MAX))
        # Each once: RocketMQ's key index may name a record twice.
        each_once = {each.place: each for each in self._found_behind(at, heads, wanted)}
        found = sorted(each_once.values())
        if len(found) > count_max:
            found = found[:count_max]
            return found, Cursor(*found[-1].place[:3], at.log_end).text()
        if len(heads) < CANDIDATES_MAX:
            return found, ""
        return found, Cursor.read("", heads[-1].physical_offset).text()

    def _scheduled(
        self, keys: Sequence[str], named: Set[int] = frozenset(), below: int | None = None
    ) -> Iterator[Head]:
        """The records of all wait queues that outlines() finds, the newest first."""
        store = self._store
        found = [outlines(store, topic, *keys, named=named, below=below) for topic in WAIT_TOPICS]
        return merge(*found, key=lambda head: head.physical_offset, reverse=True)

    def _found_behind(
        self, at: Cursor, heads: Sequence[Head], wanted: PendingFilter
    ) -> Iterator[Found]:
        """The messages of these scheduled records that wait behind a cursor and fit."""
        for head in heads:
            place = self._place_of(head)
            if place is not None and place[:3] > at[:3] and _is_due_between(place.due_ms, wanted):
                each = _fitting(place, head, wanted, at.log_end)
                if each is not None:
                    yield each

    def _place_of(self, head: Head) -> PendingPlace | None:
        """Where a scheduled record waits; None if it does not wait any more."""
        wait = wait_of(self._store, head)
        if wait is None or wait.entry is None or not wait.is_pending:
            return None
        return PendingPlace(wait.due_ms, wait.wait_queue, head.queue_offset, wait.entry)


def check_filter(wanted: PendingFilter) -> None:
    """Raises InvalidValue for a filter that no message can fit."""
    for level in wanted.levels:
        if level < 1 and level != TIMERS:
            raise InvalidValue("levels", level, f"1 or more, or {TIMERS} for the timers")
    check_wanted(wanted)
    check_length("origin_topic", wanted.origin_topic, TOPIC_BYTES_MAX)
    until_ms = wanted.due_until_ms
    if until_ms is not None and until_ms <= wanted.due_from_ms:
        raise InvalidValue("due_until_ms", until_ms, f"later than due_from_ms={wanted.due_from_ms}")
    check_not_long_ago("due_from_ms", wanted.due_from_ms)
    check_not_long_ago("due_until_ms", until_ms)


def _fitting(
    place: PendingPlace, head: Head | None, wanted: PendingFilter, log_end: int
) -> Found | None:
    if head is None or _is_later(head, log_end):
        return None
    found = Found.at(place, head)
    return found if _fits(head, found.topic, wanted) else None


def _is_later(head: Head, log_end: int) -> bool:
    """Was it scheduled at or behind log_end?  A carried timer: the one that it completes?"""
    if head.physical_offset < log_end:
        return False
    own = PropertyString(head.properties)
    is_carried = completed_queue(head, own) and completion_of(head.topic, own) is Completion.CARRIED
    return not is_carried or head.completes > log_end


def _fits(head: Head, topic: str, wanted: PendingFilter) -> bool:
    """Does a scheduled record to a topic fit the filter, apart from the filter's times?"""
    if wanted.levels and wait_queue_of(head.topic, head.queue_id) not in wanted.levels:
        return False
    if wanted.topic and topic != wanted.topic:
        return False
    if (wanted.reason or wanted.failure_kind) and not is_retry(topic):
        return False
    return has_all(head, wanted, origin_topic=wanted.origin_topic)


def _is_out_at(head: Head, timer_out_ms: int | None) -> bool:
    """Is it a timer with this TIMER_OUT_MS?  Any record fits None."""
    if timer_out_ms is None:
        return True
    is_timer = wait_queue_of(head.topic, head.queue_id) == TIMERS
    return is_timer and PropertyString(head.properties).number(TIMER_OUT_MS) == timer_out_ms


def _is_due_between(due_ms: int, wanted: PendingFilter) -> bool:
    until_ms = wanted.due_until_ms
    return due_ms >= wanted.due_from_ms and (until_ms is None or due_ms < until_ms)


def _described(found: Found) -> PendingMessage:
    """A pending message as text, for a person or a client."""
    place, head, _, topic, queue_id = found
    properties = decode_properties(head.properties)
    return PendingMessage(
        place.wait_queue,
        place.queue_offset,
        place.due_ms,
        topic,
        queue_id,
        properties.get(UNIQ_KEY, ""),
        properties.get(TAGS, ""),
        tuple(properties.get(KEYS, "").split()),
        head.born_timestamp_ms,
        head.store_timestamp_ms,
        head.physical_offset,
        head.size,
        head.body_end - head.body_position,
        head.reconsume_times,
        unpack_host(head.store_host),
    )

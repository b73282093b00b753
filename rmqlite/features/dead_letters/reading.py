"""Messages in %DLQ% and %RETRY% queues: read in bulk, matched, described.

A queue is read from either end, in slices that are bounded in count and in bytes; other calls
may run between two slices.  Those that retention removes meanwhile are left out.  Where the
body is not needed it is not decoded, and the body of a large record is not even read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from typing import Final, NamedTuple

from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterFilter
from rmqlite.features.finding.matching import (
    INT64_MAX,
    NUMBER_DIGITS_MAX,
    check_wanted,
    has_all,
    has_last_failure,
    kind_in,
    number_of,
)
from rmqlite.kernel.reading import WHOLE_BYTES_MAX, read_heads, read_properties
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.retry import claimed_of, origin_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    FAILURE_REASON,
    FIRST_FAILURE_TIMESTAMP,
    KEYS,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REDRIVEN_TIMES,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    offset_message_id,
    property_marker,
    senders_limit,
    unpack_host,
)
from rmqlite.kernel.words.names import group_of

SLICE_MAX: Final = 400
"""The most dead letters of a slice, 4 ms."""
SLICE_BYTES_MAX: Final = 4 << 20
"""The most bytes that a slice reads; a single dead letter may be longer."""
INT32_MAX: Final = 2**31 - 1
_LAST_FAILURE: Final = property_marker(LAST_FAILURE_TIMESTAMP)


class Seen(NamedTuple):
    """A queue offset and its record without the body; None if the record cannot be read."""

    queue_offset: int
    head: Head | None


class SeenWhole(NamedTuple):
    """A queue offset and its record; None if the record cannot be read."""

    queue_offset: int
    walked: Record | None


def slices(
    store: MessageStore,
    queue: ConsumeQueue,
    begin: int,
    end: int,
    *,
    newest_first: bool = False,
    first_max: int = 0,
) -> Iterator[list[Seen]]:
    """The records begin <= queue offset < end of a queue, slice by slice, without bodies.

    Each slice is read when the caller asks for it.  first_max: the most dead letters of the first
    slice.  Raises StoreUnavailable.
    """
    ranges = _entries(queue, begin, end, newest_first, WHOLE_BYTES_MAX, first_max)
    for first, entries in ranges:
        found = [
            Seen(queue_offset, head)
            for queue_offset, head in enumerate(read_heads(store, entries), first)
        ]
        yield found[::-1] if newest_first else found


def whole_slices(
    store: MessageStore, queue: ConsumeQueue, begin: int, end: int
) -> Iterator[list[SeenWhole]]:
    """The same as slices(), with bodies, which are not checked."""
    for first, entries in _entries(queue, begin, end, False, SLICE_BYTES_MAX):
        records = store.read_records(entries, check_bodies=False)
        yield [SeenWhole(*each) for each in enumerate(records, first)]


def property_slices(
    store: MessageStore, queue: ConsumeQueue, begin: int, end: int
) -> Iterator[tuple[int, list[bytes | None]]]:
    """For each slice, its first queue offset and the property strings of its records.

    It costs half of slices(), for a search for one property in very many records.
    """
    for first, entries in _entries(queue, begin, end, False, WHOLE_BYTES_MAX):
        yield first, list(read_properties(store, entries))


class Range(NamedTuple):
    """The entries begin <= queue offset < end of a queue."""

    queue: ConsumeQueue
    begin: int
    end: int

    def behind(self, physical_offset: int, *, newest_first: bool) -> Range:
        """The part behind the record at an offset: later entries, or earlier ones."""
        if newest_first:
            return self._replace(end=min(self.end, self.queue.first_with(physical_offset)))
        return self._replace(begin=max(self.begin, self.queue.first_with(physical_offset + 1)))


def in_order(
    store: MessageStore, ranges: Sequence[Range], *, newest_first: bool = False, first_max: int = 0
) -> Iterator[Head]:
    """The records of several ranges in the order of the log, one by one; see slices().

    Unreadable records are left out.
    """
    found = [
        _heads_of(slices(store, *each, newest_first=newest_first, first_max=first_max))
        for each in ranges
    ]
    if len(found) == 1:
        return found[0]
    return merge(*found, key=lambda head: head.physical_offset, reverse=newest_first)


def check_filter(wanted: DeadLetterFilter) -> None:
    """Raises InvalidValue for a filter that no dead letter can match."""
    check_wanted(wanted, wanted.job_id)
    if wanted.until_ms is not None and wanted.until_ms <= wanted.since_ms:
        rule = f"later than since_ms={wanted.since_ms}"
        raise InvalidValue("until_ms", wanted.until_ms, rule)
    check_not_long_ago("since_ms", wanted.since_ms)
    check_not_long_ago("until_ms", wanted.until_ms)


def fits(head: Head, wanted: DeadLetterFilter) -> bool:
    """Does a dead letter match a filter?"""
    if wanted.since_ms or wanted.until_ms is not None:
        failed_ms = last_failure_ms(head)
        if failed_ms < wanted.since_ms:
            return False
        if wanted.until_ms is not None and failed_ms >= wanted.until_ms:
            return False
    return has_all(head, wanted, origin_topic=wanted.topic, job_id=wanted.job_id)


def last_failure_ms(head: Head) -> int:
    """The time of a dead letter's last failure, never later than its store timestamp.

    RocketMQ does not record the time, but stores the dead letter at that moment.
    """
    failed_ms = number_of(head.properties, _LAST_FAILURE)
    stored_ms = head.store_timestamp_ms
    if failed_ms is None or not has_last_failure(head):
        return stored_ms
    return min(failed_ms, stored_ms)


def described(
    head: Head,
    *,
    redriven_by: str = "",
    due_ms: int = 0,
    target: tuple[str, int] | None = None,
) -> DeadLetter:
    """The description of a dead letter for people.

    target: topic and queue id of the destination, for a dead letter that waits in the schedule.
    """
    properties = decode_properties(head.properties)
    topic, queue_id = target or (head.topic, head.queue_id)
    store_host = _host_text(head.store_host)
    last_ms = last_failure_ms(head)
    claimed = claimed_of(head)
    first_ms = _number(properties, FIRST_FAILURE_TIMESTAMP, last_ms)
    return DeadLetter(
        group=group_of(topic) or "",
        topic=topic,
        queue_id=queue_id,
        queue_offset=head.queue_offset,
        physical_offset=head.physical_offset,
        store_size=head.size,
        body_size=head.body_end - head.body_position,
        message_id=properties.get(UNIQ_KEY) or offset_message_id(store_host, head.physical_offset),
        origin_topic=origin_of(head),
        origin_message_id=properties.get(DLQ_ORIGIN_MESSAGE_ID)
        or properties.get(ORIGIN_MESSAGE_ID, ""),
        origin_queue_id=_number(properties, ORIGIN_QUEUE_ID, -1, INT32_MAX),
        origin_queue_offset=_number(properties, ORIGIN_QUEUE_OFFSET, -1),
        tags=properties.get(TAGS, ""),
        keys=tuple(properties.get(KEYS, "").split()),
        delivery_attempts=max(
            _number(properties, DELIVERY_ATTEMPTS, 0, INT32_MAX), head.reconsume_times, 0
        ),
        first_failure_ms=min(first_ms, last_ms),
        last_failure_ms=last_ms,
        reason=properties.get(FAILURE_REASON, ""),
        born_timestamp_ms=head.born_timestamp_ms,
        store_timestamp_ms=head.store_timestamp_ms,
        store_host=store_host,
        redriven_before=_number(properties, REDRIVEN_TIMES, 0, INT32_MAX),
        redriven_by=redriven_by,
        due_ms=due_ms,
        max_reconsume_times=senders_limit(properties),
        failure_kind=kind_in(head.properties),
        claimed_topic=claimed,
        claimed_message_id=properties.get(CLAIMED_ORIGIN_MESSAGE_ID, "") if claimed else "",
    )


def _entries(
    queue: ConsumeQueue,
    begin: int,
    end: int,
    newest_first: bool,
    counted_bytes_max: int,
    first_max: int = 0,
) -> Iterator[tuple[int, list[Entry]]]:
    """The entries of each slice, with the queue offset of the first one.

    counted_bytes_max: a longer record counts as this many bytes; its body is not read.
    """
    # One more entry, so that a caller who wants a whole slice sees whether there is another.
    count_max = min(first_max or SLICE_MAX, SLICE_MAX + 1)
    while True:
        # Ask anew for each slice: retention may remove the rest of a queue between two.
        begin, end = max(begin, queue.min_offset), min(end, queue.max_offset)
        if begin >= end:
            return
        first = max(begin, end - count_max) if newest_first else begin
        entries = queue.read(first, min(count_max, end - first))
        count_max = SLICE_MAX
        if not entries:
            return
        order = reversed(entries) if newest_first else iter(entries)
        room, count = SLICE_BYTES_MAX, 0
        for entry in order:
            room -= min(entry.size, counted_bytes_max)
            if room < 0 and count:
                break
            count += 1
        if newest_first:
            first, entries = first + len(entries) - count, entries[len(entries) - count :]
            end = first
        else:
            entries = entries[:count]
            begin = first + count
        yield first, entries


def _heads_of(parts: Iterator[list[Seen]]) -> Iterator[Head]:
    for part in parts:
        for _, head in part:
            if head is not None:
                yield head


def _number(properties: Mapping[str, str], name: str, default: int, most: int = INT64_MAX) -> int:
    """A property as a number from 0 to `most`, the largest one of the wire's field."""
    text = properties.get(name)
    if text is None or not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        return default
    number = int(text)
    return number if number <= most else default


_host_text = lru_cache(maxsize=4096)(unpack_host)

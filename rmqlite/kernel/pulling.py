"""Read messages of a queue from a queue offset on (reference §9.2, §9.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat, takewhile
from typing import NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.filters import STEP_WORK, PropertyFilter, parse_tags, tags_codes
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import read_properties, record_at
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES, Entry
from rmqlite.kernel.records.record import read_head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, QueueRange
from rmqlite.kernel.store.consume_queue import ConsumeQueue, first_stored_at
from rmqlite.kernel.store.log.raw_records import READ_GAP_BYTES_MAX, log_reads, whole_records
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.message import TAGS
from rmqlite.kernel.words.names import TOOLS_GROUP

MESSAGES_DEFAULT = 32
BYTES_DEFAULT = 256 * 1024
STEP_MESSAGES = 200
STEP_BYTES = 2 << 20
"""The most messages, and bytes of messages, in a step of 5 ms; then other calls may run."""
LOOK_MESSAGES = 64
"""Messages whose properties are read at once, to compare them with an SQL92 expression."""
STEP_QUEUES = 200
"""The most queues in a step of 4 ms; then other calls may run."""


class Records:
    """What a pull has found, in one of two forms; the other is made at the first question.

    One is a list of records.  The other is their number and their bytes, one record behind the
    other: a client that takes records apart itself needs no more, and no object for each.
    """

    __slots__ = ("_count", "_encoded", "_records")

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._records: Sequence[Record] | None = records
        self._encoded: bytes | None = None
        self._count = len(records)

    @classmethod
    def whole(cls, count: int, encoded: bytes) -> Records:
        """So many records in these bytes, each of them whole and its body sound."""
        made = cls()
        made._records, made._encoded, made._count = None, encoded, count
        return made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return self._read() if self._records is None else iter(self._records)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        if self._encoded is not None:
            return len(self._encoded)
        return sum([record.head.size for record in self])

    @property
    def encoded(self) -> bytes:
        """All bytes of all records, as they lie in the log."""
        if self._encoded is None:
            self._encoded = b"".join([record.encoded for record in self])
        return self._encoded

    def _read(self) -> Iterator[Record]:
        at, encoded = 0, self.encoded
        while at < len(encoded):
            head = read_head(encoded, at)
            assert head is not None
            yield Record(head, encoded)
            at += head.size


@dataclass(frozen=True, slots=True)
class Pulled:
    """A PullResult whose messages are still records, as they lie in the log."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: Records = field(default_factory=Records)
    waits_for: Hashable = None
    """What wakes the call in place of a new message, if a rate limit holds messages back."""


class _Most(NamedTuple):
    """No record that ends behind readable_end, no more messages, and no more bytes, unless the
    first message is longer."""

    readable_end: int
    messages: int
    bytes: int


def pull(parts: BrokerParts, request: PullRequest) -> Steps[Pulled]:
    """Broker.pull(): up to max_messages and max_bytes, at least one message if there is one."""
    if request.group == TOOLS_GROUP:
        # It only looks, and does not become a group.
        topic = parts.readable_topic(request.topic)
    else:
        _, topic = parts.readable(request.group, request.topic)
    check_queue(topic, request.queue_id, topic.read_queues)
    result = yield from _pulled(parts, request)
    parts.counts.pull(topic.topic, request.group, len(result.records))
    return result


def readable_record(parts: BrokerParts, physical_offset: int) -> Record:
    """The durable record that begins there.  Raises MessageNotFound, StoreDamaged."""
    record = record_at(parts.store, physical_offset)
    if record.end > parts.readable_end():
        raise MessageNotFound(physical_offset)
    return record


def _pulled(parts: BrokerParts, request: PullRequest) -> Steps[Pulled]:
    """Raises ExpressionInvalid, InvalidValue, StoreDamaged."""
    tags = parse_tags(request.expression)
    sql = parts.filters.sql(request.sql) if request.sql else None
    store, config = parts.store, parts.config
    most = _Most(
        parts.readable_end(),
        _limit("max_messages", request.max_messages, MESSAGES_DEFAULT, config.pull_messages_max),
        _limit("max_bytes", request.max_bytes, BYTES_DEFAULT, config.pull_bytes_max),
    )
    offset = request.queue_offset
    if offset < 0:
        raise InvalidValue("queue_offset", offset, "0 or more")
    queue = store.queue(request.topic, request.queue_id)
    low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
    if queue is None or not low <= offset < high:
        if offset == high:
            return Pulled(PullStatus.NO_NEW_MESSAGE, offset, low, high)
        return Pulled(PullStatus.OFFSET_MOVED, low if offset < low else high, low, high)
    whole = None if tags or sql else _whole(store, queue, offset, most)
    if whole is not None:
        return Pulled(PullStatus.FOUND, offset + len(whole), low, high, whole)
    entries = queue.read(offset, config.filter_scan_max if tags or sql else most.messages)
    matching, compared = yield from _found(store, entries, most, tags, sql)
    found = yield from parts.filters.left(request.group, matching)
    if not compared:
        status = PullStatus.NO_NEW_MESSAGE
    else:
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE
    return Pulled(status, offset + compared, low, high, Records(found))


def _whole(store: MessageStore, queue: ConsumeQueue, offset: int, most: _Most) -> Records | None:
    """The records that a pull without a filter finds, by the compiled form: 0.3 us each, not 2.5.

    None if the plain form has to decide: it finds none, one that is out of the ordinary, or
    such as are too far apart for one step.
    """
    entries = queue.bytes_at(offset, min(most.messages, queue.max_offset - offset))
    end, count, size = most
    reads = log_reads(entries, end, INT64_MAX, count, size, READ_GAP_BYTES_MAX, STEP_BYTES)
    if not reads or sum([end - begin for begin, end, _ in reads]) > STEP_BYTES:
        return None
    parts: list[bytes] = []
    first = 0
    for begin, end, following in reads:
        behind = entries[ENTRY_BYTES * first : ENTRY_BYTES * (first + following)]
        part = whole_records(store.read(begin, end - begin), begin, behind)
        if part is None:
            return None
        parts.append(part)
        first += following
    return Records.whole(first, b"".join(parts))


def _found(
    store: MessageStore,
    entries: Sequence[Entry],
    most: _Most,
    tags: frozenset[str] | None,
    sql: PropertyFilter | None,
) -> Steps[tuple[list[Record], int]]:
    """The records that match, and how many entries were compared; in steps."""
    end = most.readable_end
    readable = list(takewhile(lambda each: each.physical_offset + each.size <= end, entries))
    matching = None
    if tags:
        codes = tags_codes(tags)
        matching = [entry.tags_code in codes for entry in readable]
    if sql:
        matching = yield from _matching(store, readable, matching, sql, most)
    chosen, compared = _chosen(readable, matching, most)
    found: list[Record] = []
    for part in _parts(chosen):
        if found:
            yield
        found += [record for record in store.read_records(part) if record]
    if tags:
        # Tags of another message may have the same code.
        wanted = {tag.encode() for tag in tags}
        found = [record for record in found if record.properties.get(TAGS) in wanted]
    return found, compared


def offset_at(store: MessageStore, queue: ConsumeQueue, timestamp_ms: int) -> int:
    """The first queue offset stored at or after a time; max_offset if none."""
    offsets = range(queue.min_offset, queue.max_offset)
    return first_stored_at(offsets, queue.entry, store.store_timestamp_ms, timestamp_ms)


def end_before(queue: ConsumeQueue, physical_end: int) -> int:
    """One past the last entry whose record ends at or before a former end of the log."""
    last = queue.entry(queue.max_offset - 1)
    if last is None or last.physical_offset < physical_end:
        return queue.max_offset
    return queue.first_with(physical_end)


def queue_ranges(store: MessageStore, topic: str, count: int) -> Steps[tuple[QueueRange, ...]]:
    """The ranges of a topic's queues 0 to count - 1, in steps."""
    ranges = []
    for queue_id in range(count):
        if queue_id % STEP_QUEUES == STEP_QUEUES - 1:
            yield
        ranges.append(queue_range(store, Queue(topic, queue_id)))
    return tuple(ranges)


def queue_range(store: MessageStore, queue: Queue) -> QueueRange:
    """The range of a queue; empty for an unknown queue."""
    stored = store.queue(queue.topic, queue.queue_id)
    if stored is None:
        return QueueRange(queue, 0, 0)
    last = stored.entry(stored.max_offset - 1)
    newest_ms = store.store_timestamp_ms(last.physical_offset) if last else None
    return QueueRange(queue, stored.min_offset, stored.max_offset, newest_ms or 0)


def _matching(
    store: MessageStore,
    entries: Sequence[Entry],
    tagged: Sequence[bool] | None,
    sql: PropertyFilter,
    most: _Most,
) -> Steps[list[bool]]:
    """Which entries match the expression, of those that are tagged, in steps.

    The list ends with the entry that completes the most messages or bytes.  Bodies of large
    records are not read.  An unreadable record matches: whoever reads it reports the damage.
    """
    matching: list[bool] = []
    _, count, size = most
    work = 0
    for begin in range(0, len(entries), LOOK_MESSAGES):
        part = entries[begin : begin + LOOK_MESSAGES]
        wanted = tagged[begin : begin + LOOK_MESSAGES] if tagged else [True] * len(part)
        read = read_properties(store, list(compress(part, wanted)))
        for entry, is_wanted in zip(part, wanted, strict=True):
            properties = next(read) if is_wanted else b""
            is_match = is_wanted and (properties is None or sql.matches(properties))
            matching.append(is_match)
            if is_match:
                count, size = count - 1, size - entry.size
                if count <= 0 or size <= 0:
                    return matching
            work += sql.work(properties or b"")
            if work > STEP_WORK:
                work = 0
                yield
    return matching


def earliest_ms(store: MessageStore, queue: Queue) -> int | None:
    """When the first message that a queue still has was stored; None if it is empty."""
    stored = store.queue(queue.topic, queue.queue_id)
    first = stored.entry(stored.min_offset) if stored else None
    return store.store_timestamp_ms(first.physical_offset) if first else None


def _chosen(
    entries: Sequence[Entry], matching: Iterable[bool] | None, most: _Most
) -> tuple[list[Entry], int]:
    """The entries to return, and how many were compared.

    matching: for each entry, or only for the first ones; None means that all match.
    """
    chosen: list[Entry] = []
    total = compared = 0
    matching = repeat(True) if matching is None else matching
    for entry, is_match in zip(entries, matching, strict=False):
        if is_match:
            total += entry.size
            if chosen and (len(chosen) == most.messages or total > most.bytes):
                break
            chosen.append(entry)
        compared += 1
    return chosen, compared


def _parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """The entries in parts, one for each step."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and (len(part) == STEP_MESSAGES or size + entry.size > STEP_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part


def _limit(field: str, asked: int, default: int, most: int) -> int:
    if asked < 0 or asked > most:
        raise InvalidValue(field, asked, f"0 for the default, {default}, or 1 to {most}")
    return asked or default

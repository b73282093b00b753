"""Finds messages by key, by message id, and by the offset message id that names a record.

The key index yields candidates, newest first; their records in the log decide.  A message
has one record in each place where it was: with `history` the schedule, the retry and the
dead-letter topics are searched, too, because the properties of records there name the topic.
find_messages() and message_at() return durable records only, as a consumer gets them.

The index has every record of the log under its UNIQ_KEY, so it also shows how the wait of a
scheduled record ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from itertools import chain, groupby
from typing import Final

from rmqlite.features.finding.matching import check_key, wanted_ids
from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
)
from rmqlite.features.finding.waits import wait_of
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import is_entered, outline_at, outlines
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC, Completion, completion_of
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound
from rmqlite.kernel.words.limits import SEARCH_BYTES_MAX, check_length
from rmqlite.kernel.words.message import (
    KEY_SEPARATOR,
    KEYS,
    REAL_TOPIC,
    RETRY_TOPIC,
    UNIQ_KEY,
    UNIQUE_ID,
    StoredMessage,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, dlq_topic, group_of, is_dlq, is_retry
from rmqlite.kernel.words.property_string import PropertyString

MESSAGES_MAX: Final = 64
"""RocketMQ's maxMsgsNumBatch."""
MESSAGES_DEFAULT: Final = 32
"""RocketMQ's defaultQueryMaxNum."""
CANDIDATES_MAX: Final = 1_000
"""The most records that one query reads: in the schedule there are other topics' messages with
the same key, and other keys can have the same hash."""
CANDIDATE_BYTES_MAX: Final = 32 << 20
"""The most bytes of these records together."""
STEP_READS: Final = 100
STEP_BYTES: Final = 2 << 20
STEP_PLACES: Final = 100
"""Records, bytes or topics of one step, 3 ms; then other calls may run."""
_OFFSET_MESSAGE_ID: Final = re.compile("[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?")
_OFFSET_DIGITS: Final = 16


def find_messages(parts: BrokerParts, query: MessageQuery) -> Steps[FoundMessages]:
    """The newest durable messages that a query matches, in steps.

    Raises TopicUnknown, InvalidValue, StoreDamaged, StoreUnavailable.
    """
    parts.topics.existing(query.topic)
    store, readable_end = parts.store, parts.readable_end()
    bytes_max = parts.config.pull_bytes_max
    count = _checked_count(query)
    found: list[FoundMessage] = []
    size = read_bytes = 0
    is_cut = False
    step_bytes = 0
    candidates = yield from _candidates(store, query)
    for read, physical_offset in enumerate(candidates):
        if read % STEP_READS == STEP_READS - 1 or step_bytes > STEP_BYTES:
            yield
            step_bytes = 0
        is_cut = read >= CANDIDATES_MAX or read_bytes >= CANDIDATE_BYTES_MAX
        if is_cut:
            break
        message = _read(store, physical_offset, readable_end)
        if message is None:
            continue
        read_bytes += message.store_size
        step_bytes += message.store_size
        if not _is_asked_for(message, query):
            continue
        size += message.store_size
        is_cut = len(found) == count or (bool(found) and size > bytes_max)
        if is_cut:
            break
        found.append(_found(store, message))
    return FoundMessages(tuple(reversed(found)), is_cut)


def message_at(parts: BrokerParts, offset_message_id: str) -> FoundMessage:
    """The message whose record an offset message id names; the id's address is ignored.

    Raises InvalidValue for another text, MessageNotFound, StoreDamaged.
    """
    physical_offset = offset_in(offset_message_id)
    if physical_offset is None:
        rule = "32 hexadecimal digits, or 56: store address, port and physical offset"
        raise InvalidValue("offset_message_id", offset_message_id, rule)
    message = _read(parts.store, physical_offset, parts.readable_end())
    if message is None:
        raise MessageNotFound(physical_offset)
    return _found(parts.store, message)


def offset_in(message_id: str) -> int | None:
    """The physical offset in an offset message id; None for another text.

    A producer's own id may look like one.
    """
    if not _OFFSET_MESSAGE_ID.fullmatch(message_id):
        return None
    return int(message_id[-_OFFSET_DIGITS:], 16)


def _checked_count(query: MessageQuery) -> int:
    field = "message_id" if query.by_message_id else "key"
    if not query.key:
        raise InvalidValue(field, query.key, "not empty")
    if query.by_message_id:
        check_length(field, query.key, SEARCH_BYTES_MAX)
    else:
        check_key(field, query.key)
    if not 0 <= query.max_messages <= MESSAGES_MAX:
        rule = f"0 for the default, {MESSAGES_DEFAULT}, or 1 to {MESSAGES_MAX}"
        raise InvalidValue("max_messages", query.max_messages, rule)
    return query.max_messages or MESSAGES_DEFAULT


def _candidates(store: MessageStore, query: MessageQuery) -> Steps[Iterator[int]]:
    """Physical offsets of possible matches from every topic, newest first; in steps."""
    places = {query.topic}
    if query.history:
        places |= {*WAIT_TOPICS, CANCELLED_TOPIC}
        places.update(topic for topic, _ in store.queue_keys() if is_retry(topic) or is_dlq(topic))
    times = {"begin_ms": query.begin_ms}
    if query.end_ms is not None:
        times["end_ms"] = query.end_ms - 1
    found = []
    for number, topic in enumerate(places, 1):
        offsets = store.index.find(topic, query.key, **times)
        newest = next(offsets, None)
        if newest is not None:
            found.append(chain((newest,), offsets))
        if number % STEP_PLACES == 0:
            yield
    # The keys of two topics may have one hash: then both yield the same records.
    return (offset for offset, _ in groupby(merge(*found, reverse=True)))


def _read(store: MessageStore, physical_offset: int, readable_end: int) -> StoredMessage | None:
    """The message that begins there; None if there is none, or if it is not readable yet."""
    try:
        message = store.read_message(physical_offset)
    except MessageNotFound:
        return None
    return message if physical_offset + message.store_size <= readable_end else None


def _is_asked_for(message: StoredMessage, query: MessageQuery) -> bool:
    if query.by_message_id:
        has_key = message.properties.get(UNIQ_KEY) == query.key
    else:
        has_key = query.key in message.properties.get(KEYS, "").split(KEY_SEPARATOR)
    end_ms = query.end_ms
    is_in_time = message.store_timestamp_ms >= query.begin_ms and (
        end_ms is None or message.store_timestamp_ms < end_ms
    )
    return has_key and is_in_time and query.topic in _topics_of(message, query)


def _topics_of(message: StoredMessage, query: MessageQuery) -> set[str]:
    """The topics by which a record may be found."""
    topics = {message.topic}
    if query.history and _is_hidden(message.topic):
        topics.add(message.properties.get(REAL_TOPIC, ""))
    if query.history and any(is_retry(topic) or is_dlq(topic) for topic in topics):
        topics.add(message.properties.get(RETRY_TOPIC, ""))
    return topics


def _is_hidden(topic: str) -> bool:
    """Do records of this topic have the message's destination in REAL_TOPIC?"""
    return topic in (*WAIT_TOPICS, CANCELLED_TOPIC, UNDELIVERABLE_TOPIC)


def _found(store: MessageStore, message: StoredMessage) -> FoundMessage:
    wait = wait_of(store, message)
    if wait is None:
        state = MessageState.STORED
        if message.topic == CANCELLED_TOPIC:
            state = MessageState.CANCELLED
        elif is_retry(message.topic):
            state = MessageState.RETRY
        elif is_dlq(message.topic):
            state = MessageState.DEAD
        return FoundMessage(message, state)
    ended = "" if wait.is_pending else _ended(store, message)
    return FoundMessage(message, MessageState.SCHEDULED, wait.due_ms, wait.is_pending, ended)


def _ended(store: MessageStore, message: StoredMessage) -> str:
    end = message.physical_offset + message.store_size
    topic = message.properties.get(REAL_TOPIC, "")
    unique_id = message.properties.get(UNIQUE_ID, "")
    return how_it_ended(store, end, message.message_id, topic, unique_id).value


def how_it_ended(
    store: MessageStore, end: int, message_id: str, topic: str, unique_id: str = ""
) -> Completion:
    """How the wait of a scheduled record ended; for one that waits no more.

    end: the physical offset at which it ends.  topic: its destination.  unique_id: its own; another
    message that has taken its place has the same.  Without any trace it counts as delivered:
    RocketMQ leaves none, and retention may have removed ours.
    """
    keys = (message_id, unique_id) if unique_id else (message_id,)
    # The destination comes last: it may have many messages with the same id.
    dead = dlq_topic(group_of(topic) or "")
    for place in (CANCELLED_TOPIC, UNDELIVERABLE_TOPIC, *WAIT_TOPICS, dead, topic):
        for head in outlines(store, place, *keys):
            if head.completes == end:
                own = PropertyString(head.properties)
                is_other = unique_id and own.text(UNIQ_KEY) not in ("", message_id)
                return Completion.CANCELLED if is_other else completion_of(head.topic, own)
            if head.physical_offset < end:
                break
    return Completion.DELIVERED


def named_offsets(store: MessageStore, ids: tuple[str, ...]) -> set[int]:
    """The physical offsets of the records that offset message ids and places among ids name."""
    wanted = wanted_ids(ids)
    found = set()
    for physical_offset in {int.from_bytes(each[-8:], "big") for each in wanted.offset_ids}:
        head = outline_at(store, physical_offset) if physical_offset < store.end else None
        if head is not None and is_entered(store, head):
            found.add(physical_offset)
    for place in wanted.places:
        queue = store.queue(place.topic, place.queue_id)
        entry = queue.entry(place.queue_offset) if queue else None
        if entry is not None:
            found.add(entry.physical_offset)
    return found

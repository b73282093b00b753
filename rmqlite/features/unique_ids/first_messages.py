"""Finds the message of a topic that has a unique id already.

The unique id is one of the message's KEYS, so the key index has every record of the message under
it, and no other memory of ids is needed.  The newest record decides: it waits, or lies in the topic
where consumers get it; or it has waited, and was cancelled, because what delivers a message or lets
it wait anew is a newer record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.reading import is_entered, outlines
from rmqlite.kernel.records.key_hashes import Suffix
from rmqlite.kernel.records.record import Head, destination
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queue import PendingPlace
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.message import (
    UNIQ_KEY,
    UNIQUE_ID,
    find_property,
    offset_message_id,
    property_marker,
    unpack_host,
)
from rmqlite.kernel.words.property_string import PropertyString

STEP_IDS: Final = 100
"""How many ids are looked for in one step of 3 ms."""
STEP_LOOKS: Final = 100
ENTRIES_MAX: Final = 2_000
LOOKS_MAX: Final = 10_000
"""How many records with one key are looked at: other topics may have messages with the same id."""
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_UNIQUE_ID: Final = property_marker(UNIQUE_ID)


class Asked(NamedTuple):
    """What a message asks for.  message_id: the producer's; "" if it has none."""

    topic: str
    unique_id: str
    message_id: str
    replaces: bool

    @property
    def name(self) -> tuple[str, str]:
        return self.topic, self.unique_id


class First(NamedTuple):
    """The message that has a unique id, by its newest record.

    queue_id: of the queue that it goes to.  place: where it waits; None if it does not wait.
    """

    head: Head
    queue_id: int
    place: PendingPlace | None

    @property
    def message_id(self) -> str:
        host = unpack_host(self.head.store_host)
        return _id_of(self.head) or offset_message_id(host, self.head.physical_offset)


class FirstMessages:
    """Finds the messages that have the unique ids of one call."""

    def __init__(self, store: MessageStore, asked: Sequence[Asked], since_ms: int) -> None:
        """since_ms: of those that do not wait only newer ones count."""
        self._store = store
        self._asked = asked
        self._since_ms = since_ms
        self._suffixes = [Suffix.of(each.unique_id) for each in asked]
        by_topic: dict[str, list[int]] = {}
        for position, each in enumerate(asked):
            by_topic.setdefault(each.topic, []).append(position)
        waiting = dict.fromkeys(WAIT_TOPICS, range(len(asked)))
        self._places: dict[str, Sequence[int]] = {**by_topic, **waiting}

    def first_messages(self) -> Steps[list[First | None]]:
        """The message that has each id, in steps; None if it is free.  Raises Overloaded."""
        firsts: list[First | None] = [None] * len(self._asked)
        for number, position in enumerate(sorted(self._likely()), 1):
            asked = self._asked[position]
            newest = yield from self._newest(asked)
            firsts[position] = newest and self._first(newest, asked)
            if number % STEP_IDS == 0:
                yield
        return firsts

    def has_newer(self, end: int) -> bool:
        """Have records been appended with one of these keys at or behind a physical offset?"""
        if self._store.end == end:
            return False
        return any(next(self._entries(place, end), None) for place in self._places)

    def was_stored(self, asked: Asked) -> bool:
        """Is a message with this message id in the log, whatever became of it?"""
        heads = self._records(asked.topic, asked.message_id)
        return any(_is_of(each, asked) and _id_of(each) == asked.message_id for each in heads)

    # ---- inside

    def _entries(self, place: str, min_offset: int = 0) -> Iterator[tuple[int, int]]:
        """The entries of a topic in the index that may have one of the keys.

        For many ids, nearly all of them new, it takes a fifth of the time of _records().
        """
        since_ms = 0 if place in WAIT_TOPICS else self._since_ms
        keys = [self._suffixes[position] for position in self._places[place]]
        return self._store.index.find_any(place, keys, since_ms, min_offset)

    def _likely(self) -> Collection[int]:
        """The positions of all ids that are not new, and maybe some more."""
        found: set[int] = set()
        for place, positions in self._places.items():
            for number, (at, _) in enumerate(self._entries(place)):
                if number == ENTRIES_MAX:
                    # An id may have very many, and only the newest one matters.
                    return range(len(self._asked))
                found.add(positions[at])
        return found

    def _newest(self, asked: Asked) -> Steps[Head | None]:
        for number, head in enumerate(self._records(asked.topic, asked.unique_id), 1):
            if _is_of(head, asked):
                return head
            if number == LOOKS_MAX:
                raise Overloaded("records with one key", LOOKS_MAX)
            if number % STEP_LOOKS == 0:
                yield
        return None

    def _records(self, topic: str, key: str) -> Iterator[Head]:
        """The records that may have a key, of a topic and of what waits, the newest first."""
        found = [outlines(self._store, place, key) for place in (topic, *WAIT_TOPICS)]
        return merge(*found, key=lambda head: head.physical_offset, reverse=True)

    def _first(self, head: Head, asked: Asked) -> First | None:
        is_new = head.store_timestamp_ms > self._since_ms
        wait_queue, offset = wait_queue_of(head.topic, head.queue_id), head.queue_offset
        if not wait_queue:
            # The log still has the records of a topic that was deleted.
            is_there = is_new and is_entered(self._store, head)
            return First(head, head.queue_id, None) if is_there else None
        queue_id = (destination(PropertyString(head.properties)) or ("", 0))[1]
        queue = self._store.queue(head.topic, head.queue_id)
        entry = queue.entry(offset) if queue else None
        is_open = self._store.progress.of(wait_queue).next_open(offset) == offset
        if entry is not None and entry.physical_offset == head.physical_offset and is_open:
            return First(head, queue_id, PendingPlace(entry.tags_code, wait_queue, offset, entry))
        # It was cancelled.  But to send it once more does not bring it back.
        is_same = is_new and asked.message_id == _id_of(head) != ""
        return First(head, queue_id, None) if is_same else None


def _id_of(head: Head) -> str:
    """The message id from the producer; empty if there is none."""
    return (find_property(head.properties, _UNIQ_KEY) or b"").decode("utf-8", "replace")


def _is_of(head: Head, asked: Asked) -> bool:
    if find_property(head.properties, _UNIQUE_ID) != asked.unique_id.encode():
        return False
    if head.topic not in WAIT_TOPICS:
        return True
    to = destination(PropertyString(head.properties))
    return to is not None and to[0] == asked.topic

"""Finds the message of a topic that has a unique id already, and decides what becomes of others.

The unique id of a message is its property UNIQUE_ID or, if it has none, its message id: that is the
id of a row of a bulk call, and of a redriven dead letter.  The key index has every record of the
message under it, so no other memory of ids is needed, and a crash forgets none.

The newest record decides: it waits, or lies in the topic where consumers get it; or it has waited,
and was cancelled, because what delivers a message or lets it wait anew is a newer record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Final, NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.reading import is_entered, outline_at
from rmqlite.kernel.records.key_hashes import Suffix
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head, destination
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queue import PendingPlace
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.message import (
    REAL_TOPIC,
    UNIQ_KEY,
    UNIQUE_ID,
    find_property,
    offset_message_id,
    property_marker,
    unpack_host,
)
from rmqlite.kernel.words.property_string import PropertyString

HOUR_MS: Final = 3_600_000
STEP_LOOKS: Final = 100
"""How many records are looked at in one step of 3 ms."""
ENTRIES_MAX: Final = 2_000
LOOKS_MAX: Final = 10_000
"""How many records with one key are looked at: other topics may have messages with the same id."""
_READ_BYTES: Final = 2 << 10
"""A guess of a record's length; the records of one call lie side by side, and are read together."""
_REAL_TOPIC: Final = property_marker(REAL_TOPIC)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_UNIQUE_ID: Final = property_marker(UNIQUE_ID)
Name = tuple[str, str]
"""Topic and unique id."""


class Asked(NamedTuple):
    """What a message asks for.  message_id: the producer's; "" if it has none."""

    topic: str
    unique_id: str
    message_id: str
    replaces: bool = False

    @property
    def name(self) -> Name:
        return self.topic, self.unique_id


class First(NamedTuple):
    """The message that has a unique id, by its newest record.

    place: where it waits; None if it does not wait.
    """

    head: Head
    place: PendingPlace | None

    @property
    def queue_id(self) -> int:
        """Of the queue that it goes to."""
        if self.head.topic not in WAIT_TOPICS:
            return self.head.queue_id
        return (destination(PropertyString(self.head.properties)) or ("", 0))[1]

    @property
    def message_id(self) -> str:
        host = unpack_host(self.head.store_host)
        return _id_of(self.head) or offset_message_id(host, self.head.physical_offset)


class FirstMessages:
    """Finds the messages that have the unique ids of one call."""

    def __init__(
        self,
        store: MessageStore,
        asked: Sequence[Asked],
        since_ms: int,
        *,
        waiting_since_ms: int = 0,
    ) -> None:
        """since_ms: of those that do not wait only these and newer ones count.

        waiting_since_ms: no message waits that was stored earlier; every index file takes time.
        """
        self._store = store
        self._asked = asked
        self._since_ms = since_ms
        self._waiting_since_ms = min(since_ms, waiting_since_ms)
        self._suffixes = [Suffix.of(unique_id) for _, unique_id, _, _ in asked]
        by_topic: dict[str, list[int]] = {}
        for position, (topic, _, _, _) in enumerate(asked):
            by_topic.setdefault(topic, []).append(position)
        waiting = dict.fromkeys(WAIT_TOPICS, range(len(asked)))
        self._places: dict[str, Sequence[int]] = {**by_topic, **waiting}

    def first_messages(self) -> Steps[dict[Name, First]]:
        """The messages that have the ids, in steps.  Raises Overloaded."""
        firsts: dict[Name, First] = {}
        for number, part in enumerate(self.newest_records()):
            if number:
                yield
            for position, head in part:
                asked = self._asked[position]
                if (first := self._first(head, asked)) is not None:
                    firsts[asked.name] = first
        return firsts

    def newest_records(self) -> Iterator[list[tuple[int, Head]]]:
        """Of each id that has been used its position and its newest record, a step at a time.

        Whatever became of the message, and however old it is.  Raises Overloaded.
        """
        left = self._offsets()
        found: list[tuple[int, Head]] = []
        looks = 0
        for _ in range(LOOKS_MAX):
            positions = [*left]
            for begin in range(0, len(positions), STEP_LOOKS):
                places: list[tuple[int, int]] = []
                for position in positions[begin : begin + STEP_LOOKS]:
                    physical_offset = next(left[position], None)
                    if physical_offset is None:
                        del left[position]
                    else:
                        places.append((physical_offset, position))
                places.sort()
                for (_, position), head in zip(places, self._heads(places), strict=True):
                    if head is not None and _is_of(head, self._asked[position]):
                        found.append((position, head))
                        del left[position]
                looks += len(places)
                if looks >= STEP_LOOKS:
                    yield found
                    found, looks = [], 0
            if not left:
                yield found
                return
        raise Overloaded("records with one key", LOOKS_MAX)

    def has_newer(self, end: int) -> bool:
        """Have records been appended with one of these keys at or behind a physical offset?"""
        if self._store.end == end:
            return False
        return any(next(self._entries(place, end), None) for place in self._places)

    def was_stored(self, asked: Asked) -> bool:
        """Is a message with this message id in the log, whatever became of it?"""
        offsets = self._offsets_of(asked.topic, asked.message_id)
        heads = (outline_at(self._store, offset) for offset in offsets)
        return any(
            head is not None and _is_of(head, asked) and _id_of(head) == asked.message_id
            for head in heads
        )

    # ---- inside

    def _entries(self, place: str, min_offset: int = 0) -> Iterator[tuple[int, int]]:
        """The entries of a topic in the index that may have one of the keys.

        For many ids, nearly all of them new, it takes a fifth of the time of one search for each.
        """
        since_ms = self._waiting_since_ms if place in WAIT_TOPICS else self._since_ms
        positions, keys = self._places[place], self._suffixes
        if len(positions) < len(keys):
            keys = [keys[position] for position in positions]
        return self._store.index.find_any(place, keys, since_ms, min_offset)

    def _offsets(self) -> dict[int, Iterator[int]]:
        """By the position of each id that is not new, and maybe of some more, the physical offsets
        of its records, the newest first."""
        found: dict[int, list[int]] = {}
        most = max(ENTRIES_MAX, 2 * len(self._asked))
        for place, positions in self._places.items():
            for number, (at, physical_offset) in enumerate(self._entries(place)):
                if number == most:
                    # An id may have very many, and only the newest one matters.
                    every = enumerate(self._asked)
                    return {at: self._offsets_of(each.topic, each.unique_id) for at, each in every}
                found.setdefault(positions[at], []).append(physical_offset)
        return {at: iter(sorted(several, reverse=True)) for at, several in found.items()}

    def _offsets_of(self, topic: str, key: str) -> Iterator[int]:
        """Where records that may have a key are, of a topic and of what waits, the newest first."""
        found = [self._store.index.find(place, key) for place in (topic, *WAIT_TOPICS)]
        return merge(*found, reverse=True)

    def _heads(self, places: Sequence[tuple[int, int]]) -> Iterator[Head | None]:
        """The records at these physical offsets, in ascending order."""
        entries = [Entry(offset, _READ_BYTES, 0) for offset, _ in places]
        records = self._store.read_records(entries, check_bodies=False)
        for (offset, _), record in zip(places, records, strict=True):
            # The guess may have been too short.
            yield record.head if record else outline_at(self._store, offset)

    def _first(self, head: Head, asked: Asked) -> First | None:
        is_new = head.store_timestamp_ms >= self._since_ms
        wait_queue, offset = wait_queue_of(head.topic, head.queue_id), head.queue_offset
        if not wait_queue:
            # The log still has the records of a topic that was deleted.
            is_there = is_new and is_entered(self._store, head)
            return First(head, None) if is_there else None
        queue = self._store.queue(head.topic, head.queue_id)
        entry = queue.entry(offset) if queue else None
        is_open = self._store.progress.of(wait_queue).next_open(offset) == offset
        if entry is not None and entry.physical_offset == head.physical_offset and is_open:
            return First(head, PendingPlace(entry.tags_code, wait_queue, offset, entry))
        # It was cancelled.  But to send it once more does not bring it back.
        is_same = is_new and asked.message_id == _id_of(head) != ""
        return First(head, None) if is_same else None


class Choice(NamedTuple):
    """What becomes of the messages of a call, by position.

    stored: those that are appended, in their order.  instead: of those that are not, the message
    that has their id: in the log, or the position of another one of the call.  replaced: what some
    of the stored ones complete.
    """

    stored: Sequence[int]
    instead: dict[int, First | int]
    replaced: dict[int, First]


def choice_of(
    asked: Sequence[Asked | None], firsts: Mapping[Name, First], looking: FirstMessages
) -> Choice:
    """Of messages of one call with one id the last one that replaces counts, else the first."""
    best: dict[Name, int] = {}
    plain = 0
    for position, each in enumerate(asked):
        if each is None:
            plain += 1
            continue
        topic, unique_id, _, replaces = each  # a third of the time of attributes
        if replaces or (topic, unique_id) not in best:
            best[topic, unique_id] = position
    if not firsts and len(best) + plain == len(asked):
        return Choice(range(len(asked)), {}, {})
    stored: list[int] = []
    choice = Choice(stored, {}, {})
    for position, each in enumerate(asked):
        first = None
        if each is not None:
            first, mine = firsts.get(each.name), best[each.name]
            if mine != position:
                choice.instead[position] = mine
                continue
            if first is not None and not _may_replace(each, first, looking):
                choice.instead[position] = first
                continue
        stored.append(position)
        if first is not None:
            choice.replaced[position] = first
    return choice


def _may_replace(asked: Asked, first: First, looking: FirstMessages) -> bool:
    if not asked.replaces or first.place is None or first.message_id == asked.message_id:
        return False
    # A producer that has missed its answer sends again what another message has replaced since.
    return not asked.message_id or not looking.was_stored(asked)


def _id_of(head: Head) -> str:
    """The message id from the producer; empty if there is none."""
    return (find_property(head.properties, _UNIQ_KEY) or b"").decode("utf-8", "replace")


def _is_of(head: Head, asked: Asked) -> bool:
    own = find_property(head.properties, _UNIQUE_ID) or find_property(head.properties, _UNIQ_KEY)
    if own != asked.unique_id.encode():
        return False
    if head.topic not in WAIT_TOPICS:
        return head.topic == asked.topic
    return find_property(head.properties, _REAL_TOPIC) == asked.topic.encode()

"""The whole life of a message, rebuilt from the log: all its records, in their order.

A message has a record in each place where it was, under the same UNIQ_KEY; a redrive gives
it another one, made of the place of the dead letter.  So the key index leads from any id of a
life to all its records, forwards and back.  Records without a UNIQ_KEY are joined by their
references to each other, as far as these go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Final

from rmqlite.broker.finding.finding import offset_in
from rmqlite.broker.finding.matching import has_key, has_offset_id, redriven_from, unique_key_of
from rmqlite.broker.finding.outcome import is_entered, outline_at
from rmqlite.broker.letters.hops import hop_of
from rmqlite.broker.redrive.redriven import EARLIER, IMPORTED, Redriven
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.offsets import ConsumerOffsets
from rmqlite.errors import InvalidValue
from rmqlite.message import (
    KEY_SEPARATOR,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REDRIVE_ID_PREFIX,
    REDRIVEN_MESSAGE_ID,
    find_property,
    offset_message_id,
    property_marker,
    unpack_host,
)
from rmqlite.names import is_dlq
from rmqlite.property_string import PropertyString
from rmqlite.records.completion import completed_queue
from rmqlite.records.record import Head
from rmqlite.records.wait_queues import queue_of
from rmqlite.requests.letters import HOPS_MAX, Hop, Life, LifeQuery, Place
from rmqlite.store.message_store import MessageStore

IDS_MAX: Final = 100
"""The most message ids through which one life is followed."""
STEP_TOPICS: Final = 20
STEP_RECORDS: Final = 200
READS_MAX: Final = 5 * HOPS_MAX
"""The most records read for one id: other keys may have the same hash."""
HOPS_BYTES_MAX: Final = 4 << 20
"""The most bytes of properties of all records in an answer."""
_KEYS: Final = property_marker(KEYS)
_ORIGIN: Final = property_marker(ORIGIN_MESSAGE_ID)
_REDRIVEN_ID: Final = property_marker(REDRIVEN_MESSAGE_ID)


class Lives:
    """Finds lives in one broker's store.

    readable_end: records that end behind this physical offset are not shown yet.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        redriven: Redriven,
        readable_end: Callable[[], int],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._redriven = redriven
        self._readable_end = readable_end

    def life(self, query: LifeQuery) -> Steps[Life]:
        """The life of a message, in steps; without hops if the store has no record of it.

        Raises InvalidValue, StoreUnavailable.
        """
        if not query.message_id:
            raise InvalidValue("message_id", "", "the id of a message, as send returns it")
        search = _Search(self._store, self._redriven, self._readable_end())
        yield from search.run(query.message_id)
        # Cached: every hop asks, but there are few queues.
        committed = cache(self._offsets.committed)
        newest: list[Hop] = []
        size = 0
        for _, head in sorted(search.heads.items(), reverse=True):
            size += len(head.properties)
            if len(newest) == HOPS_MAX or size > HOPS_BYTES_MAX:
                search.is_cut = True
                break
            newest.append(hop_of(self._store, committed, head))
            if len(newest) % STEP_RECORDS == 0:
                yield
        hops = tuple(reversed(newest))
        message_id = hops[0].message_id if hops else query.message_id
        return Life(message_id, hops, search.is_cut)


class _Search:
    """The records of one life that were found so far, by physical offset."""

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
        """Find all records of the life to which an id belongs."""
        self._ids[message_id] = None
        self._meet(self._record_at(message_id))
        done = 0
        while len(self.heads) <= HOPS_MAX:
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
        """Add a record to the life; its references are followed later."""
        if head is not None and head.physical_offset not in self.heads:
            self.heads[head.physical_offset] = head
            self._met.append(head)

    def _take(self, head: Head) -> Steps[None]:
        """Go on to the ids and records that a record of the life leads to."""
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
            self._meet(self._letter_at(origin.decode("utf-8", "replace")))
            first = find_property(head.properties, _REDRIVEN_ID)
            if first:
                # Retention may have removed the letter, but not all records before it.
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
            if len(found) > HOPS_MAX or number > READS_MAX:
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

    def _letter_at(self, text: str) -> Head | None:
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

"""Finds those of some messages that are in the log already, for jobs that store them once.

The key index has every record of the log under its UNIQ_KEY.  So no other memory of ids is needed,
and a crash forgets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqlite.kernel.records.key_hashes import Suffix
from rmqlite.kernel.records.record import read_outline
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import REAL_TOPIC, UNIQ_KEY, find_property, property_marker

_REAL_TOPIC: Final = property_marker(REAL_TOPIC)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
Name = tuple[str, str]
"""Topic and message id."""


class SentBefore:
    """Finds those of some messages that are in the log since a time."""

    def __init__(self, store: MessageStore, names: Sequence[Name], since_ms: int) -> None:
        self._store = store
        self._names = names
        self._since_ms = since_ms
        self._suffixes = [Suffix.of(message_id) for _, message_id in names]
        by_topic: dict[str, list[int]] = {}
        for position, (topic, _) in enumerate(names):
            by_topic.setdefault(topic, []).append(position)
        waiting = dict.fromkeys(WAIT_TOPICS, range(len(names)))
        self._places: dict[str, Sequence[int]] = {**by_topic, **waiting}

    def positions(self, min_offset: int = 0) -> set[int]:
        """The positions of messages with a record at or behind a physical offset.

        Raises StoreUnavailable.
        """
        sent: set[int] = set()
        for place, positions in self._places.items():
            keys = [self._suffixes[position] for position in positions]
            found = self._store.index.find_any(place, keys, self._since_ms, min_offset)
            for at, physical_offset in found:
                position = positions[at]
                if position not in sent and _is_of(
                    self._store, physical_offset, place, self._names[position], self._since_ms
                ):
                    sent.add(position)
        return sent


def _is_of(store: MessageStore, offset: int, place: str, name: Name, since_ms: int) -> bool:
    """Does a record of this message begin there, and is it new enough?"""
    size = int.from_bytes(store.read(offset, 4), "big")
    head = read_outline(store.read, offset, size)
    if head is None or head.topic != place or head.store_timestamp_ms < since_ms:
        return False
    if place in WAIT_TOPICS:
        topic = find_property(head.properties, _REAL_TOPIC)
        if topic != name[0].encode():
            return False
    return find_property(head.properties, _UNIQ_KEY) == name[1].encode()

"""Filters of messages.  search.py finds the places to look at."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import KEYS, REAL_TOPIC, UNIQ_KEY, find_property, property_marker
from rmqlite.kernel.words.names import dlq_topic, retry_topic

_KEYS: Final = property_marker(KEYS)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_REAL_TOPIC: Final = property_marker(REAL_TOPIC)
_WILDCARDS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter of messages; a field at its default takes every message.

    topic: a name, or a pattern with * ? [ ].  from_offset <= queue offset < to_offset;
    since_ms <= store timestamp < until_ms.  message_id: a producer's (UNIQ_KEY) or an offset
    message id; only with it are scheduled records found, too.  group: its retry and dead-letter
    topics.  is_scheduled: only scheduled records, of the levels and of the timers; topic and group
    then mean their destination, and queue_id is their level - 1, of timers 0.  Raises
    InvalidValue.
    """

    topic: str = ""
    queue_id: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    key: str = ""
    message_id: str = ""
    group: str = ""
    is_scheduled: bool = False

    def __post_init__(self) -> None:
        for name in ("queue_id", "from_offset", "to_offset", "since_ms", "until_ms"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidValue(name, value, "0 or more")
        _check_order("from_offset", self.from_offset, "to_offset", self.to_offset)
        _check_order("since_ms", self.since_ms, "until_ms", self.until_ms)
        if self.topic and self.group:
            raise InvalidValue("group", self.group, "a topic or a group, not both")
        if " " in self.key:
            raise InvalidValue("key", self.key, "one key, without blanks")

    @property
    def is_of_schedule(self) -> bool:
        """Does the filter take scheduled records only?"""
        return self.is_scheduled or self.topic in WAIT_TOPICS


class Matcher:
    """Decides for each record whether a filter takes it."""

    def __init__(self, wanted: MessageFilter) -> None:
        self._wanted = wanted
        self._key = wanted.key.encode()
        self._message_id = wanted.message_id.encode()
        self._takes_name = lru_cache(maxsize=None)(self._name_fits)
        # Most filters are by topic only; then the other fields are not compared.
        self._is_by_topic = wanted in (
            MessageFilter(topic=wanted.topic, group=wanted.group),
            MessageFilter(topic=wanted.topic, group=wanted.group, is_scheduled=True),
        )

    @property
    def needle(self) -> bytes:
        """Bytes that every matching record contains; empty if there are no such bytes."""
        return self._message_id or self._key

    def takes_queue(self, key: QueueKey) -> bool:
        """Can a queue contain matching messages?"""
        topic, queue_id = key
        return self._wanted.queue_id in (None, queue_id) and self.takes_record_of(topic)

    def takes_record_of(self, topic: str) -> bool:
        """Can a record of a topic match?"""
        if topic not in WAIT_TOPICS:
            return not self._wanted.is_of_schedule and self._takes_name(topic)
        if self._wanted.topic in WAIT_TOPICS:
            return topic == self._wanted.topic
        return self._wanted.is_scheduled or bool(self._message_id)

    def takes(self, head: Head, *, is_named: bool = False) -> bool:
        """Does a record match?  is_named: it was found by its message id."""
        if not record.has_entry(head.sys_flag):
            # RocketMQ's own records of a transaction are in no queue.
            return False
        if not self.takes_record_of(head.topic):
            return False
        if head.topic in WAIT_TOPICS and not self._takes_target(head):
            return False
        return self._is_by_topic or self._takes_rest(head, is_named)

    def _takes_rest(self, head: Head, is_named: bool) -> bool:
        wanted = self._wanted
        if not (
            _is_within(head.store_timestamp_ms, wanted.since_ms, wanted.until_ms)
            and _is_within(head.queue_offset, wanted.from_offset, wanted.to_offset)
            and wanted.queue_id in (None, head.queue_id)
        ):
            return False
        if self._key and self._key not in _property(head, _KEYS).split(b" "):
            return False
        return is_named or _property(head, _UNIQ_KEY) == self._message_id or not self._message_id

    def _takes_target(self, head: Head) -> bool:
        """Does a scheduled record's destination match?"""
        if self._wanted.topic in WAIT_TOPICS:
            return True
        return self._takes_name(_property(head, _REAL_TOPIC).decode("utf-8", "replace"))

    def _name_fits(self, topic: str) -> bool:
        wanted = self._wanted
        if wanted.group:
            return topic in (retry_topic(wanted.group), dlq_topic(wanted.group))
        if _WILDCARDS.isdisjoint(wanted.topic):
            return not wanted.topic or topic == wanted.topic
        return fnmatchcase(topic, wanted.topic)


def _property(head: Head, marker: bytes) -> bytes:
    return find_property(head.properties, marker) or b""


def _is_within(value: int, at_least: int | None, below: int | None) -> bool:
    return (at_least is None or value >= at_least) and (below is None or value < below)


def _check_order(low_name: str, low: int | None, high_name: str, high: int | None) -> None:
    if low is not None and high is not None and low >= high:
        raise InvalidValue(high_name, high, f"more than {low_name}, which is {low}")

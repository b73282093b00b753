"""Failed messages that a client sends to a retry or dead-letter topic itself.

RocketMQ's Java consumer does so at the limit of an orderly listener, and if it could not send a
message back.  What such a message tells of failures is a claim: who redrives it would send it to
whatever topic it names.  So only the log counts.  If the message is there, unchanged, in its own
group's chain or in the topic that it names, that record says where it comes from.  If it is not, it
comes from the retry or dead-letter topic that it was sent to.  In a cluster it may be a message of
another broker: what it says of its origin stays, under names that mark it as a claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from rmqlite.kernel.admission import level_of
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.reading import outlines
from rmqlite.kernel.records.drafts import SPARED, Draft, left_after_sparing, without_longest
from rmqlite.kernel.records.record import Head, body_crc
from rmqlite.kernel.retry import (
    FAILURE_PROPERTIES,
    claimed_of,
    is_in_chain,
    origin_of,
    place_properties,
    reason_properties,
)
from rmqlite.kernel.routing import LEVEL_MAX, QUEUE_ID_MAX, route, routed
from rmqlite.kernel.words.compression import COMPRESSION_BITS
from rmqlite.kernel.words.errors import Refused
from rmqlite.kernel.words.limits import INT32_MAX, MESSAGE_ID_BYTES_MAX, PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    CLAIMED_ORIGIN_TOPIC,
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    RESERVED_PROPERTIES,
    RETRY_TOPIC,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
)
from rmqlite.kernel.words.names import (
    check_sendable,
    dlq_topic,
    group_of,
    is_dlq,
    is_retry,
    retry_topic,
)
from rmqlite.kernel.words.property_string import PropertyString

SAME_ID_MAX: Final = 8
"""How many records with the message's id, or its hash, are looked at in each of two topics."""
LOOK_WORK: Final = 16
"""To look for the message in the log is as much work as so many ordinary messages."""
_ORDERLY_LEVEL: Final = 3
"""Java's orderly consumer sends a message with this level more than its failures before the last
one; a concurrent one has counted the last one, too."""
_CLIENTS_OWN: Final = frozenset(
    [name.encode() for name in RESERVED_PROPERTIES - {KEYS, TAGS, UNIQ_KEY}]
)
"""What clients and brokers add to a message on its way."""
_OF_THE_PULL: Final = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""What a consumer itself has added when it got the message."""
_SPARED: Final = (*_OF_THE_PULL, *SPARED)
_SPARED_OF_DEAD: Final = (*_SPARED, RETRY_TOPIC)
"""What a retry and a dead letter do without, in this order, if a record has no room for it."""
_Changes = dict[str, str | bytes]


class FailedDrafts:
    """Rewrites what drafts to retry and dead-letter topics tell of failures."""

    def __init__(self, parts: BrokerParts) -> None:
        self._cluster = parts.config.cluster_name
        self._store = parts.store
        self._topics = parts.topics
        self._groups = parts.groups
        self._counts = parts.counts

    def of(self, draft: Draft, limit: int | None, *, is_alone: bool) -> Draft:
        """The draft to store: a retry, or at the limit a dead letter.

        limit: of the consumer's retries; None means the group's.  is_alone: False for a message of
        a batch, which no consumer sends: it is not looked for.
        """
        group = group_of(draft.topic) or ""
        if draft.reconsume_times < 0:
            # Java's consumer adds 1 to the largest number, too, and sends the smallest one.
            draft = draft._replace(reconsume_times=INT32_MAX)
        own = PropertyString(draft.properties)
        changes = self._told(draft, own, group, is_alone=is_alone)
        attempts = _attempts(draft, own)
        if attempts:
            changes[DELIVERY_ATTEMPTS] = str(attempts)
        if is_dlq(draft.topic):
            changes |= _dead(changes)
            properties = own.edited(changes, FAILURE_PROPERTIES)
            return draft._replace(properties=properties.encoded)
        # A failed message of a transaction is half of none any more.
        gone = FAILURE_PROPERTIES | {TRAN_MSG}
        if not self._is_over(draft, group, limit):
            fitted = self._fitted(own.edited(changes, gone), draft.topic, _SPARED)
            if fitted is not None:
                return draft._replace(properties=fitted.encoded)
        topic = dlq_topic(group)
        self._topics.ensure(topic, 1)
        self._counts.dead[group] += 1
        changes |= {DELAY: "0", **_dead(changes)}
        properties = own.edited(changes, gone)
        fitted = self._fitted(properties, topic, _SPARED_OF_DEAD)
        if fitted is None:
            # Of what the client has added to its message, the longest goes.
            too_long = self._size(properties, topic) - PROPERTIES_BYTES_MAX
            fitted = without_longest(own, too_long).edited(changes, gone)
        return draft._replace(topic=topic, queue_id=0, properties=fitted.encoded)

    def _fitted(
        self, properties: PropertyString, topic: str, names: Sequence[str]
    ) -> PropertyString | None:
        """The string without what a record has no room for; None if that is not enough."""
        added = self._size(properties, topic) - len(properties.encoded)
        left = left_after_sparing(properties, PROPERTIES_BYTES_MAX - added, names)
        return None if left is None else left.of(properties)

    def _size(self, properties: PropertyString, topic: str) -> int:
        """The length of the property string with which the message is stored."""
        level = LEVEL_MAX if level_of(properties.encoded) else 0
        place = route(topic, QUEUE_ID_MAX, level, self._cluster)
        return len(routed(properties.encoded, place).encoded)

    def _is_over(self, draft: Draft, group: str, limit: int | None) -> bool:
        """Is a retry beyond the limit?  Raises GroupUnknown."""
        info = self._groups.wanted(group)
        return draft.reconsume_times >= (info.max_reconsume_times if limit is None else limit)

    def _told(self, draft: Draft, own: PropertyString, group: str, *, is_alone: bool) -> _Changes:
        """Where the message comes from, and how its group has failed it before."""
        shown = self._shown(draft, own, group) if is_alone else None
        if shown is None:
            # Java shows its listener the topic that RETRY_TOPIC names, so that stays.
            claimed = own.get(RETRY_TOPIC)
            added: _Changes = {RETRY_TOPIC: claimed} if claimed else {}
            return added | _claim(draft, own) | {DLQ_ORIGIN_TOPIC: draft.topic}
        if not is_in_chain(shown.topic, group):
            return {**place_properties(shown)}
        before = PropertyString(shown.properties)
        known = sorted(FAILURE_PROPERTIES - {LAST_FAILURE_TIMESTAMP})
        added = {name: value for name in known if (value := before.get(name)) is not None}
        added[RETRY_TOPIC] = claimed_of(shown) or origin_of(shown) or shown.topic
        about_reason, without = reason_properties("", before)
        return {name: each for name, each in added.items() if name not in without} | about_reason

    def _shown(self, draft: Draft, own: PropertyString, group: str) -> Head | None:
        """The record of the log that this message is a copy of; None if there is none."""
        key = own.text(UNIQ_KEY)
        if not key:
            return None
        mine = _senders(own)
        crc, size = body_crc(draft.body), len(draft.body)
        for topic in dict.fromkeys((retry_topic(group), own.text(RETRY_TOPIC))):
            for head in islice(outlines(self._store, topic, key), SAME_ID_MAX):
                is_same_body = (head.body_crc, head.body_end - head.body_position) == (crc, size)
                is_packed_alike = not (head.sys_flag ^ draft.sys_flag) & COMPRESSION_BITS
                if is_same_body and is_packed_alike and _senders_of(head) == mine:
                    return head
        return None


def _senders_of(head: Head) -> dict[bytes, bytes]:
    return _senders(PropertyString(head.properties))


def _senders(properties: PropertyString) -> dict[bytes, bytes]:
    """The pairs of the producer itself."""
    return {name: value for name, value in properties.pairs.items() if name not in _CLIENTS_OWN}


def _attempts(draft: Draft, own: PropertyString) -> int:
    """How often a consumer has failed a message that it sends itself, this time included."""
    times = draft.reconsume_times
    is_orderly = own.number(DELAY) == times + _ORDERLY_LEVEL
    return times + 1 if is_orderly else times


def _claim(draft: Draft, own: PropertyString) -> _Changes:
    """What a consumer says of the origin of a message that this broker does not have."""
    topic, message_id = own.text(RETRY_TOPIC), own.text(ORIGIN_MESSAGE_ID)
    if not is_retry(draft.topic) or group_of(topic) is not None:
        return {}
    try:
        check_sendable(topic)
    except Refused:
        return {}
    claim: _Changes = {CLAIMED_ORIGIN_TOPIC: topic}
    if message_id.isprintable() and 0 < len(message_id.encode()) <= MESSAGE_ID_BYTES_MAX:
        claim[CLAIMED_ORIGIN_MESSAGE_ID] = message_id
    return claim


def _dead(changes: _Changes) -> _Changes:
    """What a dead letter tells beyond a retry: the origin by its own names."""
    origin = changes.get(DLQ_ORIGIN_TOPIC) or changes[RETRY_TOPIC]
    dead: _Changes = {DLQ_ORIGIN_TOPIC: origin, RETRY_TOPIC: origin}
    first_id = changes.get(ORIGIN_MESSAGE_ID)
    return dead | {DLQ_ORIGIN_MESSAGE_ID: first_id} if first_id else dead

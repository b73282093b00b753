"""Compares a record's key, tag, ids, origin, job and failure reason with wanted ones.

All of them are in the property string, which is searched, not decoded: that costs a tenth.
Anybody may have written a record's properties; a malformed number counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from rmqlite.features.failure_kinds import NO_REASON, REASON_CHARS_MAX, failure_kind
from rmqlite.features.finding.requests import DEAD_LETTER_IDS_MAX, Place
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.retry import claimed_of, origin_of
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.limits import (
    JOB_ID_CHARS_MAX,
    REASON_PART_CHARS_MAX,
    SEARCH_BYTES_MAX,
    check_length,
)
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    KEY_SEPARATOR,
    KEYS,
    REDRIVE_ID_PREFIX,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    TAGS,
    UNIQ_KEY,
    find_property,
    property_marker,
)
from rmqlite.kernel.words.names import TOPIC_BYTES_MAX

_KEYS: Final = property_marker(KEYS)
_TAGS: Final = property_marker(TAGS)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_FAILURE_REASON: Final = property_marker(FAILURE_REASON)
_REASON_ATTEMPT: Final = property_marker(FAILURE_REASON_ATTEMPT)
_ATTEMPTS: Final = property_marker(DELIVERY_ATTEMPTS)
_REDRIVEN_BY: Final = property_marker(REDRIVEN_BY)
_REDRIVEN_FROM: Final = property_marker(REDRIVEN_FROM)
_REDRIVE_ID_PREFIX: Final = REDRIVE_ID_PREFIX.encode()
_SEPARATOR: Final = KEY_SEPARATOR.encode()
INT64_MAX: Final = 2**63 - 1
NUMBER_DIGITS_MAX: Final = 19
_KINDS_MAX: Final = 4_096
"""The most reasons whose kinds are cached."""


class WantedIds(NamedTuple):
    """Ids by what they may be: a producer's id, an offset message id as bytes, a place."""

    unique_keys: frozenset[bytes]
    offset_ids: frozenset[bytes]
    places: frozenset[Place]


class WantedMessage(Protocol):
    """A filter of messages: the fields that filters of dead letters and pending messages share."""

    @property
    def topic(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def reason(self) -> str: ...
    @property
    def failure_kind(self) -> str: ...


def check_wanted(wanted: WantedMessage, job_id: str = "") -> None:
    """Raises InvalidValue for a text that is longer than any record's, or several keys.

    The texts are compared with those of very many records.
    """
    check_length("topic", wanted.topic, TOPIC_BYTES_MAX)
    check_length("tag", wanted.tag, SEARCH_BYTES_MAX)
    check_key("key", wanted.key)
    check_ids(wanted.ids)
    for field, text, chars_max in (
        ("reason", wanted.reason, REASON_PART_CHARS_MAX),
        ("failure_kind", wanted.failure_kind, REASON_CHARS_MAX),
        ("job_id", job_id, JOB_ID_CHARS_MAX),
    ):
        if len(text) > chars_max:
            raise InvalidValue(field, f"{len(text)} characters", f"at most {chars_max}")
    _check_kind(wanted.failure_kind)


def check_ids(ids: Sequence[str]) -> None:
    """Raises InvalidValue for too many ids, an empty one, or too much text."""
    if len(ids) > DEAD_LETTER_IDS_MAX:
        raise InvalidValue("ids", f"{len(ids)} ids", f"at most {DEAD_LETTER_IDS_MAX}")
    if "" in ids:
        raise InvalidValue("ids", "", "ids that are not empty")
    check_length("ids", "".join(ids), SEARCH_BYTES_MAX)


def _check_kind(wanted: str) -> None:
    kind = failure_kind(wanted)
    if wanted and wanted != kind:
        raise InvalidValue("failure_kind", wanted, f"a kind of reasons, such as {kind!r}")


def check_key(field: str, key: str) -> None:
    """Raises InvalidValue for a text that is longer than any key, or several keys."""
    check_length(field, key, SEARCH_BYTES_MAX)
    if KEY_SEPARATOR in key:
        raise InvalidValue(field, key, "one key, without blanks")


def has_all(head: Head, wanted: WantedMessage, *, origin_topic: str, job_id: str = "") -> bool:
    """Has a record all of these?  An empty text is not compared."""
    kind = wanted.failure_kind
    return (
        (not wanted.ids or has_any_id(head, wanted.ids))
        and (not origin_topic or origin_topic in (origin_of(head), claimed_of(head)))
        and (not wanted.tag or has_tag(head, wanted.tag))
        and (not wanted.key or has_key(head, wanted.key))
        and (not wanted.reason or has_reason(head, wanted.reason))
        and (not kind or kind_in(head.properties) == kind)
        and (not job_id or find_property(head.properties, _REDRIVEN_BY) == encoded(job_id))
    )


def has_key(head: Head, key: str) -> bool:
    tokens = (find_property(head.properties, _KEYS) or b"").split(_SEPARATOR)
    return encoded(key) in tokens


def has_tag(head: Head, tag: str) -> bool:
    return find_property(head.properties, _TAGS) == encoded(tag)


@lru_cache(maxsize=64)
def wanted_ids(ids: tuple[str, ...]) -> WantedIds:
    """The ids, prepared for has_any_id()."""
    offset_ids = set()
    for each in ids:
        try:
            offset_ids.add(bytes.fromhex(each))
        except ValueError:
            continue
    places = [place for each in ids if (place := Place.read(each))]
    return WantedIds(frozenset(map(encoded, ids)), frozenset(offset_ids), frozenset(places))


def has_any_id(head: Head, ids: tuple[str, ...]) -> bool:
    """Is one of the ids the producer's id of a record, its offset message id, or its place?"""
    wanted = wanted_ids(ids)
    if find_property(head.properties, _UNIQ_KEY) in wanted.unique_keys:
        return True
    if wanted.offset_ids and _offset_id(head) in wanted.offset_ids:
        return True
    return (head.topic, head.queue_id, head.queue_offset) in wanted.places


def unique_key_of(head: Head) -> str:
    """The message id from the producer; empty if there is none."""
    return (find_property(head.properties, _UNIQ_KEY) or b"").decode("utf-8", "replace")


def redriven_from(properties: bytes) -> bytes:
    """The place of the dead letter (topic:queue id:queue offset) that a message was; empty if none.

    Its message id is made of the place: a message that only copies the properties of a
    redriven one does not count.
    """
    place = find_property(properties, _REDRIVEN_FROM) or b""
    message_id = find_property(properties, _UNIQ_KEY) or b""
    own = _REDRIVE_ID_PREFIX + place
    return place if message_id == own or message_id.startswith(own + b":") else b""


def has_offset_id(head: Head, message_id: str) -> bool:
    """Is this RocketMQ's offset message id of the record?"""
    return message_id.upper() == offset_id_of(head)


def offset_id_of(head: Head) -> str:
    """RocketMQ's offset message id of the record."""
    return _offset_id(head).hex().upper()


def _offset_id(head: Head) -> bytes:
    return head.store_host + head.physical_offset.to_bytes(8, "big")


def has_reason(head: Head, part: str) -> bool:
    """Is this, in upper or lower case, a part of the last reason that a failure gave?

    Or of the reason's kind; but "reason" is no part of "(no reason)".
    """
    wanted = part.casefold()
    reason = find_property(head.properties, _FAILURE_REASON)
    if reason is not None and wanted in reason.decode("utf-8", "replace").casefold():
        return True
    kind = kind_in(head.properties)
    return wanted == NO_REASON if kind == NO_REASON else wanted in kind.casefold()


def has_last_failure(head: Head) -> bool:
    """Do the failure properties of a record belong to its last failure?

    RocketMQ counts a failure without recording it, and copies our properties of an older one.
    """
    if head.topic == UNDELIVERABLE_TOPIC:
        return True
    attempts = number_of(head.properties, _ATTEMPTS)
    return attempts is None or attempts >= head.reconsume_times


def reason_of(head: Head) -> str:
    """The reason that the last failure gave; empty if it gave none."""
    is_of_earlier_attempt = find_property(head.properties, _REASON_ATTEMPT) is not None
    if is_of_earlier_attempt or not has_last_failure(head):
        return ""
    return (find_property(head.properties, _FAILURE_REASON) or b"").decode("utf-8", "replace")


def kind_in(properties: bytes) -> str:
    """The kind of the reason that is shown: the last one that a failure gave."""
    return _kind(find_property(properties, _FAILURE_REASON) or b"")


@lru_cache(maxsize=_KINDS_MAX)
def _kind(reason: bytes) -> str:
    return failure_kind(reason.decode("utf-8", "replace"))


def number_of(properties: bytes, marker: bytes) -> int | None:
    """A property as a number from 0 to 2^63 - 1; None if it is missing or malformed."""
    digits = find_property(properties, marker)
    if not digits or not digits.isdigit() or len(digits) > NUMBER_DIGITS_MAX:
        return None
    number = int(digits)
    return number if number <= INT64_MAX else None


def encoded(text: str) -> bytes:
    """A wanted text as bytes; what is not valid Unicode becomes "?"."""
    return text.encode("utf-8", "replace")

"""A record's property string as bytes: searched and changed, never decoded as a whole.

The string is key 0x01 value 0x02 key 0x01 value … (reference §1.4).  A change keeps every
other byte, also a value that is not UTF-8.  Only a person and a client get all of it as text.
The texts of a message that a user hands over are checked here: the string must be able to hold
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Final

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.limits import (
    INT32_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    TAGS_BYTES_MAX,
    check_length,
)

DIGITS_MAX: Final = 18
KEY_END: Final = "\x01"
PAIR_END: Final = "\x02"
_KEY_END: Final = KEY_END.encode()
_PAIR_END: Final = PAIR_END.encode()
_NOTHING: Final = frozenset[str]()
_INT = re.compile(rb"([+-]?)0*([0-9]{1,10})")
_SURROGATES = re.compile("[\ud800-\udfff]")
_UNFIT = re.compile(r"[\s\x01\x02\ud800-\udfff]")
_TEXT_RULE: Final = "UTF-8 text without control characters 0x01 and 0x02"


class PropertyString:
    """A view on one property string, which is parsed once, at the first look-up.

    If a name has several pairs, the last one that has a value counts, as in RocketMQ.
    Values are bytes as they were sent.
    """

    __slots__ = ("_pairs", "encoded")

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self._pairs: dict[bytes, bytes] | None = None

    @property
    def pairs(self) -> dict[bytes, bytes]:
        """All pairs that have a value, each name once."""
        if self._pairs is None:
            self._pairs = pairs_of(self.encoded)
        return self._pairs

    def get(self, name: str) -> bytes | None:
        """A value; None if there is none, or an empty one."""
        return self.pairs.get(_bytes_of(name))

    def text(self, name: str) -> str:
        """A value for a person: bytes that are not UTF-8 become U+FFFD; empty if there is none."""
        return (self.get(name) or b"").decode("utf-8", "replace")

    def number(self, name: str) -> int | None:
        """A value of 1 to 18 digits as a number; None if it is anything else."""
        return number_of(self.get(name))

    def edited(
        self, changes: Mapping[str, str | bytes], without: frozenset[str] = _NOTHING
    ) -> PropertyString:
        """Another string with some pairs set and others left out; all other bytes stay.

        All pairs of a name that is set or left out are removed, and the set pairs come last.
        All pairs of other names stay, and so do parts that RocketMQ cannot read as pairs.
        """
        gone = _all_bytes_of(without).union(map(_bytes_of, changes))
        parts = [
            part
            for part in self.encoded.split(_PAIR_END)
            if part.partition(_KEY_END)[0] not in gone or _KEY_END not in part
        ]
        if changes and parts and not parts[-1]:
            # An older RocketMQ ends the string with a separator.
            parts.pop()
        for name, value in changes.items():
            raw = value if isinstance(value, bytes) else value.encode()
            parts.append(_bytes_of(name) + _KEY_END + raw)
        return PropertyString(_PAIR_END.join(parts))


def pairs_of(encoded: bytes) -> dict[bytes, bytes]:
    """See PropertyString.pairs; one pass costs as much as four searches."""
    pairs = {}
    for part in encoded.split(_PAIR_END):
        name, _, value = part.partition(_KEY_END)
        if value:
            pairs[name] = value
    return pairs


def number_of(value: bytes | None) -> int | None:
    """See PropertyString.number."""
    if not value or len(value) > DIGITS_MAX or not value.isdigit():
        return None
    return int(value)


def java_int(value: bytes) -> int | None:
    """A value as Java's Integer.parseInt() reads it, of digits 0 to 9; None if that fails."""
    found = _INT.fullmatch(value)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -INT32_MAX - 1 <= number <= INT32_MAX else None


def property_marker(name: str) -> bytes:
    """The bytes that find_property looks for."""
    return _PAIR_END + name.encode() + _KEY_END


def find_property(encoded: bytes, marker: bytes) -> bytes | None:
    """The value that decode_properties has for one name, without decoding the others.

    It costs a tenth of decode_properties; for code that runs once per record.
    """
    begin = encoded.rfind(marker)
    if begin >= 0:
        start = begin + len(marker)
    elif encoded.startswith(marker[1:]):
        start = len(marker) - 1
    else:
        return None
    end = encoded.find(_PAIR_END, start)
    value = encoded[start:] if end < 0 else encoded[start:end]
    if value:
        return value
    # Rare: the last pair has no value, and one before it counts.
    return pairs_of(encoded).get(marker[1:-1])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string (reference §1.4) in UTF-8: k 01 v 02 k 01 v."""
    return PAIR_END.join([k + KEY_END + v for k, v in properties.items()]).encode()


def decode_properties(encoded: bytes) -> dict[str, str]:
    """The pairs of a property string, as RocketMQ reads them.

    Pairs without key or value are dropped.  If a key is there several times, its last pair counts.
    """
    pairs: dict[str, str] = {}
    for segment in encoded.decode("utf-8", "replace").split(PAIR_END):
        key, _, value = segment.partition(KEY_END)
        if key and value:
            pairs[key] = value
    return pairs


@lru_cache(maxsize=512)
def _bytes_of(name: str) -> bytes:
    return name.encode()


@lru_cache(maxsize=64)
def _all_bytes_of(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset([name.encode() for name in names])


def check_texts(tags: str, message_id: str, keys: Sequence[str]) -> None:
    """Raises InvalidValue."""
    for name, text, bytes_max in (
        ("tags", tags, TAGS_BYTES_MAX),
        ("message_id", message_id, MESSAGE_ID_BYTES_MAX),
    ):
        if not _is_text(text):
            raise InvalidValue(name, text, _TEXT_RULE)
        check_length(name, text, bytes_max)
    for key in keys:
        if not key or _UNFIT.search(key):
            raise InvalidValue("keys", key, f"tokens without blanks, {_TEXT_RULE}")
        check_length("keys", key, KEY_BYTES_MAX)


def check_unique_id(unique_id: str) -> None:
    """Raises InvalidValue for what cannot be a key of its message, or TypeError."""
    if not unique_id or _UNFIT.search(unique_id):
        raise InvalidValue("unique_id", unique_id, f"one token without blanks, {_TEXT_RULE}")
    check_length("unique_id", unique_id, MESSAGE_ID_BYTES_MAX)


def check_properties(properties: Mapping[str, str], reserved: Set[str]) -> None:
    """Raises InvalidValue, or TypeError for what is no text."""
    for key, value in properties.items():
        if key in reserved:
            raise InvalidValue("properties", key, "a name that RocketMQ does not reserve")
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError
        if not key or not value:
            raise InvalidValue("properties", f"{key}={value}", "text keys and values, none empty")
        if not _is_text(key) or not _is_text(value):
            raise InvalidValue("properties", f"{key}={value}", _TEXT_RULE)


def _is_text(text: str) -> bool:
    """Can a property string hold it?  ASCII text is not searched for surrogates."""
    if KEY_END in text or PAIR_END in text:
        return False
    return text.isascii() or not _SURROGATES.search(text)

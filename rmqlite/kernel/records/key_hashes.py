"""Java's String.hashCode, which RocketMQ's key index uses, without a step per character.

The hash of a text is h = 31 * h + unit over its UTF-16 units, modulo 2^32.  For ASCII, up to
32 bytes are read as one number of base 256 and folded: each pair of neighbours hi * 256 + lo
becomes hi * 31 + lo, then pairs of pairs, five times in all; one subtraction does this for
all pairs at once.  This takes 0.6 µs for a unique id; a loop or a sum of products takes 1.4.
Longer texts are folded in the same way, up to eight times.

An append enters the keys of all its records, and a check hashes every key of a store: in bulk, at
a third of that cost.  Nearly all records have a UNIQ_KEY and no KEYS, or both; then one search
finds the keys of all records.  Their tokens are folded in one number, each in its own 32 bytes: no
step carries into the next token, because powers of 31 are reduced modulo 2^32.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.words.message import (
    KEY_SEPARATOR,
    KEYS,
    UNIQ_KEY,
    find_property,
    property_marker,
)

_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_LANE_BYTES: Final = 32
"""Tokens up to this length are folded as one number, or several of them side by side."""
_BLOCK_BYTES: Final = 256
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(_BLOCK_BYTES + 1))
_SEPARATOR: Final = KEY_SEPARATOR.encode()
_KEYS: Final = property_marker(KEYS)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_VALUE: Final = rb"([^\x02\0]*)[^\0]*"
"""A property's value, and the rest of its record: so each record has one match at most."""
_find_uniques: Final = re.compile(_UNIQ_KEY + _VALUE).findall
_find_keys: Final = re.compile(_KEYS + _VALUE).findall
_FEW: Final = 8
"""So few tokens are hashed one by one: together takes longer."""
_ROUND: Final = 128
_WIDTHS: Final = (1, 2, 4, 8, 16)

Keyed = tuple[int, bytes, int, int]
"""A record: topic_prefix(), properties, physical offset, store timestamp."""


def _lows(width: int, length: int = _LANE_BYTES) -> int:
    """A mask of the lower one of each two neighbours of `width` bytes."""
    pair = b"\x00" * width + b"\xff" * width
    return int.from_bytes(pair * (length // len(pair)), "big")


_LOWS_1, _LOWS_2, _LOWS_4, _LOWS_8 = map(_lows, (1, 2, 4, 8))
_FOLDS: Final = tuple(
    (8 * width, _lows(width, _BLOCK_BYTES), (1 << 8 * width) - 31**width, 2 * width)
    for width in (1, 2, 4, 8, 16, 32, 64, 128)
)
"""For each fold: shift in bits, mask of the lower neighbours, factor to subtract, bytes folded."""
_LESS_1: Final = (1 << 8) - 31
_LESS_2: Final = (1 << 16) - 31**2
_LESS_4: Final = (1 << 32) - 31**4
_LESS_8: Final = (1 << 64) - 31**8
_LESS_16: Final = (1 << 128) - 31**16


def key_hash(topic: str, key: str) -> int:
    """The hash of a key in the index: never negative, 31 bits."""
    return positive(text_hash(f"{topic}#{key}"))


def positive(hashed: int) -> int:
    """Java's Math.abs of a hash, and 0 for -2^31, which Math.abs leaves negative."""
    return hashed if hashed < _SIGN else -hashed & (_SIGN - 1)


def text_hash(text: str, prefix: int = 0) -> int:
    """The hash of a text behind one whose hash is prefix, 0 to 2^32 - 1."""
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        prefix = (31 * prefix + unit) & _MASK
    return prefix


def token_hash(prefix: int, token: bytes) -> int:
    """text_hash of UTF-8 bytes; the fast form, because it runs once per key."""
    length = len(token)
    if not token.isascii():
        return text_hash(token.decode("utf-8", "replace"), prefix)
    if length > _LANE_BYTES:
        return _long_hash(prefix, token)
    folded = int.from_bytes(token, "big")
    folded -= (folded >> 8 & _LOWS_1) * _LESS_1
    folded -= (folded >> 16 & _LOWS_2) * _LESS_2
    folded -= (folded >> 32 & _LOWS_4) * _LESS_4
    folded -= (folded >> 64 & _LOWS_8) * _LESS_8
    folded -= (folded >> 128) * _LESS_16
    return prefix * _POWERS[length] + folded & _MASK


class Suffix(NamedTuple):
    """A text to be hashed behind several prefixes; power: the factor for a prefix's hash."""

    power: int
    hashed: int

    @classmethod
    def of(cls, text: str) -> Suffix:
        if text.isascii():
            return cls(pow(31, len(text), 1 << 32), token_hash(0, text.encode()))
        units = len(text.encode("utf-16-be", "surrogatepass")) // 2
        return cls(pow(31, units, 1 << 32), text_hash(text))

    def behind(self, prefix: int) -> int:
        """The hash of the text behind one whose hash is prefix."""
        return prefix * self.power + self.hashed & _MASK


def _long_hash(prefix: int, token: bytes) -> int:
    """token_hash of ASCII, of any length."""
    length = len(token)
    if length > _BLOCK_BYTES:
        half = length // 2
        return _long_hash(_long_hash(prefix, token[:half]), token[half:])
    folded = int.from_bytes(token, "big")
    for shift, lows, less, bytes_folded in _FOLDS:
        folded -= (folded >> shift & lows) * less
        if bytes_folded >= length:
            break
    return prefix * _POWERS[length] + folded & _MASK


class Keys(NamedTuple):
    """Keys in the order of the index, in columns, with the values of their records."""

    prefixes: Sequence[int]
    tokens: Sequence[bytes]
    places: Sequence[int]
    times: Sequence[int]


@lru_cache(maxsize=4096)
def topic_prefix(topic: str) -> int:
    """The hash of the text before every key of a topic."""
    return text_hash(f"{topic}#")


def keys_of(records: Sequence[Keyed]) -> Keys:
    """The UNIQ_KEY of each record, then each of its KEYS."""
    if not records:
        return Keys((), (), (), ())
    prefixes, properties, places, times = zip(*records, strict=True)
    count = len(records)
    joined = b"\x02" + b"\0\x02".join(properties)
    with_keys = joined.count(_KEYS)
    uniques = _find_uniques(joined)
    keys = _find_keys(joined) if with_keys else []
    # If each record has one of each, the searches have found exactly these.
    is_usual = len(uniques) == joined.count(_UNIQ_KEY) == count
    is_usual = is_usual and len(keys) == with_keys and with_keys in (0, count)
    if not is_usual or joined.count(b"\0") >= count or not all(uniques):
        keys = [find_property(each, _KEYS) or b"" for each in properties]
        uniques = [find_property(each, _UNIQ_KEY) or b"" for each in properties]
    elif not keys:
        return Keys(prefixes, uniques, places, times)
    tokens = [
        [unique, *several.split(_SEPARATOR)] for unique, several in zip(uniques, keys, strict=True)
    ]
    if not all(map(all, tokens)):
        tokens = [[each for each in several if each] for several in tokens]
    counts = [len(each) for each in tokens]
    columns = [_repeated(each, counts) for each in (prefixes, places, times)]
    return Keys(columns[0], list(chain.from_iterable(tokens)), columns[1], columns[2])


@in_c
def hashed_keys(records: Sequence[Keyed]) -> tuple[list[int], Sequence[int], Sequence[int]]:
    """The hash of each key in the order of the index, with its record's place and time."""
    prefixes, tokens, places, times = keys_of(records)
    return key_hashes(prefixes, tokens), places, times


def _repeated(column: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Each number, repeated by its count."""
    return list(chain.from_iterable(map(repeat, column, counts)))


def key_hashes(prefixes: Sequence[int], tokens: Sequence[bytes]) -> list[int]:
    """The index's hash of each token behind its prefix's hash; see key_hash.key_hash."""
    lanes = b""
    if len(tokens) > _FEW:
        lanes = b"".join([token.rjust(_LANE_BYTES, b"\0") for token in tokens])
    if not lanes or len(lanes) != _LANE_BYTES * len(tokens) or not lanes.isascii():
        return [positive(token_hash(p, t)) for p, t in zip(prefixes, tokens, strict=True)]
    # Round up to a few sizes, because _steps() and _lanes() are cached by size.
    few = min(_ROUND, 1 << (len(tokens) - 1).bit_length())
    count = -(-len(tokens) // few) * few
    folded = int.from_bytes(lanes.ljust(count * _LANE_BYTES, b"\0"), "big")
    for bits, low, power in _steps(count):
        folded = (folded >> bits & low) * power + (folded & low)
    sums = _lanes(count).unpack(folded.to_bytes(count * _LANE_BYTES, "big"))
    return [
        hashed
        if (hashed := prefix * _POWERS[len(token)] + each & _MASK) < _SIGN
        # The same as positive(), inlined.
        else -hashed & (_SIGN - 1)
        for prefix, token, each in zip(prefixes, tokens, sums, strict=False)
    ]


@lru_cache(maxsize=16)
def _steps(count: int) -> list[tuple[int, int, int]]:
    """For each width: its bits, a mask of lower neighbours, and 31**width modulo 2^32."""
    return [(8 * width, _lows(width, _LANE_BYTES * count), _POWERS[width]) for width in _WIDTHS]


@lru_cache(maxsize=16)
def _lanes(count: int) -> struct.Struct:
    return struct.Struct(">" + "28xI" * count)

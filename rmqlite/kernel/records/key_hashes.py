"""The keys of many records and their hashes in bulk, at a third of the cost of one by one.

An append enters the keys of all its records, and a check hashes every key of a store.  Nearly
all records have a UNIQ_KEY and no KEYS, or both; then one search finds the keys of all records.
The hashes are folded as in key_hash, but with all tokens in one number, each in its own 32
bytes: no step carries into the next token, because powers of 31 are reduced modulo 2^32.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple

from rmqlite.kernel.records.key_hash import positive, text_hash, token_hash
from rmqlite.kernel.words.message import (
    KEY_SEPARATOR,
    KEYS,
    UNIQ_KEY,
    find_property,
    property_marker,
)

_SEPARATOR: Final = KEY_SEPARATOR.encode()
_KEYS: Final = property_marker(KEYS)
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
_VALUE: Final = rb"([^\x02\0]*)[^\0]*"
"""A property's value, and the rest of its record: so each record has one match at most."""
_find_uniques: Final = re.compile(_UNIQ_KEY + _VALUE).findall
_find_keys: Final = re.compile(_KEYS + _VALUE).findall
_LANE_BYTES: Final = 32
_FEW: Final = 8
"""So few tokens are hashed one by one: together takes longer."""
_ROUND: Final = 128
_WIDTHS: Final = (1, 2, 4, 8, 16)
_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(_LANE_BYTES + 1))

Keyed = tuple[int, bytes, int, int]
"""A record: topic_prefix(), properties, physical offset, store timestamp."""


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
    steps = []
    for width in _WIDTHS:
        pair = b"\x00" * width + b"\xff" * width
        low = int.from_bytes(pair * (_LANE_BYTES // len(pair) * count), "big")
        steps.append((8 * width, low, _POWERS[width]))
    return steps


@lru_cache(maxsize=16)
def _lanes(count: int) -> struct.Struct:
    return struct.Struct(">" + "28xI" * count)

"""The property strings of many records at once: their pairs as positions in one buffer.

The strings are copied one behind the other with a 0x02 before each, so that every pair, even
a record's first, is  02 key 01 value  and ends at the next 02.  One pass finds all
separators; names of keys are compared eight bytes at a time.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqlite.kernel.words.message import decode_properties, encode_properties
from rmqlite.spark.arrow.records import Bytes, Flags, Longs, RecordArray, gathered

_KEY_END: Final = 1
_PAIR_END: Final = 2
_PAD_BYTES: Final = 16
"""Bytes behind the last string: the end of its last pair, and room to read eight bytes."""
_WORD_BYTES: Final = 8
_MASKS: Final = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], np.uint64)
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_DIGITS_MAX: Final = 18


def interleaved(data: Bytes, begins: Longs, ends: Longs) -> tuple[pa.Array, pa.Array]:
    """An Arrow array over data, and the indexes of its pieces begin <= n < end.

    Begins and ends alternate in one list of positions, so the array has the gaps as pieces, too.
    """
    low = int(begins.min()) if len(begins) else 0
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2] = begins - low
    bounds[1::2] = ends - low
    return _pieces(data, low, bounds), pa.array(np.arange(0, len(bounds), 2, dtype=np.int32))


def _pieces(data: Bytes, low: int, bounds: Any) -> pa.Array:
    count = max(0, len(bounds) - 1)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[low:])]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def as_text(found: pa.Array) -> pa.Array:
    """Bytes as text; bytes that are no UTF-8 become U+FFFD, as in decode_properties."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if x is None else x.decode("utf-8", "replace") for x in found.to_pylist()]
        return pa.array(texts, pa.string())


class Pairs:
    """The pairs of the property strings of some records."""

    def __init__(self, records: RecordArray) -> None:
        self.count = len(records)
        # The pad may have any bytes: take the end of the last record.
        last = int(records.end[-1])
        whole, wanted = interleaved(
            records.data,
            np.append(records.pairs_begin - 1, last - _PAD_BYTES),
            np.append(records.end, last),
        )
        taken = whole.take(wanted)
        self._set(
            np.frombuffer(taken.buffers()[2], np.uint8),
            np.frombuffer(taken.buffers()[1], np.int32)[: self.count + 1].astype(np.int64),
        )

    @classmethod
    def _of_strings(cls, strings: list[bytes]) -> Pairs:
        found = object.__new__(cls)
        found.count = len(strings)
        lengths = np.array([0, *(len(each) + 1 for each in strings)], np.int64)
        data = b"".join(b"\x02" + each for each in strings) + bytes(_PAD_BYTES)
        found._set(np.frombuffer(data, np.uint8), np.cumsum(lengths))
        return found

    def _set(self, data: Bytes, begins: Longs) -> None:
        """begins: where each row begins, then where the last one ends."""
        self.data = data if data.flags.writeable else data.copy()
        end = int(begins[-1])
        self.data[begins[:-1]] = _PAIR_END
        self.data[end : end + _PAD_BYTES] = 0
        self.data[end] = _PAIR_END
        self.begins = begins
        at = np.flatnonzero((self.data[: end + 1] - np.uint8(1)) < 2)
        kinds = self.data[at]
        is_plain = (
            len(at) % 2 == 1
            and bool((kinds[0::2] == _PAIR_END).all())
            and bool((kinds[1::2] == _KEY_END).all())
        )
        if is_plain:
            pair_begins, self.key_ends, self.value_ends = at[0:-1:2], at[1::2], at[2::2]
            self.key_begins = pair_begins + 1
            firsts = np.searchsorted(pair_begins, begins)
        else:
            firsts = self._set_uneven(at, kinds)
        self.firsts = firsts
        """The first pair of each row, then one past the last row's last pair."""

    def _set_uneven(self, at: Longs, kinds: Bytes) -> Longs:
        """Set the pairs if some part has no 01 (it is no pair), or several (the first counts)."""
        all_ends = at[kinds == _PAIR_END]
        begins, ends = all_ends[:-1], all_ends[1:]
        key_ends = at[kinds == _KEY_END]
        first = np.searchsorted(key_ends, begins)
        found = np.append(key_ends, len(self.data))[first]
        is_pair = found < ends
        self.key_begins = begins[is_pair] + 1
        self.key_ends, self.value_ends = found[is_pair], ends[is_pair]
        return np.searchsorted(self.key_begins, self.begins + 1)

    @cached_property
    def rows(self) -> Longs:
        """The row of each pair."""
        return np.repeat(np.arange(self.count), np.diff(self.firsts))

    @cached_property
    def _names(self) -> Any:
        """A number for each pair; keys of the same length, beginning and end share it."""
        return _mixed(self.data, self.key_begins, self.key_ends)

    def named(self, name: str) -> tuple[Longs, Longs]:
        """The pairs with this key, ascending, and their rows."""
        key = np.frombuffer(name.encode() + bytes(_PAD_BYTES), np.uint8)
        wanted = _mixed(key, np.array([0]), np.array([len(name)]))[0]
        pairs = np.flatnonzero(self._names == wanted)
        if len(name) > 2 * _WORD_BYTES:
            view = self.data.data
            begins = self.key_begins[pairs].tolist()
            same = [view[at : at + len(name)] == name.encode() for at in begins]
            pairs = pairs[np.array(same, bool)]
        rows = np.searchsorted(self.firsts, pairs, side="right") - 1
        return pairs, rows

    def last(self, name: str) -> tuple[Longs, Longs]:
        """For each row with this key its last pair that has a value, and these rows."""
        pairs, rows = self.named(name)
        has_value = self.value_ends[pairs] > self.key_ends[pairs] + 1
        pairs, rows = pairs[has_value], rows[has_value]
        if len(rows) > 1 and (is_last := np.append(rows[1:] != rows[:-1], True)).sum() < len(rows):
            pairs, rows = pairs[is_last], rows[is_last]
        return pairs, rows

    def texts(self, pairs: Longs, rows: Longs) -> pa.Array:
        """The values of these pairs as a column; null in the other rows."""
        if not len(pairs):
            return pa.nulls(self.count, pa.string())
        values, _ = interleaved(self.data, self.key_ends[pairs] + 1, self.value_ends[pairs])
        if len(pairs) == self.count:
            return as_text(values.take(pa.array(np.arange(self.count, dtype=np.int32) * 2)))
        indexes = np.zeros(self.count, np.int32)
        indexes[rows] = np.arange(len(pairs), dtype=np.int32) * 2
        return as_text(values.take(pa.array(indexes, mask=_without(self.count, rows))))

    def numbers(self, pairs: Longs, *, has_plus: bool = False) -> tuple[Longs, Flags]:
        """The values as numbers, and which of them are numbers: 1 to 18 digits, nothing else.

        has_plus: may there be a plus sign before the digits, as in Java's numbers?
        """
        begins = self.key_ends[pairs] + 1
        lengths = self.value_ends[pairs] - begins
        if has_plus and len(pairs):
            plus = (lengths > 0) & (self.data[np.where(lengths > 0, begins, 0)] == ord("+"))
            begins, lengths = begins + plus, lengths - plus
        good = (lengths > 0) & (lengths <= _DIGITS_MAX)
        found = np.zeros(len(pairs), np.int64)
        for place in range(int(lengths[good].max(initial=0))):
            is_there = good & (place < lengths)
            digits = self.data[np.where(is_there, begins + place, 0)].astype(np.int64) - 48
            good &= ~is_there | ((digits >= 0) & (digits <= 9))
            found = np.where(is_there, found * 10 + digits, found)
        return found, good

    def are(self, pairs: Longs, value: bytes) -> Flags:
        """Which of these pairs have this value?"""
        begins = self.key_ends[pairs] + 1
        found: Flags = self.value_ends[pairs] - begins == len(value)
        for at, code in enumerate(value):
            found &= self.data[np.where(found, begins + at, 0)] == code
        return found

    def as_map(self, kind: pa.DataType) -> pa.Array:
        """All pairs as a column of maps, with each key once, as in decode_properties."""
        return (self._canonical() if self._is_odd() else self)._as_map(kind)

    def _as_map(self, kind: pa.DataType) -> pa.Array:
        """The same for pairs that are not odd."""
        has_both = (self.key_ends > self.key_begins) & (self.value_ends > self.key_ends + 1)
        firsts = self.firsts
        key_begins, key_ends, value_ends = self.key_begins, self.key_ends, self.value_ends
        if not has_both.all():
            firsts = np.append(0, np.cumsum(has_both))[firsts]
            key_begins, key_ends = key_begins[has_both], key_ends[has_both]
            value_ends = value_ends[has_both]
        if not len(key_begins):
            keys = values = pa.array([], pa.string())
        else:
            bounds = np.empty(4 * len(key_begins), np.int32)
            bounds[0::4], bounds[1::4] = key_begins, key_ends
            bounds[2::4], bounds[3::4] = key_ends + 1, value_ends
            pieces = _pieces(self.data, 0, bounds)
            each = np.arange(0, len(bounds), 4, dtype=np.int32)
            keys = as_text(pieces.take(pa.array(each)))
            values = as_text(pieces.take(pa.array(each + 2)))
        buffers = [None, pa.py_buffer(firsts.astype(np.int32))]
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, self.count, buffers, children=[entries])

    def _is_odd(self) -> bool:
        """Has some row a key twice, or bytes that are no UTF-8?"""
        if bool((self.data[: int(self.begins[-1])] > 127).any()):
            try:
                strings, wanted = interleaved(self.data, self.begins[:-1], self.begins[1:])
                strings.take(wanted).cast(pa.string())
            except pa.ArrowInvalid:
                return True
        names = self._names
        for lag in range(1, int(np.diff(self.firsts).max(initial=0))):
            same = np.flatnonzero(names[lag:] == names[:-lag])
            same = same[self.rows[same] == self.rows[same + lag]]
            # Long keys that differ only in the middle have the same number.
            if any(self._key(each) == self._key(each + lag) for each in same.tolist()):
                return True
        return False

    def _key(self, pair: int) -> bytes:
        return self.data[self.key_begins[pair] : self.key_ends[pair]].tobytes()

    def _canonical(self) -> Pairs:
        """The same pairs with each key once, and all in UTF-8; row by row, as few need it."""
        view, bounds = self.data.tobytes(), self.begins.tolist()
        strings = [view[at + 1 : end] for at, end in pairwise(bounds)]
        return Pairs._of_strings([encode_properties(decode_properties(s)) for s in strings])


def _mixed(data: Bytes, begins: Longs, ends: Longs) -> Any:
    """For each text a number, made of its length and its first and last eight bytes."""
    lengths = ends - begins
    masks = _MASKS[np.minimum(lengths, _WORD_BYTES)]
    first = gathered(data, begins, "<u8") & masks
    last = gathered(data, np.maximum(ends - _WORD_BYTES, begins), "<u8") & masks
    return (first * _MIX) ^ (last + lengths.astype(np.uint64))


def _without(count: int, rows: Longs) -> Flags:
    mask = np.ones(count, bool)
    mask[rows] = False
    return mask

"""Keys of timers in order (a key: see kernel/store/timers/index.py), in lists whose lengths double.

What is added is sorted later, many keys at once, and then merged with lists that are no longer.
So adding a batch costs 0.5 us a key; one sorted container for all would cost 2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timers.index import OFFSETS, key_of

SORTED_TOGETHER: Final = 4_096
MERGED_MAX: Final = 1 << 14
"""Longer lists are not merged: it would take too long for one turn of the loop."""
END: Final = key_of((1 << 63) - 1, 0)
"""Behind every key."""


class SortedKeys:
    """Keys to be read in order, and dropped at the front."""

    __slots__ = ("_added", "_lists", "least")

    def __init__(self) -> None:
        self._added: list[int] = []
        self._lists: list[list[int]] = []
        self.least = END
        """The first key; END if there is none."""

    def __len__(self) -> int:
        return len(self._added) + sum(map(len, self._lists))

    def add(self, keys: Sequence[int]) -> None:
        if not keys:
            return
        self._added += keys
        self.least = min(self.least, min(keys))
        if len(self._added) >= SORTED_TOGETHER:
            self.lists()

    def lists(self) -> list[list[int]]:
        """All keys, in sorted lists; the caller must not change them."""
        if self._added:
            keys, self._added = self._added, []
            while self._lists and len(self._lists[-1]) <= len(keys) <= MERGED_MAX:
                keys = self._lists.pop() + keys
            # What is sorted already is only merged.
            self._lists.append(sorted(keys))
        return self._lists

    def behind(self, key: int) -> Iterator[Iterator[int]]:
        """For each list, its keys behind one."""
        for keys in self.lists():
            yield islice(keys, bisect_right(keys, key), None)

    def drop_front(self, completed: CompletedOffsets) -> None:
        """Drop the first keys of each list as far as they are completed."""
        if self.least == END or completed.is_open(self.least & OFFSETS):
            return
        for keys in self.lists():
            count = 0
            while count < len(keys):
                offset = keys[count] & OFFSETS
                gone = completed.next_open(offset) - offset
                if not gone:
                    break
                # Most often neighbours are completed one after the other.
                count = _row_end(keys, count, min(count + gone, len(keys)))
            del keys[:count]
        self._lists = [keys for keys in self._lists if keys]
        self.least = min((keys[0] for keys in self._lists), default=END)


def _row_end(keys: Sequence[int], start: int, until: int) -> int:
    """The end of the keys from a place on that are due at one time, and neighbours in the queue."""
    if start + 1 == until or keys[start + 1] != keys[start] + 1:
        return start + 1
    return bisect_right(range(until), keys[start] - start, start, key=lambda at: keys[at] - at)

"""Counts the failure reasons of a queue's newest dead letters by kind; reads each letter once.

Each letter's kind of reason is stored as a number of two bytes; so purged, removed or redriven
letters change a count without a look at the log.  If there are more than 4,096 kinds, the
letters of the rarer half become letters of other kinds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import compress, repeat
from typing import Final

from rmqlite.broker.finding.letter_reading import property_slices
from rmqlite.broker.finding.matching import kind_in
from rmqlite.broker.steps import Steps
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets

REASONS_KEPT_MAX: Final = 4_096
"""The most kinds; if there are more, the rarer half is forgotten."""
OTHERS: Final = ""
"""Stands for the kinds that were forgotten, and for letters that cannot be read."""
_OTHERS: Final = 0


class FailureReasons:
    """The kinds of reasons of one queue's newest letters."""

    def __init__(self, store: MessageStore, queue: ConsumeQueue) -> None:
        self._store = store
        self._queue = queue
        self._first = 0
        """The queue offset of the first letter in _numbers."""
        self._numbers = array("H")
        self._kinds: list[str] = [OTHERS]
        """The kinds by number."""
        self._by_kind: dict[str, int] = {}

    def look(self, begin: int, end: int) -> Steps[None]:
        """Read the reasons of the letters from begin to end, in steps; forget earlier ones.

        Only letters that are new since the last call are read.  Raises StoreUnavailable.
        """
        if not self._first <= begin <= self._end or end < self._end:
            # Purged letters were restored, or no known letter is in the range.
            self._first = begin
            self._numbers = array("H")
        # Ask anew for each slice: another call may have gone on between two steps.
        while part := next(property_slices(self._store, self._queue, self._end, end), None):
            first, several = part
            # Retention has removed these letters meanwhile.
            self._numbers.extend(repeat(_OTHERS, first - self._end))
            for properties in several:
                # Get the number before the append: a new kind may renumber all of them.
                number = _OTHERS if properties is None else self._number(kind_in(properties))
                self._numbers.append(number)
            yield
        forgotten = begin - self._first
        if forgotten > 0:
            del self._numbers[:forgotten]
            self._first = begin

    def counts(self, begin: int, end: int, redriven: CompletedOffsets) -> Counter[str]:
        """The kinds of the letters begin <= queue offset < end that were not redriven.

        Call look() for them first.
        """
        begin = max(begin, self._first)
        numbers = self._numbers[begin - self._first : end - self._first]
        if redriven.count_between(begin, end):
            counted = Counter(compress(numbers, redriven.open_flags(begin, end)))
        else:
            counted = Counter(numbers)
        return Counter({self._kinds[number]: count for number, count in counted.items()})

    @property
    def _end(self) -> int:
        return self._first + len(self._numbers)

    def _number(self, kind: str) -> int:
        number = self._by_kind.get(kind)
        if number is None:
            if len(self._by_kind) >= REASONS_KEPT_MAX:
                self._forget_rare_ones()
            number = self._by_kind[kind] = len(self._kinds)
            self._kinds.append(kind)
        return number

    def _forget_rare_ones(self) -> None:
        """Number the more frequent half anew; 5 ms for 100,000 letters."""
        counted = Counter(self._numbers)
        counted.pop(_OTHERS, None)
        kept = [number for number, _ in counted.most_common(REASONS_KEPT_MAX // 2)]
        renamed = array("H", bytes(2 * len(self._kinds)))
        for new, old in enumerate(kept, 1):
            renamed[old] = new
        self._kinds = [OTHERS, *[self._kinds[number] for number in kept]]
        self._by_kind = {kind: number for number, kind in enumerate(self._kinds) if number}
        self._numbers = array("H", map(renamed.__getitem__, self._numbers))

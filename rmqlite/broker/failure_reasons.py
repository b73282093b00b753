"""Why the newest dead letters of a queue failed: read once, counted again in no time.

Of each letter the number of its reason is remembered, two bytes; so what is purged, taken by
retention or redriven changes a count without a look at the log.  Very many different reasons
would be no summary: then those that are rare so far become one number, which is not told.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator
from itertools import compress, repeat
from typing import Final

from rmqlite.broker.letter_reading import slices
from rmqlite.message import FAILURE_REASON, find_property, property_marker
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets

REASON_CHARS_MAX: Final = 200
REASONS_KEPT_MAX: Final = 4_096
"""How many different reasons are told apart; half of them go when there are more."""
_SHORT_MAX: Final = 4_096
"""Of how many texts it is remembered which reason they are."""
_OTHER: Final = 0
_FAILURE_REASON: Final = property_marker(FAILURE_REASON)


class FailureReasons:
    """The reasons of one queue's letters, of the newest ones up to a number."""

    def __init__(self, store: MessageStore, queue: ConsumeQueue) -> None:
        self._store = store
        self._queue = queue
        self._first = 0
        """The queue offset of the first letter in _numbers."""
        self._numbers = array("H")
        self._texts: list[str] = [""]
        """By number; that of _OTHER means nothing."""
        self._by_text: dict[str, int] = {}
        self._by_property: dict[bytes, int] = {}

    def look(self, begin: int, end: int) -> Generator[None, None, None]:
        """Know the letters from begin to end, in steps; those before are forgotten.

        Only what is new since the last time is read.  Raises StoreUnavailable.
        """
        if not self._first <= begin <= self._end or end < self._end:
            # Letters that were purged come back, or there is nothing in common.
            self._first = begin
            self._numbers = array("H")
        # Each slice anew: another call may go on with the same between two steps.
        while part := next(slices(self._store, self._queue, self._end, end), None):
            # What retention has taken meanwhile.
            self._numbers.extend(repeat(_OTHER, part[0].queue_offset - self._end))
            for _, head in part:
                # First the number: for a new one all of them may be numbered anew.
                number = self._number(head.properties) if head else _OTHER
                self._numbers.append(number)
            yield
        forgotten = begin - self._first
        if forgotten > 0:
            del self._numbers[:forgotten]
            self._first = begin

    def counts(self, begin: int, end: int, redriven: CompletedOffsets) -> Counter[str]:
        """Of begin <= queue offset < end the reasons of those that nobody has redriven.

        look() must have seen them.
        """
        begin = max(begin, self._first)
        numbers = self._numbers[begin - self._first : end - self._first]
        if redriven.count_between(begin, end):
            counted = Counter(compress(numbers, redriven.open_flags(begin, end)))
        else:
            counted = Counter(numbers)
        counted.pop(_OTHER, None)
        return Counter({self._texts[number]: count for number, count in counted.items()})

    @property
    def _end(self) -> int:
        return self._first + len(self._numbers)

    def _number(self, properties: bytes) -> int:
        reason = find_property(properties, _FAILURE_REASON) or b""
        number = self._by_property.get(reason)
        if number is None:
            text = short_reason(reason.decode("utf-8", "replace"))
            number = self._by_text.get(text)
            if number is None:
                number = self._new(text)
            if len(self._by_property) >= _SHORT_MAX:
                self._by_property.clear()
            self._by_property[reason] = number
        return number

    def _new(self, text: str) -> int:
        if len(self._texts) > REASONS_KEPT_MAX:
            self._forget_rare_ones()
        number = self._by_text[text] = len(self._texts)
        self._texts.append(text)
        return number

    def _forget_rare_ones(self) -> None:
        """Number the more frequent half anew; 5 ms for 100,000 letters."""
        counted = Counter(self._numbers)
        counted.pop(_OTHER, None)
        kept = [number for number, _ in counted.most_common(REASONS_KEPT_MAX // 2)]
        renamed = [_OTHER] * len(self._texts)
        for new, number in enumerate(kept, 1):
            renamed[number] = new
        self._texts = ["", *[self._texts[number] for number in kept]]
        self._by_text = {text: number for number, text in enumerate(self._texts) if number}
        self._by_property.clear()
        self._numbers = array("H", map(renamed.__getitem__, self._numbers))


def short_reason(reason: str) -> str:
    """The first line of a reason, at most 200 characters."""
    line = reason.strip().partition("\n")[0].strip()
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"

"""Why the newest dead letters of a queue failed: read once, counted again in no time.

Of each letter the number of its reason is remembered, two bytes; so what is purged, taken by
retention or redriven changes a count without a look at the log.  Reasons that differ in
numbers and ids only would be no summary: when there are many of a kind, they are one, with #
where they differ.  Of what are too many still, the rare ones become one that is not told.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from itertools import compress, repeat
from typing import Final

from rmqlite.broker.finding.letter_reading import property_slices
from rmqlite.broker.steps import Steps
from rmqlite.message import FAILURE_REASON, find_property, property_marker
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets

REASON_CHARS_MAX: Final = 200
REASONS_KEPT_MAX: Final = 4_096
"""How many different reasons are told apart; half of them go when there are more."""
ALIKE_MAX: Final = 10
"""How many reasons of a kind are told apart: HTTP 404, 500 and 503 are, orders are not."""
_SHORT_MAX: Final = 4_096
"""Of how many texts it is remembered which reason they are."""
_OTHER: Final = 0
_FAILURE_REASON: Final = property_marker(FAILURE_REASON)
_VARYING: Final = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # a UUID
    r"|\b(?:0x)?(?=[a-fA-F]*[0-9])[0-9a-fA-F]+\b"  # a number, an id in hex
    r"|[0-9]+"
)


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
        self._alike: dict[str, list[int]] = {}
        """The numbers of each kind of reason that has numbers or ids in it, by the kind."""
        self._by_property: dict[bytes, int] = {}

    def look(self, begin: int, end: int) -> Steps[None]:
        """Know the letters from begin to end, in steps; those before are forgotten.

        Only what is new since the last time is read.  Raises StoreUnavailable.
        """
        if not self._first <= begin <= self._end or end < self._end:
            # Letters that were purged come back, or there is nothing in common.
            self._first = begin
            self._numbers = array("H")
        # Each slice anew: another call may go on with the same between two steps.
        while part := next(property_slices(self._store, self._queue, self._end, end), None):
            first, several = part
            # What retention has taken meanwhile.
            self._numbers.extend(repeat(_OTHER, first - self._end))
            for properties in several:
                # First the number: for a new one all of them may be numbered anew.
                number = _OTHER if properties is None else self._number(properties)
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
        return self._by_reason(counted)

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
        kind = kind_of(text)
        alike = self._alike.get(kind, [])
        if len(alike) > ALIKE_MAX:
            return alike[0]
        if len(self._texts) > REASONS_KEPT_MAX:
            self._forget_rare_ones()
        return self._add(text, kind)

    def _add(self, text: str, kind: str) -> int:
        number = self._by_text[text] = len(self._texts)
        self._texts.append(text)
        if kind != text:
            alike = self._alike.setdefault(kind, [])
            alike.append(number)
            if len(alike) > ALIKE_MAX:
                # From now on all of them are told, and so counted, as one.
                for each in alike:
                    self._texts[each] = kind
        return number

    def _by_reason(self, counted: Counter[int]) -> Counter[str]:
        counts = Counter[str]()
        for number, count in counted.items():
            counts[self._texts[number]] += count
        return counts

    def _forget_rare_ones(self) -> None:
        """Number the more frequent half anew; 5 ms for 100,000 letters."""
        counted = Counter(self._numbers)
        counted.pop(_OTHER, None)
        kept = [text for text, _ in self._by_reason(counted).most_common(REASONS_KEPT_MAX // 2)]
        before = self._texts
        merged = {kind for kind, alike in self._alike.items() if len(alike) > ALIKE_MAX}
        self._texts, self._by_text, self._alike = [""], {}, {}
        self._by_property.clear()
        for text in kept:
            number = self._add(text, text if text in merged else kind_of(text))
            if text in merged:
                self._alike[text] = [number] * (ALIKE_MAX + 1)
        renamed = [self._by_text.get(text, _OTHER) for text in before]
        self._numbers = array("H", map(renamed.__getitem__, self._numbers))


def kind_of(text: str) -> str:
    """The text with # for every number and id."""
    return _VARYING.sub("#", text)


def short_reason(reason: str) -> str:
    """The first line of a reason, at most 200 characters."""
    line = reason.strip().partition("\n")[0].strip()
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"

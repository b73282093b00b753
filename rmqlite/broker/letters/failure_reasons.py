"""Counts the failure reasons of a queue's newest dead letters; reads each letter once.

Each letter's reason is stored as a number of two bytes; so purged, removed or redriven letters
change a count without a look at the log.  Reasons may differ only in numbers and ids: if there
are many of such a kind, they are counted together, with # where they differ.  If more than
4,096 distinct reasons remain, the rarest are left out of the counts.
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
"""The most distinct reasons; if there are more, the rarer half is forgotten."""
ALIKE_MAX: Final = 10
"""The most distinct reasons of a kind: HTTP 404, 500 and 503 stay distinct, order ids do not."""
_SHORT_MAX: Final = 4_096
"""The most texts in the cache of reasons by property."""
_OTHER: Final = 0
_FAILURE_REASON: Final = property_marker(FAILURE_REASON)
_VARYING: Final = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # a UUID
    r"|\b(?:0x)?(?=[a-fA-F]*[0-9])[0-9a-fA-F]+\b"  # a number, an id in hex
    r"|[0-9]+"
)


class FailureReasons:
    """The reasons of one queue's newest letters."""

    def __init__(self, store: MessageStore, queue: ConsumeQueue) -> None:
        self._store = store
        self._queue = queue
        self._first = 0
        """The queue offset of the first letter in _numbers."""
        self._numbers = array("H")
        self._texts: list[str] = [""]
        """The reasons by number; the text of _OTHER is unused."""
        self._by_text: dict[str, int] = {}
        self._alike: dict[str, list[int]] = {}
        """The numbers of each kind of reason that has numbers or ids in it, by the kind."""
        self._by_property: dict[bytes, int] = {}

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
            self._numbers.extend(repeat(_OTHER, first - self._end))
            for properties in several:
                # Get the number before the append: a new reason may renumber all of them.
                number = _OTHER if properties is None else self._number(properties)
                self._numbers.append(number)
            yield
        forgotten = begin - self._first
        if forgotten > 0:
            del self._numbers[:forgotten]
            self._first = begin

    def counts(self, begin: int, end: int, redriven: CompletedOffsets) -> Counter[str]:
        """The reasons of the letters begin <= queue offset < end that were not redriven.

        Call look() for them first.
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
                # From now on all of them are counted as one reason.
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

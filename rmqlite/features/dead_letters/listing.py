"""The dead letters of every group: counted and listed.

A group's dead letters begin at its purge marker, or at the first one that retention has left.
Those that were not purged are shown; the open ones were not redriven either.  Counts are those of
the queues.  A page goes on at a physical offset: so it is stable while dead letters arrive, and the
broker remembers nothing between two pages.  Reading changes nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, islice, product, repeat
from typing import Final

from rmqlite.features.cursors import cursor_text, read_cursor
from rmqlite.features.dead_letters.purge_markers import PurgeMarkers, dead_letter_queues
from rmqlite.features.dead_letters.reading import (
    Range,
    check_filter,
    described,
    fits,
    in_order,
    property_slices,
)
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import (
    DEAD_LETTERS_DEFAULT,
    DEAD_LETTERS_MAX,
    EVERY_DEAD_LETTER,
    REASONS_MAX,
    REASONS_OF_MAX,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    ReasonCount,
)
from rmqlite.features.finding.finding import named_offsets
from rmqlite.features.finding.matching import kind_in
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import end_before, offset_at
from rmqlite.kernel.reading import is_entered, outline_at
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import dlq_topic, group_of, is_dlq

REASONS_KEPT_MAX: Final = 4_096
"""The most kinds; if there are more, the rarer half is forgotten."""
OTHERS: Final = ""
"""Stands for the kinds that were forgotten, and for dead letters that cannot be read."""
_OTHERS: Final = 0
STEP_DEAD_LETTERS: Final = 250
"""Dead letters that one step reads; then other calls may run."""
_STEP_GROUPS: Final = 500
_STEP_LOOK_UPS: Final = 100
"""Look-ups in the key index of one step, 3 ms."""
LOOK_MAX: Final = 20_000
"""Dead letters that one page reads at most; then it is answered, full or not."""
PAGE_BYTES_MAX: Final = 1 << 20
"""A page ends with the dead letter whose properties make all of them together longer than this."""
CANDIDATES_MAX: Final = 1_000
"""The most records taken from the key index; if it has more, the queues are read."""
_NEWEST: Final = "n"
_OLDEST: Final = "o"


class FailureReasons:
    """The failure reasons of one queue's newest dead letters by kind; reads each dead letter once.

    Each dead letter's kind of reason is stored as a number of two bytes; so purged, removed or
    redriven dead letters change a count without a look at the log.  If there are more than 4,096
    kinds, those of the rarer half become other kinds.
    """

    def __init__(self, store: MessageStore, queue: ConsumeQueue) -> None:
        self._store = store
        self._queue = queue
        self._first = 0
        """The queue offset of the first dead letter in _numbers."""
        self._numbers = array("H")
        self._kinds: list[str] = [OTHERS]
        """The kinds by number."""
        self._by_kind: dict[str, int] = {}

    def look(self, begin: int, end: int) -> Steps[None]:
        """Read the reasons of the dead letters from begin to end, in steps; forget earlier ones.

        Only dead letters that are new since the last call are read.  Raises StoreUnavailable.
        """
        if not self._first <= begin <= self._end or end < self._end:
            # Purged dead letters were restored, or no known dead letter is in the range.
            self._first = begin
            self._numbers = array("H")
        # Ask anew for each slice: another call may have gone on between two steps.
        while part := next(property_slices(self._store, self._queue, self._end, end), None):
            first, several = part
            # Retention has removed these dead letters meanwhile.
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
        """The kinds of the dead letters begin <= queue offset < end that were not redriven.

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
        """Number the more frequent half anew; 5 ms for 100,000 dead letters."""
        counted = Counter(self._numbers)
        counted.pop(_OTHERS, None)
        frequent = [number for number, _ in counted.most_common(REASONS_KEPT_MAX // 2)]
        renamed = array("H", bytes(2 * len(self._kinds)))
        for new, old in enumerate(frequent, 1):
            renamed[old] = new
        self._kinds = [OTHERS, *[self._kinds[number] for number in frequent]]
        self._by_kind = {kind: number for number, kind in enumerate(self._kinds) if number}
        self._numbers = array("H", map(renamed.__getitem__, self._numbers))


class DeadLetters:
    """Reads the %DLQ% queues of a store."""

    def __init__(self, parts: BrokerParts, shown: Shown, redriven: Redriven) -> None:
        self._store = parts.store
        self._groups = parts.groups
        self._shown = shown
        self._redriven = redriven
        self._readable_end = parts.readable_end
        self._reasons: dict[QueueKey, FailureReasons] = {}
        self._counted: dict[QueueKey, tuple[tuple[int, ...], Counter[str]]] = {}

    # ---- groups

    def groups(self) -> Steps[tuple[DeadLetterGroup, ...]]:
        """Every group that has dead letters, including purged ones; sorted by name.

        The first call reads up to REASONS_OF_MAX dead letters of each group, which takes 0.3 s; a
        later call reads only new dead letters.  Raises StoreUnavailable.
        """
        found = []
        for group, queues in dead_letter_queues(self._store).items():
            summary = yield from self._group(group, queues)
            if summary.letters or summary.purged:
                found.append(summary)
            yield
        return tuple(found)

    def reasons(self, group: str) -> Steps[DeadLetterGroup]:
        """One group, with every kind of reasons.  Raises GroupUnknown, StoreUnavailable."""
        found = yield from self._group(group, self.queues_of(group), REASONS_KEPT_MAX)
        return found

    def open_counts(self) -> Steps[dict[str, int]]:
        """The number of each group's dead letters that were neither purged nor redriven, in steps.

        It reads no dead letter.
        """
        counts: dict[str, int] = {}
        for group, queues in dead_letter_queues(self._store).items():
            if len(counts) % _STEP_GROUPS == _STEP_GROUPS - 1:
                yield
            counts[group] = 0
            for queue_id, queue in queues.items():
                closed = self._shown.closed(group, queue_id)
                counts[group] += count_shown(closed, queue.min_offset, queue.max_offset)
        return counts

    def _group(
        self, group: str, queues: Mapping[int, ConsumeQueue], kinds_max: int = REASONS_MAX
    ) -> Steps[DeadLetterGroup]:
        reasons = Counter[str]()
        dead_letters = redriven = purged = reasons_of = 0
        times: list[int] = []
        for queue_id, queue in queues.items():
            topic, window = dlq_topic(group), REASONS_OF_MAX // len(queues)
            known = self._reasons.get((topic, queue_id))
            if known is None:
                known = self._reasons[topic, queue_id] = FailureReasons(self._store, queue)
            _, begin, end = self._range(group, queue_id, queue)
            looked_from = max(begin, end - window)
            yield from known.look(looked_from, end)
            # Some may have been purged or removed meanwhile; new and restored ones are
            # left to the next call.
            hidden = self._shown.hidden(group, queue_id)
            begin = hidden.next_open(max(begin, queue.min_offset))
            shown = count_shown(hidden, begin, end)
            dead_letters += shown
            redriven += shown - count_shown(self._shown.closed(group, queue_id), begin, end)
            purged += max(0, end - queue.min_offset) - shown
            last = hidden.last_open(begin, end)
            if last is not None:
                first = max(begin, looked_from)
                reasons_of += count_shown(hidden, first, end)
                reasons += self._counts((topic, queue_id), known, first, end)
                times += [self._stored_ms(queue, begin), self._stored_ms(queue, last)]
        unknown = reasons.pop(OTHERS, 0)
        most = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))[:kinds_max]
        return DeadLetterGroup(
            group,
            dead_letters,
            redriven,
            purged,
            min(times, default=0),
            max(times, default=0),
            tuple(ReasonCount(*each) for each in most),
            reasons_of,
            unknown + reasons.total() - sum(count for _, count in most),
            len(reasons) - len(most),
        )

    def _counts(self, key: QueueKey, reasons: FailureReasons, first: int, end: int) -> Counter[str]:
        """The kinds of a queue's open dead letters, cached until something changes."""
        state = (first, end, *self._shown.state)
        known = self._counted.get(key)
        if known is None or known[0] != state:
            counts = reasons.counts(first, end, self._shown.closed(group_of(key[0]) or "", key[1]))
            known = self._counted[key] = state, counts
        return known[1]

    def _stored_ms(self, queue: ConsumeQueue, queue_offset: int) -> int:
        entry = queue.entry(queue_offset)
        return (entry and self._store.store_timestamp_ms(entry.physical_offset)) or 0

    # ---- pages

    def pages(self, query: DeadLettersQuery) -> Steps[DeadLetterPage]:
        """The next page, in steps.  Raises InvalidValue, GroupUnknown, StoreUnavailable."""
        limit = checked_limit(query)
        after = _read_cursor(query)
        queues = dead_letter_queues(self._store)
        if query.group:
            queues = {query.group: self.queues_of(query.group)}
        heads = yield from self.heads(query, queues, after, limit)
        found, looked_at, size = [], 0, 0
        for looked_at, head in enumerate(heads, 1):
            if self._shown.is_shown(head, is_open=query.is_open) and fits(head, query.filter):
                by = self._redriven.job_of(head.topic, head.queue_id, head.queue_offset)
                found.append(described(head, redriven_by=by))
                size += len(head.properties)
            if len(found) == limit or looked_at == LOOK_MAX or size > PAGE_BYTES_MAX:
                cursor = (
                    cursor_text(_kind(query), head.physical_offset) if next(heads, None) else ""
                )
                return DeadLetterPage(tuple(found), cursor, looked_at)
            if looked_at % STEP_DEAD_LETTERS == 0:
                yield
        return DeadLetterPage(tuple(found), "", looked_at)

    def heads(
        self,
        query: DeadLettersQuery,
        queues: Mapping[str, Mapping[int, ConsumeQueue]],
        after: int | None,
        limit: int,
    ) -> Steps[Iterator[Head]]:
        """The dead letters behind a physical offset that may match, in order; found in steps."""
        wanted, newest_first = query.filter, query.newest_first
        keys = wanted.ids or (wanted.key,) * bool(wanted.key)
        offsets = yield from self._indexed(keys, queues)
        if keys and offsets is not None:
            offsets |= named_offsets(self._store, wanted.ids)
            return self._at(offsets, queues, after, newest_first)
        ranges = []
        for group, mine in queues.items():
            for queue_id, each in self.ranges(group, mine).items():
                if wanted.since_ms:
                    # A dead letter that was stored before has not failed since.
                    first = offset_at(self._store, each.queue, wanted.since_ms)
                    each = each._replace(begin=max(each.begin, first))
                if query.is_open:
                    closed = self._shown.closed(group, queue_id)
                    each = each._replace(begin=closed.next_open(each.begin))
                if after is not None:
                    each = each.behind(after, newest_first=newest_first)
                ranges.append(each)
        # One more dead letter shows whether there is another page; a filter needs a guess.
        first_max = limit + 1 if wanted == EVERY_DEAD_LETTER and not query.is_open else 2 * limit
        return in_order(self._store, ranges, newest_first=newest_first, first_max=first_max)

    def _indexed(
        self, keys: Sequence[str], queues: Mapping[str, Mapping[int, ConsumeQueue]]
    ) -> Steps[set[int] | None]:
        """Where dead letters may have one of these keys or ids, in the log; None: too many."""
        offsets: set[int] = set()
        for number, (group, key) in enumerate(product(queues, keys), 1):
            found = self._store.index.find(dlq_topic(group), key)
            offsets.update(islice(found, CANDIDATES_MAX + 1 - len(offsets)))
            if len(offsets) > CANDIDATES_MAX:
                return None
            if number % _STEP_LOOK_UPS == 0:
                yield
        return offsets

    def _at(
        self,
        offsets: set[int],
        queues: Mapping[str, Mapping[int, ConsumeQueue]],
        after: int | None,
        newest_first: bool,
    ) -> Iterator[Head]:
        """The records at some offsets that are dead letters, behind a physical offset."""
        readable = self._readable_end()
        for physical_offset in sorted(offsets, reverse=newest_first):
            if after is not None and not (
                physical_offset < after if newest_first else physical_offset > after
            ):
                continue
            head = outline_at(self._store, physical_offset)
            if head is None or physical_offset + head.size > readable or not is_dlq(head.topic):
                continue
            if group_of(head.topic) in queues and is_entered(self._store, head):
                yield head

    # ---- inside

    def queues_of(self, group: str) -> dict[int, ConsumeQueue]:
        """A group's dead-letter queues.  Raises GroupUnknown for no group without dead letters."""
        queues = dead_letter_queues(self._store).get(group, {})
        if not queues:
            self._groups.existing(group)
        return queues

    def ranges(self, group: str, queues: Mapping[int, ConsumeQueue]) -> dict[int, Range]:
        return {queue_id: self._range(group, queue_id, each) for queue_id, each in queues.items()}

    def _range(self, group: str, queue_id: int, queue: ConsumeQueue) -> Range:
        """The shown dead letters of a queue."""
        end = max(queue.min_offset, end_before(queue, self._readable_end()))
        return Range(queue, min(self._shown.begin(group, queue_id), end), end)


def checked_limit(query: DeadLettersQuery) -> int:
    """The most dead letters of a page.  Raises InvalidValue for an impossible query."""
    check_filter(query.filter)
    if not query.group and not query.filter.ids:
        rule = "a group: letters of all groups can only be listed by ids"
        raise InvalidValue("group", query.group, rule)
    if not 0 <= query.max_letters <= DEAD_LETTERS_MAX:
        rule = f"0 for the default, {DEAD_LETTERS_DEFAULT}, or 1 to {DEAD_LETTERS_MAX}"
        raise InvalidValue("max_letters", query.max_letters, rule)
    return query.max_letters or DEAD_LETTERS_DEFAULT


def _kind(query: DeadLettersQuery) -> str:
    return _NEWEST if query.newest_first else _OLDEST


def _read_cursor(query: DeadLettersQuery) -> int | None:
    """The physical offset behind which a page begins; None for the first one."""
    rule = "the cursor of the previous page, in the same direction, or empty"
    return read_cursor(query.cursor, 1, _kind(query), rule=rule)[0] if query.cursor else None


class Shown:
    """Looks at both sets of a queue; the caller must not change them."""

    def __init__(self, markers: PurgeMarkers, redriven: Redriven) -> None:
        self.hidden = markers.hidden
        self.begin = markers.begin
        self._markers = markers
        self._redriven = redriven
        self._closed: dict[QueueKey, CompletedOffsets] = {}
        self._closed_at = self.state

    @property
    def state(self) -> tuple[int, int]:
        """Changes with every dead letter that is purged, restored or redriven."""
        return self._markers.version, self._redriven.version

    def closed(self, group: str, queue_id: int) -> CompletedOffsets:
        """The dead letters of a queue that were purged or redriven."""
        if self._closed_at != self.state:
            self._closed_at = self.state
            self._closed.clear()
        key = dlq_topic(group), queue_id
        closed = self._closed.get(key)
        if closed is None:
            hidden = self.hidden(group, queue_id)
            closed = self._closed[key] = self._redriven.of(*key).union(hidden)
        return closed

    def is_shown(self, head: Head, *, is_open: bool = False) -> bool:
        """Is a dead letter shown, and, with is_open, also not redriven?"""
        without = (self.closed if is_open else self.hidden)(
            group_of(head.topic) or "", head.queue_id
        )
        return without.next_open(head.queue_offset) == head.queue_offset


def count_shown(without: CompletedOffsets, begin: int, end: int) -> int:
    """How many dead letters begin <= queue offset < end are not among these."""
    return max(0, end - begin) - without.count_between(begin, end)

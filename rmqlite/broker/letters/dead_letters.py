"""The dead letters of every group: counted, listed, and purged.

A group's letters begin at its purge marker, or at the first one that retention has left.
Counts are those of the queues.  A page goes on at a physical offset: so it is stable while
letters arrive, and the broker remembers nothing between two pages.  Reading changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

from rmqlite.broker.finding.letter_reading import Range, check_filter, described, fits, in_order
from rmqlite.broker.finding.outcome import is_entered, named_offsets, outline_at
from rmqlite.broker.letters.failure_reasons import OTHERS, FailureReasons
from rmqlite.broker.pulling import end_before, offset_at
from rmqlite.broker.redrive.redriven import Redriven
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.groups import GroupTable
from rmqlite.broker.tables.purge_markers import PurgeMarkers, dead_letter_queues
from rmqlite.errors import InvalidValue
from rmqlite.names import dlq_topic, group_of, is_dlq
from rmqlite.requests.letters import (
    EVERY_LETTER,
    LETTERS_DEFAULT,
    LETTERS_MAX,
    REASONS_MAX,
    REASONS_OF_MAX,
    DeadLetterGroup,
    LetterPage,
    LettersQuery,
    Purged,
    PurgeRequest,
    ReasonCount,
)
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.message_store import MessageStore
from rmqlite.store.records.record import Head

STEP_LETTERS: Final = 250
"""Letters that one step reads; then other calls may run."""
_STEP_GROUPS: Final = 500
_STEP_LOOK_UPS: Final = 100
"""Look-ups in the key index of one step, 3 ms."""
LOOK_MAX: Final = 20_000
"""Letters that one page reads at most; then it is answered, full or not."""
PAGE_BYTES_MAX: Final = 1 << 20
"""A page ends with the letter whose properties make all of them together longer than this."""
CANDIDATES_MAX: Final = 1_000
"""The most records taken from the key index; if it has more, the queues are read."""
_NEWEST: Final = "n"
_OLDEST: Final = "o"


class DeadLetters:
    """Reads the %DLQ% queues of a store."""

    def __init__(
        self,
        store: MessageStore,
        groups: GroupTable,
        markers: PurgeMarkers,
        redriven: Redriven,
        readable_end: Callable[[], int],
    ) -> None:
        self._store = store
        self._groups = groups
        self._markers = markers
        self._redriven = redriven
        self._readable_end = readable_end
        self._reasons: dict[QueueKey, FailureReasons] = {}
        self._counted: dict[QueueKey, tuple[tuple[int, int, int], Counter[str]]] = {}

    # ---- groups

    def groups(self) -> Steps[tuple[DeadLetterGroup, ...]]:
        """Every group that has dead letters, including purged ones; sorted by name.

        The first call reads up to REASONS_OF_MAX letters of each group, which takes 0.3 s; a
        later call reads only new letters.  Raises StoreUnavailable.
        """
        found = []
        for group, queues in dead_letter_queues(self._store).items():
            summary = yield from self._group(group, queues)
            if summary.letters or summary.purged:
                found.append(summary)
            yield
        return tuple(found)

    def open_counts(self) -> Steps[dict[str, int]]:
        """The number of each group's letters that were neither purged nor redriven, in steps.

        It reads no letter.
        """
        counts: dict[str, int] = {}
        for group, queues in dead_letter_queues(self._store).items():
            if len(counts) % _STEP_GROUPS == _STEP_GROUPS - 1:
                yield
            counts[group] = 0
            for queue_id, queue in queues.items():
                begin, end = self._markers.begin(group, queue_id), queue.max_offset
                known = Range(queue, min(begin, end), end)
                counts[group] += end - known.begin - self._count_redriven(group, queue_id, known)
        return counts

    def _group(self, group: str, queues: Mapping[int, ConsumeQueue]) -> Steps[DeadLetterGroup]:
        reasons = Counter[str]()
        letters = redriven = purged = reasons_of = 0
        times: list[int] = []
        for queue_id, queue in queues.items():
            topic, window = dlq_topic(group), REASONS_OF_MAX // len(queues)
            known = self._reasons.get((topic, queue_id))
            if known is None:
                known = self._reasons[topic, queue_id] = FailureReasons(self._store, topic, queue)
            _, begin, end = self._range(group, queue_id, queue)
            looked_from = max(begin, end - window)
            yield from known.look(looked_from, end)
            # Letters may have been purged or removed meanwhile; new and restored ones are
            # left to the next call.
            begin = max(begin, min(self._markers.begin(group, queue_id), end))
            letters += end - begin
            redriven += self._count_redriven(group, queue_id, Range(queue, begin, end))
            purged += begin - queue.min_offset
            if begin < end:
                first = max(begin, looked_from)
                reasons_of += end - first
                reasons += self._counts((topic, queue_id), known, first, end)
                times += [self._stored_ms(queue, begin), self._stored_ms(queue, end - 1)]
        unknown = reasons.pop(OTHERS, 0)
        most = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))[:REASONS_MAX]
        return DeadLetterGroup(
            group,
            letters,
            redriven,
            max(0, purged),
            min(times, default=0),
            max(times, default=0),
            tuple(ReasonCount(*each) for each in most),
            reasons_of,
            unknown + reasons.total() - sum(count for _, count in most),
            len(reasons) - len(most),
        )

    def _counts(self, key: QueueKey, reasons: FailureReasons, first: int, end: int) -> Counter[str]:
        """The kinds of a queue's open letters; the counts are cached until something changes."""
        state = (first, end, self._redriven.version)
        known = self._counted.get(key)
        if known is None or known[0] != state:
            counts = reasons.counts(first, end, self._redriven.of(*key))
            known = self._counted[key] = state, counts
        return known[1]

    def _stored_ms(self, queue: ConsumeQueue, queue_offset: int) -> int:
        entry = queue.entry(queue_offset)
        return (entry and self._store.store_timestamp_ms(entry.physical_offset)) or 0

    # ---- pages

    def pages(self, query: LettersQuery) -> Steps[LetterPage]:
        """The next page, in steps.  Raises InvalidValue, GroupUnknown, StoreUnavailable."""
        limit = checked_limit(query)
        after = _read_cursor(query)
        queues = dead_letter_queues(self._store)
        if query.group:
            queues = {query.group: self._queues_of(query.group)}
        heads = yield from self._heads(query, queues, after, limit)
        found, looked_at, size = [], 0, 0
        for looked_at, head in enumerate(heads, 1):
            if fits(head, query.filter) and not (query.is_open and self._is_redriven(head)):
                by = self._redriven.job_of(head.topic, head.queue_id, head.queue_offset)
                found.append(described(head, redriven_by=by))
                size += len(head.properties)
            if len(found) == limit or looked_at == LOOK_MAX or size > PAGE_BYTES_MAX:
                cursor = _cursor(query, head) if next(heads, None) else ""
                return LetterPage(tuple(found), cursor, looked_at)
            if looked_at % STEP_LETTERS == 0:
                yield
        return LetterPage(tuple(found), "", looked_at)

    def _is_redriven(self, head: Head) -> bool:
        sent = self._redriven.of(head.topic, head.queue_id)
        return sent.next_open(head.queue_offset) != head.queue_offset

    def _heads(
        self,
        query: LettersQuery,
        queues: Mapping[str, Mapping[int, ConsumeQueue]],
        after: int | None,
        limit: int,
    ) -> Steps[Iterator[Head]]:
        """The letters behind a physical offset that may match, in order; found in steps."""
        wanted, newest_first = query.filter, query.newest_first
        keys = wanted.ids or (wanted.key,) * bool(wanted.key)
        offsets = yield from self._indexed(keys, queues)
        if keys and offsets is not None:
            offsets |= named_offsets(self._store, wanted.ids)
            return self._at(offsets, queues, after, newest_first)
        ranges = []
        for group, mine in queues.items():
            for queue_id, each in self._ranges(group, mine).items():
                if wanted.since_ms:
                    # A letter that was stored before has not failed since.
                    first = offset_at(self._store, each.queue, wanted.since_ms)
                    each = each._replace(begin=max(each.begin, first))
                if query.is_open:
                    sent = self._redriven.of(dlq_topic(group), queue_id)
                    each = each._replace(begin=sent.next_open(each.begin))
                if after is not None:
                    each = each.behind(after, newest_first=newest_first)
                ranges.append(each)
        # One more letter shows whether there is another page; a filter needs a guess.
        first_max = limit + 1 if wanted == EVERY_LETTER and not query.is_open else 2 * limit
        return in_order(self._store, ranges, newest_first=newest_first, first_max=first_max)

    def _indexed(
        self, keys: Sequence[str], queues: Mapping[str, Mapping[int, ConsumeQueue]]
    ) -> Steps[set[int] | None]:
        """Physical offsets of letters that may have one of these keys or ids; None: too many."""
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
        """The records at some offsets that are shown letters, behind a physical offset."""
        readable = self._readable_end()
        for physical_offset in sorted(offsets, reverse=newest_first):
            if after is not None and not (
                physical_offset < after if newest_first else physical_offset > after
            ):
                continue
            head = outline_at(self._store, physical_offset)
            if head is None or physical_offset + head.size > readable or not is_dlq(head.topic):
                continue
            group = group_of(head.topic) or ""
            is_shown = head.queue_offset >= self._markers.begin(group, head.queue_id)
            if group in queues and is_shown and is_entered(self._store, head):
                yield head

    # ---- purging

    def purge(self, request: PurgeRequest) -> Purged:
        """Move a group's marker; on disk when it returns.

        Raises GroupUnknown, InvalidValue, StoreUnavailable, FlushFailed.
        """
        group, until_ms = request.group, request.until_ms
        if request.restore and until_ms is not None:
            raise InvalidValue("until_ms", until_ms, "none, because restore shows all letters")
        markers: dict[int, int] = {}
        letters = redriven = 0
        for queue_id, (queue, begin, end) in self._ranges(group, self._queues_of(group)).items():
            if request.restore:
                markers[queue_id] = queue.min_offset
                moved = Range(queue, queue.min_offset, begin)
            else:
                upto = end if until_ms is None else offset_at(self._store, queue, until_ms)
                markers[queue_id] = max(begin, min(upto, end))
                moved = Range(queue, begin, markers[queue_id])
            letters += moved.end - moved.begin
            redriven += self._count_redriven(group, queue_id, moved)
        if not request.dry_run and markers:
            self._markers.move(group, markers)
        return Purged(letters, letters - redriven)

    # ---- inside

    def _queues_of(self, group: str) -> dict[int, ConsumeQueue]:
        """A group's dead-letter queues.  Raises GroupUnknown for no group without letters."""
        queues = dead_letter_queues(self._store).get(group, {})
        if not queues:
            self._groups.existing(group)
        return queues

    def _ranges(self, group: str, queues: Mapping[int, ConsumeQueue]) -> dict[int, Range]:
        return {queue_id: self._range(group, queue_id, each) for queue_id, each in queues.items()}

    def _range(self, group: str, queue_id: int, queue: ConsumeQueue) -> Range:
        """The shown letters of a queue."""
        end = max(queue.min_offset, end_before(queue, self._readable_end()))
        return Range(queue, min(self._markers.begin(group, queue_id), end), end)

    def _count_redriven(self, group: str, queue_id: int, known: Range) -> int:
        return self._redriven.of(dlq_topic(group), queue_id).count_between(known.begin, known.end)


def checked_limit(query: LettersQuery) -> int:
    """The most letters of a page.  Raises InvalidValue for an impossible query."""
    check_filter(query.filter)
    if not query.group and not query.filter.ids:
        rule = "a group; letters of all groups can only be listed by ids"
        raise InvalidValue("group", query.group, rule)
    if not 0 <= query.max_letters <= LETTERS_MAX:
        rule = f"0 for the default, {LETTERS_DEFAULT}, or 1 to {LETTERS_MAX}"
        raise InvalidValue("max_letters", query.max_letters, rule)
    return query.max_letters or LETTERS_DEFAULT


def read_offset(text: str, letter: str) -> int | None:
    """The physical offset in a cursor that begins with this letter; None for another text."""
    kind, _, digits = text.partition(".")
    is_one = kind == letter and digits.isascii() and digits.isdigit() and len(digits) < 20
    return int(digits) if is_one else None


def _cursor(query: LettersQuery, last: Head) -> str:
    return f"{_NEWEST if query.newest_first else _OLDEST}.{last.physical_offset}"


def _read_cursor(query: LettersQuery) -> int | None:
    """The physical offset behind which a page begins; None for the first one."""
    if not query.cursor:
        return None
    after = read_offset(query.cursor, _NEWEST if query.newest_first else _OLDEST)
    if after is None:
        rule = "the cursor of the previous page, in the same direction, or empty"
        raise InvalidValue("cursor", query.cursor, rule)
    return after

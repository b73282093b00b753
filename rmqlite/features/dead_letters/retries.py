"""The retries that a group will get: first those that are due, then those that still wait.

Due ones lie in %RETRY%group behind the group's committed offset; waiting ones lie in the
schedule with %RETRY%group as their destination.  Levels without messages for the group are
not read.
"""

from __future__ import annotations

from typing import Final

from rmqlite.features.changes.pending import PAGE_SLICES_MAX, Cursor, Pending
from rmqlite.features.changes.requests import PendingFilter
from rmqlite.features.cursors import cursor_text, read_cursor
from rmqlite.features.dead_letters.listing import (
    PAGE_BYTES_MAX,
    STEP_DEAD_LETTERS,
    checked_limit,
)
from rmqlite.features.dead_letters.reading import Range, described, fits, in_order
from rmqlite.features.dead_letters.requests import (
    EVERY_DEAD_LETTER,
    DeadLetter,
    DeadLetterPage,
    DeadLettersQuery,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import end_before
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import group_of, is_retry, retry_topic

LOOK_MAX: Final = 20_000
"""Retries that one page reads at most; then it is answered, full or not."""
SLICE_MAX: Final = 100
"""The most waiting retries that one step finds."""
_DUE: Final = "d"
_WAITING: Final = "w"


class Retries:
    """Reads the %RETRY% queues and the schedule; changes nothing."""

    def __init__(self, parts: BrokerParts, pending: Pending) -> None:
        self._store = parts.store
        self._groups = parts.groups
        self._offsets = parts.offsets
        self._pending = pending
        self._readable_end = parts.readable_end

    def pages(self, query: DeadLettersQuery) -> Steps[DeadLetterPage]:
        """The next page, in steps.  Raises InvalidValue, GroupUnknown, StoreUnavailable."""
        limit = checked_limit(query)
        for field in ("newest_first", "is_open"):
            if getattr(query, field):
                raise InvalidValue(field, True, "false: only dead letters have this option")
        if query.group and not self._queues(query.group):
            self._groups.existing(query.group)
        after, waiting = _read_cursor(query.cursor, self._store.end)
        found: list[DeadLetter] = []
        looked_at = 0
        if waiting is None:
            due = yield from self._due(query, after, limit)
            if due.cursor:
                return due
            found, looked_at, waiting = list(due.letters), due.looked_at, ""
            yield
        waits = yield from self._waiting(query, waiting, limit - len(found))
        dead_letters = (*found, *waits.letters)
        return DeadLetterPage(dead_letters, waits.cursor, looked_at + waits.looked_at)

    # ---- inside

    def _due(self, query: DeadLettersQuery, after: int, limit: int) -> Steps[DeadLetterPage]:
        """A page of the retry queues; without a cursor if it is the last one."""
        ranges = []
        for queue, known in self._queues(query.group).items():
            committed = self._offsets.of(group_of(queue.topic) or "").get(queue, 0)
            begin = max(committed, known.begin)
            ranges.append(known._replace(begin=begin).behind(after, newest_first=False))
        first_max = limit + 1 if query.filter == EVERY_DEAD_LETTER else 2 * limit
        heads = in_order(self._store, ranges, first_max=first_max)
        found: list[DeadLetter] = []
        looked_at = size = 0
        for looked_at, head in enumerate(heads, 1):
            if fits(head, query.filter):
                found.append(described(head, due_ms=head.store_timestamp_ms))
                size += len(head.properties)
            if len(found) == limit or looked_at == LOOK_MAX or size > PAGE_BYTES_MAX:
                more = next(heads, None) is not None
                cursor = cursor_text(_DUE, head.physical_offset) if more else f"{_WAITING}."
                return DeadLetterPage(tuple(found), cursor, looked_at)
            if looked_at % STEP_DEAD_LETTERS == 0:
                yield
        return DeadLetterPage(tuple(found), "", looked_at)

    def _waiting(self, query: DeadLettersQuery, cursor: str, limit: int) -> Steps[DeadLetterPage]:
        """A page of the retries that wait in the schedule."""
        found: list[DeadLetter] = []
        wanted = self._pending_filter(query)
        if not wanted.levels:
            return DeadLetterPage(())
        looked_at = size = 0
        readable = self._readable_end()
        for _ in range(PAGE_SLICES_MAX):
            count_max = min(SLICE_MAX, limit - len(found))
            several, cursor = self._pending.slice(wanted, cursor, count_max)
            looked_at += len(several)
            size += sum(len(each.head.properties) for each in several)
            found += [
                described(each.head, due_ms=each.place.due_ms, target=(each.topic, each.queue_id))
                for each in several
                if each.head.physical_offset + each.head.size <= readable
                and is_retry(each.topic)
                and fits(each.head, query.filter)
            ]
            if not cursor or len(found) >= limit or size > PAGE_BYTES_MAX:
                break
            yield
        return DeadLetterPage(tuple(found), cursor and f"{_WAITING}.{cursor}", looked_at)

    def _queues(self, group: str) -> dict[Queue, Range]:
        """The readable ranges of the queues of a group's retry topic, or of every one."""
        readable = self._readable_end()
        found = {}
        for topic, queue_id in self._store.queue_keys():
            queue = self._store.queue(topic, queue_id)
            if queue is None or not is_retry(topic) or group not in ("", group_of(topic)):
                continue
            end = max(queue.min_offset, end_before(queue, readable))
            found[Queue(topic, queue_id)] = Range(queue, queue.min_offset, end)
        return found

    def _pending_filter(self, query: DeadLettersQuery) -> PendingFilter:
        """The query as a filter of the schedule; levels is empty if no retry waits."""
        wanted = query.filter
        topic = retry_topic(query.group) if query.group else ""
        levels = tuple(
            level
            for level, counts in self._store.progress.pending.items()
            if (counts[topic] if topic else any(is_retry(each) for each in counts))
        )
        return PendingFilter(
            levels=levels,
            topic=topic,
            key=wanted.key,
            ids=wanted.ids,
            origin_topic=wanted.topic,
            tag=wanted.tag,
            reason=wanted.reason,
            failure_kind=wanted.failure_kind,
        )


def _read_cursor(text: str, log_end: int) -> tuple[int, str | None]:
    """The physical offset behind which due retries go on, or the cursor of waiting ones."""
    kind, dot, rest = text.partition(".")
    if kind == _WAITING and dot:
        Cursor.read(rest, log_end)
        return -1, rest
    return (read_cursor(text, 1, _DUE)[0] if text else -1), None

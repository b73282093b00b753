"""All wait queues of a store: lists them, finds the next due time, and notices new messages.

There is one for each delay level that has or had messages, also for levels that only older
tables had.  Only status() calls them levels, because people read it.

A change of the table of levels only writes one small table, and is in force from the next append
on.  Waiting messages do not change: each is still due at the time it was promised, whatever happens
to its level.  words/levels.py decides which of the tables of broker.conf and of
administrators counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_of
from rmqlite.kernel.requests.broker import (
    DatedTable,
    LevelChange,
    LevelsChange,
    LevelsChanged,
    LevelsInForce,
    LevelStatus,
)
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.timer_index import check_sqlite
from rmqlite.kernel.waits.timer_queue import TimerQueue
from rmqlite.kernel.waits.wait_queue import Lateness, LevelQueue, WaitQueue
from rmqlite.kernel.words.levels import LevelTable, parse_levels

log = logging.getLogger(__name__)


class WaitQueues:
    """The wait queues of one broker, by id."""

    def __init__(self, store: MessageStore) -> None:
        """Raises StoreUnavailable."""
        check_sqlite()
        self._store = store
        self._queues: dict[int, WaitQueue] = {}
        self.timers: TimerQueue | None = None
        """The one of the timers; None if the store never had one."""
        for key in store.queue_keys():
            if number := wait_queue_of(*key):
                self._open(number)

    def __iter__(self) -> Iterator[WaitQueue]:
        """Every wait queue that has or had messages, by id."""
        return iter([self._queues[number] for number in sorted(self._queues)])

    def __getitem__(self, number: int) -> WaitQueue:
        return self._queues[number]

    def next_due_ms(self, number: int | None = None) -> int | None:
        """When the earliest message of one or of all wait queues is due; None if none waits."""
        if number is not None:
            known = self._queues.get(number)
            return known.next_due_ms() if known else None
        times = []
        for known in self._queues.values():
            due_ms = known.next_due_ms()
            if due_ms is not None:
                times.append(max(due_ms, known.rests_until_ms))
        return min(times, default=None)

    def notice(self, number: int, queue_offset: int, due_ms: int) -> bool:
        """Note messages appended from queue_offset on; True if they are the queue's earliest."""
        known = self._queues.get(number)
        if known is None:
            self._open(number)
            return True
        earliest_ms = known.next_due_ms()
        known.notice(queue_offset, due_ms)
        now_ms = known.next_due_ms()
        return earliest_ms is None or (now_ms is not None and now_ms < earliest_ms)

    def check_room(self) -> None:
        """Raises Overloaded while too many timers are not in their table: send no more then."""
        if self.timers is not None:
            self.timers.keys.unindexed.check_room()

    def oldest_pending(self, *, but: int = 0) -> tuple[int, Entry] | None:
        """Wait queue and entry of the pending scheduled record that lies first in the log.

        but: a wait queue that does not count.
        """
        pending = []
        for number, known in self._queues.items():
            entry = known.queue.entry(known.completed.below)
            if entry is not None and number != but:
                pending.append((number, entry))
        return min(pending, key=lambda each: each[1].physical_offset, default=None)

    def lateness(self, number: int) -> Lateness:
        """How late a wait queue delivered since the broker started."""
        known = self._queues.get(number)
        return known.lateness if known else Lateness()

    def status(self) -> list[LevelStatus]:
        """The status of every level that has or had messages or is in the table, and of the timers.

        The timers come last.
        """
        table = self._store.levels.current
        levels = sorted({*self._queues, *range(1, table.max_level + 1)} - {TIMERS})
        rows = [self._status(level, table.own_name(level)) for level in levels]
        return [*rows, self._status(TIMERS, "timers")]

    def _status(self, level: int, delay: str) -> LevelStatus:
        known = self._queues.get(level)
        if known is None:
            return LevelStatus(level, delay, 0, 0, 0, 0, 0, 0)
        late = known.lateness
        return LevelStatus(
            level,
            delay,
            known.pending,
            known.next_due_ms() or 0,
            late.count,
            late.quantile_ms(0.5),
            late.quantile_ms(0.99),
            late.max_ms,
        )

    def _open(self, number: int) -> None:
        queue = self._store.queue(*queue_of(number))
        assert queue is not None, "a wait queue is made when its queue has its first message"
        store, completed = self._store, self._store.progress.of(number)
        if number == TIMERS:
            self.timers = TimerQueue(number, queue, completed, store.timers, lambda: store.end)
            self._queues[number] = self.timers
        else:
            self._queues[number] = LevelQueue(number, queue, store.progress)


class LevelChanges:
    """Shows and changes the table of levels of one broker."""

    def __init__(self, store: MessageStore, wait_queues: WaitQueues) -> None:
        self._store = store
        self._wait_queues = wait_queues

    def in_force(self) -> LevelsInForce:
        """The table in force, the table of broker.conf, and every table so far with its date."""
        history = self._store.levels
        return LevelsInForce(
            history.current.text,
            history.configured.text,
            tuple(DatedTable(since_ms, table.text) for since_ms, table in history.entries),
        )

    def change(self, wanted: LevelsChange) -> LevelsChanged:
        """Put a table in force, durably and from the next send on; returns what that changes.

        If every level is as long as before, nothing changes, and `after` equals `before`.
        Raises InvalidValue, StoreUnavailable (nothing has changed), FlushFailed.
        """
        table = parse_levels(wanted.message_delay_level)
        changed = self._meaning_of(table)
        if not wanted.dry_run:
            self._apply(table, changed, is_configured=False)
        return changed

    def configure(self, table: LevelTable) -> LevelsChanged:
        """Put the table of broker.conf in force like change(), if broker.conf had another one."""
        if table.delays_ms == self._store.levels.configured.delays_ms:
            return self._meaning_of(self._store.levels.current)
        changed = self._meaning_of(table)
        self._apply(table, changed, is_configured=True)
        return changed

    def _apply(self, table: LevelTable, changed: LevelsChanged, *, is_configured: bool) -> None:
        self._store.change_levels(table, is_configured=is_configured)
        if changed.before != changed.after:
            log.info(
                "delay levels changed by=%s before=%r after=%r",
                "broker.conf" if is_configured else "administrator",
                changed.before,
                changed.after,
            )
            if changed.loss:
                log.warning("the new table of delay levels %s", changed.loss)

    def _meaning_of(self, table: LevelTable) -> LevelsChanged:
        before = self._store.levels.current
        # 60s in place of 1m is no change: the spelling of the table in force stays.
        after = before if table.delays_ms == before.delays_ms else table
        waiting = {s.level: s for s in self._wait_queues.status() if s.level != TIMERS}
        rows = []
        for level in sorted({*waiting, *range(1, max(before.max_level, after.max_level) + 1)}):
            status = waiting.get(level)
            pending = status.pending if status else 0
            row = LevelChange(
                level,
                before.own_name(level),
                after.own_name(level),
                pending,
                status.next_due_ms if status else 0,
            )
            if row.delay_before or row.delay_after or pending:
                rows.append(row)
        return LevelsChanged(before.text, after.text, tuple(rows))

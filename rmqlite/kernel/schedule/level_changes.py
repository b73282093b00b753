"""Shows what a new table of delay levels would change, and puts it in force.

A change only writes one small table, and is in force from the next append on.  Waiting messages
do not change: each is still due at the time it was promised, whatever happens to its level.
Tables come from broker.conf and from administrators; store/tables/levels_table.py decides which
one counts.
"""

from __future__ import annotations

import logging

from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.schedule import (
    DatedTable,
    LevelChange,
    LevelsChange,
    LevelsChanged,
    LevelsInForce,
)
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.levels import LevelTable, parse_levels

log = logging.getLogger(__name__)


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

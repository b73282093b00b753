"""The table of delay levels in force, and all earlier ones: config/delayLevels.json.

A table comes from broker.conf or from an operator who sets it while the broker runs; the
later change wins.  So the file also stores the table that was last read from broker.conf:
broker.conf counts again only after its table has changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqlite.kernel.config.table_shapes import LevelsTable
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import Dispatch
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.levels import LevelHistory, LevelTable

LEVELS_TABLE: Final = "delayLevels.json"


def load_levels(files: Files, root: Path, table: LevelTable) -> LevelHistory:
    """The history of level tables; without one it begins with table.  Raises StoreDamaged."""
    path = root / "config" / LEVELS_TABLE
    known = tables.load_as(files, path, LevelsTable)
    return LevelHistory.starting_with(table) if known is None else known.history()


def change_levels(
    files: Files,
    root: Path,
    clock: Clock,
    newest_ms: int,
    dispatch: Dispatch,
    table: LevelTable,
    *,
    is_configured: bool,
) -> None:
    """Put a table in force from the next append on, unless its delays already are.

    newest_ms: of the newest record.  is_configured: the table is from broker.conf; it counts
    only if broker.conf has changed.  Raises StoreUnavailable: nothing has changed;
    FlushFailed: a restart may find the old or the new table.
    """
    # The millisecond of the newest record still belongs to the table before.
    since_ms = max(clock.now_ms(), newest_ms + 1)
    path = root / "config" / LEVELS_TABLE
    known = dispatch.levels
    is_first = tables.load(files, path) is None
    if is_first and newest_ms:
        # The tables by which RocketMQ delayed the existing messages are unknown.
        known = LevelHistory.starting_with(table, since_ms)
    after = known.configured_as if is_configured else known.changed_to
    history = after(table, since_ms)
    if history is known and not is_first:
        return
    tables.save(files, path, history.to_json())
    dispatch.levels = history
    clock.not_before(history.in_force_from_ms)

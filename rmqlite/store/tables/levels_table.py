"""Which table of delay levels is in force, and which ones were before: config/delayLevels.json.

A table comes from broker.conf or from somebody who sets it while the broker runs; of the
two the later change wins.  So the file also keeps what broker.conf said when it was read
last: it counts again only when it says something else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqlite.clock import Clock
from rmqlite.levels import LevelHistory, LevelTable
from rmqlite.store.dispatch import Dispatch
from rmqlite.store.files import Files
from rmqlite.store.tables import tables
from rmqlite.table_shapes import LevelsTable

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
    """From the next append on this table is in force, if what is known already lets it be.

    newest_ms: of the newest record.  is_configured: broker.conf says so.  Raises
    StoreUnavailable, and nothing has changed; FlushFailed, and a restart may find either.
    """
    # The millisecond of the newest record still belongs to the table before.
    since_ms = max(clock.now_ms(), newest_ms + 1)
    path = root / "config" / LEVELS_TABLE
    known = dispatch.levels
    is_first = tables.load(files, path) is None
    if is_first and newest_ms:
        # By which tables RocketMQ delayed what is there, is not known.
        known = LevelHistory.starting_with(table, since_ms)
    after = known.configured_as if is_configured else known.changed_to
    history = after(table, since_ms)
    if history is known and not is_first:
        return
    tables.save(files, path, history.to_json())
    dispatch.levels = history
    clock.not_before(history.in_force_from_ms)

"""The table of delay levels in force, and all earlier ones: config/delayLevels.json.

A table comes from broker.conf or from an operator who sets it while the broker runs; the
later change wins.  So the file also stores the table that was last read from broker.conf:
broker.conf counts again only after its table has changed.
"""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.config.table_shapes import LevelsTable
from rmqlite.kernel.store.tables.logged_tables import LoggedTables
from rmqlite.kernel.words.levels import LevelHistory, LevelTable

LEVELS_TABLE: Final = "delayLevels.json"


def load_levels(tables: LoggedTables, table: LevelTable) -> LevelHistory:
    """The history of level tables; without one it begins with table.  Raises StoreDamaged."""
    known = tables.load(LEVELS_TABLE, LevelsTable)
    return LevelHistory.starting_with(table) if known is None else known.history()

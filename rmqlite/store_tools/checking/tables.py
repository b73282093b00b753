"""Checks that each table under config/ is JSON, and has the shape that its reader needs.

Only a fault that would keep a broker from starting, or mislead it, is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rmqlite.features.every import table_shapes
from rmqlite.kernel.config.table_shapes import (
    ClockTable,
    ConsumerOffsetsTable,
    DelayOffsetsTable,
    DeletedTopicsTable,
    GroupsTable,
    LevelsTable,
    ProgressTable,
    TopicsTable,
)
from rmqlite.kernel.store.deleted_topics import DELETED_TABLE
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.clock_table import CLOCK_TABLE
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.checking.finding import Finding

UNREADABLE: Final = "unreadable-table"


_SHAPES: Final[dict[str, tuple[str, type[Any]]]] = {
    "topics.json": ("topics", TopicsTable),
    "subscriptionGroup.json": ("consumer groups", GroupsTable),
    "consumerOffset.json": ("consumer offsets", ConsumerOffsetsTable),
    DELETED_TABLE: ("deleted topics", DeletedTopicsTable),
    CLOCK_TABLE: ("the clock", ClockTable),
    DELAY_OFFSET_TABLE: ("delay offsets", DelayOffsetsTable),
    LEVELS_TABLE: ("delay levels", LevelsTable),
    PROGRESS_TABLE: ("progress", ProgressTable),
    **table_shapes(),
}


def check_tables(files: Files, root: Path) -> Iterator[Finding]:
    """A finding for every unusable table; a previous generation counts only without a newer one."""
    folder = root / "config"
    names = files.names(folder)
    for table in sorted({name.removesuffix(tables.BACKUP) for name in names}):
        if not table.endswith(".json"):
            continue
        for path in (folder / table, folder / (table + tables.BACKUP)):
            try:
                if _sound(files, path) is not None:
                    break
            except StoreDamaged as error:
                kind = f"a table of {_SHAPES[table][0]}" if table in _SHAPES else "JSON"
                yield Finding(
                    path,
                    error.position,
                    UNREADABLE,
                    f"not {kind}: expected {error.rule}, found {error.found}",
                    error.rule,
                    error.found,
                    # Opening goes on with the wall clock and writes the table anew.
                    opening_mends=table == CLOCK_TABLE,
                )


def load_sound(files: Files, path: Path) -> tables.Tree | None:
    """A table, or its previous generation; None if both are unusable."""
    for candidate in (path, path.with_name(path.name + tables.BACKUP)):
        with suppress(StoreDamaged):
            tree = _sound(files, candidate)
            if tree is not None:
                return tree
    return None


def is_sound(files: Files, path: Path) -> bool:
    """Does a generation of a table exist, and is it usable?"""
    try:
        return _sound(files, path) is not None
    except StoreDamaged:
        return False


def _sound(files: Files, path: Path) -> tables.Tree | None:
    """A generation of a table; None if it is missing or empty.  Raises StoreDamaged."""
    data = files.read_all(path)
    if not data or not data.strip():
        return None
    _, shape = _SHAPES.get(path.name.removesuffix(tables.BACKUP), ("", tables.Tree))
    try:
        tree = tables.decode(data)
        tables.shaped(tree, data, shape)
    except tables.NoTable as error:
        raise error.damage(path) from error
    return tree

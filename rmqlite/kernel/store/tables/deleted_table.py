"""The file of the deleted topics: config/deletedTopics.json."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqlite.kernel.config.table_shapes import DeletedTopicsTable
from rmqlite.kernel.store.deleted_topics import Deleted, DeletedTopics
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.tables import tables

DELETED_TABLE: Final = "deletedTopics.json"


def load_deleted(files: Files, root: Path) -> DeletedTopics:
    """Raises StoreDamaged for a table that cannot be read."""
    path = root / "config" / DELETED_TABLE
    return deleted_topics(tables.load_as(files, path, DeletedTopicsTable))


def deleted_topics(table: DeletedTopicsTable | None) -> DeletedTopics:
    rows = table.deleted_topics if table else {}
    return DeletedTopics({topic: Deleted(*row) for topic, row in rows.items()})

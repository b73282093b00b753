"""The shape of deadLetterMarkers.json."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from rmqlite.kernel.config.table_shapes import Completed, Int64, QueueId, StoredName, TableShape

TABLE: Final = "deadLetterMarkers.json"


class PurgeMarkersTable(TableShape):
    """deadLetterMarkers.json; an older rmqlite wrote no letter_table."""

    offset_table: dict[StoredName, dict[QueueId, Int64]] = Field(default_factory=dict)
    letter_table: dict[StoredName, dict[QueueId, Completed]] = Field(default_factory=dict)


SHAPES: Final = {
    TABLE: ("purge markers", PurgeMarkersTable),
}

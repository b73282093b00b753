"""The shape of kvConfig.json."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from rmqlite.kernel.config.table_shapes import TableShape

TABLE: Final = "kvConfig.json"


class KeyValuesTable(TableShape):
    """kvConfig.json"""

    config_table: dict[str, dict[str, str]] = Field(default_factory=dict)


SHAPES: Final = {
    TABLE: ("the name server's values", KeyValuesTable),
}

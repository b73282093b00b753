"""The shape of kvConfig.json."""

from __future__ import annotations

from pydantic import Field

from rmqlite.kernel.config.table_shapes import TableShape


class KeyValuesTable(TableShape):
    """kvConfig.json"""

    config_table: dict[str, dict[str, str]] = Field(default_factory=dict)

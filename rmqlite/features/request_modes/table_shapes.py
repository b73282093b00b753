"""The shape of messageRequestMode.json."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from rmqlite.kernel.config.table_shapes import Int32, StoredName, TableShape

MODES_TABLE: Final = "messageRequestMode.json"


class RequestModeRow(TableShape):
    mode: Literal["PULL", "POP"] = "PULL"
    pop_share_queue_num: Int32 = 0


class RequestModesTable(TableShape):
    """messageRequestMode.json"""

    message_request_mode_map: dict[StoredName, dict[StoredName, RequestModeRow]] = Field(
        default_factory=dict
    )


SHAPES: Final = {MODES_TABLE: ("request modes", RequestModesTable)}

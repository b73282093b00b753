"""Where an appended record goes in the store, and when it is due."""

from __future__ import annotations

from typing import NamedTuple

Place = tuple[int, int]
"""The queue offset that a record will have, and when it is due: 0 for one that does not wait."""


class Written(NamedTuple):
    """Where a record went, and when it is due: 0 for one that does not wait."""

    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    due_ms: int

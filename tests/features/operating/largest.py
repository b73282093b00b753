"""The largest requests of calls about operators."""

from __future__ import annotations

from typing import Final

from rmqlite.features.operating.requests import (
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    PREVIEW_OFFSET_RESET,
    PREVIEW_TOPIC_DELETION,
    RESET_OFFSETS,
    GroupDeletion,
    OffsetReset,
)
from rmqlite.kernel.words.levels import INSTANT_MS_MIN
from tests.support.largest_calls import GROUP, READERS, WIDE, Requests

LARGEST: Final[Requests] = {
    DESCRIBE_GROUP: lambda at: GROUP if at.is_first else READERS,
    PREVIEW_TOPIC_DELETION: lambda _: WIDE,
    DELETE_TOPIC: lambda at: at.name,
    DELETE_GROUP: lambda at: GroupDeletion(at.name, force=True),
    PREVIEW_OFFSET_RESET: lambda _: OffsetReset(READERS, WIDE, INSTANT_MS_MIN),
    RESET_OFFSETS: lambda at: OffsetReset(READERS, WIDE, INSTANT_MS_MIN + at.number),
}

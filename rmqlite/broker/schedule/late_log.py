"""Logs that deliveries were late: one line each time, when the last late message is delivered."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LATE_MS: Final = 1_000
"""A delivery is late from here on."""
_BETWEEN_LINES_MS: Final = 60_000
"""A wait queue that is late again within this time adds to its next line."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Late:
    messages: int = 0
    latest_ms: int = 0
    logged_at_ms: int = -_BETWEEN_LINES_MS


class LateLog:
    """Late deliveries of each wait queue since its last line."""

    def __init__(self) -> None:
        self._late: dict[str, _Late] = {}

    def note(
        self, name: str, due_ms: Mapping[int, int], written_ms: int, next_due_ms: int | None
    ) -> None:
        """A slice was delivered.  name: the wait queue.  due_ms: how many messages by due time.

        next_due_ms: when its next message is due; None if none waits.
        """
        late = self._late.get(name)
        if written_ms - min(due_ms, default=written_ms) >= LATE_MS:
            late = self._late.setdefault(name, _Late())
            for each_ms, count in due_ms.items():
                if written_ms - each_ms >= LATE_MS:
                    late.messages += count
                    late.latest_ms = max(late.latest_ms, written_ms - each_ms)
        if late is None or not late.messages:
            return
        is_over = next_due_ms is None or next_due_ms > written_ms - LATE_MS
        if is_over and written_ms - late.logged_at_ms >= _BETWEEN_LINES_MS:
            log.warning(
                "deliveries were late %s messages=%d latest_ms=%d",
                name,
                late.messages,
                late.latest_ms,
            )
            self._late[name] = _Late(logged_at_ms=written_ms)

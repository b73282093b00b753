"""Logs that deliveries were late: one line for all wait queues, at most one a minute."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

LATE_MS: Final = 1_000
"""A delivery is late from here on."""
_BETWEEN_LINES_MS: Final = 60_000
"""What is late again within this time adds to the next line."""

log = logging.getLogger(__name__)


class LateLog:
    """Late deliveries since the last line."""

    def __init__(self) -> None:
        self._messages = 0
        self._latest_ms = 0
        self._names: set[str] = set()
        """The wait queues of these messages."""
        self._behind: set[str] = set()
        """Those whose next message is late, too."""
        self._logged_at_ms = -_BETWEEN_LINES_MS

    def note(
        self, name: str, due_ms: Mapping[int, int], written_ms: int, next_due_ms: int | None
    ) -> None:
        """A slice was delivered.  name: the wait queue.  due_ms: how many messages by due time.

        next_due_ms: when its next message is due; None if none waits.
        """
        if written_ms - min(due_ms, default=written_ms) >= LATE_MS:
            self._names.add(name)
            for each_ms, count in due_ms.items():
                if written_ms - each_ms >= LATE_MS:
                    self._messages += count
                    self._latest_ms = max(self._latest_ms, written_ms - each_ms)
        if not self._messages:
            return
        if next_due_ms is not None and next_due_ms <= written_ms - LATE_MS:
            self._behind.add(name)
        else:
            self._behind.discard(name)
        if not self._behind and written_ms - self._logged_at_ms >= _BETWEEN_LINES_MS:
            log.warning(
                "deliveries were late %s messages=%d latest_ms=%d",
                name if self._names == {name} else f"wait_queues={len(self._names)}",
                self._messages,
                self._latest_ms,
            )
            self._messages = self._latest_ms = 0
            self._names.clear()
            self._logged_at_ms = written_ms

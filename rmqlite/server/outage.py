"""Work that the disk refuses for a while: logged when that begins and when it is over."""

from __future__ import annotations

import logging

from rmqlite.errors import StoreUnavailable

log = logging.getLogger(__name__)


class Outage:
    """Counts failed attempts; logs the first failure of a row and the success that ends it."""

    def __init__(self, begins: str, ends: str) -> None:
        self._begins = begins
        self._ends = ends
        self.failures = 0
        """How many attempts have failed since the last success."""

    def failed(self, error: StoreUnavailable) -> None:
        if not self.failures:
            log.warning("%s error=%s", self._begins, error)
        self.failures += 1

    def succeeded(self) -> None:
        if self.failures:
            log.warning("%s failed_attempts=%d", self._ends, self.failures)
        self.failures = 0

"""Files that are read at the start, and again when they change.

A file that cannot be used leaves in force what was read before; the log, rmqlite status and the
web page say why.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

from rmqlite.kernel.words.errors import ConfigInvalid

LOOK_S: Final = 2.0
"""How often the files are looked at."""
Stamp = tuple[tuple[str, int, int, int], ...]
T = TypeVar("T")
log = logging.getLogger(__name__)


class WatchedFiles(ABC, Generic[T]):
    """name: what the files hold, such as "accounts"."""

    name: str

    def __init__(self) -> None:
        self.warnings: tuple[str, ...] = ()
        """What is wrong with the files, a sentence each."""
        self.is_broken = False
        """Do the files hold something else than what is in force?"""
        self._stamp: Stamp = ()

    @abstractmethod
    def _files(self) -> Iterable[Path]:
        """All files whose change matters now."""

    @abstractmethod
    def _read(self) -> T:
        """Read the files; another thread does it.  Raises ConfigInvalid."""

    @abstractmethod
    def _take(self, found: T) -> Iterable[str]:
        """Put in force what was read; return a sentence for each thing that is wrong with it."""

    def load(self) -> None:
        """Read the files at the start.  Raises ConfigInvalid."""
        # Before reading: a change in between is seen then.
        self._stamp = self._now()
        self._enforce(self._read())

    async def watch(self) -> None:
        """Look at the files again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take what the files hold, if one has changed."""
        try:
            stamp = await asyncio.to_thread(self._now)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._enforce(await asyncio.to_thread(self._read))
        except ConfigInvalid as error:
            sentence = f"the {self.name} cannot be read again, the former ones stay: {error}"
            if self.warnings != (sentence,):
                log.error("%s", sentence)
            self.warnings = (sentence,)
            self.is_broken = True

    def _enforce(self, found: T) -> None:
        self.warnings = tuple(self._take(found))
        self.is_broken = False
        for sentence in self.warnings:
            log.warning("%s", sentence)

    def _now(self) -> Stamp:
        """What changes with each change of a file; a file that is missing has zeros."""
        found = []
        for each in sorted(set(self._files())):
            try:
                status = each.stat()
                found.append((str(each), status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append((str(each), 0, 0, 0))
        return tuple(found)

"""Reads the accounts' files at the start, and again when they change.

A file that cannot be used leaves the accounts in force as they are; the log, rmqlite status and
the web page say why.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from rmqlite.access.accounts import Accounts
from rmqlite.access.reading import files_of, load_accounts
from rmqlite.errors import ConfigInvalid
from rmqlite.server.front.access import Access

LOOK_S: Final = 2.0
"""How often the files are looked at."""

Stamp = tuple[tuple[str, int, int, int], ...]
log = logging.getLogger(__name__)


class AccountsFile:
    """The accounts of one broker; access gets them."""

    def __init__(self, path: Path, access: Access) -> None:
        self._path = path
        self._access = access
        self._stamp: Stamp = ()

    def load(self) -> None:
        """Read the files at the start.  Raises ConfigInvalid."""
        accounts = load_accounts(self._path)
        self._stamp = _stamp(self._path, accounts)
        self._take(accounts)

    async def run(self) -> None:
        """Look at the files again and again, in another thread: they may be long."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take the accounts, if a file has changed."""
        accounts = self._access.accounts
        assert accounts is not None
        try:
            stamp = await asyncio.to_thread(_stamp, self._path, accounts)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._take(await asyncio.to_thread(load_accounts, self._path))
        except ConfigInvalid as error:
            sentence = f"the accounts cannot be read again, the former ones stay: {error}"
            if self._access.warnings != (sentence,):
                log.error("%s", sentence)
            self._access.warnings = (sentence,)

    def _take(self, accounts: Accounts) -> None:
        self._access.accounts = accounts
        self._access.warnings = accounts.warnings
        log.info("accounts in force file=%s accounts=%d", self._path, len(accounts.accounts))
        for sentence in accounts.warnings:
            log.warning("%s", sentence)


def _stamp(path: Path, accounts: Accounts) -> Stamp:
    """What changes with each change of a file; a file that is missing has zeros."""
    found = []
    for each in sorted({*files_of(path), *accounts.files}):
        try:
            status = each.stat()
            found.append((str(each), status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append((str(each), 0, 0, 0))
    return tuple(found)

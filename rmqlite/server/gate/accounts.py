"""The accounts' files: what they say is in force, and follows each edit."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rmqlite.access.accounts import Accounts
from rmqlite.access.reading import files_of, load_accounts
from rmqlite.server.gate.watched import WatchedFiles

if TYPE_CHECKING:
    from rmqlite.server.service.access import Access

log = logging.getLogger(__name__)


class AccountsFile(WatchedFiles[Accounts]):
    """The accounts of one broker; access gets them."""

    name = "accounts"

    def __init__(self, path: Path, access: Access) -> None:
        super().__init__()
        self._path = path
        self._access = access

    def _files(self) -> Iterable[Path]:
        accounts = self._access.accounts
        return [*files_of(self._path), *(accounts.files if accounts else ())]

    def _read(self) -> Accounts:
        return load_accounts(self._path)

    def _take(self, found: Accounts) -> Iterable[str]:
        if found != self._access.accounts:
            self._access.accounts = found
            log.info("accounts in force file=%s accounts=%d", self._path, len(found.accounts))
        return found.warnings

    async def look(self) -> None:
        # A flood that has ended brings no refusal that would tell its length.
        self._access.refusals.tell()
        await super().look()

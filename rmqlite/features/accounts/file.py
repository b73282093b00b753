"""The file of accounts, which is read again when it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from rmqlite.features.accounts.accounts import Accounts
from rmqlite.features.accounts.reading import files_of, load_accounts
from rmqlite.kernel.service.access import Access
from rmqlite.protocols.shared.watched import WatchedFiles

log = logging.getLogger(__name__)


class AccountsFile(WatchedFiles[Accounts]):
    """The accounts of one broker; access gets them."""

    name = "accounts"

    def __init__(self, path: Path, access: Access) -> None:
        super().__init__()
        self._path = path
        self._access = access
        self._found: tuple[Path, ...] = ()
        """Further files that the first one names."""

    def _files(self) -> Iterable[Path]:
        return [*files_of(self._path), *self._found]

    def _read(self) -> Accounts:
        return load_accounts(self._path)

    def _take(self, found: Accounts) -> Iterable[str]:
        if found != self._access.accounts:
            self._access.accounts = found
            log.info("accounts in force file=%s accounts=%d", self._path, len(found.accounts))
        self._found = found.files
        return found.warnings

    async def look(self) -> None:
        # A flood that has ended brings no refusal that would tell its length.
        self._access.refusals.log_repeated()
        await super().look()

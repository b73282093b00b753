"""A store that is being made in a new folder, from a copy of a log and of small files.

It is DIR.part until it was opened and closed once, as after a crash, which completes queues, key
index and progress; until it was checked; and until it is on disk.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.file_sizes import Sizes
from rmqlite.kernel.words.clock import Clock, SystemClock
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged, StoreUnavailable
from rmqlite.store_tools.check import Finding, Progress, StoreCheck
from rmqlite.store_tools.moving.handover import config_to_open
from rmqlite.store_tools.moving.slaves_copy import remove_tree

PART: Final = ".part"
"""The end of the folder's name until the store is whole."""


class NewStore:
    """Leaving its `with` removes what is not whole.

    Call make_part(), complete(), check() and, if nothing was found, keep().
    """

    def __init__(
        self,
        target: Path,
        config: BrokerConfig | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """config: the broker's; without it, the store's own levels and lengths of files.

        Raises InvalidValue for a target that exists or whose folder does not.
        """
        self.target = target
        if not target.name:
            raise InvalidValue("DIR", target, "the name of a new folder")
        self.part = target.with_name(target.name + PART)
        self.disk = files or SystemFiles()
        self._config = config
        self._clock = clock or SystemClock()
        self._is_begun = False
        if not self.disk.is_folder(target.parent):
            raise InvalidValue("DIR", target, "a new name in a folder that exists")
        for path in (target, self.part):
            if self.disk.kind(path):
                raise InvalidValue("DIR", target, f"a new name, and {path} exists")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_begun:
            remove_tree(self.disk, self.part)
        self.disk.close()

    def make_part(self, needed_bytes: int) -> None:
        """Make the folder.  Raises StoreUnavailable if its disk has no room for so many bytes."""
        _, free = self.disk.disk_bytes(self.target.parent)
        if needed_bytes > free:
            reason = f"it needs {needed_bytes:,} bytes, and {free:,} are free"
            raise StoreUnavailable("make", str(self.target), reason, is_full=True)
        self.disk.make_folder(self.part)
        self._is_begun = True
        for name in ("config", "commitlog"):
            self.disk.make_folder(self.part / name)

    def complete(
        self, small_files: dict[str, bytes], end: int, sizes: Sizes, origin: Path | None = None
    ) -> None:
        """Add the small files, open and close the store; its log must end there.

        sizes: the lengths of the files, of which there may be none yet.  Raises StoreUnavailable,
        and StoreDamaged, which names the file below origin.
        """
        for name, data in small_files.items():
            self.disk.replace(self.part / name, data)
        # As after a crash: an opening then trusts nothing that is not covered by the tables.
        self.disk.replace(self.part / "abort", b"")
        lengths = {
            "mapped_file_size_commit_log": sizes.log_file_bytes,
            "mapped_file_size_consume_queue": sizes.queue_file_bytes,
        }
        config = config_to_open(self.disk, self.part, self._config).model_copy(update=lengths)
        try:
            store = MessageStore(config, self.disk, self._clock, is_marked=False)
        except StoreDamaged as error:
            place = (origin or self.target) / Path(error.path).relative_to(self.part)
            raise StoreDamaged(str(place), error.position, error.rule, error.found) from error
        try:
            if store.end != end:
                reason = f"its log ends at {store.end:,}, not at {end:,}: files have changed"
                raise StoreUnavailable("make", str(self.target), reason)
            store.close({})
        finally:
            store.release()

    def check(self, progress: Progress) -> tuple[StoreCheck, list[Finding]]:
        """A check of every byte, done, and what it has found."""
        checking = StoreCheck(self.part, config=self._config, progress=progress)
        try:
            return checking, list(checking.run())
        finally:
            checking.close()

    def keep(self) -> None:
        """Give the store its name, durably."""
        self.disk.close()
        self.disk.move(self.part, self.target)
        self._is_begun = False

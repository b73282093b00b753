"""The task that archives: a copy of the log, and of the small files beside it, as they grow.

It reads the log's files, never the loop's memory, and only bytes that are on disk and do not change
any more.  First the log's bytes, then the small files, then the head: each of them needs only what
was written before.  What fails is tried again; nobody waits for it.  Work on files is done in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from rmqlite.features.archive.cleaning import CLEAN_MS, clean
from rmqlite.features.archive.objects import (
    SMALL_NAME,
    ArchiveBucket,
    ArchivedMoment,
    ArchiveHead,
    HeadChanged,
    Piece,
    State,
    Version,
    crc_of,
    read_log,
)
from rmqlite.features.archive.owning import OWNER_TABLE, NotOwner, OwnLog, claim, owner_of
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.requests.broker import ArchiveStatus
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.store.disk.files import Lock, ReadOnlyFiles, SystemFiles
from rmqlite.kernel.store.opening.file_sizes import sizes_of
from rmqlite.kernel.store.opening.recovery import PROGRESS_TABLE
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.clock_table import CLOCK_TABLE
from rmqlite.kernel.store.tables.tables import small_files
from rmqlite.kernel.words.errors import StoreDamaged, StoreLocked, StoreUnavailable

PIECE_BYTES: Final = 8 << 20
"""The most bytes of an object of the log that is written first; it ends at a multiple of them."""
BLOCK_BYTES: Final = 64 << 20
BLOCK_PIECES_MAX: Final = 16
"""If a whole block has more pieces, one object replaces them."""
MOMENTS_MAX: Final = 20
"""Looks at the small files, until none changes during a look."""
PAUSE_S_MAX: Final = 60.0
"""The longest pause between two attempts that fail."""
_NOT_ARCHIVED: Final = (tables.BACKUP, OWNER_TABLE)
_EVER_CHANGING: Final = {f"config/{CLOCK_TABLE}", "lock"}

log = logging.getLogger(__name__)
T = TypeVar("T")


class Archiving:
    """Archives one broker's store."""

    def __init__(self, parts: BrokerParts, retention: Retention) -> None:
        self._config = parts.config
        self._store = parts.store
        self._clock = parts.clock
        self._root = parts.config.store_path
        self._files = ReadOnlyFiles()
        self._thread = ThreadPoolExecutor(1, "archive")
        self._bucket: ArchiveBucket
        self._lock: Lock | None = None
        self._is_stopped = False
        self._head: ArchiveHead | None = None
        """As it was written last; None before the first time."""
        self._version: Version = None
        self._end = 0
        """The archive has the log up to here."""
        self._block: list[Piece] = []
        """The pieces of this term in the block in which the archive ends."""
        self._small: dict[str, bytes] = {}
        """The small files of the last moment, without those that change when nothing happens."""
        self._cleaned_at_ms = 0
        self._behind_since_ms = 0
        self._lost_bytes = 0
        self._trouble = ""
        self._outage = Outage(
            "the archive cannot be written, will be tried again", "the archive is written again"
        )
        # Retention keeps the log from here on, until the disk is past its forced level.
        retention.kept_from = lambda: self._end

    def status(self) -> ArchiveStatus:
        """What an operator should know."""
        head, end = self._head, max(self._end, self._store.min_offset)
        return ArchiveStatus(
            self._config.archive_url,
            owner=head.owner if head else "",
            term=head.term if head else 0,
            end=self._end,
            archived_at_ms=head.at_ms if head else 0,
            behind_bytes=max(0, self._store.durable_end - end),
            behind_since_ms=self._behind_since_ms,
            lost_bytes=self._lost_bytes,
            trouble=self._trouble,
        )

    async def run_archiving(self) -> None:
        """Archive until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(await self.attempt())
        finally:
            self.close_archive()

    async def attempt(self) -> float:
        """Archive what is new; returns the seconds until the next attempt."""
        interval_s = self._config.archive_interval_ms / 1000
        try:
            if not self._is_stopped:
                await self._round(self._head or await self._begin())
        except (NotOwner, StoreLocked) as error:
            self._is_stopped = True
            self._note_behind(is_behind=True)
            self._trouble = f"nothing is archived to {self._config.archive_url}: {error}"
            log.error("archiving has stopped error=%s", error)
        except (StoreUnavailable, StoreDamaged) as error:
            self._note_behind(is_behind=True)
            self._outage.failed(error)
            self._trouble = f"the archive is behind: {error}"
            return float(min(interval_s * 2**self._outage.failures, max(interval_s, PAUSE_S_MAX)))
        else:
            if not self._is_stopped:
                self._note_behind(is_behind=False)
                self._outage.succeeded()
                self._trouble = ""
        return interval_s

    def close_archive(self) -> None:
        self._thread.shutdown(wait=False)
        if self._lock is not None:
            self._lock.release()

    async def _begin(self) -> ArchiveHead:
        """Begin a term where the archive ends.  Raises NotOwner, StoreLocked."""
        self._bucket = ArchiveBucket(self._config.archive_url)
        self._lock = self._lock or await self._in_thread(self._bucket.lock)
        store, name = self._store, self._config.broker_name
        own = OwnLog(self._files, self._root, store.log_file_bytes, store.durable_end)
        owner = await self._in_thread(partial(owner_of, SystemFiles(), self._root, name))
        try:
            head, self._version = await claim(self._bucket, own, owner, self._clock.now_ms())
        except HeadChanged:
            raise NotOwner("another broker has begun to archive there") from None
        self._head, self._end, self._block, self._small = head, head.end, [], {}
        log.info(
            "archiving begins url=%s owner=%s term=%d end=%d behind_bytes=%d",
            self._config.archive_url,
            owner,
            head.term,
            self._end,
            store.durable_end - self._end,
        )
        return head

    # ---- a round

    async def _round(self, head: ArchiveHead) -> None:
        """Archive what is new.  If nothing is, there is no request."""
        state, small, end = await self._moment()
        if state is None:
            return
        self._note_behind(is_behind=True)
        await self._ship(head.term, end)
        at_ms = self._clock.now_ms()
        await self._bucket.put(ArchivedMoment(head.term, end, at_ms).name, state)
        await self._write(ArchiveHead(head.owner, head.terms, end, at_ms))
        self._small = small
        if at_ms - self._cleaned_at_ms >= CLEAN_MS:
            self._cleaned_at_ms = at_ms
            await clean(self._bucket, head, at_ms, self._config.archive_retention_hours)

    async def _moment(self) -> tuple[bytes | None, dict[str, bytes], int]:
        """The state of one moment, or None if it is the archived one; and where the log ends then.

        Nothing changed during the look, so a crash then would have left just this.
        """
        for _ in range(MOMENTS_MAX):
            files = await self._in_thread(self._small_files)
            begin, end = self._store.min_offset, max(self._store.final_end, self._end)
            small = {name: data for name, data in files.items() if name not in _EVER_CHANGING}
            if end == self._end and small == self._small:
                return None, small, end
            if await self._in_thread(partial(self._is_moment, files, end)):
                sizes = await self._in_thread(
                    partial(sizes_of, self._files, self._root, self._config)
                )
                state = State(begin, sizes, files)
                return await self._in_thread(state.encode), small, end
        reason = f"its tables changed during each of {MOMENTS_MAX} looks"
        raise StoreUnavailable("archive", str(self._root), reason)

    def _small_files(self) -> dict[str, bytes]:
        found = small_files(self._files, self._root)
        return {
            name: data
            for name, data in found.items()
            if SMALL_NAME.fullmatch(name) and not name.endswith(_NOT_ARCHIVED)
        }

    def _is_moment(self, files: dict[str, bytes], end: int) -> bool:
        """Are the small files unchanged, and is none of them ahead of the log?"""
        path = self._root / "config" / PROGRESS_TABLE
        reached = (tables.load(self._files, path) or {}).get("physicalOffset", 0)
        return bool(reached <= end) and self._small_files() == files

    async def _ship(self, term: int, end: int) -> None:
        """Write the log's bytes up to there, an object after the other."""
        while self._end < end:
            if (gone := self._store.min_offset - self._end) > 0:
                self._lost_bytes += gone
                log.error("a full disk lost log files before they were archived bytes=%d", gone)
                self._end, self._block = self._store.min_offset, []
            begin = self._end
            upto = min(end, begin - begin % PIECE_BYTES + PIECE_BYTES)
            data, crc = await self._in_thread(partial(self._piece, begin, upto))
            piece = Piece(term, begin, upto, crc)
            await self._bucket.put(piece.name, data)
            self._end = upto
            self._block.append(piece)
            if upto % BLOCK_BYTES == 0:
                await self._merge()
            if rate := self._config.archive_bytes_per_s_max:
                await asyncio.sleep(len(data) / rate)

    async def _merge(self) -> None:
        """Replace the pieces of a whole block by one object, if they are many."""
        pieces, self._block = self._block, []
        begin, end = pieces[0].begin, pieces[-1].end
        if len(pieces) <= BLOCK_PIECES_MAX or begin < self._store.min_offset:
            return
        crc = await self._in_thread(lambda: crc_of(self._read(begin, end)))
        whole = Piece(pieces[0].term, begin, end, crc)
        await self._bucket.put(whole.name, self._read(begin, end))
        await self._bucket.remove(pieces)

    async def _write(self, head: ArchiveHead) -> None:
        """Write the head.  Raises NotOwner if the archive belongs to another broker by now."""
        try:
            self._version = await self._bucket.put_head(head, self._version)
        except HeadChanged:
            # An answer may have been lost, and the request sent again.
            if (found := await self._bucket.head()) is None:
                self._head, reason = None, "it was removed; archiving begins anew"
                raise StoreUnavailable("replace", f"{self._bucket.url}/head", reason) from None
            if found[0] != head:
                owner = found[0].owner
                raise NotOwner(f"another process has taken it over, as {owner}") from None
            self._version = found[1]
        self._head = head

    # ---- parts

    def _note_behind(self, *, is_behind: bool) -> None:
        if not is_behind:
            self._behind_since_ms = 0
        elif not self._behind_since_ms:
            self._behind_since_ms = self._clock.now_ms()

    def _piece(self, begin: int, end: int) -> tuple[bytes, int]:
        data = b"".join(self._read(begin, end))
        return data, crc_of([data])

    def _read(self, begin: int, end: int) -> Iterator[bytes]:
        return read_log(self._files, self._root, self._store.log_file_bytes, begin, end)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

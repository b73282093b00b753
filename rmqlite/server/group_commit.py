"""One fdatasync for all who wait; then it wakes them.

SYNC_FLUSH: an answer leaves when its bytes are on disk, and readers are told then.  While
one sync runs, the next ones gather behind it, so its cost is shared by all of them.
ASYNC_FLUSH: nobody waits, and the log is synced at an interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from rmqlite.config import BrokerConfig
from rmqlite.errors import FlushFailed
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.message_store import MessageStore

Readable = Callable[[Iterable[QueueKey]], None]


class GroupCommit:
    """readable is told which queues have messages that may be read now."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        syncer: ThreadPoolExecutor,
        readable: Readable,
    ) -> None:
        self._is_sync = config.flush_disk_type == "SYNC_FLUSH"
        self._interval_s = config.flush_interval_ms / 1000
        self._timeout_s = config.sync_flush_timeout_ms / 1000
        self._store = store
        self._syncer = syncer
        self._readable = readable
        self._fresh: set[QueueKey] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._wanted = asyncio.Event()

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message."""
        self._fresh.add((topic, queue_id))
        self._wanted.set()

    async def durable(self, log_end: int) -> None:
        """Return when the log is safe up to there.  Raises FlushFailed."""
        self._wanted.set()
        if not self._is_sync or self._store.durable_end >= log_end:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((log_end, waiter))
        await waiter

    async def run(self) -> None:
        """Sync whenever somebody wants it.  Raises FlushFailed: nothing is believed any more."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not self._is_sync:
                # One turn of the loop gathers what is being appended right now.
                await asyncio.sleep(0)
                self._tell_readers()
                await self._sync_later()
                continue
            try:
                await self._sync()
            except FlushFailed as error:
                self._fail(error)
                raise
            if self._store.end > self._store.durable_end:
                self._wanted.set()

    async def _sync(self) -> None:
        fresh, self._fresh = self._fresh, set()
        job = self._store.begin_sync()
        running = asyncio.get_running_loop().run_in_executor(self._syncer, job.run)
        done, _ = await asyncio.wait([running], timeout=self._timeout_s)
        if not done:
            limit_ms = round(self._timeout_s * 1000)
            self._fail(FlushFailed(f"the disk took longer than syncFlushTimeout={limit_ms} ms"))
        await running
        self._store.synced(job)
        still = []
        for log_end, waiter in self._waiters:
            if log_end > job.log_end:
                still.append((log_end, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = still
        self._readable(fresh)

    async def _sync_later(self) -> None:
        """ASYNC_FLUSH: readers are told at once, the disk follows at its interval."""
        loop = asyncio.get_running_loop()
        job = self._store.begin_sync()
        running = loop.run_in_executor(self._syncer, job.run)
        until = loop.time() + self._interval_s
        while loop.time() < until or not running.done():
            waiting_s = max(0.001, until - loop.time())
            try:
                await asyncio.wait_for(self._wanted.wait(), waiting_s)
            except TimeoutError:
                continue
            self._wanted.clear()
            await asyncio.sleep(0)
            self._tell_readers()
        await running
        self._store.synced(job)
        if self._store.end > self._store.durable_end:
            self._wanted.set()

    def _tell_readers(self) -> None:
        fresh, self._fresh = self._fresh, set()
        self._readable(fresh)

    def _fail(self, error: FlushFailed) -> None:
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

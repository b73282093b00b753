"""One fdatasync for all calls that wait; then it wakes them.

SYNC_FLUSH: a call is answered, and readers are woken, when its bytes are on disk.  While one
sync runs, new calls gather; they share the next sync and its cost.
ASYNC_FLUSH: no call waits, readers are woken at once, and a sync follows at an interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from rmqlite.broker.histogram import Durations
from rmqlite.clock import elapsed_s
from rmqlite.config import BrokerConfig
from rmqlite.errors import FlushFailed
from rmqlite.store.disk_jobs import SyncJob
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.message_store import MessageStore

Readable = Callable[[Iterable[QueueKey]], None]


class GroupCommit:
    """Calls readable with the queues that have messages that may be read now.

    It needs no task of its own: an append starts a sync, and the end of a sync starts the next
    one.  run() only waits for a failure.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        syncer: ThreadPoolExecutor,
        readable: Readable,
    ) -> None:
        self._is_sync = config.flush_disk_type == "SYNC_FLUSH"
        self._interval_s = config.flush_interval_ms / 1000
        self._timeout_ms = config.sync_flush_timeout_ms
        self._store = store
        self._syncer = syncer
        self._readable = readable
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._fresh: set[QueueKey] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._is_busy = False
        self._error: BaseException | None = None
        self.syncs = Durations()
        """How long the disk took for each sync, without the wait for the thread."""

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message."""
        if not self._is_sync and not self._fresh:
            # Gathers everything that is appended in this turn of the loop.
            self._loop.call_soon(self._tell_readers)
        self._fresh.add((topic, queue_id))
        self.wanted()

    def wanted(self) -> None:
        """Start a sync, because something was appended; if one is running, another follows it."""
        if self._is_busy:
            return
        self._is_busy = True
        if self._is_sync:
            # Covers everything else that is appended in this turn of the loop.
            self._loop.call_soon(self._start)
        else:
            self._loop.call_later(self._interval_s, self._start)

    async def durable(self, log_end: int) -> None:
        """Return when the log is on disk up to log_end.  Raises FlushFailed.

        With ASYNC_FLUSH it returns at once.
        """
        if self._error is not None:
            # Without the frames of the calls that raised it before.
            raise self._error.with_traceback(None)
        if self._is_sync and self._store.durable_end >= log_end:
            # The sync was faster than this task: another one would write nothing.
            return
        self.wanted()
        if not self._is_sync:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((log_end, waiter))
        try:
            await waiter
        finally:
            # The future keeps its exception, the exception its frames, and this frame the
            # future: a cycle that would hold the whole request.
            del waiter

    def fail(self, error: BaseException) -> None:
        """A sync failed, here or elsewhere: from now on durable() raises this error."""
        self._error = error
        self._refuse_waiters(error)
        if not self._failure.done():
            self._failure.set_exception(error)

    async def run(self) -> None:
        """Wait for a sync that fails, then raise its FlushFailed, which ends the broker."""
        await self._failure

    def _start(self) -> None:
        fresh: set[QueueKey] = set()
        if self._is_sync:
            fresh, self._fresh = self._fresh, fresh
        job = self._store.begin_sync()
        slow = self._loop.call_later(self._timeout_ms / 1000, self._too_slow)

        def done(running: Future[float]) -> None:
            self._loop.call_soon_threadsafe(self._finish, job, fresh, slow, running)

        self._syncer.submit(_seconds, job).add_done_callback(done)

    def _finish(
        self,
        job: SyncJob,
        fresh: set[QueueKey],
        slow: asyncio.TimerHandle,
        running: Future[float],
    ) -> None:
        slow.cancel()
        error = running.exception()
        if error is not None:
            self.fail(error)
            return
        if job.paths:
            self.syncs.add(running.result())
        self._store.synced(job)
        still = []
        for log_end, waiter in self._waiters:
            if log_end > job.log_end:
                still.append((log_end, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = still
        if fresh:
            self._readable(fresh)
        self._is_busy = False
        if self._store.end > self._store.durable_end:
            self.wanted()

    def _tell_readers(self) -> None:
        fresh, self._fresh = self._fresh, set()
        self._readable(fresh)

    def _too_slow(self) -> None:
        sentence = f"the disk took longer than syncFlushTimeout={self._timeout_ms} ms"
        self._refuse_waiters(FlushFailed(sentence, is_final=False))

    def _refuse_waiters(self, error: BaseException) -> None:
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)


def _seconds(job: SyncJob) -> float:
    """Run a job; how long it took."""
    began_s = elapsed_s()
    job.run()
    return elapsed_s() - began_s

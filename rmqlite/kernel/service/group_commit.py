"""One fdatasync for all calls that wait; then it wakes them.

SYNC_FLUSH: a call is answered, and readers are woken, when its bytes are on disk.  While one
sync runs, new calls gather; they share the next sync and its cost.
ASYNC_FLUSH: no call waits, readers are woken at once, and a sync follows at an interval.
A change of a table is a record like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.counts import Durations
from rmqlite.kernel.store.commit_log import SyncJob
from rmqlite.kernel.store.disk.regular_file import Descriptor
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, Unavailable

Readable = Callable[[Iterable[QueueKey]], None]
Ran = Callable[[float | FlushFailed], None]
Answer = Callable[[FlushFailed | None], object]


Syncs = object
"""What the loop and the thread that syncs share; a capsule of C."""
sync_new: Final = only_in_c("sync_new")
"""() -> Syncs, and the descriptor of an eventfd, which is readable when a sync is over."""
sync_put: Final = only_in_c("sync_put")
"""(syncs, fd): sync a descriptor, which stays open until then; -1: sync_run() returns after it."""
sync_run: Final = only_in_c("sync_run")
"""(syncs), in a thread: sync what sync_put() hands over, without the interpreter."""
sync_take: Final = only_in_c("sync_take")
"""(syncs) -> the errno of the sync that is over, 0 for none, and its seconds; None if none is."""


class _Waiter(NamedTuple):
    """A call that waits for the log up to log_end."""

    log_end: int
    answer: Answer


class SyncThread:
    """The thread that syncs: one job after the other, for the loop that runs.

    The standard library's executor does the same for 60 us more CPU each time, which is a sixth
    of what a single send costs.  The compiled form saves 110 us more: its thread does not wait
    for the interpreter, nor the interpreter for it.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[SyncJob, Ran] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop
        self._syncs: Syncs | None = None
        self._wake_fd = -1
        self._running: tuple[SyncJob, Ran, Descriptor] | None = None
        """What the compiled form syncs; its file stays open until the next."""

    def begin(self, job: SyncJob, ran: Ran) -> None:
        """Run a job, then call ran in the loop: with the seconds it took, or its error.

        The last job has run.  Does nothing once closed: the end of the last sync may still ask for
        the next one, and a thread that nobody ends would keep the process.
        """
        if self._is_closed:
            return
        if self._thread is None:
            self._start()
        descriptor = job.descriptor() if self._syncs is not None else None
        if self._syncs is None or descriptor is None:
            self._give((job, ran))
            return
        self._running = (job, ran, descriptor)
        sync_put(self._syncs, descriptor.fd)

    def close(self) -> None:
        """Return when all jobs have run and the thread has ended."""
        self._is_closed = True
        if self._thread is not None:
            self._give(None)
            self._thread.join()
            self._thread = None
            if self._syncs is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._wake_fd)
                self._synced()
            self._syncs = None

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        syncs = sync_new()
        if syncs is not None:
            self._syncs, self._wake_fd = syncs
            self._loop.add_reader(self._wake_fd, self._synced)
        self._thread = Thread(target=self._run, args=(self._syncs,), name="sync")
        self._thread.start()

    def _give(self, asked: tuple[SyncJob, Ran] | None) -> None:
        self._jobs.put(asked)
        if self._syncs is not None:
            sync_put(self._syncs, -1)

    def _synced(self) -> None:
        """The compiled form has synced: the loop takes the job back."""
        taken = sync_take(self._syncs) if self._syncs is not None else None
        if taken is None or self._running is None:
            return
        (job, ran, _), (number, seconds) = self._running, taken
        ran(job.failed(number) if number else seconds)

    def _run(self, syncs: Syncs | None) -> None:
        while True:
            if syncs is not None:
                sync_run(syncs)
            asked = self._jobs.get()
            if asked is None:
                return
            job, ran = asked
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(ran, run_timed(job))


def run_timed(job: SyncJob) -> float | FlushFailed:
    """Run a job; how many seconds it took, or its error."""
    began_s = elapsed_s()
    try:
        job.run()
    except FlushFailed as error:
        return error
    except Exception as error:
        # A mistake of ours, but nobody may take these bytes for durable, nor wait for ever.
        failed = FlushFailed(f"the sync failed: {error!r}")
        failed.__cause__ = error
        return failed
    return elapsed_s() - began_s


class GroupCommit:
    """Calls readable with the queues that have messages that may be read now.

    It needs no task of its own: an append starts a sync, and the end of a sync starts the next
    one.  run() only waits for a failure.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, thread: SyncThread, readable: Readable
    ) -> None:
        self._is_sync = config.flush_disk_type == "SYNC_FLUSH"
        self._interval_s = config.flush_interval_ms / 1000
        self._timeout_ms = config.sync_flush_timeout_ms
        self._store = store
        self._thread = thread
        self._readable = readable
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._fresh: set[QueueKey] = set()
        self._unread: list[tuple[int, set[QueueKey]]] = []
        """What a sync has covered: its end, and the queues with new messages before it."""
        self.on_start: Callable[[], None] | None = None
        """Called before a sync begins, which covers all that was appended until then."""
        self.refusal: Unavailable | None = None
        """Why nothing that is appended now would be durable soon."""
        self._waiters: list[_Waiter] = []
        self._is_wanted = False
        self._until_s: float | None = None
        """The loop's time at which the sync that runs takes too long; None if none runs."""
        self._timer: asyncio.TimerHandle | None = None
        self._error: FlushFailed | None = None
        self.syncs = Durations()
        """How long the disk took for each sync, without the wait for the thread."""

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message."""
        if not self._is_sync and not self._fresh:
            # Gathers everything that is appended in this turn of the loop.
            self._loop.call_soon(self._wake_readers)
        self._fresh.add((topic, queue_id))
        self.wanted()

    def wanted(self) -> None:
        """Start a sync, because something was appended; if one is running, another follows it."""
        if self._is_wanted or self._until_s is not None:
            return
        self._is_wanted = True
        if self._is_sync:
            if self.on_start is not None:
                self.on_start()
            # Covers everything else that is appended in this turn of the loop.
            self._loop.call_soon(self._start)
        else:
            self._loop.call_later(self._interval_s, self._start)

    async def durable(self, log_end: int) -> None:
        """Return when the log up to log_end is on disk; at once with ASYNC_FLUSH.

        Raises FlushFailed.
        """
        self._check()
        if self._is_done(log_end):
            if not self._is_sync:
                self.wanted()
            return
        self.wanted()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._wait(log_end, partial(_end, waiter))
        try:
            await waiter
        finally:
            # The future keeps its exception, the exception its frames, and this frame the
            # future: a cycle that would hold the whole request.
            del waiter

    def then(self, log_end: int, answer: Answer) -> None:
        """Call answer when durable() would return, with None, or with what it would raise.

        A sync starts at once: whoever appends for many callers has gathered them before, so nobody
        else has to be waited for.
        """
        try:
            self._check()
        except FlushFailed as error:
            answer(error)
            return
        if self._is_done(log_end):
            answer(None)
            return
        if self._waiters:
            # The answers of many callers take a while: these get a turn of the loop of their own.
            answer = partial(self._in_turn, answer)
        self._wait(log_end, answer)
        self._start()

    def fail(self, error: FlushFailed) -> None:
        """A sync failed, here or elsewhere: from now on durable() raises this error."""
        self._error = error
        self.refuse_waiters(error)
        if not self._failure.done():
            self._failure.set_exception(error)

    async def run(self) -> None:
        """Wait for a sync that fails, then raise its FlushFailed, which ends the broker."""
        await self._failure

    def _check(self) -> None:
        """Raises the error with which a call ends at once."""
        if self._error is not None:
            # Without the frames of the calls that raised it before.
            raise self._error.with_traceback(None)

    def _is_done(self, log_end: int) -> bool:
        """Was the sync faster than the call?  Another one would write nothing for it."""
        return not self._is_sync or self._store.durable_end >= log_end

    def _wait(self, log_end: int, answer: Answer) -> None:
        self._waiters.append(_Waiter(log_end, answer))

    def _in_turn(self, answer: Answer, error: FlushFailed | None) -> None:
        self._loop.call_soon(answer, error)

    def _start(self) -> None:
        self._is_wanted = False
        is_idle = self._is_sync and not self._fresh and not self._waiters
        if self._until_s is not None or is_idle:
            return
        fresh: set[QueueKey] = set()
        if self._is_sync:
            fresh, self._fresh = self._fresh, fresh
        job = self._store.begin_sync()
        if self.on_start is not None:
            self.on_start()
        self._until_s = self._loop.time() + self._timeout_ms / 1000
        if self._timer is None:
            self._timer = self._loop.call_at(self._until_s, self._look)
        self._thread.begin(job, partial(self._finish, job, fresh))

    def _finish(self, job: SyncJob, fresh: set[QueueKey], ran: float | FlushFailed) -> None:
        self._until_s = None
        if isinstance(ran, FlushFailed):
            self.fail(ran)
            return
        if job.paths:
            self.syncs.add(ran)
        self._store.synced(job)
        if fresh:
            self._unread.append((job.log_end, fresh))
        if self._store.end > job.log_end:
            # Appended while the disk worked; now it works while these calls are answered.
            if self._is_sync:
                self._start()
            else:
                self.wanted()
        self.settle()

    def settle(self) -> None:
        """Answer the calls, and wake the readers, of what is durable by now."""
        end = self._store.durable_end
        done = [each for each in self._waiters if each.log_end <= end]
        self._waiters = [each for each in self._waiters if each.log_end > end]
        while self._unread and self._unread[0][0] <= end:
            self._readable(self._unread.pop(0)[1])
        for waiter in done:
            waiter.answer(None)

    def check_open(self) -> None:
        """Raises `refusal`, if there is one, before something is appended."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def _look(self) -> None:
        """Does the sync that runs take too long?  One timer for many syncs, which are short."""
        self._timer = None
        if self._until_s is None:
            return
        if self._loop.time() < self._until_s:
            self._timer = self._loop.call_at(self._until_s, self._look)
            return
        self._too_slow()

    def _too_slow(self) -> None:
        sentence = f"the disk took longer than syncFlushTimeout={self._timeout_ms} ms"
        self.refuse_waiters(FlushFailed(sentence, is_final=False))

    def _wake_readers(self) -> None:
        fresh, self._fresh = self._fresh, set()
        self._readable(fresh)

    def refuse_waiters(self, error: FlushFailed) -> None:
        """End all calls that wait, with this error; what they appended may or may not stay."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.answer(error)


def _end(waiter: asyncio.Future[None], error: FlushFailed | None) -> None:
    """Wake the call that waits, unless it was cancelled."""
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)

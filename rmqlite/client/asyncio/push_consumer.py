"""AsyncPushConsumer: a PushConsumer whose listener is a coroutine function.

    PushConsumer -> one thread hands messages over -> a task for each -> the result goes back

Membership, pulling, commits and send-backs are PushConsumer's.  Here is how many tasks there may
be, in which order they run, and how they end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from rmqlite.client.asyncio.producer import AsyncClosing, alone_in_thread
from rmqlite.client.consuming.listener import (
    AsyncListener,
    ConsumeResult,
    Settle,
    check_async_listener,
    failure_of,
    result_of,
    traced_async,
)
from rmqlite.client.consuming.push_consumer import SILENT_S, WAITING, PushConsumer
from rmqlite.client.consuming.queue_reader import EVERYTHING, ConsumeFrom, Start
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import follow
from rmqlite.client.tracing import Tracing
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.compression import inflated
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import StoredMessage

OrderBy = Callable[[StoredMessage], Hashable]

log = logging.getLogger(__name__)


class AsyncPushConsumer(AsyncClosing):
    """Consumes messages as a member of a group, each in a task of its own, on one event loop.

    Call subscribe(), then listen() unless the listener is given here, then start(), all inside
    `async with`, which closes the consumer.

    concurrency: how many messages are consumed at a time.  order_by: messages for which it returns
    equal values are consumed one after the other, in the order of their queue, such as
    `lambda message: message.keys`; one that waits for another counts as consumed, and a failed one
    comes again after them.  None consumes in any order.  close_timeout_ms: how long close() waits
    for running listeners before it cancels them.  All other options are those of PushConsumer.
    """

    def __init__(
        self,
        endpoint: str,
        group: str,
        listener: AsyncListener | None = None,
        *,
        concurrency: int = 20,
        order_by: OrderBy | None = None,
        pull_batch: int = 32,
        cached_messages_max: int = 1_000,
        cached_bytes_max: int = 100 * 1024 * 1024,
        max_reconsume_times: int | None = None,
        consume_from: Start = ConsumeFrom.FIRST_OFFSET,
        commit_interval_ms: float = 5_000,
        heartbeat_interval_ms: int = 10_000,
        close_timeout_ms: float = 30_000,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidValue("concurrency", concurrency, "1 or more")
        self._consumer = PushConsumer(
            endpoint,
            group,
            consume_threads=concurrency,
            pull_batch=pull_batch,
            cached_messages_max=cached_messages_max,
            cached_bytes_max=cached_bytes_max,
            max_reconsume_times=max_reconsume_times,
            consume_from=consume_from,
            commit_interval_ms=commit_interval_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            close_timeout_ms=close_timeout_ms,
            client_id=client_id,
            credentials=credentials,
        )
        self.group: Final = group
        self._spans = tracing.spans(endpoint, group) if tracing else None
        self._listener: AsyncListener | None = None
        self._order_by = order_by
        self._close_timeout_s = close_timeout_ms / 1000
        self._concurrency = concurrency
        self.begin_anew()
        follow(self)
        if listener is not None:
            self.listen(listener)

    def begin_anew(self) -> None:
        """For a forked child: the loop and its tasks are the parent's."""
        # The first message needs none: the thread takes the next one when it has got a slot.
        self._slots = threading.Semaphore(self._concurrency - 1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[ConsumeResult]] = set()
        self._latest: dict[Hashable, asyncio.Task[ConsumeResult]] = {}
        """The last task of each value of order_by, until it has ended."""
        self._closing: asyncio.Task[None] | None = None

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that this member reads now, including those of the retry topic."""
        return self._consumer.queues

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, *, sql: str | None = None
    ) -> None:
        """As PushConsumer.subscribe().  Before start()."""
        self._consumer.subscribe(topic, expression, sql=sql)

    def listen(self, listener: AsyncListener) -> AsyncListener:
        """Await this for every message; also a decorator.  Before start().

        What it gets, and what its results and errors mean, is as in PushConsumer.listen(); only a
        KeyboardInterrupt and a SystemExit also end the event loop, as in any task.  A listener that
        is cancelled fails its message; one that close() cancels does not, its message comes again.
        Raises InvalidValue for a function that is not async, Refused after start().
        """
        check_async_listener(listener)
        self._consumer.listen_elsewhere(self._hand_over)
        self._listener = traced_async(listener, self._spans) if self._spans else listener
        return listener

    async def start(self) -> None:
        """Join the group and consume; call it once.  Raises as PushConsumer.start().

        A cancelled start() closes the consumer.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await alone_in_thread(self._consumer.start)
        except asyncio.CancelledError:
            await self.close()
            raise

    def stop_listening(self) -> None:
        """Start no listener any more; running listeners finish.  As PushConsumer's."""
        self._consumer.stop_listening()

    async def close(self) -> None:
        """Let running listeners finish, commit, leave the group.

        Listeners that still run after close_timeout_ms are cancelled and awaited; their messages
        are delivered again, to another member or after the next start.  Then send-backs have
        close_timeout_ms, too.  Goes on if the await is cancelled.  If a listener calls it, it does
        not wait for that listener.
        """
        if self._closing is None:
            task = asyncio.current_task()
            own = {each for each in self._tasks if each is task}
            self._closing = asyncio.create_task(self._close(own), name=f"rmqlite-{self.group}")
        await asyncio.shield(self._closing)

    async def _close(self, own: set[asyncio.Task[ConsumeResult]]) -> None:
        self._consumer.stop_listening()
        self._slots.release()  # else the thread might wait for a slot, and not see the stop
        running = self._tasks - own
        try:
            if running:
                silent_s = min(SILENT_S, self._close_timeout_s)
                _, late = await asyncio.wait(running, timeout=silent_s)
                if late:
                    log.warning(WAITING, len(late), self._close_timeout_s, self.group)
                    await asyncio.wait(late, timeout=self._close_timeout_s - silent_s)
        finally:
            if cancelled := [each for each in running if each.cancel()]:
                log.warning(
                    "closing while listeners run, they are cancelled and will be repeated"
                    " group=%s listeners=%d",
                    self.group,
                    len(cancelled),
                )
                await asyncio.wait(cancelled)
            await alone_in_thread(partial(self._consumer.close_within, len(own)))

    # ---- on the thread that hands messages over

    def _hand_over(self, message: StoredMessage, settle: Settle) -> None:
        assert self._loop is not None
        try:
            # Not on the event loop: a large body takes a while.
            whole = inflated(message)
        except Exception as error:
            settle(failure_of(self._listener, message, error))
            return
        try:
            self._loop.call_soon_threadsafe(self._begin, whole, settle)
        except RuntimeError:
            log.warning("the event loop ended before close() group=%s", self.group)
            self._consumer.stop_listening()
            settle(None)
            return
        self._slots.acquire()

    # ---- on the event loop

    def _begin(self, message: StoredMessage, settle: Settle) -> None:
        assert self._loop is not None
        if self._closing is not None:
            settle(None)
            self._slots.release()
            return
        name = f"rmqlite-{self.group}-{message.message_id}"
        task = self._loop.create_task(self._consume(message), name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, message, settle))

    async def _consume(self, message: StoredMessage) -> ConsumeResult:
        """A first step without a wait, so tasks that began in order are in order in _latest."""
        assert self._listener is not None
        if self._order_by is None:
            return result_of(await self._listener(message), self._listener)
        task = asyncio.current_task()
        assert task is not None
        key = self._order_by(message)
        before = self._latest.get(key)
        self._latest[key] = task
        try:
            if before is not None:
                await asyncio.wait([before])
            return result_of(await self._listener(message), self._listener)
        finally:
            if self._latest.get(key) is task:
                del self._latest[key]

    def _ended(
        self, message: StoredMessage, settle: Settle, task: asyncio.Task[ConsumeResult]
    ) -> None:
        """In a callback, because a task that is cancelled early runs none of its own code."""
        self._tasks.discard(task)
        result: ConsumeResult | None = None
        try:
            result = task.result()
        except BaseException as error:
            if not (task.cancelled() and self._closing is not None):
                result = failure_of(self._listener, message, error)
        settle(result)
        self._slots.release()

"""AsyncProducer and AsyncAdmin: methods of clients that wait, run in threads for an event loop.

in_thread() makes the async form of one method, with its parameters and its documentation; so no
signature stands here twice.  A call whose await is cancelled before a thread took it is never
made; one that a thread has begun is finished there, and its outcome is dropped.

Single sends of many tasks share calls by themselves: while calls are under way, the producer
gathers what comes.  A send that is alone needs no thread of the producer.  The limit of messages
under way is kept here, because the producer's own would block the event loop.  AsyncAdmin has what
a service asks; what an operator does now and then (levels, bulk jobs, imports, changes of
thousands) has the command line and AdminClient.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from rmqlite.client.admin_client import AdminClient, DeadLetterAdmin, RedriveAdmin
from rmqlite.client.channel import closed_error, waited
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import follow
from rmqlite.client.producer import Producer
from rmqlite.client.schedule_admin import ScheduleAdmin
from rmqlite.client.tracing import Tracing
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
THREADS_MAX: Final = 8
"""Calls of one client at a time; more of them wait for a thread, and no event loop does."""
ITEMS_PER_HOP: Final = 100
"""So many items of a long list come from a thread at once: a page of most lists."""


class CallThreads:
    """The threads of one client.  They exist while there is something to do, until shut().

    timeout_ms: of one call.  Its wait for a thread counts: a call that no thread has begun by then
    is never made.
    """

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000
        self._is_shut = False
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: it has none of the threads."""
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="rmqlite-call")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a thread.  Raises Refused once shut, Unavailable if no thread was free."""
        self.check_open()
        context = contextvars.copy_context()  # tracers find the span of the caller in it
        asked_at_s = elapsed_s()

        def begin() -> T:
            with waited(elapsed_s() - asked_at_s):
                return function(*args, **kwargs)

        call = _submit(self._pool, partial(context.run, begin))
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = call.cancel()

        timer = asyncio.get_running_loop().call_later(self._timeout_s, give_up)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not is_late:
                raise
            raise Unavailable(
                f"no thread was free for this call within {self._timeout_s:g} s:"
                f" {THREADS_MAX} calls of this client were under way"
            ) from None
        finally:
            timer.cancel()

    def check_open(self) -> None:
        """Raises Refused once shut."""
        if self._is_shut:
            raise closed_error()

    def shut(self) -> None:
        """Begin no calls any more; those that wait for a thread are still made."""
        self._is_shut = True
        self._pool.shutdown(wait=False)


class AsyncClosing(ABC):
    """Whatever has an async close() is closed at the end of its `async with`."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Bridge(Generic[C]):
    """The async form of a client: it holds the client, and the threads that call it."""

    def __init__(self, client: C, threads: CallThreads) -> None:
        self._client = client
        self._threads = threads


def in_thread(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[Bridge[C], P], Coroutine[Any, Any, T]]:
    """The async form of a client's method."""

    @wraps(method)
    async def called(bridge: Bridge[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await bridge._threads.run(method, bridge._client, *args, **kwargs)

    return called


def items_in_thread(
    method: Callable[Concatenate[C, P], Iterator[T]],
) -> Callable[Concatenate[Bridge[C], P], AsyncIterator[T]]:
    """The async form of a method that returns an iterator over a long list."""

    @wraps(method)
    async def listed(bridge: Bridge[C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        run = bridge._threads.run
        items = await run(method, bridge._client, *args, **kwargs)
        while some := await run(_next_of, items):
            for each in some:
                yield each

    return listed


def _next_of(items: Iterator[T]) -> list[T]:
    return list(islice(items, ITEMS_PER_HOP))


def _submit(pool: ThreadPoolExecutor, function: Callable[[], T]) -> Future[T]:
    """A new thread waits until this has returned.

    Else it would run ahead, perhaps for milliseconds, while the event loop waits for its begin.
    """
    begin = threading.Event()

    def call() -> T:
        begin.wait()
        return function()

    try:
        return pool.submit(call)
    finally:
        begin.set()


async def alone_in_thread(function: Callable[[], None]) -> None:
    """Call it in a thread of its own: those of CallThreads may all be busy.

    It is finished also if the await is cancelled.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="rmqlite-call")
    call = _submit(pool, function)
    pool.shutdown(wait=False)
    await asyncio.shield(asyncio.wrap_future(call))


class AsyncScheduleAdmin(Bridge[ScheduleAdmin]):
    """AsyncAdmin.schedule: lists and changes waiting messages, as AdminClient.schedule."""

    pending = items_in_thread(ScheduleAdmin.pending)
    count_pending = in_thread(ScheduleAdmin.count_pending)
    cancel = in_thread(ScheduleAdmin.cancel)
    fire = in_thread(ScheduleAdmin.fire)
    reschedule = in_thread(ScheduleAdmin.reschedule)
    bury = in_thread(ScheduleAdmin.bury)


class AsyncDeadLetterAdmin(Bridge[DeadLetterAdmin]):
    """AsyncAdmin.dead_letters: retries, dead letters and histories, as AdminClient.dead_letters."""

    groups = in_thread(DeadLetterAdmin.groups)
    reasons = in_thread(DeadLetterAdmin.reasons)
    dead = items_in_thread(DeadLetterAdmin.dead)
    retries = items_in_thread(DeadLetterAdmin.retries)
    history = in_thread(DeadLetterAdmin.history)
    purge = in_thread(DeadLetterAdmin.purge)


class AsyncRedriveAdmin(Bridge[RedriveAdmin]):
    """AsyncAdmin.redrives: jobs that send dead letters again, as AdminClient.redrives."""

    preview = in_thread(RedriveAdmin.preview)
    start = in_thread(RedriveAdmin.start)
    job = in_thread(RedriveAdmin.job)
    jobs = in_thread(RedriveAdmin.jobs)
    pause = in_thread(RedriveAdmin.pause)
    resume = in_thread(RedriveAdmin.resume)
    cancel = in_thread(RedriveAdmin.cancel)
    set_rate = in_thread(RedriveAdmin.set_rate)


class AsyncAdmin(Bridge[AdminClient], AsyncClosing):
    """An AdminClient for one event loop; its options are those of AdminClient.

    A change whose await is cancelled may be made all the same.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_ms: float = 5_000,
        credentials: Credentials | None = None,
        note: str = "",
    ) -> None:
        client = AdminClient(endpoint, timeout_ms=timeout_ms, credentials=credentials, note=note)
        super().__init__(client, CallThreads(timeout_ms))
        self.schedule: Final = AsyncScheduleAdmin(client.schedule, self._threads)
        self.dead_letters: Final = AsyncDeadLetterAdmin(client.dead_letters, self._threads)
        self.redrives: Final = AsyncRedriveAdmin(client.redrives, self._threads)

    list_topics = in_thread(AdminClient.list_topics)
    create_topic = in_thread(AdminClient.create_topic)
    ranges = in_thread(AdminClient.ranges)
    list_groups = in_thread(AdminClient.list_groups)
    group = in_thread(AdminClient.group)
    set_group = in_thread(AdminClient.set_group)
    broker_status = in_thread(AdminClient.broker_status)
    levels = in_thread(AdminClient.levels)
    find_messages = in_thread(AdminClient.find_messages)
    message_at = in_thread(AdminClient.message_at)

    async def close(self) -> None:
        """Disconnect; calls under way end with an Unavailable, later ones are Refused."""
        self._threads.shut()
        await alone_in_thread(self._client.close)


class _BegunProducer(Producer):
    """A Producer for an event loop, which begins the calls of what it has sent in one turn."""

    _begins_calls = True

    def begin_gathered(self) -> None:
        """Send what send_async() has gathered."""
        self._batcher.begin_gathered()

    def send_begun(self, message: Message) -> Future[SendResult]:
        """send_async() and begin_gathered()."""
        sent = self.send_async(message)
        self._batcher.begin_gathered()
        return sent


class AsyncProducer(Bridge[Producer], AsyncClosing):
    """A Producer for one event loop; its options are those of Producer.

    linger_ms: how long a message waits for others in its call; 0 gathers only while calls are
    under way.  in_flight_max: at this number of messages without an outcome, send() waits.
    """

    def __init__(
        self,
        endpoint: str,
        group: str,
        *,
        send_timeout_ms: float = 10_000,
        retries: int = 2,
        linger_ms: float = 0,
        batch_messages_max: int = 256,
        batch_bytes_max: int = 1024 * 1024,
        in_flight_max: int = 10_000,
        credentials: Credentials | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        if in_flight_max < 1:
            raise InvalidValue("in_flight_max", in_flight_max, "1 or more")
        client = _BegunProducer(
            endpoint,
            group,
            send_timeout_ms=send_timeout_ms,
            retries=retries,
            linger_ms=linger_ms,
            batch_messages_max=batch_messages_max,
            batch_bytes_max=batch_bytes_max,
            in_flight_max=sys.maxsize,
            credentials=credentials,
            tracing=tracing,
        )
        super().__init__(client, CallThreads(send_timeout_ms))
        self._begun: Final = client
        self._in_flight_max = in_flight_max
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: what is under way is its parent's."""
        self._room = asyncio.Semaphore(self._in_flight_max)

    async def send(self, message: Message, queue_id: int | None = None) -> SendResult:
        """Send one message; return when it is on disk (SYNC_FLUSH).  Raises as Producer.send().

        If the await is cancelled, the message may be stored all the same, like after an
        Unavailable; its place among the in_flight_max is free when it has its outcome.
        """
        if queue_id is not None:
            return await self._threads.run(self._client.send, message, queue_id)
        loop = asyncio.get_running_loop()
        await self._room.acquire()
        try:
            self._threads.check_open()  # the thread that closes the client may not run yet
            if isinstance(message, Message) and message.delay is not None:
                # The table of levels may have to be fetched first.
                sent = await self._threads.run(self._begun.send_begun, message)
            else:
                sent = self._begun.send_async(message)
                loop.call_soon(self._begun.begin_gathered)
        except BaseException:
            self._room.release()
            raise
        outcome: asyncio.Future[SendResult] = loop.create_future()
        sent.add_done_callback(partial(self._sent, loop, outcome))
        return await outcome

    send_batch = in_thread(Producer.send_batch)
    cancel = in_thread(Producer.cancel)
    reschedule = in_thread(Producer.reschedule)
    recall_handle = in_thread(Producer.recall_handle)

    async def flush(self) -> None:
        """As Producer.flush().  It has no time-out, and so takes none of the threads for calls."""
        self._threads.check_open()
        await alone_in_thread(self._client.flush)

    async def close(self) -> None:
        """Send what is under way, then disconnect; later calls are Refused.

        Goes on if the await is cancelled.
        """
        self._threads.shut()
        await alone_in_thread(self._client.close)

    def _sent(
        self,
        loop: asyncio.AbstractEventLoop,
        outcome: asyncio.Future[SendResult],
        sent: Future[SendResult],
    ) -> None:
        """On a thread of the producer or of gRPC.  A loop that is closed has nobody who waits."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._arrived, outcome, sent)

    def _arrived(self, outcome: asyncio.Future[SendResult], sent: Future[SendResult]) -> None:
        self._room.release()
        if outcome.done():  # its await was cancelled
            return
        if error := sent.exception():
            outcome.set_exception(error)
        else:
            outcome.set_result(sent.result())

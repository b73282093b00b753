"""AsyncProducer: send() awaits the future of Producer.send_async(), the rest runs in threads.

Single sends of many tasks share calls by themselves: while calls are under way, the producer
gathers what comes.  The limit of messages under way is kept here, because the producer's own
would block the event loop.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from rmqlite.client.asyncio.bridge import (
    AsyncClosing,
    Bridge,
    CallThreads,
    alone_in_thread,
    in_thread,
)
from rmqlite.client.credentials import Credentials
from rmqlite.client.forks import follow
from rmqlite.client.producing.producer import Producer
from rmqlite.client.tracing import Tracing
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult


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
        client = Producer(
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
                sent = await self._threads.run(self._client.send_async, message)
            else:
                sent = self._client.send_async(message)
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
        """On the producer's thread.  A loop that is closed has nobody who waits."""
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

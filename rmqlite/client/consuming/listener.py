"""The user's listener, its results, and the way back to the broker of what it failed.

A listener that returns nothing succeeds, as a task does in other Python libraries.  One that raises
anything at all, or returns another value than a result, fails its message: again later, with a
reason that describes what happened.  The listener's thread survives all of it.

A message's offset may be committed only after the broker took the message back; until then the
send-back is repeated.  It is given up only if the queue is lost or the consumer closes: then the
offset is not committed, and the message is delivered again.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from rmqlite.client.channel import retry_pause_s
from rmqlite.client.consuming.backlog import Backlog, ProcessQueue
from rmqlite.client.consuming.broker_link import BrokerLink, Loop
from rmqlite.kernel.requests.messages import SendBackRequest, SendBackResult
from rmqlite.kernel.words.compression import inflated
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, RmqliteError, must_be_type
from rmqlite.kernel.words.levels import DELAY_MS_MAX, Wait, wait_ms
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.visible import encodable, text_of_error
from rmqlite.protocols.native.bytes import rpcs

if TYPE_CHECKING:
    from rmqlite.client.spans import Spans


REASON_BYTES_MAX: Final = 1024
DEAD_LETTER: Final = -1
"""As a delay_level: no retry, to the dead letters at once."""
log = logging.getLogger(__name__)
ANSWER_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """A listener's result for one message.

    The other fields are for a failure.  delay_level: when to try again; 0 means by the group's
    retry policy, DEAD_LETTER means never.  reason: stored with the message, up to REASON_BYTES_MAX
    bytes of it.  delay_ms: instead of a level, after exactly so long.
    """

    is_success: bool
    delay_level: int = 0
    reason: str = ""
    delay_ms: int = 0

    def __post_init__(self) -> None:
        # Check here: the error names the listener's own line; later, no send-back would work.
        if not isinstance(self.delay_level, int):
            raise must_be_type("delay_level", "int", self.delay_level)
        if not -(2**31) <= self.delay_level < 2**31:
            raise InvalidValue("delay_level", self.delay_level, "a 32-bit integer")


CONSUME_SUCCESS: Final = ConsumeResult(True)
RECONSUME_LATER: Final = ConsumeResult(False)
Listener: TypeAlias = Callable[[StoredMessage], ConsumeResult | None]
"""Runs on one of the consumer's threads, several at a time.  None counts as CONSUME_SUCCESS."""
LISTENER_RULE: Final = "a plain function: neither async nor a generator, whose code would not run"
AsyncListener: TypeAlias = Callable[[StoredMessage], Awaitable[ConsumeResult | None]]
"""A Listener that is awaited on the event loop, by an AsyncPushConsumer."""
ASYNC_LISTENER_RULE: Final = "an async function: another one would block the event loop"
Settle: TypeAlias = Callable[[ConsumeResult | None], None]
"""Tell the result of one message, once, on any thread; None means that it was given up."""
HandOver: TypeAlias = Callable[[StoredMessage, Settle], None]
"""Consume a message, or let it be consumed elsewhere.  It returns when the next one may begin."""


class RetryLater(Exception):
    """Raised by a listener: its message has failed, and comes again after exactly so long.

    after: seconds, a timedelta, or text such as "90s".  reason: stored with the message; else that
    is the exception from which this one was raised.  Raises InvalidValue.
    """

    def __init__(self, after: Wait | float, reason: str = "") -> None:
        super().__init__(after, reason)
        if isinstance(after, int | float):
            if not 0 < after <= DELAY_MS_MAX / 1_000:
                raise InvalidValue("after", after, "above 0 and at most 3650 days of seconds")
            after = f"{math.ceil(after * 1_000)}ms"
        self.delay_ms: Final = wait_ms("after", after)
        self.reason: Final = reason

    @property
    def result(self) -> ConsumeResult:
        reason = self.reason or self.__cause__ or ""
        return ConsumeResult(False, 0, reason_text(reason), self.delay_ms)


def reconsume_later(
    *, delay_level: int = 0, reason: str = "", after: Wait | None = None
) -> ConsumeResult:
    """RECONSUME_LATER with its own delay level, or after exactly so long, or with a reason."""
    delay_ms = 0 if after is None else wait_ms("after", after)
    if delay_ms and delay_level:
        raise InvalidValue("delay_level", delay_level, "left out if after is given")
    return ConsumeResult(False, delay_level, reason, delay_ms)


def check_listener(listener: Listener) -> Listener:
    """The listener itself.  Raises InvalidValue if calling it could not run its code."""
    called = _called(listener)
    if any(map(_runs_later, (called, type(called).__call__))):
        raise InvalidValue("listener", name_of(listener), LISTENER_RULE)
    return listener


def check_async_listener(listener: AsyncListener) -> AsyncListener:
    """The listener itself.  Raises InvalidValue if calling it makes no coroutine."""
    called = _called(listener)
    if not any(map(inspect.iscoroutinefunction, (called, type(called).__call__))):
        raise InvalidValue("listener", name_of(listener), ASYNC_LISTENER_RULE)
    return listener


def traced(listener: Listener, spans: Spans) -> Listener:
    """The listener with a span around each call."""

    def run(message: StoredMessage) -> ConsumeResult:
        with spans.processing(message) as failed:
            result = result_of(listener(message), listener)
            if not result.is_success:
                failed(result.reason)
            return result

    run.__qualname__ = name_of(listener)
    return run


def traced_async(listener: AsyncListener, spans: Spans) -> AsyncListener:
    """The same for a listener that is awaited."""

    async def run(message: StoredMessage) -> ConsumeResult:
        with spans.processing(message) as failed:
            result = result_of(await listener(message), listener)
            if not result.is_success:
                failed(result.reason)
            return result

    run.__qualname__ = name_of(listener)
    return run


def on_this_thread(listener: Listener, spans: Spans | None = None) -> HandOver:
    """Consume each message where it was taken.  Raises the errors of check_listener()."""
    check_listener(listener)
    if spans is not None:
        listener = traced(listener, spans)

    def hand_over(message: StoredMessage, settle: Settle) -> None:
        settle(consume(listener, message))

    return hand_over


def consume(listener: Listener, message: StoredMessage) -> ConsumeResult:
    """Run the listener with the inflated body; always returns a result.

    The reason is cut to REASON_BYTES_MAX.  A body that cannot be inflated is a failure, too.
    """
    try:
        # Inflate here, not after the pull: a message that waits for a thread stays small.
        return result_of(listener(inflated(message)), listener)
    except BaseException as error:
        # SystemExit, KeyboardInterrupt and CancelledError, too: here they end no program, only
        # this thread, and its message would be neither consumed nor failed.
        return failure_of(listener, message, error)


def failure_of(listener: object, message: StoredMessage, error: BaseException) -> ConsumeResult:
    """The result of a listener that raised this error, which is logged unless it is a result."""
    if isinstance(error, RetryLater):
        return error.result
    log.error(
        "a message was not consumed listener=%s topic=%s message_id=%s",
        name_of(listener),
        message.topic,
        message.message_id,
        exc_info=error,
    )
    return reconsume_later(reason=reason_text(error))


def result_of(returned: object, listener: object) -> ConsumeResult:
    """The result that a listener returned.  Raises TypeError for any other value."""
    if returned is None:
        return CONSUME_SUCCESS
    if not isinstance(returned, ConsumeResult):
        if isinstance(returned, Coroutine):
            returned.close()  # else Python warns later, far from here, that nobody awaited it
        raise TypeError(
            f"listener {name_of(listener)} must return None, CONSUME_SUCCESS or"
            f" reconsume_later(...), not a {type(returned).__name__}"
        )
    if returned.is_success:
        return returned
    return replace(returned, reason=reason_text(returned.reason))


def _runs_later(function: object) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
    )


def _called(listener: object) -> object:
    """What a partial calls in the end.  Raises InvalidValue if that is no function."""
    while isinstance(listener, partial):
        listener = listener.func
    if not callable(listener):
        raise must_be_type("listener", "a function that takes a message", listener)
    return listener


def name_of(listener: object) -> str:
    while isinstance(listener, partial):
        listener = listener.func
    return str(getattr(listener, "__qualname__", type(listener).__qualname__))


def reason_text(reason: str | BaseException) -> str:
    """At most REASON_BYTES_MAX bytes, without characters that UTF-8 cannot encode."""
    if isinstance(reason, BaseException):
        name, text = type(reason).__name__, text_of_error(reason)
        reason = name if text is None else f"{name}: {text}"
    return encodable(reason).encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")


class SendBacks:
    """max_reconsume_times: None means the group's."""

    def __init__(
        self,
        group: str,
        max_reconsume_times: int | None,
        link: BrokerLink,
        loop: Loop,
        backlog: Backlog,
    ) -> None:
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._link = link
        self._loop = loop
        self._backlog = backlog
        self._closing = False

    def close(self) -> None:
        """From now on make only one attempt for each message."""
        self._closing = True

    def send(
        self, queue: ProcessQueue, message: StoredMessage, result: ConsumeResult, failures: int = 0
    ) -> None:
        """Send a failed message back, again and again until the broker takes it.

        A message of a lost queue is not sent back: its next reader gets the message anyway, and a
        second send-back would begin a second chain of retries.
        """
        if queue.is_lost:
            self._backlog.abandon(queue)
            return

        def on_outcome(outcome: SendBackResult | RmqliteError) -> None:
            if isinstance(outcome, MessageNotFound):
                log.warning(
                    "a failed message is gone from the broker, going on topic=%s queue_id=%d "
                    "queue_offset=%d",
                    queue.queue.topic,
                    queue.queue.queue_id,
                    message.queue_offset,
                )
            elif isinstance(outcome, InvalidValue) and result.delay_ms:
                # For example, longer than the broker's timers wait.  It will not be another time.
                log.warning("a message comes again by its group's policy: %s", outcome)
                self.send(queue, message, replace(result, delay_ms=0), failures)
                return
            elif isinstance(outcome, RmqliteError):
                self._failed(queue, message, result, failures, outcome)
                return
            self._backlog.finish(queue, message)

        request = SendBackRequest(
            self._group,
            message.physical_offset,
            result.delay_level,
            result.reason,
            self._max_reconsume_times,
            result.delay_ms,
        )
        self._link.ask(rpcs.SEND_BACK, request, ANSWER_S_MAX, on_outcome)

    def _failed(
        self,
        queue: ProcessQueue,
        message: StoredMessage,
        result: ConsumeResult,
        failures: int,
        error: RmqliteError,
    ) -> None:
        if failures == 0:
            log.warning(
                "a failed message could not be sent back topic=%s message_id=%s: %s",
                queue.queue.topic,
                message.message_id,
                error,
            )
        if queue.is_lost or self._closing:
            self._backlog.abandon(queue)
            return
        again = partial(self.send, queue, message, result, failures + 1)
        self._loop.later(retry_pause_s(failures), again)

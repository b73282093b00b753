"""The user's listener and its results.

A listener that returns nothing succeeds, as a task does in other Python libraries.  One that raises
anything at all, or returns another value than a result, fails its message: again later, with a
reason that describes what happened.  The listener's thread survives all of it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from rmqlite.kernel.words.compression import inflated
from rmqlite.kernel.words.errors import InvalidValue, must_be_type
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.visible import encodable, text_of_error

if TYPE_CHECKING:
    from rmqlite.client.spans import Spans

REASON_BYTES_MAX: Final = 1024
DEAD_LETTER: Final = -1
"""As a delay_level: no retry, to the dead letters at once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """A listener's result for one message.

    The other fields are for a failure.  delay_level: when to try again; 0 means by the group's
    retry policy, DEAD_LETTER means never.  reason: stored with the message, up to REASON_BYTES_MAX
    bytes of it.
    """

    is_success: bool
    delay_level: int = 0
    reason: str = ""

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


def reconsume_later(*, delay_level: int = 0, reason: str = "") -> ConsumeResult:
    """RECONSUME_LATER with its own delay level, or with a reason."""
    return ConsumeResult(False, delay_level, reason)


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
    """The result of a listener that raised this error, which is logged."""
    log.error(
        "a message was not consumed listener=%s topic=%s message_id=%s",
        name_of(listener),
        message.topic,
        message.message_id,
        exc_info=error,
    )
    return reconsume_later(reason=_cut(_described(error)))


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
    return reconsume_later(delay_level=returned.delay_level, reason=_cut(returned.reason))


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


def _described(error: BaseException) -> str:
    text = text_of_error(error)
    return type(error).__name__ if text is None else f"{type(error).__name__}: {text}"


def _cut(reason: str) -> str:
    """At most REASON_BYTES_MAX bytes, without characters that UTF-8 cannot encode."""
    return encodable(reason).encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")

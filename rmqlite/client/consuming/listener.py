"""The user's listener and its results.

Only a success finishes a message.  Anything else that a listener does (it raises, forgets to
return, returns nonsense) means: again later, with a reason that describes what happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rmqlite.compression import inflated
from rmqlite.errors import InvalidValue
from rmqlite.message import StoredMessage

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
        if not isinstance(self.delay_level, int) or not -(2**31) <= self.delay_level < 2**31:
            raise InvalidValue("delay_level", self.delay_level, "a 32-bit integer")
        if not isinstance(self.reason, str):
            raise InvalidValue("reason", type(self.reason).__name__, "text")


CONSUME_SUCCESS: Final = ConsumeResult(True)
RECONSUME_LATER: Final = ConsumeResult(False)

Listener: TypeAlias = Callable[[StoredMessage], ConsumeResult | None]
"""Runs on one of the consumer's threads, several at a time.  None counts as RECONSUME_LATER."""


def reconsume_later(*, delay_level: int = 0, reason: str = "") -> ConsumeResult:
    """RECONSUME_LATER with its own delay level, or with a reason."""
    return ConsumeResult(False, delay_level, reason)


def consume(listener: Listener, message: StoredMessage) -> ConsumeResult:
    """Run the listener with the inflated body; always returns a result.

    The reason is cut to REASON_BYTES_MAX.  A body that cannot be inflated is a failure, too.
    """
    result: object
    try:
        # Inflate here, not after the pull: a message that waits for a thread stays small.
        result = listener(inflated(message))
    except Exception as error:
        log.exception(
            "a message was not consumed topic=%s message_id=%s", message.topic, message.message_id
        )
        return reconsume_later(reason=_cut(_described(error)))
    if not isinstance(result, ConsumeResult):
        what = "nothing" if result is None else f"a {type(result).__name__}"
        reason = f"the listener returned {what}, not CONSUME_SUCCESS or RECONSUME_LATER"
        return reconsume_later(reason=reason)
    if result.is_success:
        return result
    return reconsume_later(delay_level=result.delay_level, reason=_cut(result.reason))


def _described(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the user's __str__ is the user's code too
        return type(error).__name__


def _cut(reason: str) -> str:
    """At most REASON_BYTES_MAX bytes, without characters that UTF-8 cannot encode."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")

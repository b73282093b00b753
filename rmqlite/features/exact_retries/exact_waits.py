"""How long exactly a failed message waits: as its consumer says, or its group's policy.

Such a retry is a timer, which the kernel stores, delivers, lists and changes like any other.
Jitter makes a wait shorter, by a part of it that follows from the message id and the attempt: so
messages that failed together come again one by one, and a test can say when.
"""

from __future__ import annotations

from hashlib import sha256

from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.retry import place_properties
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import ORIGIN_MESSAGE_ID, UNIQ_KEY
from rmqlite.kernel.words.retry_policy import RetryPolicy


def exact_ms(policy: RetryPolicy, failed_before: int, message_id: str) -> int | None:
    """How long this message waits after one more failure; None: at a level.

    Of the jitter it gets the part that the first four bytes of the SHA-256 of "ID ATTEMPT" are of
    2**32.  ATTEMPT: the one that it waits for; the first delivery is 1.
    """
    delay_ms = policy.delay_ms(failed_before)
    if delay_ms is None or not policy.jitter:
        return delay_ms if policy.is_exact else None
    hashed = sha256(f"{message_id} {max(0, failed_before) + 2}".encode()).digest()
    return delay_ms - delay_ms * policy.jitter * int.from_bytes(hashed[:4]) // (100 << 32)


class ExactWaits:
    """Finds the wait of each retry that is to be exact."""

    def __init__(self, parts: BrokerParts) -> None:
        self._groups = parts.groups
        self._timers = parts.timers

    def wait_ms(self, failed: Record, request: SendBackRequest, failed_before: int) -> int | None:
        """None: it waits at a level.  Raises InvalidValue, and Overloaded while timers are full."""
        if asked_ms := request.delay_ms:
            if asked_ms < 0 or request.delay_level:
                raise InvalidValue("delay_ms", asked_ms, "above 0, and without a delay_level")
            self._timers.check("delay_ms", asked_ms, asked_ms)
            return asked_ms
        policy = self._groups.policy(request.group)
        if request.delay_level or not policy.is_exact:
            return None
        self._timers.check_room()
        return exact_ms(policy, failed_before, _message_id(failed))


def _message_id(failed: Record) -> str:
    """The producer's id; of a message without one the offset message id of its first record."""
    own = failed.properties
    first = own.text(ORIGIN_MESSAGE_ID) or place_properties(failed.head)[ORIGIN_MESSAGE_ID]
    return own.text(UNIQ_KEY) or first

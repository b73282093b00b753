"""Receive and settle: what a SimpleConsumer asks.  Times are milliseconds."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import NoneType
from typing import Final

from rmqlite.features.rows import SMALL_REQUEST_BYTES_MAX, Row
from rmqlite.kernel.requests.groups import LeaveRequest, Subscription

RECEIVE_BYTES_MAX: Final = 16 << 10
"""The length of a request to receive: it is kept while the call waits."""
RECEIVE_TOPICS_MAX: Final = 32
SETTLEMENTS_MAX: Final = 256
"""So many messages are settled by one call."""
HANDLE_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class SubscribedReceive:
    """Lease messages of any of a member's subscriptions to it; see ReceiveRequest."""

    group: str
    client_id: str
    subscriptions: tuple[Subscription, ...]
    max_messages: int
    invisible_ms: int
    wait_ms: int = 0
    attempt_id: str = ""


@dataclass(frozen=True, slots=True)
class LeasedRecords:
    """Messages of one topic; records: one behind the other, as they lie in the log.

    handles, attempts: of each record, in their order.
    """

    topic: str
    records: bytes
    handles: tuple[str, ...]
    attempts: tuple[int, ...]


class Outcome(enum.IntEnum):
    """What a consumer says of a message that is leased to it."""

    ACK = 0
    """It is done."""
    HOLD = 1
    """It takes longer: it is invisible for a while from now on."""
    FAIL = 2
    """It comes again, or is a dead letter after too many times."""
    GIVE_BACK = 3
    """It is visible again at once, and has not failed."""
    BURY = 4
    """It is a dead letter now."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """delay_ms: of HOLD; of FAIL, None: as the group's retry policy says."""

    topic: str
    handle: str
    outcome: Outcome
    delay_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SettleRequest:
    group: str
    settlements: tuple[Settlement, ...]


RECEIVE: Final = Row(
    "Messaging",
    "Receive",
    SubscribedReceive,
    LeasedRecords,
    bytes_max=RECEIVE_BYTES_MAX,
    may_park=True,
    looks=True,
)
SETTLE: Final = Row(
    "Messaging",
    "Settle",
    SettleRequest,
    tuple[str, ...],
    bytes_max=4 * SMALL_REQUEST_BYTES_MAX,
    is_short=True,
)
RELEASE: Final = Row("Messaging", "Release", LeaveRequest, NoneType, is_short=True)

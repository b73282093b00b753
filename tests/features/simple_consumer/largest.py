"""The largest requests of calls that receive and settle."""

from __future__ import annotations

from typing import Final

from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    RELEASE,
    SETTLE,
    SETTLEMENTS_MAX,
    Outcome,
    Settlement,
    SettleRequest,
    SubscribedReceive,
)
from rmqlite.kernel.requests.groups import LeaveRequest, Subscription
from tests.support.largest_calls import TEXT, Requests

FOREIGN: Final = "A" * 44
LARGEST: Final[Requests] = {
    RECEIVE: lambda _: SubscribedReceive(
        "one-by-one", "client", (Subscription("orders"),), 32, 60_000, attempt_id=TEXT[:64]
    ),
    SETTLE: lambda _: SettleRequest(
        "one-by-one",
        (Settlement("orders", FOREIGN, Outcome.FAIL, reason="r" * 1_000),) * SETTLEMENTS_MAX,
    ),
    RELEASE: lambda _: LeaveRequest("one-by-one", "client"),
}

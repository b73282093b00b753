"""The largest requests of calls about two copies; a broker without a standby refuses both."""

from __future__ import annotations

from typing import Final

from rmqlite.features.standby.requests import PROMOTE, SWITCH, PromoteRequest
from tests.support.largest_calls import Requests

LARGEST: Final[Requests] = {
    PROMOTE: lambda _: PromoteRequest(force=True),
    SWITCH: lambda _: None,
}

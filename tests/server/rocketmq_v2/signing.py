"""Metadata that signs a call."""

from __future__ import annotations

from time import gmtime, strftime

from rmqlite.kernel.words.clock import wall_ms
from rmqlite.protocols.rocketmq_v2.calls import AUTHORIZATION, DATE_TIME
from tests.support.accounts import SECRET
from tests.support.calls import Sent
from tests.support.rocketmq_v2 import header_of


def date_text(at_ms: int) -> str:
    return strftime("%Y%m%dT%H%M%SZ", gmtime(at_ms / 1_000))


def signed(key: str, secret: str = SECRET, *, at_ms: int | None = None) -> Sent:
    """at_ms: None: now."""
    date = date_text(wall_ms() if at_ms is None else at_ms)
    return ((DATE_TIME, date), (AUTHORIZATION, header_of(key, secret, date)))

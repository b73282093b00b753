"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.expiry.expiry import Expiry
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    expiry = Expiry(broker.parts, broker.failing)
    broker.parts.filters.left = expiry.left
    broker.drafts.plain.check = expiry.check_expiring
    yield expiry


FEATURE: Final = Feature(make=_make)

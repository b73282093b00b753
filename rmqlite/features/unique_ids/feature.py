"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.unique_ids.storing import StoringOnce
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    made = StoringOnce(broker)
    broker.drafts.once = made.stored
    yield made


FEATURE: Final = Feature(make=_make)

"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.exact_retries.exact_waits import ExactWaits
from rmqlite.features.native import NativeFeature
from rmqlite.kernel.broker import Broker


def _make(broker: Broker) -> Iterable[object]:
    waits = ExactWaits(broker.parts)
    broker.failing.exact_ms = waits.wait_ms
    yield waits


FEATURE: Final = NativeFeature(make=_make, answers={})

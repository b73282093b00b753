"""What the feature adds to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from rmqlite.features.figures.service import FigureCalls
from rmqlite.features.figures.traffic import SAMPLE_S, Traffic
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service
from rmqlite.kernel.service.turns import done_in_turns


def _make(broker: Broker) -> Iterable[object]:
    yield Traffic(broker.parts)


async def _sample(traffic: Traffic) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        await done_in_turns(traffic.sample())


def _loops(parts: ServiceParts, _: Service) -> Loops:
    return {"traffic": _sample(parts.broker[Traffic])}


FEATURE: Final = Feature(make=_make, calls=(FigureCalls,), loops=_loops)

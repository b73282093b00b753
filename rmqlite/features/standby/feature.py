"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.native import NativeFeature
from rmqlite.features.standby.following import Following
from rmqlite.features.standby.leading import Leading
from rmqlite.features.standby.requests import PROMOTE, SWITCH
from rmqlite.features.standby.service import StandbyCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Loops, Service
from rmqlite.protocols.native.replication import FOLLOW


def _make(broker: Broker) -> Iterable[object]:
    yield Following(broker) if broker.store.is_copy else Leading(broker)


def _loops(parts: ServiceParts, service: Service) -> Loops:
    following, leading = parts.broker.get(Following), parts.broker.get(Leading)
    if following is not None:
        following.attach(parts, service)
        return {"standby": following.run()}
    assert leading is not None
    leading.attach(parts, service)
    return {"standby": leading.watch()}


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(StandbyCalls,),
    loops=_loops,
    answers={
        PROMOTE: lambda service: service[StandbyCalls].promote,
        SWITCH: lambda service: service[StandbyCalls].switch,
    },
    streams={FOLLOW: lambda service: service[StandbyCalls].follow},
)

"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.ha.port import HaPort
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    if broker.parts.config.ha_listen_port and not broker.store.is_copy:
        yield HaPort(broker)


def _loops(parts: ServiceParts, service: Service) -> Loops:
    port = parts.broker.get(HaPort)
    if port is None:
        return {}
    others = service.replication
    service.replication = lambda: (*others(), *port.status())
    return {"slaves of RocketMQ": port.serve_slaves()}


FEATURE: Final = Feature(make=_make, loops=_loops)

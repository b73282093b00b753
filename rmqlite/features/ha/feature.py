"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.ha.port import HaPort
from rmqlite.features.ha.rocketmq_master import RocketMQMaster
from rmqlite.features.standby.following import Following
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    config, following = broker.parts.config, broker.get(Following)
    if following is not None:
        if config.ha_master_address:
            yield RocketMQMaster(broker, following)
    elif config.ha_listen_port:
        yield HaPort(broker)


def _loops(parts: ServiceParts, service: Service) -> Loops:
    port = parts.broker.get(HaPort)
    if port is None:
        return {}
    others = service.replication
    service.replication = lambda: (*others(), *port.status())
    return {"slaves of RocketMQ": port.serve_slaves()}


FEATURE: Final = Feature(make=_make, loops=_loops)

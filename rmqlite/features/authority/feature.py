"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from rmqlite.features.authority.deciding import Deciding, own_log
from rmqlite.features.authority.settings import register_of
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    config = broker.parts.config
    if config.authority:
        log = partial(own_log, broker.store)
        yield Deciding(config, broker.parts.clock, register_of(config), log)


def _loops(parts: ServiceParts, _service: Service) -> Loops:
    deciding = parts.broker.get(Deciding)
    if deciding is None:
        return {}
    deciding.attach(parts)
    return {"authority": deciding.run_deciding(parts)}


FEATURE: Final = Feature(make=_make, loops=_loops)
"""Asks the authority while `authority` is set."""

"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.authority.deciding import Deciding
from rmqlite.features.authority.settings import register_of
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    if broker.parts.config.authority:
        yield Deciding(broker, register_of(broker.parts.config))


def _loops(parts: ServiceParts, _service: Service) -> Loops:
    deciding = parts.broker.get(Deciding)
    return {"authority": deciding.run(parts)} if deciding else {}


FEATURE: Final = Feature(make=_make, loops=_loops)
"""Asks the authority while `authority` is set."""

"""What a feature adds to a broker; rmqlite/features/every.py is the list of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.service import Service

Loops = Mapping[str, Coroutine[Any, Any, None]]
"""What runs beside the calls, by name; one that fails ends the broker."""


def _makes_nothing(_: Broker) -> Iterable[object]:
    return ()


def _runs_nothing(_: ServiceParts, __: Service) -> Loops:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """make: its parts of the broker, which are found again by their type; they are made in the
    order of the list, and attach themselves to the kernel's.  calls: its parts of the service.
    loops: made when all parts are.
    """

    make: Callable[[Broker], Iterable[object]] = _makes_nothing
    calls: tuple[type[Part], ...] = ()
    loops: Callable[[ServiceParts, Service], Loops] = _runs_nothing

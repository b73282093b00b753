"""The list of features: each is a folder of this name and a line here.

A feature is deleted with its folder and its line; those that need it go, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rmqlite.kernel.service.service import Feature

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sql": (),
    "finding": (),
    "transactions": (),
    "leases": (),
    "request_modes": ("leases",),
    "exact_retries": (),
    "expiry": (),
    "simple_consumer": ("leases",),
    "raw_log": (),
    "name_server": (),
    "figures": (),
    "archive": (),
    "bulk": (),
    "changes": ("finding",),
    "unique_ids": (),
    "operating": ("figures", "leases"),
    "dead_letters": ("finding", "changes"),
    "redrive": ("finding", "dead_letters"),
    "rate_limits": ("leases",),
    "queue_locks": (),
    # On a standby it takes the place of what others have made.
    "standby": (),
    "authority": ("standby", "archive"),
    # request_modes: the codecs of RocketMQ's protocol name them.
    "ha": ("standby", "request_modes"),
}
"""By name, the features whose parts it takes; each stands behind those that it needs."""


@cache
def features() -> tuple[Feature, ...]:
    """All features in this order, without those that need one that is not there."""
    found: dict[str, Feature] = {}
    for name, needs in NEEDS.items():
        if found.keys() >= {*needs}:
            found[name] = import_module(f"rmqlite.features.{name}.feature").FEATURE
    return tuple(found.values())


def table_shapes() -> dict[str, tuple[str, type[Any]]]:
    """By file name, what the tables of all features are about, and their shapes."""
    found: dict[str, tuple[str, type[Any]]] = {}
    for name in NEEDS:
        if find_spec(module := f"rmqlite.features.{name}.table_shapes"):
            found |= import_module(module).SHAPES
    return found

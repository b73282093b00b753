"""The list of features: each is a folder of this name and a line here.

A feature is deleted with its folder and its line; those that need it go, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from rmqlite.kernel.service.feature import Feature

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sql": (),
    "finding": (),
    "transactions": (),
    "leases": (),
    "raw_log": (),
    "name_server": (),
    "figures": (),
    "archive": (),
    "changes": ("finding",),
    "bulk": ("finding",),
    "operating": ("figures", "changes", "leases"),
    "dead_letters": ("finding", "changes"),
    "redrive": ("finding", "bulk", "dead_letters"),
}
"""By name, the features whose parts it takes; each stands behind those that it needs."""


@cache
def features(without: Collection[str] = ()) -> tuple[Feature, ...]:
    """All features in this order, without some and those that need them."""
    found: dict[str, Feature] = {}
    for name, needs in NEEDS.items():
        if name not in without and found.keys() >= {*needs}:
            found[name] = import_module(f"rmqlite.features.{name}.feature").FEATURE
    return tuple(found.values())

"""How large the product may be: one line for each package, so that "smaller" is tested, too.

A change may lower a number.  Whoever raises one adds a comment to its line: for which feature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.architecture.sources import ROOT, written

PRODUCT: Final = ROOT / "rmqlite"
BASE: Final = "base"
BASE_FOLDERS: Final = ("access", "config_keys", "declared_types", "requests")
"""They belong to the base layer, with the modules beside them."""


class Size(NamedTuple):
    """Lines of Python or C, and modules, that people wrote."""

    lines: int
    modules: int


SIZES: Final = {
    BASE: Size(
        7_044, 41
    ),  # topics and groups are deleted, offsets reset; traces, notes; Spark's times
    "records": Size(1_505, 12),  # the plain form of each function in C
    "store": Size(12_878, 70),  # the table of POP's modes is checked; backups
    "broker": Size(15_294, 85),  # leases, also those that are lost; POP's modes
    "wire": Size(6_220, 40),  # the gRPC clients of RocketMQ 5, and its POP; notes of changes
    "views": Size(1_644, 13),  # what commands, top and page computed each for itself
    "server": Size(15_238, 99),  # lag and members as metrics; notes; lost answers
    "client": Size(5_596, 41),  # asyncio, over the same clients; spans of OpenTelemetry
    "cli": Size(12_011, 78),  # --note; store backup; schemas; redrives, slo, costs
    "arrow": Size(2_259, 13),  # columns of redriven messages
    "spark": Size(4_966, 35),  # short runs, SQL; the same questions as functions and plots
    "compiled": Size(63, 1),
    "C": Size(2_164, 13),
}


def package_of(path: Path) -> str:
    first, *rest = path.relative_to(PRODUCT).parts
    return BASE if not rest or first in BASE_FOLDERS else first


def lines_in(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


@pytest.fixture(scope="module")
def found() -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for path in written("rmqlite"):
        lines, modules = sizes.get(package := package_of(path), Size(0, 0))
        sizes[package] = Size(lines + lines_in(path), modules + 1)
    c_files = [*PRODUCT.rglob("*.c"), *PRODUCT.rglob("*.h")]
    return sizes | {"C": Size(sum(map(lines_in, c_files)), len(c_files))}


def test_no_package_has_grown(found: dict[str, Size]) -> None:
    """Write the smaller number down when it has shrunk."""
    grown = [
        f"{package}: {size.lines} lines in {size.modules} modules, {SIZES.get(package)} are agreed"
        for package, size in sorted(found.items())
        if package not in SIZES
        or size.lines > SIZES[package].lines
        or size.modules > SIZES[package].modules
    ]
    assert not grown, "\n".join(grown)


def test_every_line_of_the_table_is_of_a_package(found: dict[str, Size]) -> None:
    """One that is gone has no room for others."""
    assert set(SIZES) == set(found)

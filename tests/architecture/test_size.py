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
BASE_FOLDERS: Final = ("access", "config_keys", "requests")
"""They belong to the base layer, with the modules beside them."""


class Size(NamedTuple):
    """Lines of Python or C, and modules, that people wrote."""

    lines: int
    modules: int


SIZES: Final = {
    BASE: Size(
        7_214, 41
    ),  # topics and groups are deleted, offsets reset; instants in seconds, errors that pickle
    "records": Size(1_817, 13),  # the plain form of each function in C; what a record leaves out
    "store": Size(13_444, 73),  # backups; the timer index is compared with its queue
    "broker": Size(16_203, 90),  # leases; progress of groups, claims, resets that leases follow
    "wire": Size(6_333, 40),  # the gRPC clients of RocketMQ 5, and its POP; settings are checked
    "views": Size(1_820, 13),  # what commands, top and page show; groups that hang
    "server": Size(16_584, 103),  # answers that nobody takes, ends without an error, short logs
    "client": Size(5_858, 41),  # asyncio; sends outlast a restart, mistakes get a sentence
    "cli": Size(12_291, 79),  # schemas; redrives, slo, costs; reasons; signals clean up
    "arrow": Size(2_411, 13),  # columns of redriven messages
    "spark": Size(5_416, 39),  # short runs, SQL; the same questions as functions and plots
    "compiled": Size(63, 1),
    "C": Size(2_431, 15),
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

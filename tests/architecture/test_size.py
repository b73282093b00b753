"""How large the product may be: one line for each package, so that "smaller" is tested, too.

A change may lower a number.  Whoever raises one adds a comment to its line: for which feature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.architecture.sources import ROOT, written

PRODUCT: Final = ROOT / "rmqlite"


class Size(NamedTuple):
    """Lines of Python or C, and modules, that people wrote."""

    lines: int
    modules: int


SIZES: Final = {
    "kernel": Size(22_488, 111),
    "features": Size(753, 8),
    "features.accounts": Size(1_046, 8),
    "features.archive": Size(1_023, 7),
    # Who is the master, decided by etcd or the archive.
    "features.authority": Size(768, 8),
    "features.bulk": Size(825, 7),
    "features.changes": Size(1_128, 7),
    "features.cluster": Size(652, 5),
    "features.dead_letters": Size(1_982, 12),
    "features.exact_retries": Size(79, 3),
    "features.expiry": Size(183, 3),
    "features.figures": Size(286, 5),
    "features.finding": Size(720, 7),
    "features.leases": Size(2_294, 11),
    "features.ha": Size(756, 7),
    "features.name_server": Size(184, 5),
    "features.operating": Size(993, 9),
    # From the kernel: only ordered consumers of RocketMQ 4 need them.
    "features.queue_locks": Size(120, 3),
    "features.rate_limits": Size(323, 5),
    "features.raw_log": Size(380, 5),
    # From leases, which need not know it.
    "features.request_modes": Size(254, 5),
    "features.redrive": Size(2_351, 11),
    "features.simple_consumer": Size(236, 3),  # SimpleConsumer
    "features.sql": Size(826, 6),
    "features.standby": Size(1_764, 12),
    "features.transactions": Size(759, 7),
    "features.unique_ids": Size(268, 3),
    "cli": Size(12_100, 59),
    # celery: addresses of IPv6.
    "celery": Size(769, 6),
    "client": Size(6_489, 28),
    # protocols: gRPC workers get TLS keys that change while they start, and run on uvloop.
    "protocols": Size(17_010, 86),
    # metrics.groups
    "rmqlite": Size(192, 4),
    "spark": Size(7_797, 41),
    "store_tools": Size(7_311, 33),
    "testing": Size(577, 4),
    "views": Size(2_064, 9),
    "web": Size(2_451, 11),
    "C": Size(2_530, 15),
}


def package_of(path: Path) -> str:
    """The kernel, a feature, or any other package."""
    first, *rest = path.relative_to(PRODUCT).parts
    if not rest:
        return "rmqlite"
    return f"features.{rest[0]}" if first == "features" and len(rest) > 1 else first


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

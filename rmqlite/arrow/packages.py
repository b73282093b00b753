"""Checks the packages of an extra: are they installed, in a version that works?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rmqlite.errors import ExtraMissing

Versions = tuple[tuple[int, ...], tuple[int, ...]]
"""The first version that works, and the first one that does not work any more."""
ARROW_PACKAGES: Final[dict[str, Versions]] = {
    "pyarrow": ((18,), (27,)),
    "numpy": ((2, 1), (3,)),
}


def check_packages(wanted: Mapping[str, Versions]) -> None:
    """Raises ExtraMissing unless these packages are installed, in a version that works."""
    for name, (low, high) in wanted.items():
        rule = f"{name} {_dotted(low)} or newer, below {_dotted(high)}"
        try:
            found = _version(name)
        except ImportError as error:
            raise ExtraMissing(rule, "none", _remedy(name)) from error
        number = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
        if not low <= number < high:
            raise ExtraMissing(rule, found, _remedy(name))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # It may come from Spark's own folder or from a zip, without pip's metadata.
        return str(import_module(package).__version__)


def check_arrow() -> None:
    """Can records be decoded into Arrow batches here?  Raises ExtraMissing."""
    check_packages(ARROW_PACKAGES)


def _remedy(package: str) -> str:
    extra = "arrow" if package in ARROW_PACKAGES else "spark"
    return f'pip install "rmqlite[{extra}]"'


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))

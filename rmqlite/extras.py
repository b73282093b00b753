"""Checks the packages of an extra: are they installed, in a version that works?"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rmqlite.kernel.words.errors import ExtraMissing

Versions = tuple[tuple[int, ...], tuple[int, ...]]
"""The first version that works, and the first one that does not work any more."""
_ARROW: Final[dict[str, Versions]] = {"pyarrow": ((18,), (27,)), "numpy": ((2, 1), (3,))}
EXTRAS: Final[dict[str, dict[str, Versions]]] = {
    "archive": {"obstore": ((0, 10), (1,))},
    "arrow": _ARROW,
    "celery": {"celery": ((5, 4), (5, 8))},
    "opentelemetry": {"opentelemetry-api": ((1, 27), (2,))},
    "plot": {"matplotlib": ((3, 9), (4,))},
    "spark": {"pyspark": ((4, 0), (5,)), **_ARROW},
    "tls": {"cryptography": ((45,), (60,))},
    "top": {"textual": ((6,), (9,))},
}


def check_extra(extra: str) -> None:
    """Raises ExtraMissing unless the packages of an extra are installed, in versions that work."""
    remedy = f'pip install "rmqlite[{extra}]"'
    for name, (low, high) in EXTRAS[extra].items():
        rule = f"{name} {_dotted(low)} or newer, below {_dotted(high)}"
        try:
            found = _version(name)
        except ImportError as error:
            raise ExtraMissing(rule, "none", remedy) from error
        number = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
        if not low <= number < high:
            raise ExtraMissing(rule, found, remedy)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # It may come from Spark's own folder or from a zip, without pip's metadata.
        return str(import_module(package).__version__)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))

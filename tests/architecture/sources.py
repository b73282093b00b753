"""The Python files of the project, for tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PB: Final = ROOT / "rmqlite" / "protocols" / "pb"


def written(*folders: str) -> Iterator[Path]:
    """Every Python file that a person wrote."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if PB not in path.parents and "__pycache__" not in path.parts:
                yield path


def is_test(path: Path) -> bool:
    return (ROOT / "tests") in path.parents


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))

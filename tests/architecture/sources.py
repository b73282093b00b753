"""The Python files of the project, for tests that read them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]
PB: Final = ROOT / "rmqlite" / "protocols" / "pb"
Node = TypeVar("Node", bound=ast.AST)


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
    # No search for garbage finds any in millions of nodes.
    gc.disable()
    try:
        return ast.parse(path.read_text("utf-8"))
    finally:
        gc.enable()


def nodes_of(path: Path, kind: type[Node]) -> list[Node]:
    """All nodes of a file that are of one class, in the order of ast.walk()."""
    found: list[Node] = _by_kind(path).get(kind, [])
    return found


@cache
def _by_kind(path: Path) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(tree_of(path)):
        found.setdefault(type(node), []).append(node)
    return found


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*nodes_of(path, ast.FunctionDef), *nodes_of(path, ast.AsyncFunctionDef)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))

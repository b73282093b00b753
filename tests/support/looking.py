"""What tests of read-only commands share: looking must leave everything as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from tests.support.documents_printed import check_document
from tests.support.stores import Content, contents


@contextmanager
def untouched(root: Path) -> Iterator[None]:
    """Not a byte, not a name, not a time may differ afterwards.

    Nobody else may write there meanwhile: a running broker needs long flush intervals.
    """
    before = _seen(root)
    yield
    after = _seen(root)
    assert sorted(name for name in before | after if before.get(name) != after.get(name)) == []


def _seen(root: Path) -> dict[str, tuple[Content | None, int]]:
    """Every name with its content and the time of its last change."""
    every: dict[str, Content | None] = {".": None, **contents(root)}
    return {name: (data, (root / name).stat().st_mtime_ns) for name, data in every.items()}


def run_store(*args: object, **env: str) -> Result:
    """Run `rmqlite store` on a terminal of 80 columns; there is no broker to ask."""
    words = ["store", *[str(arg) for arg in args]]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80", **env})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    check_document(words, result.stdout)
    return result

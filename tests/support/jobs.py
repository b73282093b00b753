"""What a job of the pipeline answers, as its JSON says it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from typer.testing import CliRunner

from rmqlite.cli.main import app


class HasPath(Protocol):
    path: Path


def answered(job: str, golden: HasPath, *words: object) -> Any:
    return pipeline(job, "--path", golden.path, *words)


def pipeline(job: str, *words: object) -> Any:
    """What a job says; it must end with exit code 0."""
    result = CliRunner().invoke(app, ["pipeline", job, "--json", *map(str, words)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def named(found: Sequence[dict[str, Any]], *names: str) -> dict[Any, int]:
    """The messages of each row by the values in these columns."""
    keys = [tuple(row[name] for name in names) for row in found]
    return {
        key[0] if len(key) == 1 else key: row["messages"]
        for key, row in zip(keys, found, strict=True)
    }

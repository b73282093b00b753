"""The ready file: all or nothing, and never an old broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.cli.broker import remove_ready_file, write_ready_file
from rmqlite.errors import StoreUnavailable


def test_a_ready_file_is_renamed_into_place(tmp_path: Path) -> None:
    """Whoever waits for the name to appear can read all of it at once."""
    ready = tmp_path / "ready"
    write_ready_file(ready, "127.0.0.1:1234")
    assert ready.read_text() == "127.0.0.1:1234\n"
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


def test_an_old_ready_file_is_removed_and_a_missing_one_is_fine(tmp_path: Path) -> None:
    """A killed broker leaves its file behind; it names an endpoint that nobody listens to."""
    ready = tmp_path / "ready"
    ready.write_text("old")
    remove_ready_file(ready)
    remove_ready_file(ready)
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A script would wait for it for ever."""
    with pytest.raises(StoreUnavailable, match="cannot write"):
        write_ready_file(tmp_path / "missing" / "ready", "x")

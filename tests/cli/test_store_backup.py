"""rmqlite store backup: what it prints; what it copies is tested with the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.golden import unpack_golden
from tests.support.looking import run_store, untouched


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with 4.9's layout that rmqlite has had open since."""
    return unpack_golden(tmp_path) / "clean"


def test_a_person_reads_what_was_copied_and_checked(root: Path, tmp_path: Path) -> None:
    """And the copy is a store that is sound."""
    with untouched(root):
        result = run_store("backup", tmp_path / "copy", root)
    assert result.exit_code == 0
    copied, checked = result.stdout.splitlines()
    assert copied.startswith("backed up ")
    assert copied.endswith(f", to {tmp_path / 'copy'}")
    assert checked.startswith("it was checked: no inconsistency, up to physical offset ")
    assert run_store("check", tmp_path / "copy").exit_code == 0


def test_a_program_gets_the_same(root: Path, tmp_path: Path) -> None:
    """With the offsets of the log that the copy has."""
    tree = json.loads(run_store("backup", tmp_path / "copy", root, "--json").stdout)
    checked = json.loads(run_store("check", tmp_path / "copy", "--json").stdout)
    assert (tree["store"], tree["backup"]) == (str(root), str(tmp_path / "copy"))
    same = ("log_begin", "log_end", "messages")
    assert [tree[each] for each in same] == [checked[each] for each in same]


def test_an_unsound_copy_is_no_backup(root: Path, tmp_path: Path) -> None:
    """The findings are said, and where to look; nothing is left."""
    (root / "config" / "topics.json").write_text('{"topicConfigTable": 5}')
    result = run_store("backup", tmp_path / "copy", root)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "config/topics.json" in result.stderr
    assert f"no backup was made, see: rmqlite store check {root}" in result.stderr
    assert not list(tmp_path.glob("copy*"))


def test_an_existing_name_is_refused(root: Path, tmp_path: Path) -> None:
    """So no backup overwrites another."""
    result = run_store("backup", tmp_path, root)
    assert result.exit_code != 0
    assert f"DIR must be a new name, and {tmp_path} exists" in result.stderr

"""Any moment of the log can be restored, and what was promised by then holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqlite.features.archive.restoring import Until, moments_at
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import InvalidValue, StoreUnavailable
from tests.support.archives import Archived, head_of, log_of, restored
from tests.support.looking import run_store


def ends_of(archived: Archived) -> dict[int, int]:
    """Where each record ends -> when it was stored."""
    walk = archived.under_test.store.walk(0)
    return {each.end: each.head.store_timestamp_ms for each in walk}


def filled(archived: Archived) -> dict[int, int]:
    """Records over several log files, some of which share a moment; the first one is empty."""
    archived.attempt()
    for size in (10, 300_000, 20, 400_000, 400_000, 30, 400_000, 500_000, 40):
        archived.send("a" * size)
        archived.under_test.clock.forward(7)
        archived.send("b" * size)
        if size > 30:
            archived.attempt()
    archived.attempt()
    return ends_of(archived)


def test_the_log_can_end_behind_each_record(archived: Archived, tmp_path: Path) -> None:
    """Never inside of one: a physical offset and a time, with moments and without."""
    ends = filled(archived)
    original = archived.log
    for number, (end, stored_ms) in enumerate(ends.items()):
        by_offset, by_time = tmp_path / f"{number}", tmp_path / f"{number}t"
        assert restored(archived.url, by_offset, Until(physical_offset=end + 5)) == end
        last = max(e for e, at_ms in ends.items() if at_ms <= stored_ms)
        assert restored(archived.url, by_time, Until(time_ms=stored_ms + 1)) == last
        for path, upto in ((by_offset, end), (by_time, last)):
            found = log_of(path)
            assert found[:upto] == original[:upto]


def test_a_moment_before_the_archive_is_refused(archived: Archived, tmp_path: Path) -> None:
    """Nothing is made then."""
    archived.send("a")
    archived.attempt()
    with pytest.raises(InvalidValue, match="--list"):
        restored(archived.url, tmp_path / "copy", Until(time_ms=5))
    assert not list(tmp_path.glob("copy*"))


def test_a_disk_without_room_is_said_before_the_download(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left there."""
    archived.send("a" * 100_000)
    archived.attempt()
    monkeypatch.setattr(SystemFiles, "disk_bytes", lambda *_: (1_000_000, 5))
    with pytest.raises(StoreUnavailable, match="and 5 are free"):
        restored(archived.url, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_a_person_reads_what_was_restored(archived: Archived, tmp_path: Path) -> None:
    """What was left out, what comes again; the second restore finds the folder taken."""
    ends = [*filled(archived)]
    url, copy = archived.url, tmp_path / "copy"
    result = run_store("restore", url, copy, "--until", ends[-3])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3), result.stderr
    assert "messages" in result.stdout
    assert f"up to physical offset {ends[-3]:,}" in result.stdout
    assert "left out, because it is newer: " in result.stdout
    assert run_store("check", copy).exit_code == 0
    assert "DIR must be a new name" in run_store("restore", url, copy).stderr
    tree = json.loads(run_store("restore", url, tmp_path / "all", "--json").stdout)
    assert (tree["log_end"], tree["left_out_bytes"]) == (ends[-1], 0)


def test_moments_are_listed(archived: Archived) -> None:
    """To choose one; the JSON has the same."""
    filled(archived)
    moments = moments_at(archived.url)
    lines = run_store("restore", archived.url, "--list").stdout.splitlines()
    assert len(lines) == len(moments) + 1
    tree = json.loads(run_store("restore", archived.url, "--list", "--json").stdout)
    assert [(each["physical_offset"], each["at_ms"]) for each in tree] == [m[1:] for m in moments]


def test_a_trial_leaves_nothing_and_says_how_old_the_archive_is(
    archived: Archived, tmp_path: Path
) -> None:
    """For cron: exit code 1 if it is too old.  The clock of this broker stands in 2023."""
    archived.send("a")
    archived.attempt()
    before = sorted(tmp_path.iterdir())
    result = run_store("restore", archived.url, "--check", "--max-age", "1h")
    assert result.exit_code == 1
    assert "this was a trial" in result.stdout
    assert "the archive is older than 1h" in result.stderr
    assert run_store("restore", archived.url, tmp_path / "x", "--check").exit_code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_head_is_named(archived: Archived, tmp_path: Path) -> None:
    """Nobody guesses the history."""
    archived.send("a")
    archived.attempt()
    assert head_of(archived.url).end == archived.end
    (tmp_path / "archive" / "head").write_text("{}")
    result = run_store("restore", archived.url, tmp_path / "copy")
    assert result.exit_code != 0
    assert "archive/head" in result.stderr

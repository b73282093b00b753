"""A log that must be walked to its end is walked once, not by every plan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqlite.arrow.planning import Look, look_at_store
from rmqlite.spark import kept_looks
from rmqlite.spark.kept_looks import kept_look
from tests.support.looking import untouched
from tests.support.stores import StoreUnderTest


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreUnderTest:
    """A store without the table that says where its log ends."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_looks, "WALKED_BYTES_MIN", 1)
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.close()
    for table in (store.root / "config").glob("storeProgress.json*"):
        table.unlink()
    return store


def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that are looked at from now on."""
    seen: list[str] = []

    def looked(path: str, *, allow_loss: bool) -> Look:
        seen.append(path)
        return look_at_store(path, allow_loss=allow_loss)

    monkeypatch.setattr(kept_looks, "look_at_store", looked)
    return seen


def test_a_walk_is_kept_as_long_as_the_store_is_the_same(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan walked the whole log: 6 s of CPU for a million records."""
    seen, path = walks(monkeypatch), str(store.root)
    with untouched(store.root):
        first = kept_look(path)
        assert kept_look(path) == first == look_at_store(path)
    assert len(seen) == 1
    store.open()
    store.send("one more")
    store.sync()
    later = kept_look(path)
    assert later.place.end > first.place.end
    store.close()


def test_a_record_that_came_without_a_new_time_is_seen(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ writes through memory, and the system may set a file's time later."""
    seen, path = walks(monkeypatch), str(store.root)
    found = kept_look(path)
    log = store.log_files()[-1]
    times = os.stat(log)
    data = bytearray(log.read_bytes())
    at = found.place.end % found.place.log_file_bytes
    data[at : at + 8] = b"\0\0\1\0\xda\xa3\x20\xa7"
    with open(log, "r+b") as file:
        file.write(data)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    kept_look(path)
    assert len(seen) == 2


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"state": "other"}'])
def test_a_broken_file_of_looks_counts_for_nothing(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bytes
) -> None:
    """A disk that was full, or another version."""
    path = str(store.root)
    found = kept_look(path)
    (file,) = (tmp_path / "cache" / "rmqlite").iterdir()
    file.write_bytes(kept)
    assert kept_look(path) == found
    seen = walks(monkeypatch)
    assert kept_look(path) == found
    assert not seen


def test_a_look_without_a_walk_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of a broker that was stopped says it sooner than a file of ours."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.close()
    kept_look(str(store.root))
    assert not (tmp_path / "cache").exists()

"""What opening, persisting and retention cost does not grow with queues that nobody uses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqlite.kernel.store import message_store
from rmqlite.kernel.words.errors import MessageTooLarge
from tests.support.files import QuickFiles
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, new_record

QUEUES = 12


class Counted(QuickFiles):
    """Says below consumequeue/ which files and folders were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync(self, path: Path) -> None:
        self._note(path)

    def cut(self, path: Path, position: int, end: int | None = None) -> None:
        super().cut(path, position, end)
        self._note(path)

    def sync_folder(self, folder: Path) -> None:
        self._note(folder)

    def taken(self) -> list[str]:
        """What was synced since the last call, each once, by its path below consumequeue/."""
        synced, self.synced = self.synced, []
        return sorted(set(synced))

    def _note(self, path: Path) -> None:
        parts = path.parts
        if "consumequeue" in parts:
            self.synced.append("/".join(parts[parts.index("consumequeue") + 1 :]))


@pytest.fixture
def files() -> Counted:
    return Counted()


@pytest.fixture
def each(tmp_path: Path, files: Counted) -> StoreUnderTest:
    """A store with a message in each of twelve queues, persisted."""
    under_test = StoreUnderTest(tmp_path / "store", files=files)
    under_test.append(*(new_record(f"{n}", f"topic{n}") for n in range(QUEUES)))
    under_test.persist()
    files.taken()
    return under_test


def test_opening_after_a_clean_stop_syncs_no_queue(each: StoreUnderTest, files: Counted) -> None:
    """With 5,000 queues it took half a minute on a busy disk."""
    each.close()
    files.taken()
    each.open()
    assert files.taken() == []
    assert each.bodies("topic3") == [b"3"]


def test_opening_after_a_kill_syncs_only_folders_that_no_persist_has_synced(
    each: StoreUnderTest, files: Counted
) -> None:
    """The kill may have come before the names of a new queue reached the disk."""
    each.send("new", topic="new")
    each.sync()
    files.taken()
    each.crash()
    each.open()
    folders = [name for name in files.taken() if not name.rpartition("/")[2].isdigit()]
    assert folders == ["", "new"]
    assert each.bodies("new") == [b"new"]


def test_a_queue_that_was_persisted_empty_gets_its_folders_synced_later(
    each: StoreUnderTest, files: Counted
) -> None:
    """The table names it since a send to it failed, but then it had no file yet."""
    with pytest.raises(MessageTooLarge):
        each.send("x" * LOG_FILE_BYTES, topic="failed")
    each.persist()
    each.send("new", topic="failed")
    each.sync()
    files.taken()
    each.crash()
    each.open()
    assert "failed" in files.taken()


def test_a_persist_syncs_only_the_queues_that_were_written(
    each: StoreUnderTest, files: Counted
) -> None:
    """Walking all queues took 66 ms of the broker's loop for 10,000 topics."""
    each.send("again", topic="topic5")
    each.persist()
    assert files.taken() == ["topic5/0/00000000000000000000"]
    each.persist()
    assert files.taken() == []


def test_a_persist_that_failed_is_made_up_by_the_next_one(
    each: StoreUnderTest, files: Counted
) -> None:
    """What it took to sync must not be forgotten, nor what came while it ran."""
    each.send("taken", topic="new")
    each.store.begin_persist({})
    each.send("meanwhile", topic="topic7")
    each.persist()
    assert files.taken() == ["", "new", "new/0", "new/0/" + "0" * 20, "topic7/0/" + "0" * 20]


def test_queues_are_trimmed_in_slices(
    each: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention runs on the broker's loop, and there may be tens of thousands of queues."""
    monkeypatch.setattr(message_store, "TRIMMED_QUEUES_MAX", 5)
    while each.store.end < 3 * LOG_FILE_BYTES:
        each.send("x" * 500)
    each.persist()
    each.store.drop_before(LOG_FILE_BYTES)

    def trimmed() -> int:
        queues = [each.store.queue(f"topic{n}", 0) for n in range(QUEUES)]
        return sum(queue is not None and queue.min_offset == 1 for queue in queues)

    counts = [trimmed()]
    for _ in range(3):
        each.store.trim_queues()
        counts.append(trimmed())
    assert counts[0] <= 5
    assert counts[-1] == QUEUES
    assert max(b - a for a, b in pairwise(counts)) <= 5

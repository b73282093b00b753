"""What is archived, when, by whom, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.features.archive import archiving
from rmqlite.features.archive.cleaning import CLEAN_MS, THIN_MS, thinned
from rmqlite.features.archive.objects import ArchivedMoment
from rmqlite.features.archive.owning import OWNER_TABLE, take_over
from rmqlite.kernel.store.log.checksums import MARK_BYTES, mark_position
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged
from tests.support.archives import TOPIC, Archived, contents_of, head_of, log_of, restored
from tests.support.clock import START_MS, FakeClock
from tests.support.stores import contents, new_record

HOUR_MS = 3_600_000
LARGE = "x" * 400_000


def bodies(archived: Archived, root: Path) -> list[bytes]:
    """Of the messages of the topic in a restored store."""
    with Archived(root, archived.url) as again:
        queues = [again.under_test.messages(TOPIC, each) for each in range(4)]
        return sorted([message.body for queue in queues for message in queue])


def test_a_restored_store_is_the_store(archived: Archived, tmp_path: Path) -> None:
    """Every byte of its log, topics, offsets; also after a further attempt."""
    for sent in ("a", "b"):
        archived.send(sent, LARGE, LARGE, LARGE)
        status = archived.attempt()
        assert (status.end, status.behind_bytes, status.trouble) == (archived.end, 0, "")
        assert restored(archived.url, tmp_path / sent) == archived.end
        assert log_of(tmp_path / sent)[: archived.end] == archived.log[: archived.end]
    expected = sorted([b"a", b"b", *[LARGE.encode()] * 6])
    assert bodies(archived, tmp_path / "b") == expected


def test_without_anything_new_there_is_no_request(archived: Archived, tmp_path: Path) -> None:
    """Each would cost money: an idle broker saves its clock all the time."""
    archived.send("a")
    archived.under_test.persist()
    archived.attempt()
    before = contents(tmp_path / "archive")
    archived.under_test.clock.forward(60_000)
    archived.under_test.persist()
    archived.attempt()
    assert contents(tmp_path / "archive") == before


def test_committed_offsets_are_archived_without_a_message(
    archived: Archived, tmp_path: Path
) -> None:
    """Else a restored broker would give out again what was consumed an hour ago."""
    archived.send("a")
    archived.attempt()
    path = archived.under_test.config.store_path / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@readers":{0:1}}}')
    archived.attempt()
    restored(archived.url, tmp_path / "copy")
    assert '"orders@readers"' in (tmp_path / "copy/config/consumerOffset.json").read_text()


def test_only_what_is_on_disk_is_archived(archived: Archived) -> None:
    """A power cut may take the rest, and other records come to its place."""
    archived.send("a")
    synced = archived.end
    archived.under_test.store.append([new_record("unsynced")])
    assert archived.attempt().end == synced < archived.end


def test_many_small_pieces_become_one_object(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with a message every two seconds writes 40,000 objects a day."""
    monkeypatch.setattr(archiving, "PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(archiving, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(archiving, "BLOCK_PIECES_MAX", 4)
    while archived.end < 1 << 17:
        archived.send("small" * 300)
        archived.attempt()
    pieces = contents_of(archived.url).pieces
    assert pieces[0].end - pieces[0].begin == 1 << 16
    assert [one.end for one in pieces[:-1]] == [other.begin for other in pieces[1:]]
    assert restored(archived.url, tmp_path / "copy") == archived.end


def test_a_restarted_broker_goes_on(archived: Archived, tmp_path: Path) -> None:
    """Under a term of its own, from where the archive ends."""
    archived.send("a")
    archived.attempt()
    archived.send("b")
    archived.restart()
    archived.send("c")
    assert archived.attempt().trouble == ""
    assert [term for term, _ in head_of(archived.url).terms] == [1, 2]
    assert restored(archived.url, tmp_path / "copy") == archived.end
    assert bodies(archived, tmp_path / "copy") == [b"a", b"b", b"c"]


def test_an_older_mark_of_a_full_file_is_no_other_history(archived: Archived) -> None:
    """A power cut brought it back; the archive has the mark that was written last."""
    while archived.end < 1 << 20:
        archived.send(LARGE)
    archived.attempt()
    archived.archiving.close_archive()
    archived.under_test.close()
    first = archived.under_test.config.store_path / "commitlog" / f"{0:020d}"
    with first.open("r+b") as file:
        file.seek(mark_position(1 << 20))
        file.write(bytes(MARK_BYTES))
    archived.under_test.open()
    archived.restart()
    assert archived.attempt().trouble == ""


def test_another_broker_is_kept_out(archived: Archived, tmp_path: Path) -> None:
    """archiveUrl was copied with broker.conf: the first one goes on, the second says so once."""
    archived.send("a")
    archived.attempt()
    with Archived(tmp_path / "other", archived.url) as other:
        other.send("b")
        status = other.attempt()
        assert "it belongs to broker-a-" in status.trouble
        assert "--take-over" in status.trouble
        assert status.behind_since_ms
        assert other.attempt().trouble == status.trouble
    archived.send("c")
    assert archived.attempt().trouble == ""


def test_a_restored_broker_takes_the_archive_over(archived: Archived, tmp_path: Path) -> None:
    """At an earlier moment: what the lost broker stored later lies beside its history."""
    archived.send("a")
    archived.attempt()
    restored(archived.url, tmp_path / "copy")
    archived.send("lost")
    archived.attempt()
    archived.archiving.close_archive()
    with Archived(tmp_path / "copy", archived.url) as again:
        assert "it belongs to" in again.attempt().trouble
        again.archiving.close_archive()
        again.under_test.close()
        said = take_over(again.under_test.config, 1)
        assert "from physical offset" in said
        again.under_test.open()
        again.restart()
        again.send("b")
        assert again.attempt().trouble == ""
    restored(archived.url, tmp_path / "next")
    assert bodies(archived, tmp_path / "next") == [b"a", b"b"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_loses_nothing(
    archived: Archived, tmp_path: Path, hours: int
) -> None:
    """On the machine where the store goes on: no moment and no object is taken for an old one."""
    archived.send("a")
    archived.attempt()
    restored(archived.url, tmp_path / "copy")
    archived.archiving.close_archive()
    clock = FakeClock(START_MS + hours * HOUR_MS)
    with Archived(tmp_path / "copy", archived.url, clock=clock) as again:
        again.under_test.close()
        take_over(again.under_test.config, START_MS)
        again.under_test.open()
        again.restart()
        again.send("b")
        assert again.attempt().trouble == ""
        again.send("c")
        assert again.attempt().trouble == ""
    restored(archived.url, tmp_path / "next")
    assert bodies(archived, tmp_path / "next") == [b"a", b"b", b"c"]


def test_another_history_shares_nothing(archived: Archived, tmp_path: Path) -> None:
    """A new store takes an archive over: the whole of its log is archived anew."""
    archived.send("a", LARGE)
    archived.attempt()
    archived.archiving.close_archive()
    with Archived(tmp_path / "other", archived.url) as other:
        other.send("b", LARGE)
        other.under_test.close()
        take_over(other.under_test.config, 1)
        other.under_test.open()
        other.restart()
        assert other.attempt().trouble == ""
    restored(archived.url, tmp_path / "copy")
    assert bodies(archived, tmp_path / "copy") == [b"b", LARGE.encode()]


def test_an_older_copy_of_the_store_is_no_continuation(archived: Archived, tmp_path: Path) -> None:
    """It has the owner's name, but less than the archive: nothing is overwritten by accident."""
    archived.send("a")
    archived.attempt()
    restored(archived.url, tmp_path / "copy")
    own = archived.under_test.config.store_path / "config" / OWNER_TABLE
    (tmp_path / "copy" / "config" / OWNER_TABLE).write_bytes(own.read_bytes())
    archived.send("b")
    archived.attempt()
    archived.archiving.close_archive()
    with Archived(tmp_path / "copy", archived.url) as copy:
        assert "is not the beginning of this broker's" in copy.attempt().trouble
        copy.send("longer than before")
    with Archived(tmp_path / "copy", archived.url) as copy:
        assert "is not the beginning of this broker's" in copy.attempt().trouble


def test_retention_keeps_what_is_not_archived(archived: Archived, tmp_path: Path) -> None:
    """Until the disk is past its forced level: then the archive says what it lacks, and goes on."""
    archived.send(*[LARGE] * 8)
    store, retention = archived.under_test.store, archived.under_test.broker.retention
    archived.under_test.persist()
    retention.clean(0)
    retention.is_asked = True
    retention.clean(1 << 50)
    assert store.min_offset == 0
    archived.attempt()
    retention.is_asked = True
    archived.send(*[LARGE] * 8)
    archived.under_test.persist()
    retention.clean(1 << 50)
    retention.clean(1 << 50)
    kept = store.min_offset
    assert 0 < kept <= archived.archiving.status().end
    # Retention has appended rows of tables again.
    archived.under_test.sync()
    store.drop_before(store.end)
    status = archived.attempt()
    assert status.lost_bytes > 0
    assert status.behind_bytes == 0
    assert restored(archived.url, tmp_path / "copy") == archived.end


def test_a_piece_that_is_missing_is_named(archived: Archived, tmp_path: Path) -> None:
    """Removed, changed, or cut: no store is made of it."""
    archived.send("a")
    archived.attempt()
    (path,) = (tmp_path / "archive/1/log").iterdir()
    data = path.read_bytes()
    for wrong in (data[:-1], data[:-1] + b"?"):
        path.write_bytes(wrong)
        with pytest.raises(StoreDamaged, match=path.name):
            restored(archived.url, tmp_path / "copy")
    path.unlink()
    with pytest.raises(StoreDamaged, match="objects up to"):
        restored(archived.url, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_a_folder_without_an_archive_is_no_archive(tmp_path: Path) -> None:
    """A wrong URL, before anything is made."""
    with pytest.raises(InvalidValue, match="archiveUrl"):
        restored(f"file://{tmp_path}/nothing", tmp_path / "copy")


def test_of_old_moments_some_stay() -> None:
    """All of the last hour, of the time before one in ten minutes, and the last in any case."""
    now = 1_000 * HOUR_MS
    every = [ArchivedMoment(1, n, now - (5_000 - n) * 1_000) for n in range(5_000)]
    kept = thinned(every, now, now - 4_500_000)
    recent = [each for each in kept if each.at_ms >= now - CLEAN_MS]
    assert len(recent) == CLEAN_MS // 1_000
    assert len(kept) - len(recent) <= 900_000 // THIN_MS + 1
    assert thinned(every, now + 1_000 * HOUR_MS, now) == every[-1:]


def test_what_no_moment_needs_is_removed(archived: Archived, tmp_path: Path) -> None:
    """The log before the oldest moment's begins, and what a crash left of merged pieces."""
    archived.send(*[LARGE] * 8)
    archived.attempt()
    archived.under_test.persist()
    archived.under_test.store.drop_before(2 << 20)
    archived.under_test.clock.forward(169 * HOUR_MS)
    archived.send("a")
    archived.attempt()
    archived.under_test.clock.forward(169 * HOUR_MS)
    archived.send("b")
    archived.attempt()
    found = contents_of(archived.url)
    assert len(found.moments) == 1
    assert found.pieces[0].end > 2 << 20
    assert restored(archived.url, tmp_path / "copy") == archived.end


def test_a_queue_whose_records_have_expired_goes_on_where_it_was(
    archived: Archived, tmp_path: Path
) -> None:
    """At offset 0 its consumers, who have committed 5, would miss the next five messages."""
    archived.send(*"abcde")
    archived.under_test.persist()
    while archived.end < 2 << 20:
        archived.send(LARGE, topic="others")
    archived.under_test.persist()
    archived.under_test.store.drop_before(1 << 20)
    archived.under_test.persist()
    archived.attempt()
    ends = archived.queue_ends(TOPIC)
    assert sum(ends) == 5
    restored(archived.url, tmp_path / "copy")
    with Archived(tmp_path / "copy", archived.url) as again:
        assert again.queue_ends(TOPIC) == ends

"""Fixed-size files as one array of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from tests.support.files import FOR_GOOD, FaultyFiles, ForgetfulFiles

SIZE = 1000


def segments(folder: Path) -> Segments:
    return Segments(SystemFiles(), folder, SIZE)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_named_by_its_first_byte(tmp_path: Path) -> None:
    """20 digits, as RocketMQ names them, and of full length from the start."""
    segments(tmp_path / "x").write(2 * SIZE + 5, b"hello")
    assert names(tmp_path / "x") == [f"{2 * SIZE:020d}"]
    assert (tmp_path / "x" / f"{2 * SIZE:020d}").stat().st_size == SIZE


def test_a_cut_that_fails_half_way_leaves_no_gap(tmp_path: Path) -> None:
    """A process that is killed then would leave a folder that nobody opens."""

    files = FaultyFiles()
    files.fail("create", where=lambda path: path.name.endswith("3000"), is_done=True)
    files.fail("remove", times=FOR_GOOD, is_done=True)
    each = Segments(files, tmp_path, SIZE)
    with pytest.raises(StoreUnavailable):
        each.write(0, b"x" * 4 * SIZE)
    for left in ((0, 1000, 2000), (0, 1000), (0,)):
        with pytest.raises(StoreUnavailable):
            each.cut(500)
        assert segments(tmp_path).starts == left
    each.cut(500)
    assert each.read(0, 2 * SIZE) == segments(tmp_path).read(0, 2 * SIZE)


def test_a_write_may_cross_files(tmp_path: Path) -> None:
    """Who writes need not know where a file ends; who reads need not either."""
    data = bytes(range(256)) * 10
    each = segments(tmp_path)
    each.write(0, b"x")
    each.write(900, data)
    assert each.starts == (0, 1000, 2000, 3000)
    assert each.read(900, len(data)) == data
    assert segments(tmp_path).read(900, len(data)) == data


def test_several_reads_return_what_each_would(tmp_path: Path) -> None:
    """The disk fetches them together; a file that cannot be opened is the read's error."""
    files = FaultyFiles()
    each = Segments(files, tmp_path, SIZE)
    each.write(0, bytes(range(200)) * 15)
    spans = [(2_500, 100), (10, 5), (990, 20), (7_000, 5), (10, 0), (2_990, 50)]
    assert list(each.read_each(spans)) == [each.read(*span) for span in spans]
    files.close()
    (tmp_path / f"{SIZE:020d}").unlink()
    found = each.read_each([(10, 5), (1_010, 5)])
    assert next(found) == each.read(10, 5)
    with pytest.raises(StoreUnavailable):
        next(found)


def test_a_read_stops_where_the_files_stop(tmp_path: Path) -> None:
    """Fewer bytes are an answer."""
    each = segments(tmp_path)
    each.write(SIZE, b"x" * SIZE)
    assert each.read(2 * SIZE - 3, 100) == b"xxx"
    assert each.read(2 * SIZE, 100) == b""
    assert each.read(SIZE - 1, 100) == b""


def test_a_cut_leaves_zeros_and_no_file_behind(tmp_path: Path) -> None:
    """What was behind the cut must never be read again."""
    each = segments(tmp_path)
    each.write(0, b"x" * 3 * SIZE)
    each.cut(SIZE + 10)
    assert each.starts == (0, SIZE)
    assert each.read(SIZE, SIZE) == b"x" * 10 + bytes(SIZE - 10)
    each.cut(SIZE)
    assert names(tmp_path) == [f"{0:020d}"]


def test_dropping_takes_whole_files_but_never_the_last(tmp_path: Path) -> None:
    """The last one tells where to go on."""
    each = segments(tmp_path)
    each.write(0, b"x" * 3 * SIZE)
    assert each.drop_before(2 * SIZE - 1) == [tmp_path / f"{0:020d}"]
    assert each.first_position == SIZE
    each.drop_before(10 * SIZE)
    assert each.starts == (2 * SIZE,)


def test_a_file_that_never_got_its_length_gets_it(tmp_path: Path) -> None:
    """A crash between making a file and giving it its length leaves it empty."""
    segments(tmp_path).write(0, b"x")
    (tmp_path / f"{SIZE:020d}").touch()
    each = segments(tmp_path)
    assert each.end_position == 2 * SIZE
    assert each.read(SIZE, SIZE) == bytes(SIZE)


@pytest.mark.parametrize("size", [1, SIZE - 1, SIZE + 1])
def test_another_length_is_damage(tmp_path: Path, size: int) -> None:
    """RocketMQ would not load it either; usually the configured size is not the store's."""
    (tmp_path / f"{0:020d}").write_bytes(bytes(size))
    with pytest.raises(StoreDamaged, match=f"{SIZE} bytes") as caught:
        segments(tmp_path)
    assert caught.value.path == str(tmp_path / f"{0:020d}")


@pytest.mark.parametrize("name", ["notes.txt", "0", f"{SIZE + 1:020d}", "\u0660" * 20])
def test_another_name_is_damage(tmp_path: Path, name: str) -> None:
    """Nothing else belongs there; to guess would be to skip."""
    (tmp_path / name).write_bytes(bytes(SIZE))
    with pytest.raises(StoreDamaged):
        segments(tmp_path)


def test_a_gap_between_files_is_damage(tmp_path: Path) -> None:
    """A file that is gone took messages with it."""
    segments(tmp_path).write(0, b"x" * 3 * SIZE)
    (tmp_path / f"{SIZE:020d}").unlink()
    with pytest.raises(StoreDamaged, match="a gap") as caught:
        segments(tmp_path)
    assert caught.value.position == 2 * SIZE


def test_what_was_written_is_named_once_for_syncing(tmp_path: Path) -> None:
    """A second call has nothing new to sync."""
    each = segments(tmp_path)
    each.write(900, b"x" * 200)
    assert sorted(each.take_unsynced()) == [tmp_path / f"{0:020d}", tmp_path / f"{SIZE:020d}"]
    assert each.take_unsynced() == []


def test_holes_are_not_read(tmp_path: Path) -> None:
    """A store is opened in the time that its data take, not its files' lengths."""
    each = Segments(SystemFiles(), tmp_path, 1 << 20)
    each.write(0, b"a")
    each.write(600_000, b"b")
    found = list(each.data_ranges(0, 1 << 16))
    assert sum(len(data) for _, data in found) <= 1 << 18
    assert b"".join(data for _, data in found).strip(b"\0").replace(b"\0", b"") == b"ab"


def test_a_file_that_cannot_be_made_is_not_there(tmp_path: Path) -> None:
    """A full disk is an error now and works later."""
    files = ForgetfulFiles()
    each = Segments(files, tmp_path, SIZE)
    files.fail("create")
    with pytest.raises(StoreUnavailable):
        each.write(0, b"x")
    assert each.starts == ()
    each.write(0, b"x")
    assert each.read(0, 1) == b"x"


class Counted(SystemFiles):
    """Counts the syncs of folders."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def _sync_folder(self, folder: Path) -> None:
        self.synced.append(folder)
        super()._sync_folder(folder)


def test_a_first_file_can_have_its_names_synced_later(tmp_path: Path) -> None:
    """A call that makes a hundred queues must not wait for three hundred syncs."""
    files, folder = Counted(), tmp_path / "consumequeue" / "orders" / "0"
    each = Segments(files, folder, SIZE, names_later=True)
    assert not each.take_unsynced_name()
    each.write(0, b"x")
    assert files.synced == []
    assert each.take_unsynced_name()
    assert not each.take_unsynced_name()


def test_of_later_files_the_names_are_synced_at_once(tmp_path: Path) -> None:
    """If one of several lost its name in a power cut, nobody would open the queue again."""
    files = Counted()
    each = Segments(files, tmp_path / "x", SIZE, names_later=True)
    each.write(0, b"x" * 2 * SIZE)
    assert files.synced == [tmp_path / "x"]


def test_names_that_were_there_are_synced_too(tmp_path: Path) -> None:
    """A process that was killed may have made them a moment ago."""
    Segments(SystemFiles(), tmp_path / "x", SIZE, names_later=True).write(0, b"x")
    again = Segments(SystemFiles(), tmp_path / "x", SIZE, names_later=True)
    assert again.take_unsynced_name()

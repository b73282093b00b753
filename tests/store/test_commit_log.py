"""Records one behind the other, none across a file's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.packed import PackedRun, packed_records
from rmqlite.kernel.records.record import OVERHEAD_BYTES, encode_blank
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.log.checksums import decode_mark, mark_position
from rmqlite.kernel.words.errors import (
    MessageNotFound,
    MessageTooLarge,
    StoreDamaged,
    StoreUnavailable,
)
from tests.support.files import ForgetfulFiles
from tests.support.stores import new_record

SIZE = 1024
ROOM = mark_position(SIZE) - 8
"""What the records of a file have: behind them a blank, and within that the mark."""
FIXED = OVERHEAD_BYTES + len("orders")
"""A record's size without its body."""


def log_in(root: Path, files: SystemFiles | None = None) -> CommitLog:
    return CommitLog(files or SystemFiles(), root / "commitlog", SIZE)


def encoded_of_size(size: int, physical_offset: int) -> bytes:
    new = new_record(b"r" * (size - FIXED))
    place = {"queue_offset": 0, "physical_offset": physical_offset, "store_timestamp_ms": 1}
    return encode(new, **place)


def append(log: CommitLog, *sizes: int, now_ms: int = 1_000) -> list[int]:
    """Append records of these sizes, each filled with its number; where they went."""
    first = len(list(log.walk(log.min_offset)))
    records = [new_record(bytes([n + 1]) * (size - FIXED)) for n, size in enumerate(sizes, first)]
    packed = packed_records(records)
    log.append(PackedRun([packed], lambda _: (first, 0), log.timestamp_ms(now_ms)))
    return packed.physical_offsets


def walked(log: CommitLog, *, to_end: bool = False) -> list[tuple[int, int]]:
    walk = log.walk(log.min_offset, to_end=to_end)
    return [(each.head.physical_offset, each.head.size) for each in walk]


def reopened(root: Path) -> CommitLog:
    log = log_in(root)
    list(log.walk(log.min_offset, to_end=True))
    log.sum_up()
    return log


def file_at(root: Path, start: int) -> bytes:
    return (root / "commitlog" / f"{start:020d}").read_bytes()


def records_in(root: Path) -> dict[str, bytes]:
    """Every file's bytes before its mark."""
    place = mark_position(SIZE)
    return {path.name: path.read_bytes()[:place] for path in (root / "commitlog").iterdir()}


def test_records_lie_one_behind_the_other(tmp_path: Path) -> None:
    """The next one begins where the last one ends."""
    log = log_in(tmp_path)
    assert append(log, 200, 300) == [0, 200]
    assert append(log, 150) == [500]
    assert log.end == 650


def test_a_record_of_exactly_what_is_left_still_fits(tmp_path: Path) -> None:
    """The blank behind it needs eight bytes (reference §1.3), and in it our mark has a place."""
    log = log_in(tmp_path)
    assert append(log, 500, ROOM - 500, 200) == [0, 500, SIZE]
    assert file_at(tmp_path, 0)[ROOM : ROOM + 8] == encode_blank(SIZE - ROOM)
    assert decode_mark(file_at(tmp_path, 0)[ROOM + 8 :]) is not None


def test_rocketmqs_larger_records_are_read(tmp_path: Path) -> None:
    """It fills a file up to the last eight bytes."""
    first = encoded_of_size(SIZE - 8, 0)
    second = encoded_of_size(200, SIZE)
    (tmp_path / "commitlog").mkdir()
    for start, data in ((0, first + encode_blank(8)), (SIZE, second)):
        path = tmp_path / "commitlog" / f"{start:020d}"
        path.write_bytes(data.ljust(SIZE, b"\0"))
    log = reopened(tmp_path)
    assert walked(log) == [(0, SIZE - 8), (SIZE, 200)]
    assert append(log, 100) == [SIZE + 200]


def test_behind_a_file_that_rocketmq_filled_up_is_no_mark(tmp_path: Path) -> None:
    """Its place is taken by a record; the next file has one."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(encoded_of_size(SIZE - 8, 0).ljust(SIZE, b"\0"))
    log = reopened(tmp_path)
    before = path.read_bytes()
    assert append(log, 100) == [SIZE]
    assert file_at(tmp_path, 0) == before[:-8] + encode_blank(8)
    assert walked(reopened(tmp_path)) == [(0, SIZE - 8), (SIZE, 100)]


def test_one_byte_more_goes_to_the_next_file(tmp_path: Path) -> None:
    """A record is never split."""
    log = log_in(tmp_path)
    assert append(log, 500, ROOM + 1 - 500) == [0, SIZE]
    assert file_at(tmp_path, 0)[500 : mark_position(SIZE)] == encode_blank(524) + bytes(
        mark_position(SIZE) - 508
    )


def test_the_blank_is_rocketmqs(tmp_path: Path) -> None:
    """G2: a file of 1024 bytes, written up to 976."""
    log = log_in(tmp_path)
    append(log, 976, 200)
    assert file_at(tmp_path, 0)[976:-32] == bytes.fromhex("00000030 cbd43194") + bytes(8)


def test_a_batch_may_cross_several_files(tmp_path: Path) -> None:
    """One call, one batch, as many files as it takes."""
    log = log_in(tmp_path)
    places = append(log, *[400] * 7)
    assert places == [0, 400, 1024, 1424, 2048, 2448, 3072]
    assert walked(log) == [(place, 400) for place in places]
    assert walked(reopened(tmp_path)) == walked(log)


def test_a_record_larger_than_a_file_is_refused(tmp_path: Path) -> None:
    """With the largest size that is possible."""
    log = log_in(tmp_path)
    assert append(log, ROOM) == [0]
    with pytest.raises(MessageTooLarge, match=f"{ROOM} bytes"):
        append(log, 200, ROOM + 1)
    assert log.end == ROOM
    assert append(log, 200) == [SIZE]


@pytest.mark.parametrize("write", [0, 1, 2])
@pytest.mark.parametrize("kept_bytes", [0, 50, 390])
def test_a_batch_that_fails_leaves_nothing(tmp_path: Path, write: int, kept_bytes: int) -> None:
    """All or none: not the part that reached the disk, not the files that were made."""
    files = ForgetfulFiles()
    log = log_in(tmp_path, files)
    append(log, 200)
    before = records_in(tmp_path)
    files.fail("write", after=write, kept_bytes=kept_bytes)
    with pytest.raises(StoreUnavailable):
        append(log, *[390] * 5)
    assert records_in(tmp_path) == before
    assert log.end == 200
    assert append(log, *[390] * 5) == [200, 590, 1024, 1414, 2048]
    assert walked(reopened(tmp_path)) == walked(log)


def test_a_batch_that_fails_at_a_files_first_byte_leaves_no_file(tmp_path: Path) -> None:
    """The end is then where no file is."""
    files = ForgetfulFiles()
    log = log_in(tmp_path, files)
    files.fail("write", kept_bytes=100)
    with pytest.raises(StoreUnavailable):
        append(log, 200)
    assert list((tmp_path / "commitlog").iterdir()) == []
    assert append(log, 200) == [0]


def test_store_timestamps_never_go_back(tmp_path: Path) -> None:
    """Recovery takes an older record behind a newer one for a leftover."""
    log = log_in(tmp_path)
    append(log, 200, now_ms=5_000)
    append(log, 200, now_ms=4_000)
    stored = [each.head.store_timestamp_ms for each in log.walk(0)]
    assert stored == [5_000, 5_000]


def test_a_message_is_read_where_it_begins_and_nowhere_else(tmp_path: Path) -> None:
    """An offset id that a user gives may be any number."""
    log = log_in(tmp_path)
    places = append(log, 200, 600, 300)
    for place in range(log.end + 300):
        if place in places:
            assert log.read_record(place, 100).head.physical_offset == place
        else:
            with pytest.raises(MessageNotFound):
                log.read_record(place, 100)


def test_a_body_within_a_body_is_not_a_record(tmp_path: Path) -> None:
    """A user may send us a commit log; its records say other physical offsets."""
    log = log_in(tmp_path)
    append(log, 200)
    packed = packed_records([new_record(log.read(0, 200))])
    log.append(PackedRun([packed], lambda _: (1, 0), 1_000))
    inner = 200 + log.read(200, 400).index(log.read(0, 200))
    assert log.read_head(inner) is None
    log.cut(200)
    assert reopened(tmp_path).end == 200


def test_a_damaged_body_is_not_handed_out(tmp_path: Path) -> None:
    """P10: reported with file and offset."""
    log = log_in(tmp_path)
    append(log, 200, 200)
    path = tmp_path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(250 + 88)
        file.write(b"!")
    with pytest.raises(StoreDamaged) as caught:
        log.read_record(200)
    assert caught.value.path == str(path)
    assert caught.value.position == 200


def test_a_walk_reads_records_larger_than_its_window(tmp_path: Path) -> None:
    """A window of 1 MiB, a record of three."""
    log = CommitLog(SystemFiles(), tmp_path / "commitlog", 8 << 20)
    sizes = [200, 3 << 20, 200, (1 << 20) - 50, 300]
    places = append(log, *sizes)
    assert walked(log) == list(zip(places, sizes, strict=True))


def test_an_unused_file_behind_the_end_is_removed(tmp_path: Path) -> None:
    """RocketMQ makes the next file in advance, and a crash leaves it."""
    log = log_in(tmp_path)
    append(log, 200)
    (tmp_path / "commitlog" / f"{SIZE:020d}").write_bytes(bytes(SIZE))
    again = reopened(tmp_path)
    again.cut(again.end)
    assert again.end == 200
    assert again.segment_starts == (0,)


def test_a_blank_without_a_next_file_is_written_again(tmp_path: Path) -> None:
    """A crash may come between the two."""
    log = log_in(tmp_path)
    append(log, 800, 200)
    (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
    again = reopened(tmp_path)
    assert again.end == 800
    again.cut(again.end)
    assert append(again, 100, 500) == [800, SIZE]


def test_dropping_moves_the_first_offset(tmp_path: Path) -> None:
    """What retention took is not found, what it left is."""
    log = log_in(tmp_path)
    append(log, *[400] * 5)
    log.drop_before(1424)
    assert log.min_offset == 1024
    with pytest.raises(MessageNotFound):
        log.read_record(400)
    assert walked(log) == [(1024, 400), (1424, 400), (2048, 400)]
    assert reopened(tmp_path).end == log.end


@pytest.mark.parametrize("left", [*range(8, 44), 60])
def test_whatever_rocketmq_leaves_of_a_file_is_rolled_over(tmp_path: Path, left: int) -> None:
    """Also where a blank would reach into our mark's place, or end with the file."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(encoded_of_size(SIZE - left, 0).ljust(SIZE, b"\0"))
    log = reopened(tmp_path)
    log.cut(log.end)
    assert append(log, 100) == [SIZE]
    log.mark_synced(log.point)
    again = reopened(tmp_path)
    assert walked(again) == [(0, SIZE - left), (SIZE, 100)]
    assert again.point == log.point
    assert file_at(tmp_path, 0)[SIZE - left :].startswith(encode_blank(left))


def test_a_body_that_looks_like_a_mark_is_left_alone(tmp_path: Path) -> None:
    """RocketMQ's records reach up to a file's last eight bytes."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    for shift in range(8):
        body = (b"rmqlsync" * SIZE)[shift:][: SIZE - 8 - FIXED]
        data = encode(new_record(body), queue_offset=0, physical_offset=0, store_timestamp_ms=1)
        path.write_bytes(data.ljust(SIZE, b"\0"))
        log = reopened(tmp_path)
        before = path.read_bytes()
        log.remove_broken_marks(0)
        assert path.read_bytes() == before

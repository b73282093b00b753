"""How long a store's files are: what exists says it, and a configuration may not contradict."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import ReadOnlyFiles, SystemFiles
from rmqlite.kernel.store.index_file import Shape
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.file_sizes import Sizes, has_log, index_shape, sizes_of
from rmqlite.kernel.words.errors import ConfigInvalid, RepairRefused, StoreDamaged
from rmqlite.store_tools import reader
from rmqlite.store_tools.check import StoreCheck, check
from rmqlite.store_tools.checking.file_layer import FileLayer
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from rmqlite.store_tools.repair import plan_repair
from tests.support.clock import FakeClock
from tests.support.golden import unpack_golden
from tests.support.repairs import filled
from tests.support.stores import LOG_FILE_BYTES, QUEUE_FILE_BYTES, StoreUnderTest, contents

GOLDEN = Sizes(1 << 20, 4_000)
Make = Callable[[str, dict[int, int]], None]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return unpack_golden(tmp_path) / "clean"


@pytest.fixture
def closed(tmp_path: Path) -> StoreUnderTest:
    """A store of several log files, closed."""
    store = filled(tmp_path / "store")
    store.close()
    return store


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes sparse files in a folder, each a length by its position."""

    def make(folder: str, files: dict[int, int]) -> None:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for start, size in files.items():
            with (tmp_path / folder / f"{start:020d}").open("wb") as file:
                file.truncate(size)

    return make


def found(root: Path, **values: Any) -> Sizes:
    return sizes_of(ReadOnlyFiles(), root, BrokerConfig(**values) if values else None)


# ---- what the files say


def test_a_store_of_rocketmq_tells_its_sizes(golden: Path) -> None:
    """Names and lengths of log and queues, and of the key index where its entries begin."""
    assert found(golden) == GOLDEN
    assert index_shape(ReadOnlyFiles(), golden, BrokerConfig()) == Shape(1_000, 8_000)


def test_a_new_store_has_the_configured_sizes(tmp_path: Path) -> None:
    """There is no file that says otherwise."""
    assert found(tmp_path / "nothing") == Sizes(1 << 30, 6_000_000)
    given = found(tmp_path, mapped_file_size_commit_log=1 << 25)
    assert given == Sizes(1 << 25, 6_000_000)
    assert not has_log(ReadOnlyFiles(), tmp_path)


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({0: 4096}, 4096),
        ({8192: 4096}, 4096),
        ({0: 4096, 4096: 4096, 8192: 4096}, 4096),
        ({0: 4096, 4096: 1000}, 4096),
        ({0: 1000, 4096: 4096}, 4096),
        ({0: 4096, 4096: 0}, 4096),
        ({0: 5000, 4096: 4096}, 4096),
        ({0: 4096, 12_288: 4096}, 4096),
        ({0: 4096, 4096: 4096, 40_960_000: 4096}, 4096),
        ({0: 1000, 4096: 1000, 8192: 4096}, 4096),
        ({0: 4096, 7: 4096}, 4096),
        ({4096: 4096, 5000: 77}, 4096),
    ],
)
def test_names_and_lengths_outvote_one_damaged_file(
    tmp_path: Path, make: Make, files: dict[int, int], size: int
) -> None:
    """Cut off, too long, empty, far away, or not one of them: damage is not the rule."""
    make("commitlog", files)
    assert found(tmp_path).log_file_bytes == size
    assert has_log(ReadOnlyFiles(), tmp_path)


def test_a_file_that_never_got_its_length_says_nothing(tmp_path: Path, make: Make) -> None:
    """A crash leaves it empty; the store is as good as new."""
    make("commitlog", {0: 0})
    assert found(tmp_path, mapped_file_size_commit_log=1 << 20).log_file_bytes == 1 << 20
    assert not has_log(ReadOnlyFiles(), tmp_path)


def test_all_queues_vote_together(tmp_path: Path, make: Make) -> None:
    """RocketMQ has one length for all; most have one file, and one of them may be damaged."""
    make("consumequeue/a/0", {0: 3_000})
    for queue_id in range(3):
        make(f"consumequeue/b/{queue_id}", {4_000 * queue_id: 4_000})
    make("consumequeue/c/0", {0: 77})
    assert found(tmp_path).queue_file_bytes == 4_000


def test_a_single_file_that_was_cut_off_has_the_length_that_the_table_says(
    tmp_path: Path,
) -> None:
    """It has no neighbour; storeProgress.json was written when it was whole."""
    store = StoreUnderTest(tmp_path / "store", log_file_bytes=1 << 20)
    store.fill()
    store.close()
    (path,) = store.log_files()
    path.write_bytes(path.read_bytes()[:5_000])
    assert found(store.root).log_file_bytes == 1 << 20
    store.write_table("storeProgress.json", {"logFileBytes": 7})
    (store.root / "config" / "storeProgress.json.bak").unlink(missing_ok=True)
    with pytest.raises(StoreDamaged, match="set mappedFileSizeCommitLog"):
        found(store.root)
    given = found(store.root, mapped_file_size_commit_log=1 << 20, max_message_bytes=1 << 16)
    assert given.log_file_bytes == 1 << 20


def test_an_index_of_rocketmqs_keeps_its_shape(golden: Path) -> None:
    """Made again with another one, RocketMQ would find no key when the store is back."""
    store = MessageStore(BrokerConfig(store_path=golden), SystemFiles(), FakeClock())
    assert (store.index.state()["slots"], store.index.state()["entries"]) == (1_000, 8_000)
    store.close({})
    shapes = [path.stat().st_size for path in (golden / "index").iterdir()]
    assert shapes == [Shape(1_000, 8_000).file_bytes]


def test_an_index_is_made_again_in_a_shape_that_is_set(golden: Path) -> None:
    """It only repeats the log, so all of its files can have another length."""
    config = BrokerConfig(store_path=golden, max_hash_slots=500)
    store = MessageStore(config, SystemFiles(), FakeClock())
    store.close({})
    (path,) = (golden / "index").iterdir()
    assert path.stat().st_size == Shape(500, 8_000).file_bytes


@pytest.mark.parametrize("size", [1, 20, 511, 2**31, 1 << 40])
def test_a_length_that_no_log_file_can_have_is_none(tmp_path: Path, make: Make, size: int) -> None:
    """RocketMQ counts the bytes in 32 bits; a file shorter than a sector holds nothing."""
    make("commitlog", {0: size})
    with pytest.raises(StoreDamaged, match="the file's length is unknown"):
        found(tmp_path)
    with pytest.raises(StoreDamaged):
        StoreReader(tmp_path)
    make("commitlog", {0: 4096, 4096: 4096, 8192: size})
    assert found(tmp_path).log_file_bytes == 4096


def test_a_table_cannot_make_an_index_of_any_size(tmp_path: Path) -> None:
    """Its slots would be kept in memory."""
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.close()
    table = store.table("storeProgress.json")
    for name in (0, -1, 10**30, "x", None):
        store.write_table("storeProgress.json", table | {"index": {"slots": name, "entries": 9}})
        assert index_shape(ReadOnlyFiles(), store.root, BrokerConfig()) == Shape(7, 9)
    shutil.rmtree(store.root / "index")
    assert index_shape(ReadOnlyFiles(), store.root, BrokerConfig()) == Shape(5_000_000, 20_000_000)


# ---- the configuration


@pytest.mark.parametrize(
    ("key", "name", "own"),
    [
        ("mappedFileSizeCommitLog", "mapped_file_size_commit_log", LOG_FILE_BYTES),
        ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue", QUEUE_FILE_BYTES),
    ],
)
def test_another_size_that_is_set_is_a_mistake_in_the_configuration(
    closed: StoreUnderTest, key: str, name: str, own: int
) -> None:
    """Never damage; the error names the key, both values and a file, and nothing changes."""
    before = contents(closed.root)
    values: dict[str, Any] = {name: 8_388_620}
    config = BrokerConfig(store_path=closed.root, **values)
    for look in (
        lambda: MessageStore(config, SystemFiles(), FakeClock()),
        lambda: StoreReader(closed.root, config),
        lambda: plan_repair(closed.root, config=config),
    ):
        with pytest.raises(ConfigInvalid) as caught:
            look()
        said = str(caught.value)
        assert caught.value.field == key
        assert f"{key}='8388620'" in said
        assert f"files of {own} bytes" in said
        assert str(closed.root) in said
        assert f"{0:020d}" in said
    assert contents(closed.root) == before


def test_a_default_yields_to_the_store(closed: StoreUnderTest) -> None:
    """Who names only the folder has said nothing about sizes."""
    config = BrokerConfig(store_path=closed.root, message_delay_level="1s 5s 10s")
    plan = plan_repair(closed.root, config=config)
    assert (plan.findings, plan.actions) == ((), ())
    store = MessageStore(config, SystemFiles(), FakeClock())
    assert store.log_file_bytes == LOG_FILE_BYTES
    store.close({})
    assert list(check(closed.root)) == []


def test_files_of_sizes_that_are_set_stay_so(closed: StoreUnderTest) -> None:
    """The same sizes in the configuration, as in a store's own broker.conf."""
    values: dict[str, Any] = {"mapped_file_size_commit_log": LOG_FILE_BYTES}
    assert found(closed.root, **values) == Sizes(LOG_FILE_BYTES, QUEUE_FILE_BYTES)


# ---- what no repair explains


def test_a_repair_takes_no_records_away_with_a_file(closed: StoreUnderTest) -> None:
    """Log files far from the others that hold records where they belong are no rubbish."""
    start = 4_096_000 * LOG_FILE_BYTES
    data = bytearray(closed.log_files()[0].read_bytes())
    data[28:36] = start.to_bytes(8)
    path = closed.root / "commitlog" / f"{start:020d}"
    path.write_bytes(data)
    before = contents(closed.root)
    with pytest.raises(RepairRefused, match="a record lies where it belongs at byte 0"):
        plan_repair(closed.root, config=closed.config)
    assert contents(closed.root) == before


def test_a_copy_of_a_log_file_is_rubbish(closed: StoreUnderTest) -> None:
    """Its records say that they lie elsewhere."""
    start = 4_096_000 * LOG_FILE_BYTES
    shutil.copy(closed.log_files()[0], closed.root / "commitlog" / f"{start:020d}")
    (action,) = plan_repair(closed.root, config=closed.config).actions
    assert action.what == "moved-aside"


# ---- a broker that makes its first files while somebody looks


def test_a_check_learns_the_lengths_of_files_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker made its files of 1 MiB between two looks: the check said "instead of 1 GiB"."""
    store = StoreUnderTest(tmp_path / "store")
    monkeypatch.setattr(FileLayer, "is_locked", lambda _self, _path: True)
    checking = StoreCheck(store.root)
    store.send(*(f"message {number}" for number in range(100)))
    store.persist()
    assert list(checking.run()) == []
    assert checking.messages == 100
    assert checking.sizes == Sizes(LOG_FILE_BYTES, QUEUE_FILE_BYTES)
    checking.close()
    store.close()


def test_a_reader_learns_the_lengths_of_files_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`store show` of a broker that had just begun said that its log file was damaged."""
    store = StoreUnderTest(tmp_path / "store")

    def sizes_then_files(*given: Any) -> Sizes:
        sizes = sizes_of(*given)
        if not has_log(store.files, store.root):
            store.send("one", "two")
        return sizes

    monkeypatch.setattr(reader, "sizes_of", sizes_then_files)
    with StoreReader(store.root) as opened:
        assert [each.body for each in opened.messages(MessageFilter())] == [b"one", b"two"]
    store.close()

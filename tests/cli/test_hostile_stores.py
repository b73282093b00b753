"""A store that somebody prepared: every command ends with a sentence, and touches nothing else.

Each file of a store is replaced by each thing that is none: a pipe, a link, a folder, a file
of two terabytes, JSON without end.  No command may wait, raise what is not ours, or change
what a link points at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqlite.cli.options import NOT_CLOSED
from rmqlite.features.every import features
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest, Heard, small_config
from tests.support.bulk import schedule
from tests.support.clock import FakeClock, FakeMachine
from tests.support.letters import set_marker
from tests.support.looking import run_store
from tests.support.redrives import bury_many, redrive

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 17,
    "max_message_bytes": 1 << 15,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slots": 7,
    "max_index_entries": 99,
}
TABLES = [
    *("topics", "storeProgress", "subscriptionGroup", "consumerOffset", "delayOffset"),
    *("delayLevels", "clock", "bulkJobs", "redriveJobs", "deadLetterMarkers"),
]
DATA_FILES = {
    "oldest log file": "commitlog/00000000000000000000",
    "newest log file": "commitlog/00000000000000131072",
    "queue file": "consumequeue/orders/0/00000000000000000400",
    "newest queue file": "consumequeue/orders/0/00000000000000002800",
    "checksums": "checksums/00000000000000000000",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
}
FILES = DATA_FILES | {name: f"config/{name}.json" for name in TABLES}


def link(path: Path) -> None:
    """To a file that would do, so that whoever follows it goes on."""
    path.symlink_to(victim_of(path))


def stretch(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 41)


def nest(path: Path) -> None:
    path.write_bytes(b'{"offsetTable":' + b"[" * 100_000)


def overflow(path: Path) -> None:
    numbers = ("offsetTable", "queueOffset", "physicalOffset", "offsetNanos", "tables")
    path.write_text("{" + ",".join(f'"{name}":1e999' for name in numbers) + "}")


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "link": link,
    "folder": Path.mkdir,
    "empty file": Path.touch,
    "sparse file": stretch,
}
ODD_TABLES = ODD | {"nested": nest, "1e999": overflow}
CELLS = [
    *((name, odd) for name in DATA_FILES for odd in ODD),
    # All tables are opened by one function: of most it is enough to try what differs.
    *((name, odd) for name in TABLES[:2] for odd in ODD_TABLES),
    *((name, odd) for name in TABLES[2:] for odd in ("link", "nested", "1e999")),
]
UNREAD = ("checkpoint", "abort", "lock", "checksums")
"""Nothing is read of these that any content could change."""


def victim_of(path: Path) -> Path:
    return path.parents[len(path.parts) - path.parts.index("store") - 1] / "victim"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store that has every kind of file, several of some."""
    root = tmp_path_factory.mktemp("template") / "store"
    broker = BrokerUnderTest(root, clock=FakeClock(machine=FakeMachine()), **SIZES)
    for number in range(5):
        broker.send(*[Message("orders", bytes(1000), keys=(f"key-{number}",)) for _ in range(30)])
    schedule(broker, ["a", "b"], delays=("10m",))
    bury_many(broker, 5)
    redrive(broker)
    broker.broker.commit_offsets(OffsetsCommit("readers", {Queue("orders", 0): 7}))
    set_marker(broker, 2)
    broker.close()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


def replaced(root: Path, name: str, odd: str) -> tuple[Path, bytes]:
    """The path of a file that is replaced, and what was in it, which the victim has now."""
    (root / "abort").touch()
    path = max(root.glob(FILES[name]))
    data = path.read_bytes()
    victim_of(path).write_bytes(data)
    path.unlink()
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    if name != "abort":
        (root / "abort").unlink()
    ODD_TABLES[odd](path)
    return path, data


def opened(root: Path) -> str:
    """Start a broker and stop it again; the sentence with which it refuses, or nothing."""
    config = small_config(root, **SIZES)
    try:
        store = MessageStore(config, SystemFiles(), FakeClock(machine=FakeMachine()))
    except RmqliteError as error:
        return str(error)
    try:
        broker = Broker(
            config,
            store,
            FakeClock(machine=FakeMachine()),
            Heard(),
            [each.make for each in features()],
        )
        store.close(broker.tables())
    except RmqliteError as error:
        return str(error)
    finally:
        store.release()
    return ""


@pytest.mark.parametrize("words", [["show"], ["cat"], ["check"], ["repair"]], ids=" ".join)
def test_the_store_itself_is_sound(root: Path, words: list[str]) -> None:
    """Else the others would prove nothing."""
    assert run_store(*words, root).exit_code == 0
    assert opened(root) == ""


@pytest.mark.timeout(60)
@pytest.mark.one_of(3)
@pytest.mark.parametrize(("name", "odd"), CELLS, ids=[f"{a}: {b}" for a, b in CELLS])
def test_every_command_ends_with_a_sentence_and_changes_no_other_file(
    root: Path, name: str, odd: str
) -> None:
    """Exit code 1 names the file; a start that does not refuse has put it right."""
    path, data = replaced(root, name, odd)
    for words in (["show"], ["cat"], ["check"], ["repair", "--levels", DEFAULT_LEVELS]):
        result = run_store(*words, root)
        assert result.exit_code in (0, 1, NOT_CLOSED), (words, result.output)
        assert result.exit_code != 1 or path.name in result.output, (words, result.output)
        if words == ["check"] and not is_harmless(name, odd):
            assert result.exit_code != 0, result.output
    sentence = opened(root)
    assert not sentence or str(path) in sentence
    if not sentence and name not in UNREAD and odd != "empty file":
        assert run_store("check", root).exit_code == 0
    assert victim_of(path).read_bytes() == data


def is_harmless(name: str, odd: str) -> bool:
    """Is there nothing for a check to say?"""
    if odd == "empty file":
        # A crash leaves these, and what RocketMQ has not written yet.
        return name in (*TABLES, *UNREAD)
    return odd == "sparse file" and name in UNREAD


@pytest.mark.one_of(2)
@pytest.mark.parametrize("odd", ["pipe", "link", "folder"])
@pytest.mark.parametrize("name", ["oldest log file", "queue file", "topics", "storeProgress"])
def test_a_repair_takes_it_away_and_nothing_behind_it(root: Path, name: str, odd: str) -> None:
    """Of a link only the link goes, and the copy beside the store holds no byte of its target."""
    path, data = replaced(root, name, odd)
    assert run_store("repair", root, "--yes").exit_code == 0
    assert run_store("check", root).exit_code == 0
    assert not path.is_symlink()
    assert victim_of(path).read_bytes() == data


@pytest.mark.parametrize(
    ("table", "text", "said"),
    [
        (
            "topics",
            '{"topicConfigTable":{"a":{"topicName":"../../../victim","readQueueNums":1,'
            '"writeQueueNums":1,"perm":6}}}',
            "topicConfigTable.a.topicName: a name in UTF-8",
        ),
        (
            "topics",
            '{"topicConfigTable":{"a":{"topicName":"a","readQueueNums":' + "1" + "0" * 30 + "}}}",
            "topicConfigTable.a.readQueueNums: a number from",
        ),
        (
            "topics",
            '{"topicConfigTable":{"a":{"topicName":"a","readQueueNums":1000000,'
            '"writeQueueNums":1,"perm":6}}}',
            "topicConfigTable.a.readQueueNums: less than or equal to 65536, found 1000000",
        ),
        ("consumerOffset", '{"offsetTable":{"../x@g":{"0":1}}}', "offsetTable.../x@g: a name in"),
    ],
)
def test_a_name_or_a_count_that_may_not_be_is_refused_everywhere(
    root: Path, table: str, text: str, said: str
) -> None:
    """With file, value and rule: by the check, at the start, and set aside by a repair."""
    path = root / "config" / f"{table}.json"
    path.write_text(text)
    checked = run_store("check", root)
    assert checked.exit_code == 1
    assert said in checked.output
    refused = opened(root)
    assert str(path) in refused
    assert said in refused
    assert run_store("repair", root, "--yes").exit_code == 0
    assert opened(root) == ""


@pytest.mark.parametrize("where", ["consumequeue/orders", "consumequeue/orders/0"])
def test_a_folder_of_a_queue_is_no_link(root: Path, where: str) -> None:
    """What is written there, or moved away by a repair, would be somebody else's."""
    victim = root.with_name("victim")
    shutil.move(root / where, victim)
    before = sorted(victim.rglob("*"))
    (root / where).symlink_to(victim)
    for words in (["show"], ["check"], ["repair", "--yes"]):
        result = run_store(*words, root)
        assert result.exit_code == 1
        assert "expected a folder, found a symbolic link" in " ".join(result.output.split())
    assert "expected a folder, found a symbolic link" in opened(root)
    assert sorted(victim.rglob("*")) == before


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index", "checksums", "config"])
def test_a_folder_of_the_store_may_be_a_link(root: Path, folder: str) -> None:
    """An operator puts it on another disk so."""
    shutil.move(root / folder, root.with_name("elsewhere"))
    (root / folder).symlink_to(root.with_name("elsewhere"))
    assert run_store("check", root).exit_code == 0
    assert opened(root) == ""
    assert run_store("check", root).exit_code == 0
    assert (root / folder).is_symlink()


def test_a_topic_folder_whose_name_is_no_text_is_refused(root: Path) -> None:
    """It could not be written into a table."""
    os.mkdir(os.fsencode(root / "consumequeue") + b"/\xff")
    for words in (["show"], ["check"], ["repair"]):
        result = run_store(*words, root)
        assert result.exit_code == 1
        assert "a name in UTF-8" in " ".join(result.output.split())
    assert "a name in UTF-8" in opened(root)

"""rmqlite store check: its table, its JSON, its exit code; a store that is being written to."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import Message, Producer
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.testing import BrokerProcess
from tests.support.golden import unpack_golden
from tests.support.looking import run_store, untouched
from tests.support.stores import StoreUnderTest, scheduled


@pytest.fixture
def closed(tmp_path: Path) -> StoreUnderTest:
    """A sound store of several files, closed."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.close()
    return each


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """The broker.conf of a store."""
    store = StoreUnderTest(tmp_path / "configured", log_file_bytes=1 << 20)
    store.fill()
    store.close()
    path = tmp_path / "broker.conf"
    path.write_text(
        f"storePathRootDir={store.root}\n"
        "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=200\n"
        "maxMessageSize=65536\nmessageDelayLevel=1s 5s 10s\n"
    )
    return path


def damage(closed: StoreUnderTest) -> None:
    path = closed.log_files()[0]
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"~" + data[101:])


def test_a_sound_store_is_told_on_one_line(closed: StoreUnderTest) -> None:
    """How much, how fast, and that nothing is wrong; nothing is changed."""
    with untouched(closed.root):
        result = run_store("check", closed.root)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("checked 42 messages, ")
    assert result.stdout.endswith(" MB/s): no inconsistency\n")
    assert result.stdout.count("\n") == 1


def test_what_is_wrong_is_told_with_file_and_byte(closed: StoreUnderTest) -> None:
    """P10; exit code 1 for scripts, and what to do next."""
    damage(closed)
    with untouched(closed.root):
        result = run_store("check", closed.root)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "commitlog/00000000000000000000 at byte 0: damaged-record"
    assert lines[1].startswith("  a record whose body does not fit its CRC")
    assert lines[-2].endswith("2 inconsistencies")
    assert lines[-1] == "rmqlite store repair says what can be done"


def test_json_has_every_field(closed: StoreUnderTest) -> None:
    """For programs; the exit code is the same."""
    damage(closed)
    result = run_store("check", closed.root, "--json")
    assert result.exit_code == 1
    tree = json.loads(result.stdout)
    assert (tree["is_live"], tree["bytes_without_checksum"]) == (False, 0)
    first = tree["findings"][0]
    assert first["path"] == str(closed.log_files()[0])
    assert (first["position"], first["what"]) == (0, "damaged-record")
    assert first["opening_mends"] is False


def test_a_configuration_says_where_and_what(configured: Path) -> None:
    """Without one, file sizes are what the files say."""
    result = run_store("check", "--config", configured)
    assert (result.exit_code, result.stderr) == (0, "")


def test_levels_of_a_store_without_a_history(closed: StoreUnderTest, tmp_path: Path) -> None:
    """As RocketMQ's: deliver times are compared with what the levels were; ours has them logged."""
    (closed.root / "config" / "delayLevels.json").unlink()
    assert run_store("check", closed.root, "--levels", "1s 6s 10s").exit_code == 0
    rocketmqs, levels = unpack_golden(tmp_path) / "clean", DEFAULT_LEVELS
    assert run_store("check", rocketmqs, "--levels", levels).exit_code == 0
    result = run_store("check", rocketmqs, "--levels", levels.replace(" 5s ", " 6s "))
    assert result.exit_code == 1
    assert "SCHEDULE_TOPIC_XXXX queue 1, queue offset 0: has deliver time" in result.stdout


def test_where_there_is_no_store_nothing_is_sound(tmp_path: Path) -> None:
    """A mistyped path must not look like a store in order."""
    result = run_store("check", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: store must be ")


def test_what_rocketmq_wrote_has_no_checksums(tmp_path: Path) -> None:
    """It is counted, so that nobody believes more than was compared."""
    result = run_store("check", unpack_golden(tmp_path) / "clean")
    assert result.exit_code == 0
    assert "have no checksum" in result.stdout.splitlines()[1]


def test_a_live_store_is_checked_while_it_is_written(tmp_path: Path) -> None:
    """Five times, with deliveries going on: what is not yet on disk is no finding.

    Behind each batch the sender waits a moment: what it has sent is checked again and again.
    """
    keys = {
        "listenPort": "0",
        "messageDelayLevel": "1s 2s",
        "mappedFileSizeCommitLog": str(1 << 20),
        "maxMessageSize": "65536",
    }
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        stopped = threading.Event()

        def send() -> None:
            with Producer(broker.endpoint, "senders") as producer:
                while not stopped.is_set():
                    batch = [
                        Message("orders", b"x" * (n * 37 + 1), delay_level=n % 3) for n in range(40)
                    ]
                    producer.send_batch(batch)
                    stopped.wait(0.03)

        sending = threading.Thread(target=send)
        sending.start()
        try:
            messages = 0
            while messages < 1_000:
                messages = assert_sound(broker.store)
            seen = [assert_sound(broker.store) for _ in range(5)]
            assert seen == sorted(seen)
            messages = seen[-1]
        finally:
            stopped.set()
            sending.join()
        broker.kill()
        tree = checked(broker.store, exit_code=5)
        assert (tree["result"], tree["is_live"], tree["is_closed"]) == ("not-closed", False, False)
        assert tree["messages"] >= messages
        broker.start()
        broker.stop()
        tree = checked(broker.store, exit_code=0)
        assert (tree["result"], tree["is_live"], tree["is_closed"]) == ("sound", False, True)


def assert_sound(store: Path) -> int:
    """The number of messages of a live store."""
    tree = checked(store, exit_code=0)
    assert (tree["findings"], tree["result"], tree["is_live"]) == ([], "sound", True)
    assert tree["log_end"] - tree["log_begin"] == tree["log_bytes"]
    return int(tree["messages"])


def checked(store: Path, *, exit_code: int) -> dict[str, Any]:
    """What --json prints."""
    result = run_store("check", store, "--json")
    assert result.exit_code == exit_code, result.stdout
    tree: dict[str, Any] = json.loads(result.stdout)
    return tree


def test_a_killed_store_says_what_the_next_start_completes(tmp_path: Path) -> None:
    """Nothing is damaged: no line for each missing entry, and an exit code of its own."""
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.persist()
    written = store.send("one", "two")
    (last,) = store.append(scheduled("three", 1))
    unsaved_bytes = last.physical_offset + last.size - written[0].physical_offset
    store.sync()
    store.crash()
    path = max((store.root / "consumequeue" / "orders" / "0").iterdir())
    at = written[0].queue_offset * 20 - int(path.name)
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes(40) + data[at + 40 :])
    with untouched(store.root):
        result = run_store("check", store.root)
    assert result.exit_code == 5
    lines = result.stdout.splitlines()
    assert lines[0].startswith("checked 45 messages, ")
    assert lines[0].endswith(": no inconsistency")
    said = "the store was not closed (a kill, or a power cut); nothing is damaged"
    assert lines[-3:] == [
        f"{said}, and the next start completes:",
        "  2 queue entries missing at the end of 1 queue",
        f"  queues, key index and progress for the last {unsaved_bytes} bytes of the log",
    ]
    tree = checked(store.root, exit_code=5)
    assert tree["result"] == "not-closed"
    assert [(each["count"], each["is_leftover"]) for each in tree["findings"]] == [(2, True)]
    store.open()
    store.close()
    assert checked(store.root, exit_code=0)["result"] == "sound"


def test_damage_in_a_killed_store_is_damage(tmp_path: Path) -> None:
    """Exit code 1, and a line for everything."""
    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.crash()
    damage(store)
    last = store.log_files()[-1]
    data = last.read_bytes()
    at = store.store.end % len(data)
    last.write_bytes(data[:at] + b"torn" + data[at + 4 :])
    result = run_store("check", store.root)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "commitlog/00000000000000000000 at byte 0: damaged-record" in lines
    assert lines[-2:] == [
        "1 of them was left by a process that was killed, and the next start completes it",
        "rmqlite store repair says what can be done",
    ]
    assert checked(store.root, exit_code=1)["result"] == "inconsistent"


def test_a_live_store_says_up_to_where_it_was_checked(tmp_path: Path) -> None:
    """What is written during the check is not looked at, and nobody should believe it was."""
    with BrokerProcess(tmp_path / "broker", {}) as broker:
        with Producer(broker.endpoint, "senders") as producer:
            producer.send(Message("orders", b"one"))
        end = checked(broker.store, exit_code=0)["log_end"]
        lines = run_store("check", broker.store).stdout.splitlines()
    assert end > 0
    assert lines[1] == (
        f"a running broker holds the store: physical offsets 0 to {end:,} were checked, up to the"
        " log's end at that moment; what was written later was not"
    )

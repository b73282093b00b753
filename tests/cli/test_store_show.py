"""rmqlite store show: what an operator sees of a store, and that looking changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.store_tools.reader import StoreReader
from tests.support.golden import unpack_timers
from tests.support.looking import run_store, untouched
from tests.support.stores import LOG_FILE_BYTES, StoreUnderTest, scheduled

SECTIONS = ("log files", "queues", "delay levels", "groups")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """A store of ours with a bit of everything."""
    each = StoreUnderTest(tmp_path / "store")
    each.fill()
    each.persist()
    yield each
    each.store.release()


def shown(root: Path, *more: str) -> list[str]:
    """What is printed, without what stands at the right of a shorter cell."""
    with untouched(root):
        result = run_store("show", root, *more)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.rstrip() for line in result.stdout.splitlines()]


def rows(lines: list[str], section: str) -> list[list[str]]:
    """The cells of a section's rows."""
    begin = next(n for n, line in enumerate(lines) if line.startswith(section))
    found = []
    for line in lines[begin + 2 :]:
        if not line:
            break
        found.append(line.split())
    return found


@pytest.mark.parametrize("command", ["", "show", "cat", "export"])
def test_every_command_explains_itself(command: str) -> None:
    """--help is the manual; it fits a terminal."""
    result = run_store(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_timers_of_rocketmqs_are_counted_as_the_next_broker_will(tmp_path: Path) -> None:
    """Not those that RocketMQ has delivered, rolled or cancelled."""
    lines = shown(unpack_timers(tmp_path, "killed")[0])
    assert [row[:3] for row in rows(lines, "delay levels")] == [
        ["18", "2h", "1"],
        ["timer", "any", "26"],
    ]


def test_a_store_of_rocketmqs_is_shown(golden: Path) -> None:
    """Everything of it, in 80 columns."""
    lines = shown(golden / "clean")
    assert max(len(line) for line in lines[1:]) <= 80
    assert lines[:6] == [
        f"store   {golden / 'clean'}",
        "state   closed cleanly; no progress of rmqlite's",
        "holds   2,488 messages, 81 pending, the newest of " + lines[2][50:],
        "log     1.2 MiB, physical offsets 0 to 1296464",
        lines[4],
        "format  RocketMQ 4.x; files of 1.0 MiB of log, of 200 queue entries",
    ]
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert rows(lines, "log files")[1][:2] == ["00000000000001048576", "242.1"]
    orders = ["orders", "0", "0", "604", "301.2", "KiB"]
    assert orders in [row[:6] for row in rows(lines, "queues")]
    assert [row[:3] for row in rows(lines, "delay levels")][:2] == [
        ["5", "1m", "2"],
        ["6", "2m", "6"],
    ]
    assert rows(lines, "groups") == [
        ["order-closer", "%RETRY%order-closer", "1", "10", "2"],
        ["order-closer", "orders", "4", "2,416", "0"],
    ]


def test_a_killed_store_says_so(golden: Path) -> None:
    """A file that RocketMQ made in advance holds nothing."""
    lines = shown(golden / "killed")
    assert lines[1] == "state   crashed, or copied while live; no progress of rmqlite's"
    assert rows(lines, "log files")[2] == ["00000000000002097152", "0", "bytes", "-", "-"]


def test_all_shows_rocketmqs_own_topics_and_empty_levels(golden: Path) -> None:
    """Plumbing is left out otherwise."""
    lines = shown(golden / "clean", "--all")
    assert "SCHEDULE_TOPIC_XXXX" not in "".join(shown(golden / "clean"))
    assert any(row[0] == "SCHEDULE_TOPIC_XXXX" for row in rows(lines, "queues"))
    assert [row[0] for row in rows(lines, "delay levels")] == [str(n) for n in range(1, 19)]


def test_json_has_every_figure(golden: Path) -> None:
    """For programs; times in milliseconds, sizes in bytes."""
    with untouched(golden):
        tree = json.loads(run_store("show", golden / "clean", "--json").stdout)
    assert set(tree) == {
        *("store", "levels_text", "segments", "queues", "levels", "groups", "disk", "pin")
    }
    assert tree["store"]["state"] == "closed"
    assert tree["store"]["end"] == 1_296_464
    assert tree["store"]["behind_bytes"] is None
    assert sum(level["pending"] for level in tree["levels"]) == 81
    assert tree["levels"][4] == {
        "level": 5,
        "delay": "1m",
        "pending": 2,
        "next_due_ms": 1_795_181_247_875,
        "oldest_physical_offset": 1_291_037,
    }
    assert tree["groups"][0] == {
        "group": "order-closer",
        "topic": "%RETRY%order-closer",
        "queue_id": 0,
        "committed_offset": 10,
        "max_offset": 12,
        "min_offset": 0,
        "lag": 2,
    }
    assert tree["segments"][0]["record_bytes"] == 1_048_565
    assert tree["disk"]["log_bytes"] == 2 << 20


def test_a_crashed_store_says_how_much_is_to_be_recovered(store: StoreUnderTest) -> None:
    """What lies behind the saved progress is walked at the next opening."""
    store.send("one more")
    behind = store.store.end - store.store.persisted_end
    store.crash()
    assert shown(store.root)[1] == (
        f"state   crashed, or copied while live; progress is saved but for {behind} bytes"
    )
    store.open()
    store.close()
    assert shown(store.root)[1] == "state   closed cleanly; progress is saved"


def test_of_many_log_files_the_first_and_the_last_are_shown(store: StoreUnderTest) -> None:
    """--all shows them all."""
    store.send(*["x" * 900] * 40)
    store.close()
    files = [path.name for path in store.log_files()]
    assert len(files) > 8
    names = [row[0] for row in rows(shown(store.root), "log files")]
    assert names == [*files[:3], "…", *files[-3:]]
    assert f"… {len(files) - 6} more …" in shown(store.root)
    assert [row[0] for row in rows(shown(store.root, "--all"), "log files")] == files


def test_many_queues_are_added_up_by_topic(store: StoreUnderTest) -> None:
    """A thousand rows help nobody; --all has them."""
    for queue_id in range(60):
        store.send("x", "y", topic="wide", queue_id=queue_id)
    store.close()
    lines = shown(store.root)
    assert rows(lines, "topics (--all shows each queue)")[1][:3] == ["wide", "60", "120"]
    assert len(rows(shown(store.root, "--all"), "queues")) > 60


def test_what_pins_old_files_is_one_line(tmp_path: Path) -> None:
    """An undelivered message, whose files are older than they should be."""
    each = StoreUnderTest(tmp_path / "store")
    (waiting,) = each.append(scheduled("wait", 3))
    each.send(*["x" * 900] * 20)
    each.close()
    assert not [line for line in shown(each.root) if line.startswith("pinned")]
    for path in each.log_files():
        os.utime(path, (1, 1))
    (line,) = [line for line in shown(each.root) if line.startswith("pinned")]
    kept = (len(each.log_files()) - 1) * LOG_FILE_BYTES // 1024
    assert line.startswith(f"pinned  {kept}.0 KiB of expired log files stay for a message of ")
    assert "level 3, due 20" in line
    assert line.endswith(f"at physical offset {waiting.physical_offset}")
    tree = json.loads(run_store("show", each.root, "--json").stdout)
    assert tree["pin"]["level"] == 3


def test_damage_at_the_end_is_shown(store: StoreUnderTest) -> None:
    """show still shows what is sound."""
    store.close()
    (store.root / "config" / "storeProgress.json").unlink()
    (store.root / "config" / "storeProgress.json.bak").unlink()
    path = store.log_files()[0]
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    (line,) = [line for line in shown(store.root) if line.startswith("damage")]
    assert str(path) in line
    assert line.endswith("rmqlite store check shows more")


def test_the_path_comes_from_a_broker_conf_and_sizes_from_the_store(
    store: StoreUnderTest, tmp_path: Path
) -> None:
    """A key that is set to another size is told, with the file that says otherwise."""
    store.close()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store.root}\n")
    shown_by_conf = run_store("show", "--config", conf).stdout
    assert shown_by_conf == run_store("show", store.root).stdout
    assert shown_by_conf.startswith(f"store   {store.root}\n")
    conf.write_text(f"storePathRootDir={store.root}\nmappedFileSizeCommitLog={1 << 20}\n")
    result = run_store("show", "--config", conf)
    assert result.exit_code == 1
    assert f"{conf}:2: mappedFileSizeCommitLog='{1 << 20}'" in result.stderr
    assert f"files of {LOG_FILE_BYTES} bytes" in result.stderr
    assert str(store.log_files()[0]) in result.stderr
    conf.write_text("storePath=x\n")
    wrong = run_store("show", "--config", conf)
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (1, 1)
    assert f"{conf}:1: storePath" in wrong.stderr


def test_without_a_path_it_is_the_default_store(golden: Path) -> None:
    """~/store, as a broker without a configuration."""
    (golden / "clean").rename(golden / "store")
    result = run_store("show", HOME=str(golden))
    assert result.stdout.startswith(f"store   {golden / 'store'}\n")


def test_what_is_no_store_is_one_line(tmp_path: Path) -> None:
    """And is left as it was."""
    (tmp_path / "empty").mkdir()
    with untouched(tmp_path):
        for name, rule in (("missing", "a folder that exists"), ("empty", "a store's folder")):
            for command in ("show", "cat", "export"):
                result = run_store(command, tmp_path / name)
                assert (result.exit_code, result.stdout) == (1, "")
                assert result.stderr.startswith("error: store must be")
                assert rule in result.stderr
                assert result.stderr.count("\n") == 1


def test_a_fresh_store_is_short(tmp_path: Path) -> None:
    """Nothing is in it yet; no section is empty."""
    each = StoreUnderTest(tmp_path / "store")
    each.close()
    lines = shown(each.root)
    assert lines[2] == "holds   0 messages, 0 pending, the newest of -"
    assert not set(lines) & set(SECTIONS)


def test_a_name_on_disk_is_never_interpreted(store: StoreUnderTest) -> None:
    """A folder's name may hold what a terminal would obey."""
    store.close()
    evil = store.root.with_name("st\x1b[31more")
    store.root.rename(evil)
    result = run_store("show", evil)
    assert "\x1b" not in result.stdout
    assert "st\\x1b[31more" in result.stdout
    with StoreReader(evil) as reader:
        assert reader.root == evil

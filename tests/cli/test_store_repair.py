"""rmqlite store repair: the plan it prints, what --yes does, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqlite.client import Message, Producer, PullConsumer
from rmqlite.kernel.requests.messages import PullStatus
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.testing import BrokerProcess
from tests.support.golden import unpack_golden
from tests.support.looking import run_store, untouched
from tests.support.repairs import counted, filled, flip, known, overwrite
from tests.support.stores import StoreUnderTest, scheduled


@pytest.fixture
def closed(tmp_path: Path) -> StoreUnderTest:
    """A store of several files, closed."""
    store = filled(tmp_path / "store")
    store.close()
    return store


@pytest.fixture
def damaged(closed: StoreUnderTest) -> StoreUnderTest:
    """One message's body has changed in several bytes."""
    overwrite(closed.log_files()[0], 90, b"?????")
    return closed


def test_a_sound_store_has_nothing_to_repair(closed: StoreUnderTest) -> None:
    """With --yes as without; nothing is changed, and no folder made."""
    with untouched(closed.root):
        for options in ([], ["--yes"]):
            result = run_store("repair", closed.root, *options)
            assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")


def test_a_plan_says_what_where_and_what_is_lost(damaged: StoreUnderTest) -> None:
    """Exit code 1: there is something to do; nothing was changed."""
    with untouched(damaged.root):
        result = run_store("repair", damaged.root)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "commitlog/00000000000000000000 at byte 0"
    assert lines[1].startswith("  a record whose body does not fit its CRC")
    assert lines[2] == "  -> a repaired place of 258 bytes, which consumers skip"
    assert lines[3] == "  lost: orders queue 0, queue offset 0"
    assert lines[-4:] == [
        "lost: 1 message",
        "what can be read, before the repair -> after it:",
        "  all topics  28 -> 28 messages  23 -> 23 pending  9,384 -> 9,384 bytes",
        "nothing was changed: --yes does this, and keeps the removed bytes",
    ]
    assert max(len(line) for line in lines) <= 80


def test_yes_does_it_and_checks_again(damaged: StoreUnderTest) -> None:
    """The store opens; a second repair finds nothing; a check neither."""
    with pytest.raises(StoreDamaged):
        damaged.open()
    result = run_store("repair", damaged.root, "--yes")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    (side,) = damaged.root.glob("repaired-*")
    assert lines[-2] == f"done; the removed bytes are in {side}"
    assert lines[-1] == "the store has been opened and checked again: all is sound"
    assert run_store("repair", damaged.root).stdout == "nothing to repair\n"
    assert run_store("check", damaged.root).exit_code == 0
    damaged.open()
    assert ("orders", 0, 0) not in known(damaged)
    assert ("orders", 0, 1) in known(damaged)


def test_a_topic_that_changes_is_counted_before_and_after(closed: StoreUnderTest) -> None:
    """The preview is what happens: a record with a wrong time could be read, its place cannot."""
    flip(closed.log_files()[0], 58)
    lines = run_store("repair", closed.root).stdout.splitlines()
    at = lines.index("what can be read, before the repair -> after it:")
    assert [line.split()[:4] for line in lines[at + 1 : at + 3]] == [
        ["orders", "28", "->", "27"],
        ["all", "topics", "29", "->"],
    ]
    tree = json.loads(run_store("repair", closed.root, "--json").stdout)
    before, after = tree["before"]["orders"], tree["after"]["orders"]
    assert before["pending"] == after["pending"] == 23
    assert before["bytes"] - after["bytes"] == 258
    assert run_store("repair", closed.root, "--yes").exit_code == 0
    closed.open()
    assert {topic: count._asdict() for topic, count in counted(closed).items()} == tree["after"]


def test_a_configuration_with_other_sizes_is_no_damage(tmp_path: Path) -> None:
    """A conf that names only the folder; one that contradicts the files is refused."""
    root = unpack_golden(tmp_path) / "clean"
    conf = tmp_path / "broker.conf"
    with untouched(root):
        conf.write_text(f"storePathRootDir={root}\n")
        for options in ([], ["--yes"]):
            result = run_store("repair", "--config", conf, *options)
            assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")
        assert run_store("check", "--config", conf).exit_code == 0
        assert run_store("show", "--config", conf).stdout == run_store("show", root).stdout
        conf.write_text(f"storePathRootDir={root}\nmappedFileSizeConsumeQueue=6000000\n")
        for command in ("repair", "check", "show", "cat"):
            result = run_store(command, "--config", conf)
            assert result.exit_code == 1
            assert f"{conf}:2: mappedFileSizeConsumeQueue='6000000'" in result.stderr
            assert "files of 4000 bytes" in result.stderr


def test_json_is_for_programs(damaged: StoreUnderTest) -> None:
    """Plan and deed in one shape."""
    plan = run_store("repair", damaged.root, "--json")
    tree = json.loads(plan.stdout)
    assert (plan.exit_code, tree["is_done"], tree["side_folder"]) == (1, False, None)
    assert [each["what"] for each in tree["actions"]] == [
        *("repaired-place", "moved-aside", "new-checksums")
    ]
    assert tree["actions"][0]["lost"] == ["orders queue 0, queue offset 0"]
    done = run_store("repair", damaged.root, "--yes", "--json")
    tree = json.loads(done.stdout)
    assert (done.exit_code, tree["is_done"], tree["findings_afterwards"]) == (0, True, [])
    assert Path(tree["side_folder"], "report.json").exists()


def test_what_a_crash_left_is_left_to_opening(closed: StoreUnderTest) -> None:
    """A torn tail is no damage."""
    closed.open()
    end = closed.store.end
    closed.crash()
    overwrite(closed.log_files()[-1], end % closed.log_file_bytes, b"torn")
    result = run_store("repair", closed.root)
    assert (result.exit_code, result.stdout) == (
        *(0, "nothing to repair: opening the store mends all\n"),
    )


def test_what_no_repair_can_change_is_said(closed: StoreUnderTest) -> None:
    """A message that was delivered too early was delivered too early."""
    closed.open()
    (waiting,) = closed.append(scheduled("soon", 1))
    closed.deliver(1, waiting)
    closed.close()
    result = run_store("repair", closed.root, "--yes")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == ["nothing to repair", "1 thing that no repair can change:"]
    assert lines[3] == "  delivered 1000 ms early"


def test_a_long_list_is_cut_short(closed: StoreUnderTest) -> None:
    """JSON and the report have all of it."""
    path = closed.log_files()[0]
    overwrite(path, 0, bytes(3_500))
    lines = run_store("repair", closed.root).stdout.splitlines()
    assert sum(line.startswith("  lost: ") for line in lines) == 11
    assert any(line.startswith("  lost: ") and line.endswith(" more") for line in lines)
    tree = json.loads(run_store("repair", closed.root, "--json").stdout)
    assert len(tree["actions"][0]["lost"]) == tree["actions"][0]["lostMessages"] > 11


def test_a_store_in_use_is_not_repaired(tmp_path: Path) -> None:
    """The broker would go on writing from what it knows; and it goes on undisturbed."""
    keys = {"listenPort": "0", "mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "65536"}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        with Producer(broker.endpoint, "senders") as producer:
            producer.send(Message("orders", b"one"))
        for options in ([], ["--yes"]):
            result = run_store("repair", broker.store, *options)
            assert result.exit_code == 1
            assert "another broker is running on this store" in result.stderr
        broker.stop()


def test_consumers_pass_over_a_repaired_place(tmp_path: Path) -> None:
    """From a broker, over a damaged disk and a repair, to a broker again."""
    keys = {"listenPort": "0", "mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "65536"}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        bodies = [b"message %d " % number * 20 for number in range(20)]
        with Producer(broker.endpoint, "senders") as producer:
            for body in bodies:
                producer.send(Message("orders", body), queue_id=1)
        broker.stop()
        path = next((broker.store / "commitlog").iterdir())
        overwrite(path, path.read_bytes().index(bodies[7]) + 5, b"?????")
        assert run_store("repair", broker.store, "--yes").exit_code == 0
        broker.start()
        found: list[StoredMessage] = []
        with PullConsumer(broker.endpoint, "readers") as consumer:
            while (result := consumer.pull("orders", 1)).status is not PullStatus.NO_NEW_MESSAGE:
                found += result.messages
        assert [message.body for message in found] == bodies[:7] + bodies[8:]
        assert [message.queue_offset for message in found] == [*range(7), *range(8, 20)]
        broker.stop()

"""Looking at the store of a broker that is being sent to, and of one that was killed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from rmqlite.client import AdminClient, Message, Producer
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually
from tests.support.looking import run_store
from tests.support.stores import contents

LEVELS = "1s 2s"
LOOKS = 6
BATCH_S = 0.1
ENOUGH = 200


class Sending(threading.Thread):
    """Sends batches, some of them delayed, until told to stop.

    At a pace: what is looked at must not grow faster than one can look.
    """

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(self._endpoint, "senders") as producer:
            while not self._stopped.wait(BATCH_S):
                batch = [
                    Message(
                        "orders", b"x" * (1 + n * 37), keys=f"m{self.sent + n}", delay_level=n % 3
                    )
                    for n in range(40)
                ]
                producer.send_batch(batch)
                self.sent += len(batch)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def shown(root: Path) -> dict[str, Any]:
    result = run_store("show", root, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    tree = json.loads(result.stdout)
    assert isinstance(tree, dict)
    return tree


def exported(root: Path, *options: str) -> list[dict[str, Any]]:
    result = run_store("export", root, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("exported ")
    assert result.stderr.count("\n") == 1
    return [json.loads(line) for line in result.stdout.splitlines()]


def assert_a_prefix(trees: list[dict[str, Any]]) -> None:
    """Ascending in the log, and without a gap in any queue of the topic."""
    places = [tree["physical_offset"] for tree in trees]
    assert places == sorted(set(places))
    queues: Counter[int] = Counter()
    for tree in trees:
        assert tree["queue_offset"] == queues[tree["queue_id"]]
        queues[tree["queue_id"]] += 1


def test_a_live_store_is_read_while_it_is_written(start_broker: StartBroker) -> None:
    """Every look gives a prefix of what comes after, and disturbs nobody."""
    broker = start_broker(
        messageDelayLevel=LEVELS, mappedFileSizeCommitLog=1 << 20, maxMessageSize=65536
    )
    root = broker.folder / "store"
    sending = Sending(broker.endpoint)
    sending.start()
    try:
        eventually(lambda: sending.sent > ENOUGH, "there is something to look at")
        before: list[dict[str, Any]] = []
        end = 0
        for look in range(LOOKS):
            tree = shown(root)
            assert tree["store"]["state"] == "live"
            assert tree["store"]["damage"] is None
            assert tree["store"]["end"] >= end
            end = tree["store"]["end"]
            trees = exported(root, *([], ["--topic", "orders"])[look % 2])
            trees = [tree for tree in trees if tree["topic"] == "orders"]
            assert_a_prefix(trees)
            assert trees[: len(before)] == before
            before = trees
            assert run_store("cat", root, "--limit", "5").exit_code == 0
            waiting = exported(root, "--scheduled")
            assert {tree["level"] for tree in waiting} <= {1, 2}
    finally:
        sending.stop()
    assert len(before) > ENOUGH // 4
    broker.kill()
    files = contents(root)
    assert shown(root)["store"]["state"] == "crashed"
    after_kill = exported(root, "--topic", "orders")
    assert after_kill[: len(before)] == before
    # What was acknowledged is there: delivered, or as a record that waits.
    waiting = [tree for tree in exported(root, "--scheduled") if tree["is_pending"]]
    assert len(after_kill) + len(waiting) == sending.sent
    assert contents(root) == files
    broker.start()
    broker.stop()
    assert shown(root)["store"]["state"] == "closed"
    assert exported(root, "--topic", "orders")[: len(after_kill)] == after_kill


def test_a_backup_of_a_broker_in_use_is_a_store_to_go_on_with(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Whatever was acknowledged before it began is in it, and what waited comes once."""
    broker = start_broker(
        messageDelayLevel=LEVELS, mappedFileSizeCommitLog=1 << 20, maxMessageSize=65536
    )
    sending = Sending(broker.endpoint)
    sending.start()
    try:
        eventually(lambda: sending.sent > ENOUGH, "there is something to back up")
        for number in range(3):
            before = sending.sent
            result = run_store("backup", tmp_path / f"copy{number}", broker.store)
            assert (result.exit_code, result.stderr) == (0, "")
            assert before <= sending.sent
    finally:
        sending.stop()
    broker.stop()
    broker.store.rename(tmp_path / "lost")
    (tmp_path / "copy2").rename(broker.store)
    broker.start()
    with AdminClient(broker.endpoint) as admin:
        eventually(lambda: not admin.schedule.count_pending(), "what waited is delivered")
    broker.stop()
    assert run_store("check", broker.store).exit_code == 0
    keys = [tree["properties"]["KEYS"] for tree in exported(broker.store, "--topic", "orders")]
    assert len(keys) == len(set(keys)) >= before
    assert set(keys) >= {f"m{number}" for number in range(before)}

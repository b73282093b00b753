"""A store whose tail is cut off is the one that only the rest of its log makes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.standby import tails
from rmqlite.features.standby.role import SLAVE, BrokerRole, save_role
from rmqlite.features.standby.tails import cut_tail
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.tables.logged_tables import LOG_END
from rmqlite.kernel.store.tables.tables import load
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.bulk import schedule
from tests.support.redrives import bury, start

TOPIC = "orders"
TURNS = 10
PERSISTED = ("bulkJobs.json", "redriveJobs.json", "storeProgress.json", "topics.json")


class Master:
    """A broker at work; its log's ends after each piece of it."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.broker = BrokerUnderTest(folder, **LONG_BODIES)
        self._chance = chance
        self._job = ""
        bury(self.broker, Message(TOPIC, b"dead"))
        self.ends = [self.broker.store.end]

    def work(self, turn: int) -> None:
        broker, chance = self.broker, self._chance
        pieces = [
            lambda: broker.send(
                *[Message(TOPIC, b"%d" % turn, keys=(f"a-{n}",)) for n in range(9)]
            ),
            lambda: broker.send(
                *[Message(TOPIC, b"later", delay_level=1 + n % 3) for n in range(9)]
            ),
            lambda: broker.send(*self._timers()),
            lambda: broker.send(Message(f"new-{turn}", b"x")),
            lambda: bury(broker, *[Message(TOPIC, b"dead-%d" % turn)] * 3),
            lambda: schedule(broker, [f"row-{turn}-{n}" for n in range(9)], delay_levels=(2,)),
            self._redrive,
        ]
        for piece in chance.sample(pieces, len(pieces)):
            piece()
            self.ends.append(broker.store.end)
        broker.clock.forward(2_000)
        broker.deliver()
        self.ends.append(broker.store.end)

    def _timers(self) -> Iterator[Message]:
        for _ in range(9):
            after = timedelta(seconds=self._chance.randint(1, 40))
            yield Message(TOPIC, b"at an instant", deliver_after=after)

    def _redrive(self) -> None:
        redrive = self.broker.broker[Redrive]
        if self._job not in {job.job_id for job in redrive.running()}:
            self._job = start(self.broker).job_id
        redrive.step(self._job, 2)
        self.broker.sync()

    def index_timers(self) -> None:
        timers = self.broker.broker.wait_queues.timers
        if timers is not None and timers.keys.unindexed.changes:
            timers.keys.begin_write().run()
            timers.keys.end_write()

    def persist_all_but_the_progress(self) -> None:
        """As a persist that a kill ends just before its last file."""
        folder = self.broker.config.store_path / "config"
        before = [(path, path.read_bytes()) for path in folder.glob("storeProgress.json*")]
        self.broker.persist()
        for path, data in before:
            path.write_bytes(data)


def opened(root: Path) -> tuple[int, dict[str, Any], dict[str, bytes]]:
    """How many records an opening reads, and the tables and queues that it makes."""
    broker = BrokerUnderTest(root, **LONG_BODIES)
    read = broker.store.recovered
    queues = {
        f"{topic}/{queue_id}": queue.bytes_at(queue.min_offset, queue.max_offset)
        for topic, queue_id in broker.store.queue_keys()
        if (queue := broker.store.queue(topic, queue_id)) is not None
    }
    broker.close()
    return read, {each: load(SystemFiles(), root / "config" / each) for each in PERSISTED}, queues


def _differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Where two trees differ, a line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        # When a table was saved last is another matter.
        for key in sorted({*one, *other} - {LOG_END, "tables"}, key=str):
            yield from _differences(one.get(key), other.get(key), f"{at}/{key}")
    elif one != other:
        yield f"{at}: {str(one)[:200]} and {str(other)[:200]}"


@pytest.mark.seeds(2, 60)
def test_what_is_kept_over_a_cut_is_what_the_log_makes(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, queues, progress, the table of timers: wherever it is cut, and whatever was saved."""
    chance = Random(seed)
    master, persisted = Master(tmp_path / "master", chance), 0
    for turn in range(TURNS):
        master.work(turn)
        if chance.random() < 0.3:
            master.index_timers()
        if turn == TURNS // 2 or (turn < TURNS - 1 and chance.random() < 0.3):
            master.broker.persist()
            persisted = master.broker.store.end
    is_torn = seed % 2 == 1
    if is_torn:
        master.persist_all_but_the_progress()
    cuts = chance.sample(master.ends[1:-3], 2) + master.ends[-3:-1]
    for number, cut in enumerate(cuts):
        found = []
        for how in ("kept", "anew"):
            root = tmp_path / f"{how}-{number}"
            shutil.copytree(master.broker.config.store_path, root)
            (root / "lock").unlink()
            config = master.broker.config.model_copy(
                update={"store_path": root, "broker_role": SLAVE, "master_address": "other:1"}
            )
            save_role(config, BrokerRole(SLAVE, "other:1", cut_at=cut))
            with monkeypatch.context() as patched:
                if how == "anew":
                    patched.setattr(tails, "_true_up_to", lambda *_: INT64_MAX)
                cut_tail(config)
            found.append(opened(root))
            assert not list(check(root)), (how, cut)
        (read, *kept), (read_anew, *anew) = found
        differences = [_differences(*pair) for pair in zip(kept, anew, strict=True)]
        assert [*chain(*differences)] == []
        assert (read < read_anew) is (persisted <= cut and not is_torn)
    master.broker.crash()

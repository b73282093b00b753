"""Topics are deleted and made again, and the broker dies at random changes of the disk."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest

from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk

STORE: Final = ROOT / "store"
TOPICS: Final = ("orders", "bills")
STEPS: Final = 40
CRASHES: Final = 60


def seen(broker: BrokerUnderTest) -> dict[str, dict[str, int]]:
    """The queue offset of each message that can be read, by topic and body."""
    return {
        topic: {each.body.decode(): each.queue_offset for each in broker.messages(topic)}
        for topic in TOPICS
        if broker.broker.topics.get(topic) is not None
    }


class Run:
    """Random calls, and now and then a crash of what would be on disk."""

    def __init__(self, seed: int, folder: Path, chance: float) -> None:
        self._random = Random(seed)
        self._chance = chance
        self._folder = folder
        self._config = small_config(STORE)
        self._dead: set[str] = set()
        """Bodies of messages whose deletion was answered."""
        self._promised: set[str] = set()
        """Bodies of messages that were answered and not deleted."""
        self._ends = dict.fromkeys(TOPICS, 0)
        """One past the highest queue offset that was answered."""
        self._count = 0
        self.crashes = 0
        self._disk = SimulatedDisk(seed)
        self._broker = BrokerOnDisk(self._config, self._disk, FakeClock())
        self._disk.after_each = self._perhaps_crash

    def run(self) -> None:
        works = (self._send, self._send, self._send, self._delete, self._tidy)
        for _ in range(STEPS):
            self._random.choice(works)()
        self._disk.after_each = None

    def _send(self) -> None:
        topic = self._random.choice(TOPICS)
        for _ in range(self._random.choice((1, 3, 90))):
            self._count += 1
            (sent,) = self._broker.send(Message(topic, f"{topic}-{self._count}".encode()))
            assert sent.queue_offset >= self._ends[topic]
            self._ends[topic] = sent.queue_offset + 1
            self._promised.add(f"{topic}-{self._count}")

    def _delete(self) -> None:
        topic = self._random.choice(TOPICS)
        mine = {body for body in self._promised if body.startswith(topic)}
        # From here on nobody is promised them, and after the answer they are gone.
        self._promised -= mine
        self._broker.broker[Deleting].delete_topic(topic)
        self._dead |= mine

    def _tidy(self) -> None:
        if self._random.random() < 0.5:
            self._broker.persist()
        else:
            self._broker.store.deletions.remove_files()

    def _perhaps_crash(self, call: str, path: str) -> None:
        if self.crashes < CRASHES and self._random.random() < self._chance:
            self.crashes += 1
            self._crash(f"{call} {path}")

    def _crash(self, change: str) -> None:
        loss = self._random.choice((None, *LOSSES))
        fork = self._disk.fork_power_cut(self._random, loss) if loss else self._disk.fork_killed()
        where = f"{loss or 'a kill'} after {change}"
        folder = self._folder / str(self.crashes)
        fork.export(folder)
        found = [each for each in check(folder / STORE.relative_to(ROOT)) if not each.is_leftover]
        assert not found, (where, found)
        broker = BrokerOnDisk(self._config, fork, FakeClock(machine=FakeMachine()))
        for again in (False, True):
            messages = seen(broker)
            bodies = {body for each in messages.values() for body in each}
            assert not bodies & self._dead, where
            assert self._promised <= bodies, where
            for topic in TOPICS:
                (sent,) = broker.send(Message(topic, f"{topic}-after-{again}".encode()))
                offsets = messages.get(topic, {}).values()
                assert sent.queue_offset == max(
                    [self._ends[topic] + again, *[o + 1 for o in offsets]]
                )
            broker.crash()
            broker.open()
        broker.crash()


@pytest.mark.seeds(1, 6)
def test_no_crash_brings_deleted_messages_back_or_takes_others(
    seed: int, tmp_path: Path, is_long: bool
) -> None:
    """A kill or a power cut at any change of the disk; and the store is sound afterwards."""
    run = Run(seed, tmp_path, 0.05 if is_long else 0.02)
    run.run()
    assert run.crashes > 10

"""Transactions and crashes: each message once or never, wherever the process or power ends."""

from __future__ import annotations

from collections import Counter
from copy import copy
from itertools import count
from pathlib import Path
from random import Random

import pytest

from rmqlite.features.transactions.requests import TransactionQuestion
from rmqlite.kernel.records.record import Written
from rmqlite.kernel.words.names import HALF_ENDS_TOPIC, HALF_TOPIC, UNDECIDED_TOPIC
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.stores import new_record
from tests.support.transactions import GROUP, bodies, checked, end, open_halves, records, send_half

STORE = ROOT / "store"
WORKS = 24
OLD_ENOUGH_MS = 6_000
LONGEST_DELAY_MS = 10_000


def is_commit(body: str) -> bool:
    """What the producer of these tests decides, whenever it is asked."""
    return body.startswith("commit")


def finish(broker: BrokerUnderTest) -> Counter[str]:
    """Ask the producer until nothing is open; the messages that consumers get."""
    for _ in range(3):
        broker.clock.forward(OLD_ENOUGH_MS)
        for question in checked(broker):
            end(broker, question, is_commit=is_commit(question.message_id))
    assert open_halves(broker) == 0
    broker.sync()
    broker.clock.forward(LONGEST_DELAY_MS)
    broker.deliver()
    return Counter(bodies(broker))


class Run:
    """Random transactions, and after changes of the disk a crash of what is there."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._crashes = Random(f"crashes of {seed}")
        self._clock = FakeClock(machine=FakeMachine())
        config = small_config(STORE)
        size = {"mapped_file_size_commit_log": self._random.choice((4_000, 6_000, 16_384))}
        self._config = config.model_copy(update=size)
        self._numbers = count()
        self._halves: dict[str, Written] = {}
        self._answered: set[str] = set()
        """Messages whose send was acknowledged."""
        self._ended: set[str] = set()
        """Those whose commit or rollback was acknowledged."""
        self._ending: set[str] = set()
        self._questions: list[TransactionQuestion] = []
        self.points = 0
        self._disk = SimulatedDisk(seed)
        self._broker = BrokerOnDisk(self._config, self._disk, self._clock)
        self._disk.after_each = self._crash

    def run(self) -> None:
        works = (self._send, self._send, self._end, self._end, self._check, self._answer)
        for _ in range(WORKS):
            self._random.choice((*works, self._upkeep))()
            if self._random.random() < 0.7:
                self._sync()
            self._clock.forward(self._random.choice((0, 1, 1_500, OLD_ENOUGH_MS)))
        self._disk.after_each = None
        self._look(self._broker, set(self._halves), set(self._ending), "the end")

    def _send(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            body = f"{self._random.choice(('commit', 'rollback'))}-{next(self._numbers)}"
            delay = self._random.choice(("", "", "2"))
            self._halves[body] = send_half(self._broker, body, DELAY=delay)

    def _end(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            if self._halves:
                # Also one that has ended, or was copied, before.
                body = self._random.choice(list(self._halves))
                end(self._broker, self._halves[body], is_commit=is_commit(body))
                self._ending.add(body)

    def _check(self) -> None:
        self._questions += checked(self._broker)

    def _answer(self) -> None:
        for question in self._questions:
            if self._random.random() < 0.6:
                body = question.message_id
                end(self._broker, question, is_commit=is_commit(body))
                self._ending.add(body)

    def _upkeep(self) -> None:
        if self._random.random() < 0.5:
            self._broker.deliver()
        else:
            self._broker.persist()
        self._note_answered()

    def _sync(self) -> None:
        self._broker.sync()
        self._note_answered()

    def _note_answered(self) -> None:
        self._answered, self._ended = set(self._halves), set(self._ending)

    def _crash(self, call: str, path: str) -> None:
        self.points += 1
        random = self._crashes
        if random.random() < 0.6:
            return
        loss = random.choice((None, *LOSSES))
        fork = self._disk.fork_power_cut(random, loss) if loss else self._disk.fork_killed()
        answered, ended = set(self._answered), set(self._ended)
        machine = copy(self._clock.machine)
        if loss is not None:
            machine.reboot(str(random.random()))
        broker = BrokerOnDisk(self._config, fork, FakeClock(machine=machine))
        if random.random() < 0.5:
            broker.crash()
            broker.open()
        self._look(broker, answered, ended, f"{loss or 'a kill'} after {call} {path}")

    def _look(self, broker: BrokerOnDisk, answered: set[str], ended: set[str], where: str) -> None:
        """Nothing answered is lost, nothing rolled back comes, and nothing comes twice."""
        early = Counter(bodies(broker))
        known = early + Counter(bodies(broker, "SCHEDULE_TOPIC_XXXX", 1))
        assert all(is_commit(body) for body in known), where
        assert {body for body in ended if is_commit(body)} <= set(known), where
        found = finish(broker)
        assert set(found.values()) <= {1}, where
        assert {body for body in answered if is_commit(body)} <= set(found), where
        assert all(is_commit(body) for body in found), where
        assert bodies(broker, UNDECIDED_TOPIC) == [], where
        broker.close()


@pytest.mark.usefixtures("quiet")
@pytest.mark.seeds(1, 8)
def test_every_message_comes_once_or_never_wherever_it_crashes(seed: int) -> None:
    """Commits, rollbacks, retries of both, checks and late answers, in any order."""
    crashed = Run(seed)
    crashed.run()
    assert crashed.points > 40


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("delay", ["", "2"])
@pytest.mark.parametrize("again", [1, 2])
def test_a_torn_commit_is_not_repeated(tmp_path: Path, delay: str, again: int) -> None:
    """The message is there, but not the end of its half message; so it may also be after a crash
    of RocketMQ, which stores them one after the other."""
    broker = BrokerUnderTest(tmp_path / "store")
    at = send_half(broker, "commit", DELAY=delay)
    end(broker, at)
    broker.sync()
    (ended,) = records(broker, HALF_ENDS_TOPIC)
    broker.crash()
    _cut(tmp_path, ended.head.physical_offset)
    for _ in range(again):
        broker.open()
        assert open_halves(broker) == 1
        broker.store.append([new_record("something else", "else")])
        broker.persist()
        broker.crash()
    broker.open()
    assert end(broker, at)
    assert not end(broker, at)
    assert finish(broker) == {"commit": 1}
    broker.close()
    assert list(check(tmp_path / "store")) == []


@pytest.mark.usefixtures("quiet")
def test_a_torn_check_leaves_one_half_message(tmp_path: Path) -> None:
    """The copies are there, but not the ends of what they are copies of."""
    broker = BrokerUnderTest(tmp_path / "store")
    for number in range(4):
        send_half(broker, f"commit-{number}")
    broker.clock.forward(OLD_ENOUGH_MS)
    first = checked(broker)
    broker.sync()
    copies = records(broker, HALF_TOPIC)[4:]
    assert len(first) == len(copies) == 4
    broker.crash()
    _cut(tmp_path, copies[-1].end)
    broker.open()
    assert open_halves(broker) == 8
    end(broker, first[1])
    assert finish(broker) == {f"commit-{number}": 1 for number in range(4)}
    broker.close()
    assert list(check(tmp_path / "store")) == []


@pytest.mark.usefixtures("quiet")
def test_a_half_message_is_given_up_once(tmp_path: Path) -> None:
    """Its copy for people is there, but not its end."""
    broker = BrokerUnderTest(tmp_path / "store", transaction_check_max=1)
    send_half(broker, "commit")
    broker.clock.forward(OLD_ENOUGH_MS)
    assert len(checked(broker)) == 1
    assert checked(broker) == []
    broker.sync()
    (given_up,) = records(broker, UNDECIDED_TOPIC)
    broker.crash()
    _cut(tmp_path, given_up.end)
    broker.open()
    assert open_halves(broker) == 1
    assert checked(broker) == []
    assert open_halves(broker) == 0
    assert bodies(broker, UNDECIDED_TOPIC) == ["commit"]
    broker.close()


def _cut(folder: Path, physical_offset: int) -> None:
    """A power cut has kept the log up to there."""
    log = next((folder / "store" / "commitlog").iterdir())
    whole = log.read_bytes()
    log.write_bytes(whole[:physical_offset] + bytes(len(whole) - physical_offset))


def test_producers_of_different_groups_may_use_one_id(tmp_path: Path) -> None:
    """The id alone does not make a message a copy of another one."""
    broker = BrokerUnderTest(tmp_path / "store")
    at = send_half(broker, "same")
    send_half(broker, "same", PGROUP="others")
    broker.clock.forward(OLD_ENOUGH_MS)
    assert [each.group for each in checked(broker, (GROUP, "others"))] == [GROUP, "others"]
    assert end(broker, at)
    assert open_halves(broker) == 1
    broker.close()

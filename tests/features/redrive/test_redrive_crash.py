"""Redrive jobs and crashes: each letter once, sums exact, wherever the process or power ends."""

from __future__ import annotations

from collections import Counter
from copy import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    JobAction,
    JobChange,
    JobState,
    RedriveJob,
    RedriveOutcome,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import FlushFailed, RmqliteError, StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.redrives import (
    DLQ,
    GROUP,
    bury_many,
    outcomes,
    redriven_messages,
    run,
    sent_by_job,
    start,
)
from tests.support.sends import sending
from tests.support.steps import done
from tests.support.stores import new_record

STORE = ROOT / "store"
TAGS = ("new", "changed")
WORKS = 24


def check_jobs(broker: BrokerUnderTest, where: str) -> None:
    """What jobs say is what the log has: sums, outcomes, and which letters were redriven."""
    sent = sent_by_job(broker)
    jobs = broker.broker[Redrive].all()
    assert set(sent) <= {job.job_id for job in jobs}, where
    places = set()
    for job in jobs:
        mine = sent.get(job.job_id, Counter())
        assert set(mine.values()) <= {1}, where
        assert job.sent == len(mine), where
        told = outcomes(broker, job.job_id)
        counts = Counter(each.outcome for each in told)
        assert counts[RedriveOutcome.SENT] == job.sent, where
        assert counts[RedriveOutcome.ALREADY] == job.already, where
        assert counts[RedriveOutcome.REFUSED] == job.refused, where
        assert len({each.queue_offset for each in told}) == len(told), where
        samples = [each.queue_offset for each in broker.broker[Redrive].get(job.job_id).samples]
        refused = [each.queue_offset for each in told if each.outcome is RedriveOutcome.REFUSED]
        assert samples == refused[:20], where
        assert {
            f"{DLQ}:0:{each.queue_offset}" for each in told if each.outcome is RedriveOutcome.SENT
        } == set(mine), where
        places |= set(mine)
    redriven = broker.broker[Redriven].of(DLQ, 0)
    queue = broker.store.queue(DLQ, 0)
    letters = queue.max_offset if queue else 0
    assert redriven.count_between(0, letters + 100) == len(places), where
    for place in places:
        queue_offset = int(place.rpartition(":")[2])
        by = broker.broker[Redriven].job_of(DLQ, 0, queue_offset)
        assert place in sent[by], where


def check_end(broker: BrokerUnderTest, where: str) -> None:
    """Every letter that a job's filter takes was sent once by all jobs but the knowing ones."""
    once: Counter[str] = Counter()
    sent: set[str] = set()
    knowing = {job.job_id for job in broker.broker[Redrive].all() if job.spec.again}
    for job_id, places in sent_by_job(broker).items():
        sent |= set(places)
        if job_id not in knowing:
            once.update(places)
    assert set(once.values()) <= {1}, where
    for job in broker.broker[Redrive].all():
        if job.state is not JobState.DONE:
            continue
        assert job.looked_at == job.letters, where
        told = outcomes(broker, job.job_id)
        if job.spec.filter == DeadLetterFilter():
            assert [each.queue_offset for each in told] == list(range(job.letters)), where
        for each in told:
            if each.outcome is not RedriveOutcome.REFUSED:
                assert f"{DLQ}:0:{each.queue_offset}" in sent, where


class Run:
    """Random work on letters and jobs, and after changes of the disk a crash of what is there."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._crashes = Random(f"crashes of {seed}")
        self._clock = FakeClock(machine=FakeMachine())
        config = small_config(STORE, default_topic_queues=2)
        size = {"mapped_file_size_commit_log": self._random.choice((6_000, 16_384))}
        self._config = config.model_copy(update=size)
        self._answered: dict[str, RedriveJob] = {}
        """Jobs whose last change was acknowledged."""
        self._letters = 0
        self.points = 0
        self._disk = SimulatedDisk(seed)
        self._broker = BrokerOnDisk(self._config, self._disk, self._clock)
        self._disk.after_each = self._crash

    def run(self) -> None:
        self._bury()
        self._start()
        for _ in range(WORKS):
            self._random.choice(
                (self._bury, self._start, self._change, self._upkeep, *[self._step] * 5)
            )()
            self._clock.forward(self._random.choice((0, 1, 1_500)))
        self._disk.after_each = None
        self._finish(self._broker, "the end")

    def _bury(self) -> None:
        """Some letters; of those that RocketMQ might have written nobody knows the origin."""
        for _ in range(self._random.randint(1, 6)):
            if self._random.random() < 0.2:
                self._broker.store.append([new_record(b"whose?", DLQ)])
                continue
            tags = self._random.choice(TAGS)
            message = Message("orders", b"%d" % self._letters, tags)
            (sent,) = done(sending(self._broker.broker, (message,), queue_id=0))
            self._broker.broker.send_back(
                SendBackRequest(GROUP, sent.physical_offset, delay_level=-1)
            )
            self._letters += 1
        self._maybe_sync()

    def _start(self) -> None:
        spec = RedriveSpec(
            GROUP,
            self._random.choice(
                (DeadLetterFilter(), DeadLetterFilter(), DeadLetterFilter(tag="new"))
            ),
            to_topic=self._random.choice(("", "bills")),
            delay_level=self._random.choice((0, 0, 1)),
            again=self._random.random() < 0.2,
        )
        self._broker.broker[Redrive].start(RedriveRequest(spec))
        self._maybe_sync()

    def _step(self) -> None:
        running = self._broker.broker[Redrive].running()
        if running:
            job = self._random.choice(running)
            self._broker.broker[Redrive].step(job.job_id, self._random.randint(1, 5))
            self._maybe_sync()

    def _change(self) -> None:
        jobs = [job for job in self._broker.broker[Redrive].all() if not job.is_over]
        if jobs:
            actions = (JobAction.PAUSE, JobAction.RESUME, JobAction.RESUME, JobAction.CANCEL)
            change = JobChange(self._random.choice(jobs).job_id, self._random.choice(actions))
            self._broker.broker[Redrive].change(change)
            self._maybe_sync()

    def _upkeep(self) -> None:
        if self._random.random() < 0.5:
            self._broker.deliver()
        else:
            self._broker.persist()
        self._note_answered()

    def _maybe_sync(self) -> None:
        if self._random.random() < 0.7:
            self._broker.sync()
            self._note_answered()

    def _note_answered(self) -> None:
        self._answered = {job.job_id: job for job in self._broker.broker[Redrive].all()}

    def _crash(self, call: str, path: str) -> None:
        self.points += 1
        random = self._crashes
        if random.random() < 0.7:
            return
        loss = random.choice((None, *LOSSES))
        fork = self._disk.fork_power_cut(random, loss) if loss else self._disk.fork_killed()
        answered = dict(self._answered)
        machine = copy(self._clock.machine)
        if loss is not None:
            machine.reboot(str(random.random()))
        broker = BrokerOnDisk(self._config, fork, FakeClock(machine=machine))
        where = f"{loss or 'a kill'} after {call} {path}"
        self._check_answered(broker, answered, where)
        if random.random() < 0.5:
            # Killed before anything is synced: what was mended at the opening is, again.
            broker.crash()
            broker.open()
            self._check_answered(broker, answered, where)
        self._finish(broker, where)

    def _check_answered(
        self, broker: BrokerOnDisk, answered: dict[str, RedriveJob], where: str
    ) -> None:
        check_jobs(broker, where)
        there = {job.job_id: job for job in broker.broker[Redrive].all()}
        for job_id, job in answered.items():
            assert there[job_id].sent >= job.sent, where
            if job.is_over:
                assert there[job_id].state is job.state, where

    def _finish(self, broker: BrokerOnDisk, where: str) -> None:
        """Let all jobs go on to their end."""
        redrive = broker.broker[Redrive]
        for job in redrive.all():
            if job.state is JobState.PAUSED:
                redrive.change(JobChange(job.job_id, JobAction.RESUME))
            run(broker, job.job_id, 3)
        broker.clock.forward(10_000)
        broker.deliver()
        check_jobs(broker, where)
        check_end(broker, where)
        broker.close()


@pytest.mark.usefixtures("quiet")
@pytest.mark.seeds(1, 8)
def test_every_letter_is_sent_once_wherever_it_crashes(seed: int) -> None:
    """A step cut short goes on behind what of it is there, and the job knows what that is."""
    crashed = Run(seed)
    crashed.run()
    assert crashed.points > 60


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("is_again", [False, True])
def test_a_step_torn_at_any_record_is_counted_as_far_as_it_was_kept(
    tmp_path: Path, is_again: bool
) -> None:
    """The job's record stands before the messages that it counts."""
    broker = BrokerUnderTest(tmp_path / "store", mapped_file_size_consume_queue=4_000)
    bury_many(broker, 9)
    job_id = start(broker, again=is_again).job_id
    broker.broker[Redrive].step(job_id, 3)
    broker.sync()
    begin = broker.store.end
    broker.broker[Redrive].step(job_id, 5)
    broker.sync()
    ends = [w.head.physical_offset + w.head.size for w in broker.store.walk(begin)]
    broker.crash()
    log = next((tmp_path / "store" / "commitlog").iterdir())
    whole = log.read_bytes()
    for kept, end in enumerate([begin, *ends], -1):
        log.write_bytes(whole[:end] + bytes(len(whole) - end))
        broker.open()
        job = broker.broker[Redrive].get(job_id)
        assert (job.sent, job.looked_at) == (3 + max(0, kept), 3 + max(0, kept))
        check_jobs(broker, f"{kept} kept")
        assert run(broker, job_id).sent == 9
        assert [each.queue_offset for each in outcomes(broker, job_id)] == list(range(9))
        assert sent_by_job(broker)[job_id] == {f"{DLQ}:0:{n}": 1 for n in range(9)}
        broker.crash()
    assert list(check(tmp_path / "store")) == []


@pytest.mark.usefixtures("quiet")
def test_the_last_step_torn_makes_the_job_run_again(tmp_path: Path) -> None:
    """Its record says DONE, but not all of its messages are there."""
    broker = BrokerUnderTest(tmp_path / "store")
    bury_many(broker, 4)
    job_id = start(broker).job_id
    begin = broker.store.end
    assert run(broker, job_id).state is JobState.DONE
    ends = [w.head.physical_offset + w.head.size for w in broker.store.walk(begin)]
    broker.crash()
    log = next((tmp_path / "store" / "commitlog").iterdir())
    whole = log.read_bytes()
    log.write_bytes(whole[: ends[2]] + bytes(len(whole) - ends[2]))
    broker.open()
    job = broker.broker[Redrive].get(job_id)
    assert (job.state, job.sent, job.ended_at_ms) == (JobState.RUNNING, 2, 0)
    assert run(broker, job_id).state is JobState.DONE
    assert len(list(redriven_messages(broker))) == 4
    broker.close()


@pytest.mark.usefixtures("quiet")
def test_a_torn_step_is_known_though_there_was_no_room_to_say_so(tmp_path: Path) -> None:
    """Other records follow the torn step then, and are not taken for the rest of it."""
    broker = BrokerUnderTest(tmp_path / "store")
    bury_many(broker, 4)
    job_id = start(broker).job_id
    begin = broker.store.end
    run(broker, job_id)
    ends = [w.head.physical_offset + w.head.size for w in broker.store.walk(begin)]
    broker.crash()
    log = next((tmp_path / "store" / "commitlog").iterdir())
    whole = log.read_bytes()
    log.write_bytes(whole[: ends[2]] + bytes(len(whole) - ends[2]))

    class Full(SystemFiles):
        """Takes what is there already, once more."""

        def write(self, path: Path, position: int, data: bytes) -> None:
            if path.parent.name == "commitlog" and position >= ends[2]:
                raise StoreUnavailable("write to", str(path), "no space left on device")
            super().write(path, position, data)

    broker.files = Full()
    broker.open()
    assert broker.broker[Redrive].get(job_id).sent == 2
    broker.crash()
    broker.files = SystemFiles()
    (tmp_path / "store" / "config" / "redriveJobs.json").unlink(missing_ok=True)
    broker.open()
    assert run(broker, job_id).sent == 4
    check_jobs(broker, "then")
    broker.close()


@pytest.mark.one_of(4)
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "ftruncate", "replace"])
@pytest.mark.parametrize("after", range(4))
def test_a_step_that_fails_may_be_made_again(call: str, after: int) -> None:
    """Whatever the disk does, a letter is one message."""
    disk = SimulatedDisk(after)
    clock = FakeClock(machine=FakeMachine())
    broker = BrokerOnDisk(small_config(STORE), disk, clock)
    bury_many(broker, 9)
    job_id = start(broker).job_id
    disk.fail(call, after=after)
    failed: list[RmqliteError] = []
    for _ in range(3):
        try:
            broker.broker[Redrive].step(job_id, 2)
            broker.persist()
        except (StoreUnavailable, FlushFailed) as error:
            failed.append(error)
    broker.crash()
    disk.heal()
    again = BrokerOnDisk(small_config(STORE), disk.fork_killed(), FakeClock(machine=clock.machine))
    check_jobs(again, call)
    assert run(again, job_id).sent == 9
    check_end(again, call)
    again.close()


def test_a_forgotten_table_costs_nothing(tmp_path: Path) -> None:
    """It is a cache: the records tell all of it."""
    broker = BrokerUnderTest(tmp_path / "store")
    bury_many(broker, 5)
    first = start(broker).job_id
    broker.broker[Redrive].step(first, 2)
    second = start(broker).job_id
    broker.broker[Redrive].step(second, 3)
    broker.sync()
    jobs: Any = broker.broker[Redrive].all()
    broker.close()
    (tmp_path / "store" / "config" / "redriveJobs.json").unlink()
    broker.open()
    assert broker.broker[Redrive].all() == jobs
    check_jobs(broker, "without the table")
    broker.close()

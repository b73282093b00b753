"""Bulk calls and crashes: an id once, a job's sums exact, wherever the process or power ends."""

from __future__ import annotations

from collections import Counter
from copy import copy
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkRequest
from rmqlite.kernel.words.errors import FlushFailed, JobUnknown, StoreUnavailable
from rmqlite.kernel.words.message import REAL_TOPIC, UNIQ_KEY
from rmqlite.kernel.words.names import BULK_JOBS_TOPIC, SCHEDULE_TOPIC, TABLES_TOPIC
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerOnDisk, BrokerUnderTest, small_config
from tests.support.bulk import outcomes, request, schedule
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.sends import BORN_HOST
from tests.support.steps import done

STORE = ROOT / "store"
TOPICS = ("orders", "bills")
JOBS = ("import", "rerun")
CALLS = 14
Name = tuple[str, str]
"""Topic and id."""


def stored(broker: BrokerUnderTest) -> Counter[Name]:
    """How often each message is in the log, scheduled or sent at once."""
    found: Counter[Name] = Counter()
    for walked in broker.store.walk(broker.store.min_offset):
        message = broker.store.read_message(walked.head.physical_offset)
        if message.topic == SCHEDULE_TOPIC or not message.prepared_transaction_offset:
            topic = message.properties.get(REAL_TOPIC, message.topic)
            if topic not in (BULK_JOBS_TOPIC, TABLES_TOPIC):
                found[topic, message.properties[UNIQ_KEY]] += 1
    return found


def accepted(broker: BrokerUnderTest) -> dict[str, int]:
    """By job."""
    sums = dict.fromkeys(JOBS, 0)
    for job in broker.broker[Bulk].jobs.all():
        sums[job.job_id] = job.accepted
    return sums


class Run:
    """Random calls, and after each change of the disk a crash of what would be there."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        self._crashes = Random(f"crashes of {seed}")
        self._folder = folder
        self._clock = FakeClock(machine=FakeMachine())
        config = small_config(STORE, default_topic_queues=2, bulk_messages_max=20)
        size = {"mapped_file_size_commit_log": self._random.choice((4_096, 8_192))}
        self._config = config.model_copy(update=size)
        self._answered: dict[Name, str] = {}
        """Messages that were acknowledged, and by which job."""
        self._asked: dict[Name, str] = {}
        self.points = 0
        self._disk = SimulatedDisk(seed)
        self._broker = BrokerOnDisk(self._config, self._disk, self._clock)
        self._disk.after_each = self._crash

    def run(self) -> None:
        for _ in range(CALLS):
            work = self._random.choice((self._call, self._call, self._call, self._upkeep))
            work()
            self._clock.forward(self._random.choice((0, 1, 1_500)))
        self._disk.after_each = None
        assert accepted(self._broker) == sums_of(self._asked)

    def _call(self) -> None:
        asked = self._next_request()
        names = list(zip(asked.topics, asked.message_ids, strict=True))
        fresh = {name: asked.job_id for name in names if name not in self._asked}
        self._asked |= fresh
        answer = done(self._broker.broker[Bulk].schedule(asked, BORN_HOST))
        letters = outcomes(answer, len(names))
        seen: set[Name] = set()
        for name, letter in zip(names, letters, strict=True):
            assert (letter == "a") == (name in fresh and name not in seen)
            seen.add(name)
        if self._random.random() < 0.8:
            self._broker.sync()
            self._answered = dict(self._asked)

    def _next_request(self) -> BulkRequest:
        count = self._random.randint(1, 9)
        ids = [f"id-{self._random.randrange(60)}" for _ in range(count)]
        return request(
            ids,
            topics=tuple([self._random.choice(TOPICS) for _ in ids]),
            delay_levels=tuple([self._random.choice((0, 1, 2)) for _ in ids]),
            job_id=self._random.choice(JOBS),
        )

    def _upkeep(self) -> None:
        if self._random.random() < 0.5:
            self._broker.deliver()
        else:
            self._broker.persist()
        self._answered = dict(self._asked)

    def _crash(self, call: str, path: str) -> None:
        self.points += 1
        random = self._crashes
        if random.random() < 0.7:
            return
        loss = random.choice((None, *LOSSES))
        fork = self._disk.fork_power_cut(random, loss) if loss else self._disk.fork_killed()
        answered, asked = dict(self._answered), dict(self._asked)
        broker = BrokerOnDisk(self._config, fork, self._next_clock(is_booted=loss is not None))
        where = f"{loss or 'a kill'} after {call} {path}"
        found = stored(broker)
        assert set(answered) <= set(found) <= set(asked), where
        assert set(found.values()) <= {1}, where
        assert accepted(broker) == sums_of({name: asked[name] for name in found}), where
        if random.random() < 0.5:
            # Killed before anything is synced: what was mended at the opening is, again.
            broker.crash()
            broker.open()
            assert accepted(broker) == sums_of({name: asked[name] for name in found}), where
        self._send_all_again(broker, asked, set(found), where)

    def _send_all_again(
        self, broker: BrokerOnDisk, asked: dict[Name, str], found: set[Name], where: str
    ) -> None:
        """What every client does that had no answer, and then some."""
        for job_id in JOBS:
            names = [name for name, job in asked.items() if job == job_id]
            for start in range(0, len(names), 20):
                part = names[start : start + 20]
                answer = schedule(
                    broker,
                    [message_id for _, message_id in part],
                    topics=tuple([topic for topic, _ in part]),
                    delay_levels=(1,),
                    job_id=job_id,
                )
                wanted = "".join(["d" if name in found else "a" for name in part])
                assert outcomes(answer, len(part)) == wanted, where
        broker.clock.forward(10_000)
        broker.deliver()
        assert stored(broker) == Counter(set(asked)), where
        assert accepted(broker) == sums_of(asked), where
        broker.close()

    def _next_clock(self, *, is_booted: bool) -> FakeClock:
        machine = copy(self._clock.machine)
        if is_booted:
            machine.reboot(str(self._crashes.random()))
        return FakeClock(machine=machine)


def sums_of(jobs: dict[Name, str]) -> dict[str, int]:
    return dict.fromkeys(JOBS, 0) | dict(Counter(jobs.values()))


@pytest.mark.usefixtures("quiet")
@pytest.mark.seeds(1, 8)
def test_every_id_is_stored_once_and_counted_once_wherever_it_crashes(
    seed: int, tmp_path: Path
) -> None:
    """A call cut short by a crash is sent again, and then each message is there once."""
    run = Run(seed, tmp_path)
    run.run()
    assert run.points > 30


@pytest.mark.usefixtures("quiet")
def test_a_call_torn_at_any_record_is_counted_as_far_as_it_was_kept(tmp_path: Path) -> None:
    """The job's record stands before the messages that it counts."""
    broker = BrokerUnderTest(tmp_path / "store")
    schedule(broker, ["x"])
    broker.store.log_tables()
    begin = broker.store.end
    schedule(broker, [f"id-{n}" for n in range(6)], delay_levels=(1,))
    ends = [w.head.physical_offset + w.head.size for w in broker.store.walk(begin)]
    broker.crash()
    log = next((tmp_path / "store" / "commitlog").iterdir())
    whole = log.read_bytes()
    for kept, end in enumerate(ends):
        log.write_bytes(whole[:end] + bytes(len(whole) - end))
        broker.open()
        assert broker.broker[Bulk].jobs.get("import").accepted == 1 + kept
        answer = schedule(broker, [f"id-{n}" for n in range(6)], delay_levels=(1,))
        assert outcomes(answer, 6) == "d" * kept + "a" * (6 - kept)
        assert broker.broker[Bulk].jobs.get("import").accepted == 7
        broker.crash()
    assert list(check(tmp_path / "store")) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("call"),
            st.lists(
                st.tuples(
                    st.sampled_from(TOPICS),
                    st.sampled_from(["a", "b", "Aa", "BB", "c", "a b"]),
                    st.integers(0, 3),
                ),
                min_size=1,
                max_size=6,
            ),
        ),
        st.tuples(st.sampled_from(["restart", "crash", "deliver", "persist"]), st.just([])),
    ),
    max_size=12,
)


@pytest.mark.usefixtures("quiet")
@settings(max_examples=40)
@given(steps=STEPS)
def test_duplicates_are_what_a_set_of_ids_says(
    steps: list[tuple[str, list[tuple[str, str, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over calls, deliveries, restarts and crashes, in any order."""
    broker = BrokerUnderTest(tmp_path_factory.mktemp("model") / "store")
    known: set[Name] = set()
    duplicates = 0
    for step, rows in steps:
        broker.clock.forward(1_500)
        if step == "call":
            wanted = ""
            for topic, message_id, _ in rows:
                wanted += "d" if (topic, message_id) in known else "a"
                known.add((topic, message_id))
            duplicates += wanted.count("d")
            answer = schedule(
                broker,
                [message_id for _, message_id, _ in rows],
                topics=tuple([topic for topic, _, _ in rows]),
                delay_levels=tuple([level for _, _, level in rows]),
            )
            assert outcomes(answer, len(rows)) == wanted
        elif step == "crash":
            broker.crash()
            broker.open()
        else:
            getattr(broker, step)()
    assert stored(broker) == Counter(known)
    try:
        job = broker.broker[Bulk].jobs.get("import")
        assert (job.accepted, job.duplicates) == (len(known), duplicates)
    except JobUnknown:
        assert not known
    broker.close()


@pytest.mark.one_of(4)
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "ftruncate", "replace"])
@pytest.mark.parametrize("after", range(4))
def test_a_call_that_fails_may_be_made_again(call: str, after: int) -> None:
    """Whatever the disk does, an accepted answer means one message."""
    disk = SimulatedDisk(after)
    clock = FakeClock(machine=FakeMachine())
    broker = BrokerOnDisk(small_config(STORE), disk, clock)
    schedule(broker, ["a", "b"])
    disk.fail(call, after=after)
    try:
        for n in range(3):
            schedule(broker, [f"{n}", "a"])
            broker.persist()
    except (StoreUnavailable, FlushFailed):
        broker.crash()
    disk.heal()
    again = BrokerOnDisk(small_config(STORE), disk.fork_killed(), FakeClock(machine=clock.machine))
    answers = [schedule(again, [f"{n}", "a", "b"]) for n in range(3)]
    assert all(outcomes(answer, 3).endswith("dd") for answer in answers)
    assert set(stored(again).values()) == {1}
    assert again.broker[Bulk].jobs.get("import").accepted == len(stored(again)) == 5
    again.close()

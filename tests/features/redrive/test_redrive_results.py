"""What became of a job's messages: consumed, waiting again, dead again; counted from the log."""

from __future__ import annotations

import pytest

from rmqlite.features.redrive import pages as module
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import RedriveRequest, RedriveResults, RedriveSpec
from rmqlite.kernel.failing import SENT_BACK_MS
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import JobUnknown
from rmqlite.kernel.words.message import REDRIVEN_BY, Message, StoredMessage
from rmqlite.kernel.words.names import retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import purge
from tests.support.made_brokers import Make
from tests.support.messages import save_group, send_back
from tests.support.pending import deliver_all
from tests.support.redrives import GROUP, bury, bury_many, redrive, run
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done

RETRY = retry_topic(GROUP)


def fates(broker: BrokerUnderTest, job_id: str) -> RedriveResults:
    return done(broker.broker[Redrive].results.of(job_id))


def counted(broker: BrokerUnderTest, job_id: str) -> tuple[int, int, int]:
    """Consumed, waiting, dead."""
    found = fates(broker, job_id)
    assert (found.is_counted, found.why) == (True, "")
    return found.consumed, found.waiting, found.dead


def commit(broker: BrokerUnderTest, offset: int, topic: str = RETRY, queue_id: int = 0) -> None:
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(topic, queue_id): offset}))
    broker.persist()


def redriven(broker: BrokerUnderTest, job_id: str, topic: str = RETRY) -> list[StoredMessage]:
    """A job's messages in a topic with one queue, as the group gets them."""
    return [each for each in broker.messages(topic) if each.properties.get(REDRIVEN_BY) == job_id]


@pytest.mark.parametrize("restart", WAYS)
def test_the_fates_of_a_jobs_messages_are_counted(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """At every moment they add up to what was sent; after a crash, too."""
    save_group(under_test, group=GROUP)
    bury_many(under_test, 6)
    job_id = redrive(under_test).job_id
    assert counted(under_test, job_id) == (0, 6, 0)
    messages = redriven(under_test, job_id)
    send_back(under_test, messages[0], group=GROUP)
    send_back(under_test, messages[1], group=GROUP, delay_level=-1)
    # It is failed, but not committed yet: each counts once.
    assert counted(under_test, job_id) == (0, 5, 1)
    commit(under_test, 4)
    for _ in range(2):
        assert counted(under_test, job_id) == (2, 3, 1)
        restart(under_test)
        commit(under_test, 4)
    deliver_all(under_test)
    assert counted(under_test, job_id) == (2, 3, 1)
    commit(under_test, 7)
    assert counted(under_test, job_id) == (5, 0, 1)
    send_back(under_test, redriven(under_test, job_id)[-1], group=GROUP, delay_level=-1)
    assert counted(under_test, job_id) == (4, 0, 2)


def test_a_message_that_is_dead_again_stays_so(under_test: BrokerUnderTest) -> None:
    """Whether its letter is purged, redriven by another job, or was made twice."""
    bury_many(under_test, 2)
    job_id = redrive(under_test).job_id
    for _ in range(2):
        for message in redriven(under_test, job_id):
            send_back(under_test, message, group=GROUP, delay_level=-1)
        # Until then the second time makes no other dead letter.
        under_test.clock.forward(SENT_BACK_MS)
    commit(under_test, 2)
    assert counted(under_test, job_id) == (0, 0, 2)
    other = redrive(under_test).job_id
    purge(under_test, GROUP)
    assert counted(under_test, job_id) == (0, 0, 2)
    assert counted(under_test, other) == (0, 4, 0)


def test_messages_of_other_jobs_and_groups_do_not_count(under_test: BrokerUnderTest) -> None:
    """Another group may have failed the same message; and an application may copy properties."""
    bury(under_test, Message("orders", b"a"))
    save_group(under_test, group=GROUP)
    commit(under_test, 0, "orders")
    job_id = redrive(under_test, to_topic="orders").job_id
    queue_id = next(n for n in range(4) if under_test.messages("orders", n)[-1:])
    again = next(
        each
        for n in range(4)
        for each in under_test.messages("orders", n)
        if REDRIVEN_BY in each.properties
    )
    send_back(under_test, again, group="others")
    send_back(under_test, again, group="others", delay_level=-1)
    copy = {name: value for name, value in again.properties.items() if name.startswith("REDRIVEN")}
    under_test.send(Message("orders", b"copy", properties=copy), queue_id=queue_id)
    assert counted(under_test, job_id) == (0, 1, 0)
    commit(under_test, again.queue_offset + 1, "orders", again.queue_id)
    assert counted(under_test, job_id) == (1, 0, 0)


@pytest.mark.parametrize("to_topic", ["", "again"])
def test_a_message_that_waits_for_its_first_delivery_waits(
    under_test: BrokerUnderTest, to_topic: str
) -> None:
    """In the schedule; then in the topic, until it is consumed there."""
    bury_many(under_test, 3)
    if to_topic:
        under_test.send(Message("again", b"x"))
        commit(under_test, 1, "again")
    job_id = redrive(under_test, to_topic=to_topic, delay_level=3).job_id
    assert counted(under_test, job_id) == (0, 3, 0)
    deliver_all(under_test)
    assert counted(under_test, job_id) == (0, 3, 0)
    for queue_id in range(4 if to_topic else 1):
        topic = to_topic or RETRY
        commit(under_test, len(under_test.messages(topic, queue_id)), topic, queue_id)
    assert counted(under_test, job_id) == (3, 0, 0)


def test_a_job_whose_messages_are_not_for_the_group_says_so(under_test: BrokerUnderTest) -> None:
    """What the others have done with them is not known: each has its own retries."""
    bury_many(under_test, 1)
    jobs = {
        "does not read topic elsewhere": redrive(under_test, to_topic="elsewhere"),
        "its original topic": redrive(under_test, to_group=False, again=True),
    }
    for why, job in jobs.items():
        found = fates(under_test, job.job_id)
        assert not found.is_counted
        assert why in found.why
    with pytest.raises(JobUnknown):
        fates(under_test, "nobody's")


def test_a_count_that_reads_too_much_says_so(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the least; only what was stored since the job began is read at all."""
    bury_many(under_test, 9)
    under_test.clock.forward(1)
    job_id = redrive(under_test).job_id
    monkeypatch.setattr(module, "LOOK_MAX", 9)
    assert counted(under_test, job_id) == (0, 9, 0)
    monkeypatch.setattr(module, "LOOK_MAX", 8)
    found = fates(under_test, job_id)
    assert (found.is_counted, found.waiting) == (True, 8)
    assert "records were read" in found.why


def test_a_count_of_a_log_that_is_cut_says_so(make: Make) -> None:
    """Letters that retention has taken are no longer known to have died."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    bury_many(broker, 2)
    job_id = redrive(broker).job_id
    for _ in range(20):
        bury(broker, Message("orders", bytes(10_000)))
    broker.persist()
    broker.store.drop_before(1 << 17)
    assert "no longer" in fates(broker, job_id).why


def test_a_job_that_sends_again_counts_its_own(under_test: BrokerUnderTest) -> None:
    """Two jobs have sent the same letter."""
    bury_many(under_test, 1)
    first = redrive(under_test).job_id
    commit(under_test, 1)
    request = RedriveRequest(RedriveSpec(GROUP, again=True), "second")
    under_test.broker[Redrive].start(request)
    run(under_test, "second")
    assert counted(under_test, first) == (1, 0, 0)
    assert counted(under_test, "second") == (0, 1, 0)

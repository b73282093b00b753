"""Redrives back to the group that failed, and whom a redrive to a topic reaches."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rmqlite.features.redrive.jobs import At, JobProgress, JobStep
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    GROUPS_NAMED_MAX,
    ReadersOfTopic,
    RedriveOutcome,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import GroupUnknown, PermissionMissing
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.kernel.words.names import SCHEDULE_GROUP, retry_topic
from rmqlite.protocols.native.bytes.rpcs import codecs
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters, kinds, retries
from tests.support.made_brokers import Make
from tests.support.messages import bodies, save_group, send_back
from tests.support.pending import deliver_all, forget_topic
from tests.support.redrives import GROUP, bury, bury_many, outcomes, redrive, run
from tests.support.steps import done

RETRY = retry_topic(GROUP)
SPECS = codecs.of(RedriveSpec, pb.RedriveSpec)


def topics_of(broker: BrokerUnderTest, **spec: object) -> tuple[ReadersOfTopic, ...]:
    """The topics and groups of a preview."""
    request = RedrivePreviewRequest(RedriveSpec(**{"group": GROUP, **spec}))  # type: ignore[arg-type]
    return done(broker.broker[Redrive].preview(request)).topics


def redriven(broker: BrokerUnderTest) -> StoredMessage:
    """The newest message of the group's retry topic."""
    return broker.messages(RETRY)[-1]


def redrive_the_schedules(broker: BrokerUnderTest) -> list[str]:
    """The topics to which the dead letters of the schedule go, "" for one that is refused."""
    job = broker.broker[Redrive].start(RedriveRequest(RedriveSpec(SCHEDULE_GROUP), "job"))
    run(broker, job.job_id)
    found = outcomes(broker, job.job_id)
    return [each.topic if each.outcome is RedriveOutcome.SENT else "" for each in found]


def test_only_the_group_that_failed_gets_its_letters_again(under_test: BrokerUnderTest) -> None:
    """The other groups of the topic have done their work; a mail is not to be sent twice."""
    bury(under_test, Message("orders", b"a"), Message("bills", b"b"))
    orders, bills = bodies(under_test, "orders"), bodies(under_test, "bills")
    assert redrive(under_test).sent == 2
    assert (bodies(under_test, "orders"), bodies(under_test, "bills")) == (orders, bills)
    assert sorted(bodies(under_test, RETRY)) == ["a", "b"]
    assert sorted(each.origin_topic for each in under_test.messages(RETRY)) == ["bills", "orders"]


@pytest.mark.parametrize("level", [0, 2])
def test_a_letter_that_goes_back_has_all_its_attempts_again(
    under_test: BrokerUnderTest, level: int
) -> None:
    """After sixteen retries more it dies once more, and still names the message it came from."""
    save_group(under_test)
    bury(under_test, Message("orders", b"a", message_id="m1"))
    (first,) = dead_letters(under_test, group=GROUP)
    redrive(under_test, delay_level=level)
    deliver_all(under_test)
    failures = 0
    while not send_back(under_test, redriven(under_test), group=GROUP, reason="still").is_dead:
        failures += 1
        deliver_all(under_test)
        assert redriven(under_test).origin_topic == "orders"
    assert failures == 16
    _, again = dead_letters(under_test, group=GROUP)
    assert (again.delivery_attempts, again.reason, again.redriven_before) == (17, "still", 1)
    assert (again.origin_topic, again.origin_queue_id, again.origin_queue_offset) == (
        *(first.origin_topic, first.origin_queue_id, first.origin_queue_offset),
    )
    assert again.origin_message_id == first.origin_message_id
    assert again.first_failure_ms >= first.last_failure_ms
    assert kinds(under_test, "m1").count("redriven") == 1
    assert kinds(under_test, "m1").count("failed") == 16
    assert kinds(under_test, "m1").count("retried") == 16 + bool(level)


def test_a_letter_that_went_back_is_a_retry_that_has_not_failed_yet(
    under_test: BrokerUnderTest,
) -> None:
    """It is listed among the retries, at once or while it waits."""
    save_group(under_test)
    bury_many(under_test, 2)
    redrive(under_test)
    found = retries(under_test, group=GROUP)
    assert [(each.topic, each.delivery_attempts, each.reason) for each in found] == [
        (RETRY, 0, ""),
        (RETRY, 0, ""),
    ]
    assert {each.redriven_before for each in found} == {1}
    redrive(under_test, again=True, delay_level=3)
    assert len(retries(under_test, group=GROUP)) == 4


def test_jobs_and_clients_from_before_mean_the_original_topics() -> None:
    """What an operator has started must not turn round when the broker is a new one."""
    kept = JobProgress.begun("old", RedriveSpec(GROUP, to_group=False), (), 1)
    body = JobStep(At(0, 0), kept).record(1).body
    tree = json.loads(body)
    del tree["job"]["spec"]["to_group"]
    for told in (body, json.dumps(tree).encode()):
        assert not JobStep.read(told).progress.job.spec.to_group
    back = JobProgress.begun("new", RedriveSpec(GROUP), (), 1)
    assert JobStep.read(JobStep(At(0, 0), back).record(1).body).progress.job.spec.to_group
    assert not SPECS.from_pb(pb.RedriveSpec(group=GROUP)).to_group
    assert SPECS.from_pb(SPECS.to_pb(RedriveSpec(GROUP))).to_group
    assert not RedriveSpec(GROUP, to_topic="orders").to_group


def test_a_group_that_was_deleted_is_made_with_its_retry_topic(make: Make) -> None:
    """As by its first member; where groups are not made on demand, the job is refused."""
    broker = make()
    bury_many(broker, 1)
    broker.broker.groups.delete(GROUP)
    forget_topic(broker, RETRY)
    assert topics_of(broker) == (ReadersOfTopic(RETRY, 1, (GROUP,)),)
    assert broker.broker.topics.get(RETRY) is None
    assert redrive(broker).sent == 1
    assert bodies(broker, RETRY) == ["0"]
    assert broker.broker.groups.get(GROUP)
    broker.broker.groups.delete(GROUP)
    broker.restart(auto_create_group=False)
    with pytest.raises(GroupUnknown, match=GROUP):
        redrive(broker, again=True)


def test_a_letter_goes_back_to_queues_that_are_written_and_read(
    under_test: BrokerUnderTest,
) -> None:
    """As every retry does: nobody would ever look into the others."""
    save_group(under_test, group=GROUP)
    bury_many(under_test, 6)
    topics = under_test.broker.topics
    topics._save([replace(topics.existing(RETRY), read_queues=2, write_queues=8)])
    redrive(under_test)
    assert [len(bodies(under_test, RETRY, n)) for n in range(2)] == [3, 3]
    topics._save([replace(topics.existing(RETRY), perm=4)])
    with pytest.raises(PermissionMissing, match="perm is 4"):
        redrive(under_test, again=True)


def test_a_dead_letter_of_the_schedule_goes_to_its_topic(under_test: BrokerUnderTest) -> None:
    """No group has failed it; but a retry that could not be delivered goes back to its group."""
    under_test.send(Message("late", b"a", delay_level=1))
    save_group(under_test, group=GROUP)
    (sent,) = under_test.send(Message("orders", b"b"))
    under_test.broker.send_back(SendBackRequest(GROUP, sent.physical_offset))
    for topic in ("late", RETRY):
        forget_topic(under_test, topic)
    deliver_all(under_test)
    assert redrive_the_schedules(under_test) == ["late", RETRY]
    assert redriven(under_test).origin_topic == "orders"
    assert redriven(under_test).reconsume_times == 0


def test_a_redrive_to_a_topic_names_the_groups_that_get_it(under_test: BrokerUnderTest) -> None:
    """Those that have read the topic, and those that read it now."""
    bury_many(under_test, 3)
    assert topics_of(under_test, to_topic="orders") == (ReadersOfTopic("orders", 3),)
    under_test.broker.commit_offsets(OffsetsCommit("mail", {Queue("orders", 0): 1}))
    member = HeartbeatRequest("audit", "one", (Subscription("orders"),))
    under_test.broker.heartbeat(member)
    (counted,) = topics_of(under_test, to_topic="orders")
    assert counted == ReadersOfTopic("orders", 3, ("audit", "mail"))
    assert topics_of(under_test) == (ReadersOfTopic(RETRY, 3, (GROUP,)),)
    assert topics_of(under_test, to_group=False) == (ReadersOfTopic("orders", 3),)


def test_only_so_many_groups_are_named(under_test: BrokerUnderTest) -> None:
    """The others are counted."""
    bury_many(under_test, 1)
    for number in range(GROUPS_NAMED_MAX + 2):
        commit = OffsetsCommit(f"g{number}", {Queue("orders", 0): 1})
        under_test.broker.commit_offsets(commit)
    (counted,) = topics_of(under_test, to_topic="orders")
    assert (len(counted.groups), counted.more_groups) == (GROUPS_NAMED_MAX, 2)

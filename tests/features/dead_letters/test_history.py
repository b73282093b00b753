"""The whole life of a message, whichever of its ids is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.dead_letters import history as module
from rmqlite.features.dead_letters.requests import EventKind, History, HistoryEvent
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import RedriveRequest, RedriveSpec
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import FAILURE_REASON_ATTEMPT, KEYS, StoredMessage
from rmqlite.kernel.words.names import CANCELLED_TOPIC, SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead, dead_letters, kinds, life
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, received, save_group, send_back
from tests.support.pending import (
    CANCEL,
    FIRE,
    RESCHEDULE,
    by_ids,
    deliver_all,
    everything,
    forget_topic,
    named,
)
from tests.support.restarts import WAYS, Restart
from tests.support.stores import new_record

RETRY, DLQ = retry_topic(GROUP), dlq_topic(GROUP)


def retried(broker: BrokerUnderTest, number: int = 0) -> StoredMessage:
    """What the group is given again next."""
    deliver_all(broker)
    return broker.messages(RETRY)[number]


def redrive(broker: BrokerUnderTest, job_id: str, **spec: Any) -> None:
    jobs = broker.broker[Redrive]
    jobs.start(RedriveRequest(RedriveSpec(GROUP, **spec), job_id))
    while jobs.step(job_id).looked_at:
        pass
    broker.sync()


@pytest.mark.parametrize("restart", WAYS)
def test_a_life_is_told_hop_by_hop(under_test: BrokerUnderTest, restart: Restart) -> None:
    """Sent, failed twice, dead, sent again; with times, attempts, reasons and places."""
    save_group(under_test, max_reconsume_times=1)
    message = received(under_test, message_id="m1")
    under_test.clock.forward(5)
    send_back(under_test, message, reason="no stock\nat line 1")
    send_back(under_test, retried(under_test), reason="none yet")
    redrive(under_test, "job-1")
    for _ in range(2):
        assert kinds(under_test, "m1") == ["sent", "failed", "retried", "dead", "redriven"]
        told = life(under_test, "m1")
        assert (told.message_id, told.is_cut) == ("m1", False)
        sent, failed, retry, died, again = told.events
        assert (sent.topic, sent.queue_offset, sent.message_id) == (TOPIC, 0, "m1")
        assert sent.offset_message_id == message.offset_message_id
        assert (failed.group, failed.attempt, failed.reason) == (GROUP, 1, "no stock\nat line 1")
        assert (failed.topic, failed.level, failed.is_pending) == (SCHEDULE_TOPIC, 3, False)
        assert failed.at_ms - sent.at_ms == 5
        assert failed.due_ms == retry.at_ms == failed.at_ms + 10_000
        assert (retry.topic, retry.group, retry.attempt, retry.reason) == (RETRY, GROUP, 1, "")
        assert (died.topic, died.group, died.attempt, died.reason) == (DLQ, GROUP, 2, "none yet")
        assert (again.topic, again.job_id, again.group) == (RETRY, "job-1", GROUP)
        assert again.message_id == f"redrive:{DLQ}:0:0"
        places = [hop.physical_offset for hop in told.events]
        assert places == sorted(places)
        restart(under_test)


def test_every_hop_knows_its_senders_limit(under_test: BrokerUnderTest) -> None:
    """What comes next is counted to it, not to the group's."""
    send_back(under_test, received(under_test, message_id="m1", max_reconsume_times=4))
    send_back(under_test, received(under_test, message_id="m2"))
    assert [hop.max_reconsume_times for hop in life(under_test, "m1").events] == [4, 4]
    assert [hop.max_reconsume_times for hop in life(under_test, "m2").events] == [None, None]


def test_a_delayed_message_is_scheduled_then_delivered(under_test: BrokerUnderTest) -> None:
    """What still waits says when it comes; a group that has read it is named."""
    under_test.send(named("m1", 3))
    under_test.send(named("m1", 4))
    (first, second) = life(under_test, "m1").events
    assert (first.kind, first.level, first.is_pending) == (EventKind.SCHEDULED, 3, True)
    assert first.due_ms == first.at_ms + 10_000
    assert second.level == 4
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert kinds(under_test, "m1") == ["scheduled", "scheduled", "delivered"]
    waited, _, delivered = life(under_test, "m1").events
    assert not waited.is_pending
    assert delivered.topic == TOPIC
    assert delivered.readers == ()
    queue = Queue(TOPIC, delivered.queue_id)
    save_group(under_test)
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {queue: 1}))
    assert life(under_test, "m1").events[2].readers == (GROUP,)
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {queue: 0}))
    assert life(under_test, "m1").events[2].readers == ()


def test_every_change_of_a_wait_is_a_hop(under_test: BrokerUnderTest) -> None:
    """Rescheduled, fired, cancelled: of a message and of a retry, which names its group."""
    under_test.send(named("m1", 3))
    by_ids(under_test, RESCHEDULE, "m1", delay_level=5)
    by_ids(under_test, FIRE, "m1")
    (message,) = under_test.messages(TOPIC)
    send_back(under_test, message, reason="a")
    by_ids(under_test, RESCHEDULE, "m1", delay_level=6)
    by_ids(under_test, FIRE, "m1")
    send_back(under_test, under_test.messages(RETRY)[0], reason="b")
    by_ids(under_test, CANCEL, "m1")
    assert kinds(under_test, "m1") == [
        *("scheduled", "rescheduled", "fired"),
        *("failed", "rescheduled", "fired", "failed", "cancelled"),
    ]
    hops = life(under_test, "m1").events
    assert [hop.group for hop in hops] == [""] * 3 + [GROUP] * 5
    assert [hop.topic for hop in hops if hop.kind is EventKind.FIRED] == [TOPIC, RETRY]
    assert [hop.level for hop in hops] == [3, 5, 0, 3, 6, 0, 4, 0]
    assert hops[-1].topic == CANCELLED_TOPIC
    assert not any(hop.is_pending for hop in hops)


def test_what_cannot_be_delivered_says_why(under_test: BrokerUnderTest) -> None:
    """A dead letter of the schedule; of a retry it names the group."""
    under_test.send(named("m1", 1))
    forget_topic(under_test, TOPIC)
    deliver_all(under_test)
    assert kinds(under_test, "m1") == ["scheduled", "undeliverable"]
    last = life(under_test, "m1").events[-1]
    assert "no topic orders" in last.reason
    assert (last.group, last.attempt) == ("", 0)


def test_a_retry_that_cannot_be_delivered_says_why_and_not_why_it_failed(
    under_test: BrokerUnderTest,
) -> None:
    """Also if its reason until then was of an earlier attempt."""
    send_back(under_test, received(under_test, message_id="m1"), reason="KeyError")
    send_back(under_test, retried(under_test))
    assert FAILURE_REASON_ATTEMPT in under_test.messages(SCHEDULE_TOPIC, 3)[0].properties
    forget_topic(under_test, RETRY)
    deliver_all(under_test)
    last = life(under_test, "m1").events[-1]
    assert last.kind is EventKind.UNDELIVERABLE
    assert last.reason == f"there is no topic {RETRY} any more"


def test_two_groups_and_two_topics_are_told_in_the_order_of_the_log(
    under_test: BrokerUnderTest,
) -> None:
    """One id is one life, whoever has read it."""
    message = received(under_test, message_id="m1")
    received(under_test, topic="bills", message_id="m1")
    received(under_test, message_id="m2")
    send_back(under_test, message, group=GROUP)
    send_back(under_test, message, group="other", delay_level=-1)
    assert kinds(under_test, "m1") == ["sent", "sent", "failed", "dead"]
    hops = life(under_test, "m1").events
    assert [(hop.topic, hop.group) for hop in hops] == [
        (TOPIC, ""),
        ("bills", ""),
        (SCHEDULE_TOPIC, GROUP),
        (dlq_topic("other"), "other"),
    ]


def test_a_redrive_is_followed_both_ways(under_test: BrokerUnderTest) -> None:
    """Again and again, also what was redriven knowingly twice."""
    dead(under_test, "m1", reason="a")
    redrive(under_test, "job-1", delay_level=1)
    deliver_all(under_test)
    redrive(under_test, "job-2", again=True)
    (again,) = [each for each in everything(under_test, RETRY) if each.message_id.endswith("job-2")]
    send_back(under_test, again, delay_level=-1, reason="b")
    redrive(under_test, "job-3")
    assert kinds(under_test, "m1") == [
        *("sent", "dead", "redriven", "retried", "redriven", "dead", "redriven"),
    ]
    hops = life(under_test, "m1").events
    assert [hop.job_id for hop in hops if hop.kind is EventKind.REDRIVEN] == [
        *("job-1", "job-2", "job-3"),
    ]
    assert [hop.message_id for hop in hops] == [
        *("m1", "m1", f"redrive:{DLQ}:0:0", f"redrive:{DLQ}:0:0"),
        *(f"redrive:{DLQ}:0:0:job-2", f"redrive:{DLQ}:0:0:job-2", f"redrive:{DLQ}:0:1"),
    ]


def test_who_copies_a_redriven_messages_properties_has_not_redriven_it(
    under_test: BrokerUnderTest,
) -> None:
    """Its id would say so."""
    dead(under_test, "m1")
    properties = {"REDRIVEN_FROM": f"{DLQ}:0:0", "REDRIVEN_BY": "me"}
    under_test.store.append(
        [new_record("x", TOPIC, 1, properties={"UNIQ_KEY": "m2", **properties})]
    )
    under_test.sync()
    assert kinds(under_test, "m2") == ["sent"]
    assert kinds(under_test, "m1") == ["sent", "dead"]


@pytest.mark.parametrize(
    "place", ["", ":", "x:0:0", f"{DLQ}:0", f"{DLQ}:x:0", f"{DLQ}:0:-1", f"{DLQ}:0:99", f"{DLQ}::"]
)
def test_a_place_that_names_no_letter_leads_nowhere(
    under_test: BrokerUnderTest, place: str
) -> None:
    """Anybody can write a property."""
    dead(under_test, "m1")
    properties = {"UNIQ_KEY": f"redrive:{place}", "REDRIVEN_FROM": place or ":"}
    under_test.store.append([new_record("x", TOPIC, 1, properties=properties)])
    under_test.sync()
    assert len(life(under_test, f"redrive:{place}").events) == 1


def test_what_a_forgotten_letter_was_is_found_by_the_id_it_had(make: Make) -> None:
    """Retention has taken the letter that was redriven, and not what it was before."""
    broker = make()
    properties = {
        "UNIQ_KEY": f"redrive:{DLQ}:0:7",
        "REDRIVEN_FROM": f"{DLQ}:0:7",
        "REDRIVEN_MESSAGE_ID": "m1",
    }
    broker.send(named("m1", 18))
    broker.store.append([new_record("x", TOPIC, properties=properties)])
    broker.sync()
    assert [hop.message_id for hop in life(broker, f"redrive:{DLQ}:0:7").events] == [
        *("m1", f"redrive:{DLQ}:0:7"),
    ]


def hops_without_id(broker: BrokerUnderTest, **properties: str) -> list[HistoryEvent]:
    """A message that a foreign producer has sent without UNIQ_KEY, failed once."""
    broker.store.append([new_record("x", TOPIC, properties=properties)])
    broker.store.append([new_record("another", TOPIC, properties=properties)])
    broker.sync()
    message, _ = broker.messages(TOPIC)
    send_back(broker, message, reason="a")
    retry = retried(broker)
    return list(life(broker, retry.offset_message_id).events)


def test_records_without_a_message_id_are_joined_as_far_as_they_say(
    under_test: BrokerUnderTest,
) -> None:
    """Back to where it was first; from there on only by a key."""
    under_test.broker.topics.ensure(TOPIC, 1)
    hops = hops_without_id(under_test)
    assert [hop.kind.name for hop in hops] == ["SENT", "FAILED", "RETRIED"]
    assert all(hop.message_id == hop.offset_message_id for hop in hops)
    assert len(life(under_test, hops[0].message_id).events) == 1


def test_records_without_a_message_id_are_found_by_a_key(under_test: BrokerUnderTest) -> None:
    """Another message with the same key is another life."""
    under_test.broker.topics.ensure(TOPIC, 1)
    hops = hops_without_id(under_test, **{KEYS: "k1 k2"})
    assert [hop.kind.name for hop in hops] == ["SENT", "FAILED", "RETRIED"]
    for hop in hops:
        assert list(life(under_test, hop.message_id).events) == hops


def test_nobody_knows_an_id_that_was_never_used(under_test: BrokerUnderTest) -> None:
    """No hops is an answer; no id is no question."""
    received(under_test, message_id="m1")
    for asked in ("m", "m11", "0" * 32, "F" * 32, "F" * 56, "\x1b[2J", "\ud800"):
        assert life(under_test, asked) == History(asked, ())
    with pytest.raises(InvalidValue):
        life(under_test, "")


def test_only_what_is_durable_is_told(under_test: BrokerUnderTest) -> None:
    """What a power cut can take back has not happened yet."""
    received(under_test, message_id="m1")
    record = new_record("x", "bills", properties={"UNIQ_KEY": "m1"})
    under_test.store.append([record])
    assert len(life(under_test, "m1").events) == 1
    under_test.sync()
    assert len(life(under_test, "m1").events) == 2


def test_a_life_of_very_many_hops_is_cut(under_test: BrokerUnderTest, monkeypatch: Any) -> None:
    """The newest ones are told: who gives every message the same id asks for it."""
    monkeypatch.setattr(module, "EVENTS_MAX", 10)
    record = new_record("x", TOPIC, properties={"UNIQ_KEY": "same"})
    under_test.store.append([record] * 30)
    under_test.sync()
    told = life(under_test, "same")
    assert told.is_cut
    assert [hop.queue_offset for hop in told.events] == list(range(20, 30))


def test_a_life_is_followed_through_a_bounded_number_of_ids(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """Each dead letter may have become another message."""
    monkeypatch.setattr(module, "IDS_MAX", 3)
    dead(under_test, "m1")
    for number in range(6):
        redrive(under_test, f"job-{number}", again=True)
    told = life(under_test, "m1")
    assert told.is_cut
    assert len(told.events) >= 3
    assert dead_letters(under_test)[0].redriven_by == "job-5"


def test_a_life_with_very_long_properties_is_cut(
    under_test: BrokerUnderTest, monkeypatch: Any
) -> None:
    """It must fit into one answer."""
    monkeypatch.setattr(module, "EVENTS_BYTES_MAX", 50_000)
    for _ in range(3):
        received(under_test, message_id="m1", properties={"long": "x" * 20_000})
    told = life(under_test, "m1")
    assert (len(told.events), told.is_cut) == (2, True)

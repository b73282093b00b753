"""Bulk calls: an outcome for each message, what counts as sent before, and the jobs' sums."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkMatch, BulkRequest, Refusal
from rmqlite.features.bulk.table_shapes import TABLE
from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.features.first_messages import HOUR_MS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.errors import (
    DiskFull,
    InvalidValue,
    JobUnknown,
    MessageTooLarge,
    StoreDamaged,
    StoreUnavailable,
)
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import REAL_TOPIC, Message
from rmqlite.kernel.words.names import BULK_JOBS_TOPIC, SCHEDULE_TOPIC
from rmqlite.store_tools.check import check
from tests.support.brokers import BODY_BYTES_MAX, BrokerUnderTest
from tests.support.bulk import TOPIC, outcomes, request, schedule
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import bodies
from tests.support.pending import ACTIONS
from tests.support.restarts import WAYS, Restart
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.thinned import by_turns


def job(broker: BrokerUnderTest, job_id: str = "import") -> tuple[int, int, int, int]:
    found = broker.broker[Bulk].jobs.get(job_id)
    return found.accepted, found.duplicates, found.refused, found.calls


def all_bodies(broker: BrokerUnderTest) -> list[str]:
    return sorted([body for queue_id in range(4) for body in bodies(broker, TOPIC, queue_id)])


def test_a_message_of_a_bulk_call_is_stored_as_a_sent_one(make: Make) -> None:
    """Consumers, delivery and RocketMQ must see no difference."""
    sent, bulk = make(default_topic_queues=1), make(default_topic_queues=1)
    sent.send(Message(TOPIC, b"x", "red", "k1 k2", {"a": "1"}, delay_level=3, message_id="id-1"))
    sent.send(Message(TOPIC, b"y", message_id="id-2"))
    columns: dict[str, Any] = {"job_id": "", "tags": ("red",), "keys": ("k1 k2",)}
    schedule(bulk, ["id-1"], bodies=(b"x",), properties=("a\x011",), delay_levels=(3,), **columns)
    schedule(bulk, ["id-2"], bodies=(b"y",), job_id="")
    stored: list[object] = []
    for broker in (sent, bulk):
        broker.clock.forward(10_000)
        assert broker.deliver() == 1
        stored.append([replace(each, properties={}) for each in broker.messages(TOPIC)])
        stored.append([dict(each.properties) for each in broker.messages(TOPIC)])
    assert stored[:2] == stored[2:]


def test_a_level_a_length_and_an_instant_are_met(under_test: BrokerUnderTest) -> None:
    """To the millisecond; a past instant means now."""
    now_ms = under_test.clock.now_ms()
    answer = schedule(
        under_test,
        ["now", "level", "length", "longer", "instant", "past"],
        delay_levels=(0, 2, 0, 0, 0, 0),
        delays=("", "", "10s", "11s", "", ""),
        deliver_at_ms=(0, 0, 0, 0, now_ms + 5_001, now_ms - 1),
        match=BulkMatch.LONGER,
    )
    assert answer.accepted == 6
    seen: dict[str, int] = {}
    for step_ms in (0, 4_999, 1, 1, 4_998, 1, 19_999, 1):
        under_test.clock.forward(step_ms)
        under_test.deliver()
        for body in all_bodies(under_test):
            seen.setdefault(body, under_test.clock.now_ms() - now_ms)
    assert seen == {
        "now": 0,
        "past": 0,
        "level": 5_000,
        "length": 10_000,
        "instant": 5_001,
        "longer": 30_000,
    }


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("delay_levels", 19, "1 to 18"),
        ("delay_levels", -1, "1 to 18"),
        ("delays", "11s", "no level is exactly that long"),
        ("delays", "soon", "a whole number and a unit"),
        ("deliver_at_ms", 1_800_000_000_000, "at most 63072000000 ms from now (timerMaxDelaySec)"),
        ("topics", "a b", "only letters"),
        ("topics", SCHEDULE_TOPIC, "the broker's own"),
        ("topics", BULK_JOBS_TOPIC, "the broker's own"),
        ("topics", "%RETRY%", "1 to"),
        ("tags", "a\x01b", "control characters"),
        ("keys", "a\x02b", "control characters"),
        ("message_ids", "", "not empty"),
        ("message_ids", "a\x01b", "control characters"),
        ("properties", "DELAY\x013", "does not reserve"),
        ("properties", "a\x01b\x02UNIQ_KEY\x01x", "does not reserve"),
        ("properties", "a", "none empty"),
        ("properties", "a\x011\x02a\x012", "each key once"),
        ("properties", "a\x01" + "x" * 33_000, f"at most {SENT_PROPERTIES_BYTES_MAX} bytes"),
        ("bodies", bytes(BODY_BYTES_MAX + 1), "maxMessageSize"),
        ("bodies", b"", "at least 1 byte"),
    ],
)
def test_a_bad_message_is_refused_and_no_other(
    under_test: BrokerUnderTest, column: str, value: Any, rule: str
) -> None:
    """Unlike a send, which is all or none."""
    good: dict[str, Any] = {
        "bodies": b"x",
        "message_ids": "",
        "topics": TOPIC,
        "deliver_at_ms": 0,
        "delay_levels": 0,
    }
    columns = {column: (good.get(column, ""), value, good.get(column, ""))}
    if column == "message_ids":
        columns = {column: ("first", value, "last")}
    answer = schedule(under_test, ["first", "second", "last"], **columns)
    assert outcomes(answer, 3) == "ara"
    (refused,) = answer.refused
    assert rule in refused.refusal.sentence + refused.refusal.rule
    assert job(under_test) == (2, 0, 1, 1)


def test_two_times_for_one_message_are_refused(under_test: BrokerUnderTest) -> None:
    """Nobody knows which one was meant."""
    answer = schedule(under_test, ["a", "b"], delay_levels=(1, 0), delays=("1s", "1s"))
    assert outcomes(answer, 2) == "ra"


def test_longer_than_the_longest_level_is_refused(under_test: BrokerUnderTest) -> None:
    """It would come early."""
    answer = schedule(under_test, ["a", "b"], delays=("3h", "2h"), match=BulkMatch.LONGER)
    assert outcomes(answer, 2) == "ra"
    assert all("2h" in each.refusal.sentence for each in answer.refused)


def test_a_topic_that_cannot_be_made_refuses_its_messages(make: Make) -> None:
    """The others have their topic."""
    broker = make(auto_create_topic=False)
    broker.broker.topics.create(TopicInfo(TOPIC, 4, 4))
    broker.broker.topics.create(TopicInfo("closed", 4, 4, 4))
    answer = schedule(broker, ["a", "b", "c"], topics=(TOPIC, "unknown", "closed"))
    assert [each.refusal.code for each in answer.refused] == [
        "topic-unknown",
        "permission-missing",
    ]


# ---- once


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("second", [0, 3])
def test_an_id_is_stored_once_under_its_topic(
    under_test: BrokerUnderTest, first: int, second: int
) -> None:
    """Whether it was sent at once or scheduled, and whichever it is now."""
    schedule(under_test, ["a", "b"], delay_levels=(first,))
    answer = schedule(under_test, ["b", "c", "a", "c"], delay_levels=(second,))
    assert outcomes(answer, 4) == "dadd"
    answer = schedule(under_test, ["a"], topics=("bills",), delay_levels=(second,))
    assert outcomes(answer, 1) == "a"
    assert job(under_test) == (4, 3, 0, 3)


def test_what_a_producer_has_sent_counts_as_sent(under_test: BrokerUnderTest) -> None:
    """The id is the message's, whoever sent it."""
    under_test.send(Message(TOPIC, b"x", message_id="a", delay_level=2))
    under_test.send(Message(TOPIC, b"x", message_id="b"))
    assert outcomes(schedule(under_test, ["a", "b", "c"]), 3) == "dda"


def test_a_key_is_no_id(under_test: BrokerUnderTest) -> None:
    """Keys share the index with ids, under the same hash."""
    under_test.send(Message(TOPIC, b"x", keys="a", delay_level=2))
    assert outcomes(schedule(under_test, ["a"]), 1) == "a"


def test_ids_of_one_hash_are_told_apart(under_test: BrokerUnderTest) -> None:
    """Java's hash of "Aa" is that of "BB"."""
    assert outcomes(schedule(under_test, ["Aa", "BB", "AaAa", "BBBB"]), 4) == "aaaa"
    assert outcomes(schedule(under_test, ["BBAa", "Aa", "AaBB", "BBBB"]), 4) == "adad"


@pytest.mark.parametrize("action", ACTIONS)
def test_what_became_of_a_message_does_not_matter(
    under_test: BrokerUnderTest, action: ScheduleAction
) -> None:
    """A cancelled message that a rerun brings back would be a surprise."""
    schedule(under_test, ["a"], delay_levels=(2,))
    level = 3 if action is ScheduleAction.RESCHEDULE else 0
    done(under_test.broker[Changes].by_ids(ChangeByIds(action, ("a",), delay_level=level)))
    assert outcomes(schedule(under_test, ["a"], delay_levels=(2,)), 1) == "d"
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert outcomes(schedule(under_test, ["a"]), 1) == "d"


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    ("restart", "ended"), by_turns([*WAYS, None], ["waits", "delivered", "cancelled", "moved"])
)
def test_a_timer_is_scheduled_once(
    under_test: BrokerUnderTest, ended: str, restart: Restart | None
) -> None:
    """A job that is sent twice: while its timers wait, and whatever became of them."""
    now_ms = under_test.clock.now_ms()
    columns = {"deliver_at_ms": (now_ms + 5_001,)}
    assert outcomes(schedule(under_test, ["a", "b", "a"], **columns), 3) == "aad"
    if ended == "delivered":
        under_test.clock.forward(5_001)
        assert under_test.deliver() == 2
    elif ended == "cancelled":
        done(under_test.broker[Changes].by_ids(ChangeByIds(ScheduleAction.CANCEL, ("a", "b"))))
    elif ended == "moved":
        moved = ChangeByIds(ScheduleAction.RESCHEDULE, ("a", "b"), delay_level=2)
        done(under_test.broker[Changes].by_ids(moved))
    under_test.sync()
    if restart:
        restart(under_test)
    assert outcomes(schedule(under_test, ["b", "c", "a"], **columns), 3) == "dad"
    later = schedule(under_test, ["a", "b"], deliver_at_ms=(now_ms + 9_000,))
    assert outcomes(later, 2) == "dd", "another instant is no other message"
    assert outcomes(schedule(under_test, ["a", "b"], delay_levels=(3,)), 2) == "dd"
    under_test.clock.forward(20_000)
    while under_test.deliver():
        pass
    assert all_bodies(under_test) == (["c"] if ended == "cancelled" else ["a", "b", "c"])


def test_a_refused_message_is_not_sent_before_the_next_one(under_test: BrokerUnderTest) -> None:
    """The same id, mended, within the same call."""
    long = "a\x01" + "x" * 33_000
    answer = schedule(under_test, ["a", "a", "a"], properties=(long, "", ""))
    assert outcomes(answer, 3) == "rad"


def test_an_id_counts_for_the_window(make: Make) -> None:
    """Bounded, or every id ever sent would have to be kept."""
    broker = make(dedup_hours=2)
    schedule(broker, ["a"])
    broker.clock.forward(2 * HOUR_MS)
    assert outcomes(schedule(broker, ["a"]), 1) == "d"
    broker.clock.forward(1)
    assert outcomes(schedule(broker, ["a"]), 1) == "a"
    assert outcomes(schedule(broker, ["a"]), 1) == "d"


def test_ids_are_known_after_a_restart_and_a_crash(under_test: BrokerUnderTest) -> None:
    """From the log, and from index files that are full."""
    ids = [f"id-{n}" for n in range(500)]
    schedule(under_test, ids[:300], delay_levels=(3,))
    under_test.restart()
    assert outcomes(schedule(under_test, ids[:301]), 301) == "d" * 300 + "a"
    schedule(under_test, ids)
    under_test.crash()
    under_test.open()
    assert outcomes(schedule(under_test, ids), 500) == "d" * 500
    assert job(under_test) == (500, 300 + 301 + 500, 0, 4)


# ---- calls


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"message_ids": ("a",)}, "message_ids"),
        ({"bodies": (b"x",)}, "message_ids"),
        ({"topics": (TOPIC,) * 3}, "topics"),
        ({"tags": ("a",) * 3}, "tags"),
        ({"deliver_at_ms": (1,) * 3}, "deliver_at_ms"),
        ({"job_id": "a b"}, "job_id"),
        ({"job_id": "x" * 128}, "job_id"),
    ],
)
def test_a_call_of_another_shape_is_refused_whole(
    under_test: BrokerUnderTest, columns: dict[str, Any], field: str
) -> None:
    """Nothing of it can be told apart."""
    with pytest.raises(InvalidValue) as raised:
        schedule(under_test, ["a", "b"], **columns)
    assert raised.value.field == field
    assert under_test.store.end == 0


def test_a_call_has_limits(make: Make) -> None:
    """Others wait while it is stored."""
    broker = make(bulk_messages_max=3, send_bytes_max=BODY_BYTES_MAX)
    with pytest.raises(InvalidValue, match="maxBulkMessages"):
        schedule(broker, ["a", "b", "c", "d"])
    with pytest.raises(InvalidValue, match="1 to 3"):
        schedule(broker, [], topics=())
    with pytest.raises(MessageTooLarge, match="maxSendBytes"):
        schedule(broker, ["a", "b"], bodies=(bytes(1 << 15), bytes((1 << 15) + 1)))
    schedule(broker, ["a", "b"], bodies=(bytes(1 << 15),) * 2)


def test_a_full_disk_refuses_the_call(make: Make) -> None:
    """As it refuses a send; a duplicate, too, for nobody looks."""
    broker = make(disk_warning_ratio=90)
    schedule(broker, ["a"])
    broker.broker.retention.is_disk_full = True
    with pytest.raises(DiskFull):
        schedule(broker, ["b"])
    assert job(broker) == (1, 0, 0, 1)


def test_a_write_that_fails_leaves_nothing(make: Make) -> None:
    """Neither messages nor counts, and the same call works later."""
    disk = FaultyFiles()
    broker = make(files=disk)
    schedule(broker, ["a"])
    disk.take_writes(0)
    with pytest.raises(StoreUnavailable):
        schedule(broker, ["a", "b"])
    disk.heal()
    assert job(broker) == (1, 0, 0, 1)
    assert outcomes(schedule(broker, ["a", "b"]), 2) == "da"
    broker.crash()
    broker.open()
    assert job(broker) == (2, 1, 0, 2)


# ---- jobs


def test_a_call_without_a_job_is_counted_nowhere(under_test: BrokerUnderTest) -> None:
    """Nobody asked for it."""
    schedule(under_test, ["a"], job_id="")
    with pytest.raises(JobUnknown):
        job(under_test, "")
    assert under_test.broker[Bulk].jobs.all() == ()
    assert under_test.broker.topics.get(BULK_JOBS_TOPIC) is None


def test_a_job_tells_times_and_the_first_refused(under_test: BrokerUnderTest) -> None:
    """Enough to find what is wrong with a table, and never more than a little."""
    began_ms = under_test.clock.now_ms()
    for n in range(3):
        ids = [f"{n}-{k}" for k in range(10)]
        schedule(under_test, ids, topics=("a b",), already_refused=(Refusal("own", "x", "y"),))
        under_test.clock.forward(1_000)
    found = under_test.broker[Bulk].jobs.get("import")
    assert (found.first_at_ms, found.last_at_ms) == (began_ms, began_ms + 2_000)
    assert found.refused == 33
    ids = [each.message_id for each in found.samples]
    assert (len(ids), ids[0], ids[1], ids[11]) == (20, "own", "0-0", "own")
    (listed,) = under_test.broker[Bulk].jobs.all()
    assert listed.samples == ()


def test_a_call_may_only_tell_what_its_sender_refused(under_test: BrokerUnderTest) -> None:
    """So that a job's sums are all of its rows."""
    refused = (Refusal("row", "invalid-value", "no body"),)
    assert schedule(under_test, [], already_refused=refused).accepted == 0
    assert job(under_test) == (0, 0, 1, 1)


def test_what_users_write_does_not_fill_a_job(under_test: BrokerUnderTest) -> None:
    """An id may have thousands of characters."""
    schedule(under_test, ["x" * 5_000], topics=("y" * 5_000,))
    (sample,) = under_test.broker[Bulk].jobs.get("import").samples
    assert len(sample.message_id) == len(sample.message_id[:-1]) + 1 <= 300


def test_the_job_last_used_the_longest_ago_is_forgotten(make: Make) -> None:
    """Also over a restart, a crash, and with another limit."""
    broker = make(bulk_jobs_max=3)
    for name in ("a", "b", "c", "a", "d"):
        schedule(broker, [name], job_id=name)

    def known() -> list[str]:
        return [each.job_id for each in broker.broker[Bulk].jobs.all()]

    assert known() == ["d", "a", "c"]
    broker.restart(bulk_jobs_max=3)
    assert known() == ["d", "a", "c"]
    broker.crash()
    broker.open(bulk_jobs_max=2)
    assert known() == ["d", "a"]
    assert job(broker, "a") == (1, 1, 0, 2)


def test_jobs_are_folded_from_where_the_table_ends(under_test: BrokerUnderTest) -> None:
    """The table is as old as the last persist, the log is not."""
    schedule(under_test, ["a"])
    under_test.persist()
    schedule(under_test, ["a", "b"])
    under_test.crash()
    under_test.open()
    assert job(under_test) == (2, 1, 0, 2)
    schedule(under_test, ["c"])
    under_test.restart()
    assert job(under_test) == (3, 1, 0, 3)


def test_the_table_of_jobs_is_written_when_it_has_changed(make: Make) -> None:
    """It may have megabytes; and it is written again when a persist has failed."""
    disk = FaultyFiles()
    broker = make(files=disk)
    jobs = broker.broker[Bulk].jobs
    assert jobs.tree() == {}
    schedule(broker, ["a"])
    assert list(jobs.tree()) == [TABLE]
    assert list(jobs.tree()) == [TABLE], "no persist has succeeded since"
    disk.take_writes(0)
    with pytest.raises(StoreUnavailable):
        broker.persist()
    disk.heal()
    assert list(jobs.tree()) == [TABLE]
    broker.persist()
    assert jobs.tree() == {}
    broker.restart()
    assert broker.broker[Bulk].jobs.tree() == {}
    schedule(broker, ["b"])
    broker.crash()
    broker.open()
    assert list(broker.broker[Bulk].jobs.tree()) == [TABLE], "the log has more than the table"
    assert job(broker) == (2, 0, 0, 2)


def test_a_job_outlives_its_records(under_test: BrokerUnderTest) -> None:
    """Retention takes old files; the table has the sums."""
    schedule(under_test, ["a"])
    file_bytes = under_test.store.log_file_bytes
    while under_test.store.end < 3 * file_bytes:
        under_test.send(Message("other", bytes(50_000)))
    under_test.persist()
    under_test.store.drop_before(2 * file_bytes)
    assert under_test.store.min_offset == 2 * file_bytes
    under_test.crash()
    under_test.open()
    assert job(under_test) == (1, 0, 0, 1)
    schedule(under_test, ["b"])
    under_test.crash()
    under_test.open()
    assert job(under_test) == (2, 0, 0, 2)


def test_a_strange_record_among_those_of_jobs_is_passed_over(under_test: BrokerUnderTest) -> None:
    """RocketMQ's broker lets anybody send there."""
    schedule(under_test, ["a"])
    record = under_test.broker[Bulk].jobs.record(under_test.broker[Bulk].jobs.get("import"), 0)
    under_test.store.append([record._replace(body=b"{}"), record._replace(body=b"\xff")])
    under_test.crash()
    under_test.open()
    assert job(under_test) == (1, 0, 0, 1)


@pytest.mark.parametrize("jobs", ["{}", "nothing", '{"job_id": "a", "accepted": "many"}'])
def test_a_table_of_jobs_that_is_none_is_told_with_its_place(
    under_test: BrokerUnderTest, jobs: str
) -> None:
    """As every other damaged table: by opening, and by the checker."""
    schedule(under_test, ["a"])
    under_test.close()
    root = under_test.config.store_path
    table = root / "config" / TABLE
    sound = table.read_bytes()
    table.write_bytes(json.dumps({"queueOffset": 1, "jobs": [jobs]}).encode())
    with pytest.raises(StoreDamaged, match=TABLE):
        under_test.open()
    under_test.store.release()
    found = check(root)
    assert [each.path for each in found] == [table]
    table.write_bytes(sound)


def test_the_topic_of_the_jobs_is_the_brokers_own(under_test: BrokerUnderTest) -> None:
    """It is listed only among the system's."""
    schedule(under_test, ["a"])
    info = under_test.broker.topics.existing(BULK_JOBS_TOPIC)
    assert (info.read_queues, info.write_queues) == (1, 1)


def test_a_scheduled_record_says_where_it_goes(under_test: BrokerUnderTest) -> None:
    """As route() writes it."""
    schedule(under_test, ["a"], delay_levels=(4,))
    queue = under_test.store.queue(SCHEDULE_TOPIC, 3)
    assert queue is not None
    (walked,) = under_test.store.read_records(queue.read(0, 1))
    assert walked is not None
    stored = under_test.store.read_message(walked.head.physical_offset)
    under_test.send(Message(TOPIC, b"a", delay_level=4, message_id="b"), queue_id=1)
    (walked,) = under_test.store.read_records(queue.read(1, 1))
    assert walked is not None
    sent = under_test.store.read_message(walked.head.physical_offset)
    wanted = dict(sent.properties) | {"UNIQ_KEY": "a"}
    assert stored.properties[REAL_TOPIC] == TOPIC
    assert stored.properties == wanted


def test_a_part_of_a_request_is_a_request() -> None:
    """What is too large for a call is halved."""
    whole = request(["a", "b", "c"], delay_levels=(1, 2, 3), tags=("x",))
    part = whole.part(1, 3)
    assert part == request(["b", "c"], delay_levels=(2, 3), tags=("x",))
    assert whole.part(0, 0) == BulkRequest((), (), (), job_id="import")


def test_the_answer_is_for_whoever_asks_born_host_included(under_test: BrokerUnderTest) -> None:
    """A consumer sees where a message came from."""
    done(under_test.broker[Bulk].schedule(request(["a"], born_at_ms=7), BORN_HOST))
    under_test.sync()
    (message,) = [m for n in range(4) for m in under_test.messages(TOPIC, n)]
    assert (message.born_host, message.born_timestamp_ms) == ("10.0.0.1:1234", 7)


# ---- in steps


def large(first: int, **columns: Any) -> BulkRequest:
    return request([f"id-{number}" for number in range(first, first + 200)], **columns)


def test_calls_that_take_turns_store_a_message_once(under_test: BrokerUnderTest) -> None:
    """Each looks for what the other has stored since it looked first."""
    one = under_test.broker[Bulk].schedule(large(0), BORN_HOST)
    other = under_test.broker[Bulk].schedule(large(100), BORN_HOST)
    for steps in (one, other, one, other):
        next(steps)
    assert outcomes(done(one), 200) == "a" * 200
    assert outcomes(done(other), 200) == "d" * 100 + "a" * 100
    under_test.sync()
    assert sum(len(under_test.messages(TOPIC, queue_id)) for queue_id in range(4)) == 300
    assert job(under_test)[:2] == (300, 100)


def test_the_levels_in_force_when_a_call_is_stored_are_its_own(under_test: BrokerUnderTest) -> None:
    """A table that changes between its steps is another table."""
    steps = under_test.broker[Bulk].schedule(large(0, delays=("10s",)), BORN_HOST)
    next(steps)
    under_test.store.change_levels(parse_levels("1s 10s"))
    assert outcomes(done(steps), 200) == "a" * 200
    assert {each.level for each in done(under_test.broker[Pending].counts())} == {2}

"""Redrive jobs: start, step, change, look; what they refuse and what they remember."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.features.dead_letters.redriven import EARLIER, Redriven
from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.redrive import pages
from rmqlite.features.redrive.redrive import JOBS_NOT_OVER_MAX, STEP_DEAD_LETTERS_MAX, Redrive
from rmqlite.features.redrive.requests import (
    JobAction,
    JobChange,
    JobState,
    OutcomesQuery,
    ReadersOfTopic,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.errors import (
    DiskFull,
    GroupUnknown,
    InvalidName,
    InvalidValue,
    JobExists,
    JobOver,
    JobUnknown,
    Overloaded,
    PermissionMissing,
    RmqliteError,
    StoreDamaged,
    TopicUnknown,
)
from rmqlite.kernel.words.message import REDRIVEN_BY, RETRY_TOPIC, Message
from rmqlite.kernel.words.names import REDRIVE_JOBS_TOPIC, SCHEDULE_GROUP, retry_topic
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import dead_letters, set_marker
from tests.support.made_brokers import Make
from tests.support.messages import bodies
from tests.support.redrives import (
    DLQ,
    GROUP,
    bury,
    bury_many,
    outcomes,
    redrive,
    run,
    sent_by_job,
    start,
)
from tests.support.rocketmq_rules import violations
from tests.support.steps import done
from tests.support.stores import new_record

SENT, ALREADY, REFUSED = RedriveOutcome.SENT, RedriveOutcome.ALREADY, RedriveOutcome.REFUSED


def change(
    broker: BrokerUnderTest, job_id: str, action: JobAction, max_per_second: int = 0
) -> JobState:
    return broker.broker[Redrive].change(JobChange(job_id, action, max_per_second)).state


def preview(broker: BrokerUnderTest, cursor: str = "", **spec: Any) -> RedrivePreview:
    request = RedrivePreviewRequest(RedriveSpec(GROUP, **spec), cursor)
    return done(broker.broker[Redrive].preview(request))


def everything(broker: BrokerUnderTest, topic: str) -> list[str]:
    """The bodies in all queues of a topic."""
    return [body for n in range(4) for body in bodies(broker, topic, n)]


def test_every_letter_goes_to_the_topic_it_was_sent_to(under_test: BrokerUnderTest) -> None:
    """As clients ask for that do not name the group; each once, and the job's sums say so."""
    bury(under_test, Message("orders", b"a"), Message("bills", b"b"), Message("orders", b"c"))
    job = redrive(under_test, to_group=False)
    assert (job.state, job.letters, job.looked_at) == (JobState.DONE, 3, 3)
    assert (job.sent, job.already, job.refused) == (3, 0, 0)
    assert job.ended_at_ms == job.changed_at_ms > 0
    found = sorted(everything(under_test, "orders"))
    assert found == ["a", "a", "c", "c"]
    assert {letter.topic for letter in outcomes(under_test, job.job_id)} == {"orders", "bills"}


def test_letters_are_redriven_by_their_ids_and_places(under_test: BrokerUnderTest) -> None:
    """Each named letter once, however often and by whatever name."""
    bury_many(under_test, 6)
    ids = (_id_of(under_test, 1), f"{GROUP}:0:3", f"{DLQ}:0:3", f"{GROUP}:1:4", "nobody's")
    assert preview(under_test, filter=DeadLetterFilter(ids=ids)).sent == 2
    job = redrive(under_test, filter=DeadLetterFilter(ids=ids))
    assert [each.queue_offset for each in outcomes(under_test, job.job_id)] == [1, 3]


def test_what_a_job_sent_and_what_died_again_is_found_by_the_job(
    under_test: BrokerUnderTest,
) -> None:
    """So that the second failure is not looked for among thousands of first ones."""
    bury_many(under_test, 3)
    job = redrive(under_test)
    assert dead_letters(under_test, DeadLetterFilter(job_id=job.job_id)) == []
    message, *_ = under_test.messages(retry_topic(GROUP))
    assert message.properties[REDRIVEN_BY] == job.job_id
    under_test.broker.send_back(SendBackRequest(GROUP, message.physical_offset, delay_level=-1))
    under_test.sync()
    (letter,) = dead_letters(under_test, DeadLetterFilter(job_id=job.job_id))
    assert (letter.queue_offset, letter.redriven_before) == (3, 1)
    assert redrive(under_test, filter=DeadLetterFilter(job_id=job.job_id)).sent == 1


def test_a_job_that_was_begun_before_has_the_id_that_it_named(under_test: BrokerUnderTest) -> None:
    """In its table an older broker wrote one message_id; without it the job would take all."""
    bury_many(under_test, 4)
    wanted = _id_of(under_test, 2)
    job_id = start(under_test, filter=DeadLetterFilter(ids=(wanted,))).job_id
    other_id = start(under_test, filter=DeadLetterFilter(tag="none such")).job_id
    under_test.close()
    path = under_test.config.store_path / "config" / "redriveJobs.json"
    table = json.loads(path.read_text())
    jobs = [json.loads(text) for text in table["jobs"]]
    for each in jobs:
        filter = each["job"]["spec"]["filter"]
        (filter["message_id"],) = filter.pop("ids") or [""]
        del filter["failure_kind"], filter["job_id"]
    path.write_text(json.dumps(table | {"jobs": [json.dumps(each) for each in jobs]}))
    under_test.open()
    kept = {each.job_id: each.spec.filter for each in under_test.broker[Redrive].all()}
    assert kept[job_id] == DeadLetterFilter(ids=(wanted,))
    assert kept[other_id] == DeadLetterFilter(tag="none such")
    assert run(under_test, job_id).sent == 1
    assert [each.queue_offset for each in outcomes(under_test, job_id)] == [2]


def test_a_letter_that_dies_after_the_start_waits_for_another_job(
    under_test: BrokerUnderTest,
) -> None:
    """Else a job whose letters die again at once would never end."""
    bury_many(under_test, 2)
    job = start(under_test)
    bury_many(under_test, 1)
    assert run(under_test, job.job_id).sent == 2
    again = redrive(under_test)
    assert (again.letters, again.sent, again.already) == (3, 1, 2)


def test_only_what_fits_the_filter_is_sent(under_test: BrokerUnderTest) -> None:
    """The others are looked at and left alone, without an outcome."""
    bury(under_test, *[Message("orders", b"%d" % n, tags=f"t{n % 3}") for n in range(9)])
    job = redrive(under_test, filter=DeadLetterFilter(tag="t1"))
    assert (job.looked_at, job.sent) == (9, 3)
    assert [letter.queue_offset for letter in outcomes(under_test, job.job_id)] == [1, 4, 7]


def test_letters_go_to_the_queues_by_turns(under_test: BrokerUnderTest) -> None:
    """No reader gets all of them."""
    bury_many(under_test, 8)
    redrive(under_test, to_topic="again")
    assert [len(bodies(under_test, "again", n)) for n in range(4)] == [2, 2, 2, 2]


def test_readers_of_the_destination_are_woken(under_test: BrokerUnderTest) -> None:
    """As by a send."""
    bury_many(under_test, 1)
    under_test.heard.appended_to.clear()
    redrive(under_test, to_topic="again")
    assert ("again", 1) in under_test.heard.appended_to


def test_a_delay_is_kept_to(under_test: BrokerUnderTest) -> None:
    """The letters wait at the level, and are delivered from there."""
    bury_many(under_test, 2)
    redrive(under_test, to_topic="again", delay_level=3)
    assert under_test.heard.sooner
    assert under_test.deliver() == 0
    under_test.clock.forward(10_000)
    assert under_test.deliver() == 2
    assert sorted(everything(under_test, "again")) == ["0", "1"]


def test_a_letter_is_sent_once_by_all_jobs_together(under_test: BrokerUnderTest) -> None:
    """The second one names the first; only who asks for it gets them again."""
    bury_many(under_test, 3)
    first = redrive(under_test)
    second = redrive(under_test)
    assert (second.sent, second.already) == (0, 3)
    assert {each.why for each in outcomes(under_test, second.job_id)} == {first.job_id}
    again = redrive(under_test, again=True)
    assert (again.sent, again.already) == (3, 0)
    assert {each.message_id for each in outcomes(under_test, again.job_id)} == {
        f"redrive:{DLQ}:0:{n}:{again.job_id}" for n in range(3)
    }


def test_what_an_import_has_sent_is_found_in_the_log(under_test: BrokerUnderTest) -> None:
    """Its ids are made the same way; at once or with a delay."""
    bury_many(under_test, 3)
    for n, level in ((0, 0), (2, 5)):
        under_test.send(
            Message("orders", b"x", message_id=f"redrive:{DLQ}:0:{n}", delay_level=level)
        )
    job = redrive(under_test)
    assert (job.sent, job.already) == (1, 2)
    told = [(each.outcome, "dlq import" in each.why) for each in outcomes(under_test, job.job_id)]
    assert told == [(ALREADY, True), (SENT, False), (ALREADY, True)]


def test_a_job_takes_many_steps_of_few_letters(under_test: BrokerUnderTest) -> None:
    """Others get their turn in between."""
    bury_many(under_test, STEP_DEAD_LETTERS_MAX + 5)
    job = start(under_test)
    assert under_test.broker[Redrive].step(job.job_id) == (
        STEP_DEAD_LETTERS_MAX,
        STEP_DEAD_LETTERS_MAX,
    )
    assert under_test.broker[Redrive].step(job.job_id) == (5, 5)
    assert under_test.broker[Redrive].step(job.job_id) == (0, 0)


def test_a_step_sends_no_more_than_it_may(under_test: BrokerUnderTest) -> None:
    """What is left is looked at by the next one."""
    bury_many(under_test, 5)
    job = start(under_test)
    assert under_test.broker[Redrive].step(job.job_id, 2) == (2, 2)
    assert under_test.broker[Redrive].get(job.job_id).sent == 2
    assert run(under_test, job.job_id, 2).sent == 5


def test_a_step_takes_few_large_letters(make: Make) -> None:
    """4 MiB at a time, so that nobody waits long."""
    under_test = make(mapped_file_size_commit_log=8 << 20, max_message_bytes=2 << 20)
    for _ in range(5):
        bury(under_test, Message("orders", bytes(1_500_000)))
    job = start(under_test)
    assert under_test.broker[Redrive].step(job.job_id).sent == 2
    assert run(under_test, job.job_id).sent == 5


def test_a_paused_job_sends_nothing_until_it_is_resumed(under_test: BrokerUnderTest) -> None:
    """Also over a restart; pausing twice is pausing once."""
    bury_many(under_test, 3)
    job_id = start(under_test).job_id
    under_test.broker[Redrive].step(job_id, 1)
    assert change(under_test, job_id, JobAction.PAUSE) is JobState.PAUSED
    end = under_test.store.end
    assert change(under_test, job_id, JobAction.PAUSE) is JobState.PAUSED
    assert under_test.store.end == end
    under_test.restart()
    assert under_test.broker[Redrive].running() == []
    assert under_test.broker[Redrive].step(job_id) == (0, 0)
    assert change(under_test, job_id, JobAction.RESUME) is JobState.RUNNING
    assert run(under_test, job_id).sent == 3


def test_a_cancelled_job_is_over(under_test: BrokerUnderTest) -> None:
    """What it has sent stays sent; another job sends the rest."""
    bury_many(under_test, 3)
    job_id = start(under_test).job_id
    under_test.broker[Redrive].step(job_id, 2)
    assert change(under_test, job_id, JobAction.CANCEL) is JobState.CANCELLED
    assert run(under_test, job_id).sent == 2
    for action in JobAction:
        with pytest.raises(JobOver, match="cancelled"):
            change(under_test, job_id, action)
    other = redrive(under_test)
    assert (other.sent, other.already) == (1, 2)


def test_the_rate_is_changed_at_once(under_test: BrokerUnderTest) -> None:
    """Whoever runs jobs is told, and the job's spec says it."""
    told: list[bool] = []
    bury_many(under_test, 1)
    job_id = start(under_test, max_per_second=5).job_id
    under_test.broker[Redrive].on_change.append(lambda: told.append(True))
    change(under_test, job_id, JobAction.SET_RATE, 50)
    assert under_test.broker[Redrive].get(job_id).spec.max_per_second == 50
    assert told == [True]


@pytest.mark.parametrize(
    ("action", "rate", "field"),
    [(JobAction.SET_RATE, -1, "max_per_second"), (JobAction.PAUSE, 7, "max_per_second")],
)
def test_a_change_that_means_nothing_is_refused(
    under_test: BrokerUnderTest, action: JobAction, rate: int, field: str
) -> None:
    """Nobody believes that it has been done."""
    bury_many(under_test, 1)
    job_id = start(under_test).job_id
    with pytest.raises(InvalidValue) as raised:
        change(under_test, job_id, action, rate)
    assert raised.value.field == field


def test_a_job_that_nobody_knows(under_test: BrokerUnderTest) -> None:
    """Its id may be mistyped, or it is forgotten."""
    redrive = under_test.broker[Redrive]
    with pytest.raises(JobUnknown):
        redrive.get("nightly")
    with pytest.raises(JobUnknown):
        redrive.change(JobChange("nightly", JobAction.PAUSE))
    with pytest.raises(JobUnknown):
        done(redrive.outcomes(OutcomesQuery("nightly")))


@pytest.mark.parametrize(
    ("spec", "error", "named"),
    [
        (RedriveSpec(""), InvalidName, "group"),
        (RedriveSpec("a b"), InvalidName, "group"),
        (RedriveSpec("nobody"), GroupUnknown, "group"),
        (RedriveSpec(GROUP, DeadLetterFilter(key="a b")), InvalidValue, "key"),
        (RedriveSpec(GROUP, DeadLetterFilter(since_ms=5, until_ms=5)), InvalidValue, "until_ms"),
        (RedriveSpec(GROUP, DeadLetterFilter(reason="x" * 1_001)), InvalidValue, "reason"),
        (RedriveSpec(GROUP, to_topic="a b"), InvalidName, "topic"),
        (RedriveSpec(GROUP, to_topic="%DLQ%shop"), InvalidValue, "to_topic"),
        (RedriveSpec(GROUP, to_topic="%RETRY%shop"), InvalidValue, "to_topic"),
        (RedriveSpec(GROUP, to_topic="SCHEDULE_TOPIC_XXXX"), PermissionMissing, "topic"),
        (RedriveSpec(GROUP, to_topic=REDRIVE_JOBS_TOPIC), PermissionMissing, "topic"),
        (RedriveSpec(GROUP, delay_level=19), InvalidValue, "delay_level"),
        (RedriveSpec(GROUP, delay_level=-1), InvalidValue, "delay_level"),
        (RedriveSpec(GROUP, max_per_second=-1), InvalidValue, "max_per_second"),
        (RedriveSpec(GROUP, max_per_second=1_000_001), InvalidValue, "max_per_second"),
    ],
)
def test_what_cannot_be_meant_is_refused_up_front(
    under_test: BrokerUnderTest, spec: RedriveSpec, error: type[RmqliteError], named: str
) -> None:
    """By a preview as by a start, with field, value and rule; no job is made."""
    bury_many(under_test, 1)
    redrive = under_test.broker[Redrive]
    with pytest.raises(error) as raised:
        redrive.start(RedriveRequest(spec))
    assert raised.value.field == named
    with pytest.raises(error):
        done(redrive.preview(RedrivePreviewRequest(spec)))
    assert redrive.all() == ()


def test_another_topic_that_does_not_exist_is_refused_where_none_is_made(make: Make) -> None:
    """Before the job, not letter by letter."""
    under_test = make()
    bury_many(under_test, 1)
    under_test.restart(auto_create_topic=False)
    with pytest.raises(TopicUnknown):
        start(under_test, to_topic="typo")


def test_a_job_id_that_cannot_be_printed_is_refused(under_test: BrokerUnderTest) -> None:
    """It is written to terminals and into properties."""
    bury_many(under_test, 1)
    for job_id in ("a b", "ä", "x" * 200, "a\x1b[2J"):
        with pytest.raises(InvalidValue):
            start(under_test, job_id)


def test_the_same_start_again_answers_the_job_that_is_there(under_test: BrokerUnderTest) -> None:
    """Who had no answer asks again; also when its rate was changed or it is over."""
    bury_many(under_test, 3)
    first = start(under_test, "mine", max_per_second=5)
    change(under_test, "mine", JobAction.SET_RATE, 9)
    assert start(under_test, "mine", max_per_second=5).created_at_ms == first.created_at_ms
    run(under_test, "mine")
    assert start(under_test, "mine", max_per_second=5).state is JobState.DONE
    with pytest.raises(JobExists):
        start(under_test, "mine", again=True)
    assert len(under_test.broker[Redrive].all()) == 1


def test_an_id_made_by_the_broker_tells_when(under_test: BrokerUnderTest) -> None:
    """Short enough to be typed."""
    bury_many(under_test, 1)
    ids = [start(under_test).job_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert all(len(job_id) == 22 and job_id.startswith("r-2023111") for job_id in ids)


def test_a_group_without_letters_makes_a_job_that_is_done(under_test: BrokerUnderTest) -> None:
    """Nothing to do is not a mistake."""
    under_test.broker.groups.make([GroupInfo(GROUP)])
    job = start(under_test)
    assert (job.state, job.letters, job.ended_at_ms) == (JobState.DONE, 0, job.created_at_ms)
    assert outcomes(under_test, job.job_id) == []


def test_there_are_not_more_jobs_at_once_than_may_be(under_test: BrokerUnderTest) -> None:
    """Each takes its turns from all others."""
    bury_many(under_test, 1)
    ids = [start(under_test).job_id for _ in range(JOBS_NOT_OVER_MAX)]
    with pytest.raises(Overloaded):
        start(under_test)
    change(under_test, ids[3], JobAction.CANCEL)
    start(under_test)


def test_the_oldest_jobs_that_are_over_are_forgotten(make: Make) -> None:
    """Not what they have sent."""
    under_test = make(redrive_jobs_max=2)
    bury_many(under_test, 2)
    first = redrive(under_test)
    second = redrive(under_test)
    running = start(under_test)
    assert [job.job_id for job in under_test.broker[Redrive].all()] == [
        *(running.job_id, second.job_id)
    ]
    with pytest.raises(JobUnknown):
        under_test.broker[Redrive].get(first.job_id)
    under_test.restart()
    assert run(under_test, running.job_id).already == 2
    assert {each.why for each in outcomes(under_test, running.job_id)} == {EARLIER}


def test_jobs_are_listed_the_last_changed_one_first(under_test: BrokerUnderTest) -> None:
    """Without samples, which may be long."""
    bury_many(under_test, 1)
    first, second = start(under_test).job_id, start(under_test).job_id
    change(under_test, first, JobAction.PAUSE)
    assert [job.job_id for job in under_test.broker[Redrive].all()] == [first, second]


@pytest.mark.parametrize("is_clean", [True, False])
def test_jobs_are_as_they_were_after_a_restart(make: Make, is_clean: bool) -> None:
    """From the table, or from the log."""
    under_test = make()
    bury_many(under_test, 5)
    done_id = redrive(under_test, filter=DeadLetterFilter(ids=("nobody's",))).job_id
    job_id = start(under_test, max_per_second=7, filter=DeadLetterFilter(topic="orders")).job_id
    under_test.broker[Redrive].step(job_id, 2)
    redriven = under_test.broker[Redriven].of(DLQ, 0).ranges()
    assert redriven == [(0, 2)]
    jobs = under_test.broker[Redrive].all()
    told = outcomes(under_test, job_id)
    if is_clean:
        under_test.close()
    else:
        under_test.crash()
    under_test.open()
    assert under_test.broker[Redrive].all() == jobs
    assert outcomes(under_test, job_id) == told
    assert under_test.broker[Redriven].of(DLQ, 0).ranges() == redriven
    assert under_test.broker[Redriven].job_of(DLQ, 0, 1) == job_id
    assert run(under_test, job_id).sent == 5
    assert under_test.broker[Redrive].get(done_id).state is JobState.DONE
    assert sent_by_job(under_test)[job_id] == {f"{DLQ}:0:{n}": 1 for n in range(5)}


def test_a_table_of_another_log_is_not_believed_to_the_end(under_test: BrokerUnderTest) -> None:
    """Its place lies behind the queue's end: all records are folded."""
    bury_many(under_test, 3)
    job_id = redrive(under_test).job_id
    under_test.close()
    path = under_test.config.store_path / "config" / "redriveJobs.json"
    tree = json.loads(path.read_text())
    path.write_text(json.dumps(tree | {"queueOffset": 1_000, "jobs": []}))
    under_test.open()
    assert under_test.broker[Redrive].get(job_id).sent == 3


@pytest.mark.parametrize(
    "change", [{"jobs": ["{}"]}, {"queueOffset": "x"}, {"earlier": 5}, {"jobs": ["not json"]}]
)
def test_a_table_that_cannot_be_read_is_damage(
    under_test: BrokerUnderTest, change: dict[str, object]
) -> None:
    """Nothing is skipped: an operator decides."""
    bury_many(under_test, 1)
    redrive(under_test)
    under_test.close()
    path = under_test.config.store_path / "config" / "redriveJobs.json"
    whole = path.read_text()
    path.write_text(json.dumps(json.loads(whole) | change))
    (finding,) = check(under_test.config.store_path)
    assert "not a table of redrive jobs" in finding.sentence
    with pytest.raises(StoreDamaged, match="redriveJobs"):
        under_test.open()
    under_test.crash()
    path.write_text(whole)


def test_a_record_of_somebody_elses_is_passed_over(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic is closed to producers here, but not in RocketMQ."""
    bury_many(under_test, 2)
    job_id = redrive(under_test).job_id
    bodies_of_others = (b"", b"null", b"[]", b"{}", b'{"texts": [], "runs": [], "job": 1}', b"\xff")
    under_test.store.append([new_record(body, REDRIVE_JOBS_TOPIC) for body in bodies_of_others])
    under_test.crash()
    under_test.open()
    assert under_test.broker[Redrive].get(job_id).sent == 2
    assert caplog.text.count("skip a record of no redrive job") == len(bodies_of_others)


@pytest.mark.parametrize("sent_max", [1, 3, 200])
def test_all_queues_of_dead_letters_are_redriven(make: Make, sent_max: int) -> None:
    """RocketMQ makes one for a group, but who sets it up may have made more."""
    under_test = make()
    under_test.broker.topics.ensure(DLQ, 3)
    properties = {RETRY_TOPIC: "orders"}
    for queue_id, count in ((0, 4), (1, 0), (2, 5)):
        for n in range(count):
            record = new_record(f"{queue_id}.{n}", DLQ, queue_id, properties=properties)
            under_test.store.append([record])
    under_test.store.append([new_record("whose?", DLQ, 2)])
    under_test.sync()
    assert (preview(under_test).sent, preview(under_test).refused) == (9, 1)
    assert preview(under_test, "1.2_0.0.4_2.0.6").looked_at == 4
    job_id = start(under_test, to_group=False).job_id
    while not under_test.broker[Redrive].get(job_id).is_over:
        under_test.broker[Redrive].step(job_id, sent_max)
        under_test.sync()
        under_test.crash()
        under_test.open()
    job = under_test.broker[Redrive].get(job_id)
    assert (job.looked_at, job.sent, job.refused) == (10, 9, 1)
    places = [(each.queue_id, each.queue_offset) for each in outcomes(under_test, job_id)]
    assert places == [*[(0, n) for n in range(4)], *[(2, n) for n in range(6)]]
    assert [under_test.broker[Redriven].of(DLQ, n).ranges() for n in range(3)] == [
        *([(0, 4)], [], [(0, 5)])
    ]
    assert len(everything(under_test, "orders")) == 9


@pytest.mark.parametrize("is_closed", [True, False])
def test_rocketmq_finds_nothing_wrong_with_a_store_that_was_redriven(
    make: Make, is_closed: bool
) -> None:
    """A job's records are an ordinary topic's."""
    under_test = make()
    bury_many(under_test, 20)
    job_id = start(under_test, delay_level=2).job_id
    under_test.broker[Redrive].step(job_id, 7)
    redrive(under_test)
    if is_closed:
        under_test.close()
    else:
        under_test.crash()
    config = under_test.config
    wrong = violations(
        config.store_path,
        log_file_bytes=config.mapped_file_size_commit_log,
        queue_file_bytes=config.mapped_file_size_consume_queue,
        index_slots=config.max_hash_slots,
        index_entries=config.max_index_entries,
        is_closed=is_closed,
    )
    assert wrong == []


def test_what_was_purged_is_left_out(under_test: BrokerUnderTest) -> None:
    """Also when that happens while the job runs."""
    bury_many(under_test, 6)
    set_marker(under_test, 2)
    job = start(under_test)
    assert (job.letters, preview(under_test).letters) == (4, 4)
    under_test.broker[Redrive].step(job.job_id, 1)
    set_marker(under_test, 5)
    over = run(under_test, job.job_id)
    assert (over.looked_at, over.sent) == (4, 2)
    assert [each.queue_offset for each in outcomes(under_test, job.job_id)] == [2, 5]


def test_letters_that_retention_takes_meanwhile_are_left_out(make: Make) -> None:
    """The job passes them by and ends; its outcomes tell of the others."""
    under_test = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    for _ in range(30):
        bury(under_test, Message("orders", bytes(10_000)))
    job = start(under_test)
    under_test.broker[Redrive].step(job.job_id, 2)
    under_test.persist()
    under_test.store.drop_before(3 << 17)
    queue = under_test.store.queue(DLQ, 0)
    assert queue
    assert queue.min_offset > 10
    over = run(under_test, job.job_id)
    assert (over.state, over.letters, over.looked_at) == (JobState.DONE, 30, 30)
    assert over.sent == 2 + 30 - queue.min_offset
    told = [each.queue_offset for each in outcomes(under_test, job.job_id)]
    assert told == [0, 1, *range(queue.min_offset, 30)]


def test_outcomes_begin_where_the_log_does(make: Make) -> None:
    """Records of jobs are log records like others; the sums stay."""
    under_test = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 15)
    bury_many(under_test, 6)
    job_id = start(under_test).job_id
    under_test.broker[Redrive].step(job_id, 2)
    for _ in range(20):
        bury(under_test, Message("orders", bytes(10_000)))
    under_test.broker[Redrive].step(job_id, 2)
    under_test.persist()
    under_test.store.drop_before(2 << 17)
    assert [each.queue_offset for each in outcomes(under_test, job_id)] == [2, 3]
    under_test.restart()
    assert under_test.broker[Redrive].get(job_id).sent == 4
    assert under_test.broker[Redriven].of(DLQ, 0).ranges() == [(0, 4)]


def test_on_a_full_disk_a_job_stays_where_it_is(under_test: BrokerUnderTest) -> None:
    """The room that is left is for what was accepted."""
    bury_many(under_test, 3)
    job_id = start(under_test).job_id
    under_test.broker.retention.is_disk_full = True
    with pytest.raises(DiskFull):
        under_test.broker[Redrive].step(job_id)
    with pytest.raises(DiskFull):
        start(under_test)
    under_test.broker[Redrive].note(job_id, "the disk is full")
    assert under_test.broker[Redrive].get(job_id).note == "the disk is full"
    under_test.broker.retention.is_disk_full = False
    assert run(under_test, job_id).sent == 3


def test_a_preview_says_what_a_job_would_do_and_changes_nothing(
    under_test: BrokerUnderTest,
) -> None:
    """Not a byte, and no topic is made."""
    bury(under_test, Message("orders", b"a"), Message("bills", b"b"), Message("orders", b"c"))
    redrive(under_test, filter=DeadLetterFilter(topic="bills"))
    end, topics = under_test.store.end, under_test.broker.topics.all()
    would = preview(under_test)
    assert (would.letters, would.looked_at, would.cursor) == (3, 3, "")
    assert (would.sent, would.already, would.refused) == (2, 1, 0)
    assert would.topics == (ReadersOfTopic("%RETRY%shop", 2, ("shop",)),)
    assert preview(under_test, to_group=False).topics == (ReadersOfTopic("orders", 2),)
    assert [each.outcome for each in would.samples] == [SENT, ALREADY, SENT]
    preview(under_test, to_topic="another")
    assert (under_test.store.end, under_test.broker.topics.all()) == (end, topics)


def test_a_preview_of_many_letters_goes_on_at_its_cursor(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the letters that were there at its first page."""
    assert pages.PAGE_SLICES_MAX == 40
    monkeypatch.setattr(pages, "PAGE_SLICES_MAX", 2)
    bury_many(under_test, 210)
    first = preview(under_test)
    assert (first.letters, first.looked_at) == (210, 200)
    bury_many(under_test, 1)
    last = preview(under_test, first.cursor)
    assert (last.letters, last.looked_at, last.sent, last.cursor) == (210, 10, 10, "")


@pytest.mark.parametrize(
    "cursor", ["x", "0", "0.0", "1.0_0.0.9", "0.10_0.0.9", "0.0_0.0", "0.-1_0.0.9", "٣.0_0.0.9"]
)
def test_a_cursor_that_no_page_has_said_is_refused(
    under_test: BrokerUnderTest, cursor: str
) -> None:
    """A client's mistake is no crash."""
    bury_many(under_test, 1)
    with pytest.raises(InvalidValue, match="cursor"):
        preview(under_test, cursor)
    job_id = start(under_test).job_id
    with pytest.raises(InvalidValue, match="cursor"):
        done(under_test.broker[Redrive].outcomes(OutcomesQuery(job_id, cursor="1.x")))


def test_outcomes_come_page_by_page_in_the_order_of_the_letters(
    under_test: BrokerUnderTest,
) -> None:
    """Whatever the size of a page, and with other jobs' records between."""
    bury_many(under_test, 25)
    redrive(under_test, filter=DeadLetterFilter(ids=("nobody's",)))
    one, two = start(under_test).job_id, start(under_test, again=True).job_id
    for _ in range(9):
        under_test.broker[Redrive].step(one, 3)
        under_test.broker[Redrive].step(two, 4)
    for size in (1, 3, 7, 24, 25, 26, 1_000):
        found = outcomes(under_test, one, max_letters=size)
        assert [each.queue_offset for each in found] == list(range(25))
    assert len(outcomes(under_test, two)) == 25
    with pytest.raises(InvalidValue, match="max_letters"):
        outcomes(under_test, one, max_letters=1_001)


def test_outcomes_can_be_asked_for_by_kind(under_test: BrokerUnderTest) -> None:
    """What went wrong is what one wants to see."""
    bury_many(under_test, 4)
    redrive(under_test, filter=DeadLetterFilter(ids=(_id_of(under_test, 2),)))
    job = redrive(under_test)
    found = outcomes(under_test, job.job_id, outcomes=(ALREADY,), max_letters=1)
    assert [each.queue_offset for each in found] == [2]
    assert outcomes(under_test, job.job_id, outcomes=(REFUSED,)) == []


def test_dead_letters_of_the_schedule_go_where_they_were_going(make: Make) -> None:
    """They have never been in a topic."""
    under_test = make()
    under_test.send(Message("orders", b"late", delay_level=1))
    rows = under_test.broker.topics
    del rows._known["orders"]
    under_test.clock.forward(1_000)
    under_test.deliver()
    job = under_test.broker[Redrive].start(RedriveRequest(RedriveSpec(SCHEDULE_GROUP)))
    assert run(under_test, job.job_id).sent == 1
    assert everything(under_test, "orders") == ["late"]


def _id_of(broker: BrokerUnderTest, number: int) -> str:
    queue = broker.store.queue(DLQ, 0)
    assert queue
    (entry,) = queue.read(number, 1)
    return broker.store.read_message(entry.physical_offset).offset_message_id

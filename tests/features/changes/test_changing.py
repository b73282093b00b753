"""Cancel, fire, reschedule: what becomes of a message, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from rmqlite.features.changes import changes as changing
from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import (
    CHANGED_IDS_MAX,
    CHANGES_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
)
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC, Completion, completion_of
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, StoreUnavailable
from rmqlite.kernel.words.message import (
    DELAY,
    FAILURE_REASON,
    FIRED,
    REAL_QID,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    UNIQ_KEY,
    Message,
    encode_properties,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, retry_topic
from rmqlite.kernel.words.property_string import PropertyString
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    create_topic,
    level_status,
    received,
    save_group,
    send_back,
)
from tests.support.pending import (
    ACTIONS,
    ALL,
    CANCEL,
    FIRE,
    RESCHEDULE,
    by_filter,
    by_ids,
    counts,
    deliver_all,
    everything,
    filter_page,
    forget_topic,
    forward_to,
    named,
    outcome,
    true_counts,
    waiting,
    waiting_ids,
)
from tests.support.restarts import WAYS, Restart, crash, scheduled

DONE = ChangeOutcome.DONE
How = Callable[..., int]


def one_id(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    (changed,) = by_ids(broker, action, message_id, **more)
    return changed.count


def one_key(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    return by_filter(broker, action, PendingFilter(key=f"key-{message_id}"), **more)


def one_id_filter(
    broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any
) -> int:
    return by_filter(broker, action, PendingFilter(ids=(message_id,)), **more)


def one_level(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    """Only b waits at level 4."""
    assert message_id == "b"
    return by_filter(broker, action, PendingFilter(levels=(4,)), **more)


WAYS_TO_SAY = [one_id, one_key, one_id_filter, one_level]


def three(broker: BrokerUnderTest) -> None:
    """a and c at level 3, b at level 4."""
    for message_id, level in (("a", 3), ("b", 4), ("c", 3)):
        broker.send(
            named(
                message_id,
                level,
                tags="Tag",
                keys=(f"key-{message_id}", "shared"),
                properties={"colour": "red"},
                flag=7,
            )
        )


# ---- what becomes of a message


@pytest.mark.one_of(3)
@pytest.mark.parametrize("say", WAYS_TO_SAY)
@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_a_cancelled_message_is_never_delivered(
    under_test: BrokerUnderTest, say: How, restart: Restart
) -> None:
    """Nor after a crash, nor when only the log is left."""
    three(under_test)
    assert say(under_test, CANCEL, "b") == 1
    assert waiting_ids(under_test) == ["a", "c"]
    restart(under_test)
    assert waiting_ids(under_test) == ["a", "c"]
    assert counts(under_test) == true_counts(under_test) == {(3, TOPIC): 2}
    deliver_all(under_test)
    assert bodies(under_test) == ["a", "c"]
    restart(under_test)
    assert outcome(under_test, CANCEL, "b") is ChangeOutcome.ALREADY_CANCELLED
    assert outcome(under_test, FIRE, "b") is ChangeOutcome.ALREADY_CANCELLED


@pytest.mark.one_of(3)
@pytest.mark.parametrize("say", WAYS_TO_SAY)
@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_a_fired_message_is_there_at_once_and_once(
    under_test: BrokerUnderTest, say: How, restart: Restart
) -> None:
    """Its deliver time comes, and nothing more happens."""
    three(under_test)
    under_test.heard.appended_to.clear()
    assert say(under_test, FIRE, "b") == 1
    assert under_test.heard.appended_to == [(TOPIC, 0)]
    assert bodies(under_test) == ["b"]
    restart(under_test)
    assert bodies(under_test) == ["b"]
    assert counts(under_test) == true_counts(under_test) == {(3, TOPIC): 2}
    deliver_all(under_test)
    under_test.clock.forward(10**9)
    assert under_test.deliver() == 0
    assert bodies(under_test) == ["b", "a", "c"]
    restart(under_test)
    assert outcome(under_test, CANCEL, "b") is ChangeOutcome.ALREADY_DELIVERED


@pytest.mark.one_of(5)
@pytest.mark.parametrize("say", WAYS_TO_SAY)
@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
@pytest.mark.parametrize(("level", "wait_ms"), [(1, 1_000), (4, 30_000), (18, 7_200_000)])
def test_a_rescheduled_message_waits_anew_and_once(
    under_test: BrokerUnderTest, say: How, restart: Restart, level: int, wait_ms: int
) -> None:
    """Longer, shorter, or the same time again from now on: exact to the millisecond."""
    three(under_test)
    under_test.clock.forward(500)
    due_ms = under_test.clock.now_ms() + wait_ms
    assert say(under_test, RESCHEDULE, "b", delay_level=level) == 1
    restart(under_test)
    (one,) = [each for each in waiting(under_test) if each.message_id == "b"]
    assert (one.level, one.deliver_at_ms, one.topic) == (level, due_ms, TOPIC)
    assert counts(under_test) == true_counts(under_test)
    assert sum(counts(under_test).values()) == 3
    forward_to(under_test, due_ms - 1)
    under_test.deliver()
    assert "b" not in bodies(under_test)
    forward_to(under_test, due_ms)
    assert under_test.deliver() == 1
    restart(under_test)
    deliver_all(under_test)
    assert sorted(bodies(under_test)) == ["a", "b", "c"]
    assert outcome(under_test, CANCEL, "b") is ChangeOutcome.ALREADY_DELIVERED


@pytest.mark.parametrize("action", [FIRE, RESCHEDULE])
def test_a_changed_message_is_the_message_that_was_sent(
    under_test: BrokerUnderTest, action: ScheduleAction
) -> None:
    """Body, tags, keys, own properties, flag, birth: only what says how it went is added."""
    three(under_test)
    sent = under_test.store.read_message(waiting(under_test)[-1].physical_offset)
    one_id(under_test, action, "b", delay_level=1 if action is RESCHEDULE else 0)
    if action is RESCHEDULE:
        under_test.clock.forward(1_000)
        under_test.deliver()
    (shown,) = under_test.messages(TOPIC)
    kept = "body flag sys_flag born_timestamp_ms born_host store_host reconsume_times tags keys"
    for name in kept.split():
        assert getattr(shown, name) == getattr(sent, name), name
    added = {FIRED: str(sent.store_timestamp_ms + 30_000)}
    if action is RESCHEDULE:
        added = {DELAY: "1", RESCHEDULED_FROM: "4"}
    assert shown.properties == dict(sent.properties) | added


def test_a_cancellation_says_whom_it_cancelled_and_keeps_no_body(
    under_test: BrokerUnderTest,
) -> None:
    """It lies where no consumer is sent; the log tells who asked for it by what it points to."""
    three(under_test)
    (b,) = waiting(under_test, PendingFilter(levels=(4,)))
    one_id(under_test, CANCEL, "b")
    (said,) = under_test.messages(CANCELLED_TOPIC)
    assert (said.body, said.properties[UNIQ_KEY], said.delay_level) == (b"", "b", 4)
    assert said.prepared_transaction_offset == b.physical_offset + b.store_size


def test_a_message_is_rescheduled_as_often_as_one_likes(under_test: BrokerUnderTest) -> None:
    """Every time it is one message that waits."""
    under_test.send(named("a", 18))
    for level in (1, 2, 2, 17, 3, 1):
        assert one_id(under_test, RESCHEDULE, "a", delay_level=level) == 1
        (one,) = waiting(under_test)
        assert one.level == level
    crash(under_test)
    assert counts(under_test) == true_counts(under_test) == {(1, TOPIC): 1}
    deliver_all(under_test)
    assert bodies(under_test) == ["a"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_rescheduled_message_can_be_cancelled_and_fired(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """What counts is what became of its last record."""
    under_test.send(named("a", 2), named("b", 2))
    by_filter(under_test, RESCHEDULE, delay_level=3)
    restart(under_test)
    assert outcome(under_test, CANCEL, "a") is DONE
    assert outcome(under_test, FIRE, "b") is DONE
    restart(under_test)
    deliver_all(under_test)
    assert bodies(under_test) == ["b"]
    assert outcome(under_test, CANCEL, "a") is ChangeOutcome.ALREADY_CANCELLED
    assert outcome(under_test, CANCEL, "b") is ChangeOutcome.ALREADY_DELIVERED


def test_a_rescheduled_message_that_fails_is_retried(under_test: BrokerUnderTest) -> None:
    """The retry has its own story, and knows nothing of the wait before."""
    under_test.send(named("a", 18), named("b", 18))
    by_ids(under_test, RESCHEDULE, "a", delay_level=1)
    by_ids(under_test, FIRE, "b")
    deliver_all(under_test)
    for message in under_test.messages(TOPIC):
        send_back(under_test, message, reason="no stock")
    crash(under_test)
    assert counts(under_test) == true_counts(under_test) == {(3, retry_topic(GROUP)): 2}
    deliver_all(under_test)
    retries = everything(under_test, retry_topic(GROUP))
    assert sorted(each.body for each in retries) == [b"a", b"b"]
    for each in retries:
        assert (each.reconsume_times, each.delay_level) == (1, 3)
        assert each.properties[FAILURE_REASON] == "no stock"
        assert not {FIRED, RESCHEDULED_FROM} & set(each.properties)
    assert outcome(under_test, CANCEL, "a") is ChangeOutcome.ALREADY_DELIVERED


# ---- retries


@pytest.mark.one_of(2)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("restart", WAYS)
def test_a_groups_retries_are_changed_by_its_retry_topic(
    under_test: BrokerUnderTest, action: ScheduleAction, restart: Restart
) -> None:
    """Those of another group stay; how often each has failed is not forgotten."""
    message = received(under_test, message_id="a")
    for group in (GROUP, "audit"):
        save_group(under_test, group=group)
        send_back(under_test, message, group=group)
    wanted = PendingFilter(topic=retry_topic(GROUP))
    level = 1 if action is RESCHEDULE else 0
    assert by_filter(under_test, action, wanted, delay_level=level) == 1
    restart(under_test)
    assert counts(under_test) == true_counts(under_test)
    assert counts(under_test)[3, retry_topic("audit")] == 1
    deliver_all(under_test)
    (other,) = everything(under_test, retry_topic("audit"))
    assert other.reconsume_times == 1
    mine = everything(under_test, retry_topic(GROUP))
    assert [each.reconsume_times for each in mine] == ([] if action is CANCEL else [1])


def test_an_id_that_waits_in_two_groups_is_changed_in_both_or_in_one(
    under_test: BrokerUnderTest,
) -> None:
    """A message that failed twice waits twice, with one id."""
    message = received(under_test, message_id="a")
    for group in (GROUP, "audit"):
        save_group(under_test, group=group)
        send_back(under_test, message, group=group)
    (one,) = by_ids(under_test, CANCEL, "a", topic=retry_topic("audit"), dry_run=True)
    assert (one.outcome, one.count) == (DONE, 1)
    (both,) = by_ids(under_test, RESCHEDULE, "a", delay_level=5)
    due_ms = under_test.clock.now_ms() + 60_000
    assert (both.outcome, both.count, both.deliver_at_ms) == (DONE, 2, due_ms)
    assert outcome(under_test, CANCEL, "a", topic=retry_topic("audit")) is DONE
    assert outcome(under_test, CANCEL, "a", topic=TOPIC) is ChangeOutcome.NOT_FOUND
    deliver_all(under_test)
    assert everything(under_test, retry_topic("audit")) == []
    assert len(everything(under_test, retry_topic(GROUP))) == 1


# ---- what is answered


@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_each_id_is_answered_truthfully(under_test: BrokerUnderTest, restart: Restart) -> None:
    """In the order of the request, an id that is asked twice twice."""
    create_topic(under_test, "short", 4)
    ids = ("waits", "came", "fired", "cancelled", "moved")
    under_test.send(*[named(each, 1 if each == "came" else 5) for each in ids])
    under_test.send(named("plain", 0))
    under_test.send(Message("short", b"x", message_id="dead", delay_level=1), queue_id=3)
    forget_topic(under_test, "short")
    by_ids(under_test, FIRE, "fired")
    by_ids(under_test, CANCEL, "cancelled")
    by_ids(under_test, RESCHEDULE, "moved", delay_level=2)
    under_test.clock.forward(1_000)
    under_test.deliver()
    restart(under_test)
    asked = ("dead", "came", "waits", "nobody", "moved", "fired", "cancelled", "plain", "waits")
    answered = by_ids(under_test, CANCEL, *asked)
    assert [each.message_id for each in answered] == list(asked)
    assert [each.outcome for each in answered] == [
        ChangeOutcome.UNDELIVERABLE,
        ChangeOutcome.ALREADY_DELIVERED,
        DONE,
        ChangeOutcome.NOT_FOUND,
        DONE,
        ChangeOutcome.ALREADY_DELIVERED,
        ChangeOutcome.ALREADY_CANCELLED,
        ChangeOutcome.NOT_FOUND,
        DONE,
    ]
    assert waiting(under_test) == []


@pytest.mark.one_of(2)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("say", WAYS_TO_SAY)
def test_a_dry_run_changes_nothing(
    under_test: BrokerUnderTest, action: ScheduleAction, say: How
) -> None:
    """It says how many it would be, and the log ends where it did."""
    three(under_test)
    end, before = under_test.store.end, waiting(under_test)
    level = 2 if action is RESCHEDULE else 0
    assert say(under_test, action, "b", delay_level=level, dry_run=True) == 1
    assert under_test.store.end == end
    assert waiting(under_test) == before
    assert set(under_test.broker.parts.counts.changed) == set()


def test_the_status_counts_what_was_changed(under_test: BrokerUnderTest) -> None:
    """A fired one is not one that was due: it has no lateness."""
    under_test.send(*[named(str(n), 5) for n in range(6)])
    by_ids(under_test, CANCEL, "0", "1", "2")
    by_ids(under_test, FIRE, "3", "4", "nobody")
    by_ids(under_test, RESCHEDULE, "5", delay_level=1)
    status = under_test.broker.status(0)
    assert (status.cancelled, status.fired, status.rescheduled) == (3, 2, 1)
    assert (status.delivered, status.undeliverable) == (0, 0)
    assert level_status(under_test, 5).pending == 0
    assert level_status(under_test, 5).next_due_ms == 0
    assert level_status(under_test, 1).pending == 1


def test_the_task_that_delivers_is_woken_by_an_earlier_time(under_test: BrokerUnderTest) -> None:
    """It sleeps until the earliest it knows."""
    under_test.send(named("a", 18), named("b", 18))
    under_test.heard.sooner.clear()
    by_ids(under_test, RESCHEDULE, "a", delay_level=1)
    assert under_test.heard.sooner == [1]


# ---- many


def test_a_filter_takes_what_was_there_at_the_first_call(under_test: BrokerUnderTest) -> None:
    """What it has rescheduled itself, and what came later, it leaves alone."""
    under_test.send(*[named(str(n), 1 + n % 2) for n in range(30)])
    page = filter_page(under_test, RESCHEDULE, delay_level=2, max_messages=7)
    under_test.send(named("later", 2), named("also later", 1))
    changed = page.changed
    while page.cursor:
        page = filter_page(
            under_test, RESCHEDULE, delay_level=2, max_messages=7, cursor=page.cursor
        )
        changed += page.changed
    assert changed == 30
    assert counts(under_test) == true_counts(under_test) == {(1, TOPIC): 1, (2, TOPIC): 31}
    deliver_all(under_test)
    assert sorted(bodies(under_test)) == sorted(
        [*(str(n) for n in range(30)), "later", "also later"]
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_filter_changes_slice_by_slice_and_others_come_between(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, action: ScheduleAction
) -> None:
    """A thousand cancellations must not keep sends and pulls waiting."""
    monkeypatch.setattr(changing, "SLICE_MAX", 3)
    under_test.send(*[named(str(n), 5) for n in range(20)])
    request = ChangeByFilter(action, ALL, delay_level=1 if action is RESCHEDULE else 0)
    steps = under_test.broker[Changes].by_filter(request)
    left = [len(waiting(under_test, PendingFilter(levels=(5,)))) for _ in steps]
    # Others come between finding a slice and changing it, too.
    assert list(dict.fromkeys(left)) == [20, 17, 14, 11, 8, 5, 2]
    assert waiting(under_test, PendingFilter(levels=(5,))) == []


def test_large_messages_make_small_slices(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and written at once has a bound in bytes."""
    monkeypatch.setattr(changing, "SLICE_BYTES_MAX", 10_000)
    broker = make()
    for n in range(9):
        broker.send(named(str(n), 5, body=bytes(4_000)))
    begin = broker.store.end
    steps = broker.broker[Changes].by_filter(ChangeByFilter(FIRE, ALL))
    ends = [begin, *(broker.store.end for _ in steps)]
    assert len(ends) >= 5
    assert all(end - begin < 10_000 for begin, end in pairwise(ends))
    broker.sync()
    assert len(broker.messages(TOPIC)) == 9


# ---- races


@pytest.mark.one_of(2)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("restart", [lambda _: None, *WAYS])
def test_of_a_change_and_a_delivery_that_race_one_comes_first(
    under_test: BrokerUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    action: ScheduleAction,
    restart: Restart,
) -> None:
    """Between two steps everything comes due; what is answered is what happened."""
    monkeypatch.setattr(changing, "SLICE_IDS_MAX", 2)
    ids = tuple(str(n) for n in range(5))
    under_test.send(*[named(each, 2) for each in ids])
    level = 4 if action is RESCHEDULE else 0
    steps = under_test.broker[Changes].by_ids(ChangeByIds(action, ids, delay_level=level))
    next(steps)
    under_test.clock.forward(5_000)
    assert under_test.deliver() == 3
    answered = None
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answered = end.value
    under_test.sync()
    assert answered is not None
    outcomes = [each.outcome for each in answered]
    assert outcomes == [DONE, DONE, *[ChangeOutcome.ALREADY_DELIVERED] * 3]
    restart(under_test)
    deliver_all(under_test)
    came = sorted(bodies(under_test))
    assert came == (["2", "3", "4"] if action is CANCEL else list(ids))


@pytest.mark.parametrize("action", ACTIONS)
def test_what_a_slice_found_and_delivery_took_is_not_changed(
    make: Make, monkeypatch: pytest.MonkeyPatch, action: ScheduleAction
) -> None:
    """A slice in two parts for its size: all of it comes due between the two."""
    monkeypatch.setattr(changing, "SLICE_BYTES_MAX", 2_000)
    broker = make()
    broker.send(*[named(str(n), 2, body=f"{n}".ljust(1_000).encode()) for n in range(4)])
    level = 4 if action is RESCHEDULE else 0
    steps = broker.broker[Changes].by_filter(ChangeByFilter(action, ALL, delay_level=level))
    next(steps)  # found
    next(steps)  # the first part is changed
    broker.clock.forward(5_000)
    assert broker.deliver() == 3
    changed = 0
    try:
        while True:
            next(steps)
    except StopIteration as end:
        changed = end.value.changed
    assert changed == 1
    deliver_all(broker)
    wanted = ["1", "2", "3"] if action is CANCEL else ["0", "1", "2", "3"]
    assert sorted(body.strip() for body in bodies(broker)) == wanted


def test_what_is_due_and_not_yet_delivered_can_still_be_changed(
    under_test: BrokerUnderTest,
) -> None:
    """Until its delivery is in the log nothing has happened."""
    under_test.send(named("a", 1), named("b", 1), named("c", 1))
    under_test.clock.forward(5_000)
    assert outcome(under_test, CANCEL, "a") is DONE
    assert outcome(under_test, RESCHEDULE, "b", delay_level=1) is DONE
    assert under_test.deliver() == 1
    assert bodies(under_test) == ["c"]
    deliver_all(under_test)
    assert bodies(under_test) == ["c", "b"]


# ---- what goes wrong


@pytest.mark.one_of(4)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("is_by_ids", [True, False])
def test_on_a_full_disk_nothing_is_half_done(
    make: Make, action: ScheduleAction, writes: int, is_by_ids: bool
) -> None:
    """Each message waits, or was changed; and the same call works when there is room."""
    disk = FaultyFiles()
    broker = make(files=disk)
    ids = ("a", "b", "c")
    broker.send(*[named(each, 2) for each in ids])
    level = 3 if action is RESCHEDULE else 0

    def change() -> None:
        if is_by_ids:
            by_ids(broker, action, *ids, delay_level=level)
        else:
            by_filter(broker, action, delay_level=level)

    disk.take_writes(writes)
    try:
        change()
    except StoreUnavailable:
        if action is RESCHEDULE:
            assert sorted(waiting_ids(broker)) == list(ids)
    disk.heal()
    broker.sync()
    if action is not RESCHEDULE:
        assert sorted([*waiting_ids(broker), *changed_so_far(broker)]) == list(ids)
    assert counts(broker) == true_counts(broker)
    crash(broker)
    assert counts(broker) == true_counts(broker)
    change()
    deliver_all(broker)
    assert sorted(bodies(broker)) == ([] if action is CANCEL else list(ids))


def changed_so_far(broker: BrokerUnderTest) -> list[str]:
    records = everything(broker, CANCELLED_TOPIC) + everything(broker, TOPIC)
    return [each.properties[UNIQ_KEY] for each in records]


@pytest.mark.parametrize(("action", "level"), [(FIRE, 0), (RESCHEDULE, 3)])
def test_properties_that_fill_a_record_are_no_reason_not_to_change_it(
    under_test: BrokerUnderTest, action: ScheduleAction, level: int
) -> None:
    """What an older broker itself has added makes room; all of the user's is kept."""
    create_topic(under_test, TOPIC)
    properties = {UNIQ_KEY: "b", DELAY: "1", REAL_TOPIC: TOPIC, REAL_QID: "0", "WAIT": "true"}
    long = "x" * (32_767 - len(encode_properties({**properties, "CLUSTER": "c", "long": ""})))
    scheduled(under_test, b"b", {**properties, "CLUSTER": "c", "long": long})
    assert outcome(under_test, action, "b", delay_level=level) is DONE
    deliver_all(under_test)
    delivered = {each.message_id: each.properties["long"] for each in everything(under_test, TOPIC)}
    assert delivered["b"] == long


def test_properties_that_leave_no_room_refuse_the_change_and_keep_the_message(
    under_test: BrokerUnderTest,
) -> None:
    """Such as another broker may have written: it says so, and it can be cancelled."""
    create_topic(under_test, TOPIC)
    properties = {UNIQ_KEY: "b", DELAY: "1", REAL_TOPIC: TOPIC, REAL_QID: "0", "long": ""}
    free = 32_767 - len(encode_properties(properties))
    scheduled(under_test, b"b", {**properties, "long": "x" * free})
    for action, level in ((FIRE, 0), (RESCHEDULE, 3)):
        with pytest.raises(MessageTooLarge, match="leave no room"):
            by_ids(under_test, action, "b", delay_level=level)
    assert outcome(under_test, CANCEL, "b") is DONE


@pytest.mark.parametrize("restart", WAYS)
def test_who_cannot_be_delivered_is_not_fired(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """Fired into a topic that is gone it would be lost; it waits, and its time will tell."""
    create_topic(under_test, "gone")
    under_test.send(named("a", 2, topic="gone"), named("b", 2))
    end = forget_topic(under_test, "gone")
    assert by_filter(under_test, FIRE, dry_run=True) == 1
    assert outcome(under_test, FIRE, "a", dry_run=True) is ChangeOutcome.UNDELIVERABLE
    assert outcome(under_test, FIRE, "a") is ChangeOutcome.UNDELIVERABLE
    assert under_test.store.end == end
    assert by_filter(under_test, FIRE) == 1
    assert waiting_ids(under_test) == ["a"]
    deliver_all(under_test)
    (dead,) = under_test.messages(UNDELIVERABLE_TOPIC)
    assert dead.message_id == "a"
    restart(under_test)
    assert outcome(under_test, FIRE, "a") is ChangeOutcome.UNDELIVERABLE
    assert (waiting(under_test), bodies(under_test)) == ([], ["b"])


def test_who_says_no_destination_can_be_cancelled_and_rescheduled(
    under_test: BrokerUnderTest,
) -> None:
    """Nothing of it is needed for that; what fires it is told that it cannot be."""
    for message_id in ("a", "b"):
        scheduled(under_test, message_id.encode(), {UNIQ_KEY: message_id, DELAY: "1"})
    assert outcome(under_test, FIRE, "a") is ChangeOutcome.UNDELIVERABLE
    assert outcome(under_test, CANCEL, "a") is DONE
    assert outcome(under_test, RESCHEDULE, "b", delay_level=3) is DONE
    assert counts(under_test) == true_counts(under_test) == {(3, ""): 1}
    crash(under_test)
    assert counts(under_test) == true_counts(under_test) == {(3, ""): 1}
    deliver_all(under_test)
    assert outcome(under_test, CANCEL, "b") is ChangeOutcome.UNDELIVERABLE
    assert outcome(under_test, CANCEL, "a") is ChangeOutcome.ALREADY_CANCELLED


def test_completions_are_told_apart_by_where_they_lie(under_test: BrokerUnderTest) -> None:
    """The table in completion.py, on records that a broker wrote."""
    under_test.send(*[named(each, 1) for each in ("due", "fire", "cancel", "move")])
    by_ids(under_test, FIRE, "fire")
    by_ids(under_test, CANCEL, "cancel")
    by_ids(under_test, RESCHEDULE, "move", delay_level=2)
    (moved,) = waiting(under_test, PendingFilter(levels=(2,)))
    deliver_all(under_test)
    found = {
        message.message_id: _completion(under_test, message.physical_offset)
        for message in (*under_test.messages(TOPIC), *under_test.messages(CANCELLED_TOPIC))
    }
    assert found == {
        "due": Completion.DELIVERED,
        "fire": Completion.FIRED,
        "cancel": Completion.CANCELLED,
        "move": Completion.DELIVERED,
    }
    assert _completion(under_test, moved.physical_offset) is Completion.RESCHEDULED


def _completion(broker: BrokerUnderTest, physical_offset: int) -> Completion:
    message = broker.store.read_message(physical_offset)
    return completion_of(message.topic, PropertyString(encode_properties(message.properties)))


# ---- what is refused


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ChangeByIds(CANCEL, ()), "message_ids"),
        (ChangeByIds(CANCEL, ("a",) * (CHANGED_IDS_MAX + 1)), "message_ids"),
        (ChangeByIds(CANCEL, ("a", "")), "message_ids"),
        (ChangeByIds(CANCEL, ("a",), delay_level=1), "delay_level"),
        (ChangeByIds(FIRE, ("a",), delay_level=1), "delay_level"),
        (ChangeByIds(RESCHEDULE, ("a",)), "delay_level"),
        (ChangeByIds(RESCHEDULE, ("a",), delay_level=19), "delay_level"),
        (ChangeByIds(RESCHEDULE, ("a",), delay_level=-1), "delay_level"),
        (ChangeByFilter(RESCHEDULE, ALL, delay_level=19), "delay_level"),
        (ChangeByFilter(CANCEL, ALL, delay_level=2), "delay_level"),
        (ChangeByFilter(CANCEL, ALL, max_messages=-1), "max_messages"),
        (ChangeByFilter(CANCEL, ALL, max_messages=CHANGES_MAX + 1), "max_messages"),
        (ChangeByFilter(CANCEL, ALL, cursor="nowhere"), "cursor"),
        (ChangeByFilter(CANCEL, PendingFilter(levels=(0,))), "levels"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    under_test: BrokerUnderTest, request_: ChangeByIds | ChangeByFilter, field: str
) -> None:
    """Before anything is changed, and with the rule."""
    three(under_test)
    end = under_test.store.end
    changes = under_test.broker[Changes]
    steps: Iterator[None] = (
        changes.by_ids(request_)
        if isinstance(request_, ChangeByIds)
        else changes.by_filter(request_)
    )
    with pytest.raises(InvalidValue) as refused:
        next(steps)
    assert refused.value.field == field
    assert under_test.store.end == end

"""Timers beside levels: listed, cancelled, fired, and rescheduled from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import ID_RECORDS_STEP, Pending
from rmqlite.features.changes.requests import (
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
    TimelineRequest,
)
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, PermissionMissing
from rmqlite.kernel.words.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    FIRED,
    REAL_QID,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    TIMER_DELIVER_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    UNIQ_KEY,
    Message,
    encode_properties,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, TIMER_TOPIC, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    create_topic,
    level_status,
    received,
    send_back,
)
from tests.support.pending import (
    CANCEL,
    FIRE,
    RESCHEDULE,
    by_filter,
    by_ids,
    counts,
    deliver_all,
    everything,
    forward_to,
    named,
    outcome,
    timed,
    true_counts,
    waiting,
    waiting_ids,
)
from tests.support.restarts import WAYS, Restart, crash
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.thinned import by_turns
from tests.support.timers import send_drafts

YEAR_MS = 365 * 86_400_000
MAX_MS = 63_072_000_000
MIXED = ["a", "b", "c", "d", "e"]


def nothing(_: BrokerUnderTest) -> None:
    """No restart."""


def mixed(broker: BrokerUnderTest) -> int:
    """Timers a, c, e and messages of levels b, d, in this due order; what the clock says."""
    now_ms = broker.clock.now_ms()
    broker.send(
        timed("e", now_ms + YEAR_MS, keys=("far", "shared")),
        named("b", 3, keys=("shared",)),
        timed("a", now_ms + 9_999, keys=("near", "shared"), tags="Tag", flag=7),
        named("d", 4),
        timed("c", now_ms + 10_000, topic="mail"),
    )
    return now_ms


def one_id(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    (changed,) = by_ids(broker, action, message_id, **more)
    return changed.count


def one_filter(
    broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any
) -> int:
    return by_filter(broker, action, PendingFilter(ids=(message_id,)), **more)


def one_key(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    assert message_id == "a"
    return by_filter(broker, action, PendingFilter(key="near"), **more)


def one_due(broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any) -> int:
    assert message_id == "a"
    until_ms = broker.clock.now_ms() + 10_000
    return by_filter(broker, action, PendingFilter((TIMERS,), due_until_ms=until_ms), **more)


HOW = [one_id, one_filter, one_key, one_due]


# ---- seeing


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("restart", "page"), by_turns([nothing, *WAYS], [1, 2, 5]))
def test_levels_and_timers_are_one_list_in_due_order(
    under_test: BrokerUnderTest, restart: Restart, page: int
) -> None:
    """Page by page; of one instant the timer comes first, because its wait queue's id is less."""
    now_ms = mixed(under_test)
    restart(under_test)
    listed = waiting(under_test, max_messages=page)
    assert [each.message_id for each in listed] == ["a", "c", "b", "d", "e"]
    assert [each.level for each in listed] == [TIMERS, TIMERS, 3, 4, TIMERS]
    assert [each.deliver_at_ms - now_ms for each in listed] == [
        *(9_999, 10_000, 10_000, 30_000, YEAR_MS)
    ]
    assert [each.topic for each in listed] == [TOPIC, "mail", TOPIC, TOPIC, TOPIC]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (PendingFilter(levels=(TIMERS,)), "ace"),
        (PendingFilter(levels=(TIMERS, 3)), "acbe"),
        (PendingFilter(levels=(3,)), "b"),
        (PendingFilter(topic="mail"), "c"),
        (PendingFilter(key="shared"), "abe"),
        (PendingFilter(levels=(TIMERS,), key="shared"), "ae"),
        (PendingFilter(levels=(4,), key="shared"), ""),
        (PendingFilter(ids=("c", "d", "e")), "cde"),
        (PendingFilter(tag="Tag"), "a"),
    ],
)
def test_a_filter_chooses_timers_as_it_chooses_levels(
    under_test: BrokerUnderTest, wanted: PendingFilter, expected: str
) -> None:
    """By id and key, whichever topic the record lies in."""
    mixed(under_test)
    assert "".join(waiting_ids(under_test, wanted)) == expected


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "expected"),
    [
        (9_999, 10_000, "a"),
        (10_000, 10_001, "cb"),
        (9_998, 9_999, ""),
        (10_001, YEAR_MS, "d"),
        (YEAR_MS, None, "e"),
        (YEAR_MS + 1, None, ""),
    ],
)
def test_due_times_choose_timers_to_the_millisecond(
    under_test: BrokerUnderTest, from_ms: int, until_ms: int | None, expected: str
) -> None:
    """The first instant is included, the last one is not."""
    now_ms = mixed(under_test)
    wanted = PendingFilter(
        due_from_ms=now_ms + from_ms,
        due_until_ms=None if until_ms is None else now_ms + until_ms,
    )
    assert "".join(waiting_ids(under_test, wanted)) == expected


def test_counts_and_timeline_have_the_timers_beside_the_levels(under_test: BrokerUnderTest) -> None:
    """Their number is -1; their status row is there before the first of them."""
    row = level_status(under_test, TIMERS)
    assert (row.delay, row.pending, row.next_due_ms) == ("timers", 0, 0)
    now_ms = mixed(under_test)
    assert counts(under_test) == true_counts(under_test)
    assert counts(under_test) == {
        (TIMERS, TOPIC): 2,
        (TIMERS, "mail"): 1,
        (3, TOPIC): 1,
        (4, TOPIC): 1,
    }
    row = level_status(under_test, TIMERS)
    assert (row.delay, row.pending, row.next_due_ms) == ("timers", 3, now_ms + 9_999)
    bounds = (now_ms + 5_000, now_ms + 20_000, now_ms + 2 * YEAR_MS)
    lines = done(under_test.broker[Pending].timeline(TimelineRequest(bounds, (TIMERS, 4))))
    assert {line.level: line.counts for line in lines} == {TIMERS: (0, 2, 1, 0), 4: (0, 0, 1, 0)}
    forward_to(under_test, now_ms + 10_005)
    under_test.deliver()
    row = level_status(under_test, TIMERS)
    assert (row.pending, row.delivered, row.lateness_max_ms) == (1, 2, 6)


# ---- changing


@pytest.mark.one_of(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("restart", [nothing, *WAYS])
def test_a_cancelled_timer_is_never_delivered(
    under_test: BrokerUnderTest, how: Callable[..., int], restart: Restart
) -> None:
    """Nor after a crash, nor when only the log is left; and the answer says what became of it."""
    mixed(under_test)
    assert how(under_test, CANCEL, "a") == 1
    restart(under_test)
    assert waiting_ids(under_test) == ["c", "b", "d", "e"]
    assert counts(under_test) == true_counts(under_test)
    assert outcome(under_test, CANCEL, "a") is ChangeOutcome.ALREADY_CANCELLED
    deliver_all(under_test)
    assert bodies(under_test) == ["b", "d", "e"]
    assert outcome(under_test, FIRE, "a") is ChangeOutcome.ALREADY_CANCELLED
    assert outcome(under_test, CANCEL, "e") is ChangeOutcome.ALREADY_DELIVERED
    assert outcome(under_test, CANCEL, "x") is ChangeOutcome.NOT_FOUND


def test_a_cancellation_of_a_timer_says_that_it_was_one(under_test: BrokerUnderTest) -> None:
    """By TIMER_OUT_MS, and without a level: so recovery finds what it completes."""
    now_ms = mixed(under_test)
    (a,) = waiting(under_test, PendingFilter(ids=("a",)))
    one_id(under_test, CANCEL, "a")
    (said,) = under_test.messages(CANCELLED_TOPIC)
    assert said.body == b""
    assert said.prepared_transaction_offset == a.physical_offset + a.store_size
    assert said.properties == {
        UNIQ_KEY: "a",
        REAL_TOPIC: TOPIC,
        REAL_QID: "0",
        TIMER_OUT_MS: str(now_ms + 9_999),
    }


@pytest.mark.one_of(3)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("restart", [nothing, *WAYS])
def test_a_fired_timer_is_there_at_once_and_once(
    under_test: BrokerUnderTest, how: Callable[..., int], restart: Restart
) -> None:
    """Its instant comes, and nothing more happens."""
    now_ms = mixed(under_test)
    assert how(under_test, FIRE, "a") == 1
    (shown,) = under_test.messages(TOPIC)
    assert shown.properties[FIRED] == str(now_ms + 9_999)
    restart(under_test)
    assert counts(under_test) == true_counts(under_test)
    deliver_all(under_test)
    assert bodies(under_test) == ["a", "b", "d", "e"]
    assert outcome(under_test, CANCEL, "a") is ChangeOutcome.ALREADY_DELIVERED


NEW_TIMES = [
    ({"delay_level": 1}, 1, 1_000),
    ({"delay_level": 18}, 18, 7_200_000),
    ({"deliver_after_ms": 50}, TIMERS, 50),
    ({"deliver_after_ms": MAX_MS}, TIMERS, MAX_MS),
    ({"deliver_at_ms": 77_777}, TIMERS, 77_777),
]


@pytest.mark.one_of(7)
@pytest.mark.parametrize("how", [one_id, one_filter])
@pytest.mark.parametrize("message_id", ["a", "b"])
@pytest.mark.parametrize(("new_time", "level", "wait_ms"), NEW_TIMES)
@pytest.mark.parametrize("restart", [nothing, crash, *WAYS[3:]])
def test_from_level_to_timer_and_back(
    under_test: BrokerUnderTest,
    how: Callable[..., int],
    message_id: str,
    new_time: dict[str, int],
    level: int,
    wait_ms: int,
    restart: Restart,
) -> None:
    """A reschedule counts from now on; the message waits once, to the millisecond."""
    mixed(under_test)
    under_test.clock.forward(500)
    now_ms = under_test.clock.now_ms()
    if "deliver_at_ms" in new_time:
        new_time = {"deliver_at_ms": now_ms + wait_ms}
    assert how(under_test, RESCHEDULE, message_id, **new_time) == 1
    restart(under_test)
    (one,) = waiting(under_test, PendingFilter(ids=(message_id,)))
    assert (one.level, one.deliver_at_ms, one.topic) == (level, now_ms + wait_ms, TOPIC)
    assert counts(under_test) == true_counts(under_test)
    assert sum(counts(under_test).values()) == 5
    forward_to(under_test, now_ms + wait_ms - 1)
    while under_test.deliver():
        pass
    assert message_id not in bodies(under_test)
    forward_to(under_test, now_ms + wait_ms)
    assert under_test.deliver() == 1
    restart(under_test)
    deliver_all(under_test)
    assert sorted([*bodies(under_test), *bodies(under_test, "mail")]) == MIXED
    assert outcome(under_test, CANCEL, message_id) is ChangeOutcome.ALREADY_DELIVERED


@pytest.mark.parametrize(("message_id", "left"), [("a", "-1"), ("b", "3")])
@pytest.mark.parametrize("new_time", [{"delay_level": 5}, {"deliver_after_ms": 5_000}])
def test_a_changed_timer_is_the_message_that_was_sent(
    under_test: BrokerUnderTest, message_id: str, left: str, new_time: dict[str, int]
) -> None:
    """Only what says for what it waits is another: nothing is left of the other kind."""
    mixed(under_test)
    (one,) = waiting(under_test, PendingFilter(ids=(message_id,)))
    sent = under_test.store.read_message(one.physical_offset)
    (changed,) = by_ids(under_test, RESCHEDULE, message_id, **new_time)
    assert changed.outcome is ChangeOutcome.DONE
    (one,) = waiting(under_test, PendingFilter(ids=(message_id,)))
    assert one.deliver_at_ms == changed.deliver_at_ms
    now = under_test.store.read_message(one.physical_offset)
    same = "body flag sys_flag born_timestamp_ms born_host store_host reconsume_times tags keys"
    for name in same.split():
        assert getattr(now, name) == getattr(sent, name), name
    says_the_wait = TIMER_PROPERTIES | {DELAY, RESCHEDULED_FROM, "WAIT"}
    others = [
        {name: value for name, value in each.properties.items() if name not in says_the_wait}
        for each in (sent, now)
    ]
    assert others[0] == others[1]
    told = {name: now.properties[name] for name in now.properties.keys() & says_the_wait}
    told.pop("WAIT", None)
    if "delay_level" in new_time:
        assert told == {DELAY: "5", RESCHEDULED_FROM: left}
    else:
        due = str(changed.deliver_at_ms)
        assert told == {
            TIMER_DELIVER_MS: due,
            TIMER_OUT_MS: due,
            TIMER_EXACT: "1",
            RESCHEDULED_FROM: left,
        }


def test_a_timer_is_rescheduled_as_often_as_one_likes(under_test: BrokerUnderTest) -> None:
    """Every time it is one message that waits, and its properties do not grow."""
    now_ms = under_test.clock.now_ms()
    under_test.send(timed("a", now_ms + 60_000))
    sizes = set()
    for after_ms in range(70_000, 90_000, 1_000):
        (changed,) = by_ids(under_test, RESCHEDULE, "a", deliver_after_ms=after_ms)
        assert changed.deliver_at_ms == now_ms + after_ms
        (one,) = waiting(under_test)
        sizes.add(one.store_size)
        one_id(under_test, RESCHEDULE, "a", delay_level=16)
    assert len(sizes) == 1 + 1  # the first one has come from no level
    crash(under_test)
    assert counts(under_test) == true_counts(under_test) == {(16, TOPIC): 1}
    deliver_all(under_test)
    assert bodies(under_test) == ["a"]


MOVES: list[list[dict[str, int]]] = [
    [{"delay_level": 5}],
    [{"deliver_after_ms": 5_000}],
    [{"deliver_after_ms": 5_000}, {"delay_level": 5}],
    [{"delay_level": 5}, {"deliver_after_ms": 5_000}],
    [{"deliver_after_ms": 5_000}, {"deliver_after_ms": 9_000}, {"delay_level": 3}],
]


@pytest.mark.one_of(7)
@pytest.mark.parametrize("restart", [nothing, crash, *WAYS[3:]])
@pytest.mark.parametrize("message_id", ["a", "b"])
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (CANCEL, ChangeOutcome.ALREADY_CANCELLED),
        (FIRE, ChangeOutcome.ALREADY_DELIVERED),
        (None, ChangeOutcome.ALREADY_DELIVERED),
    ],
)
def test_a_moved_message_says_how_its_last_wait_ended(
    under_test: BrokerUnderTest,
    message_id: str,
    moves: list[dict[str, int]],
    ends: ScheduleAction | None,
    expected: ChangeOutcome,
    restart: Restart,
) -> None:
    """The records that it has left on its way say nothing about it any more."""
    mixed(under_test)
    for move in moves:
        under_test.clock.forward(1)
        assert outcome(under_test, RESCHEDULE, message_id, **move) is ChangeOutcome.DONE
    if ends is None:
        deliver_all(under_test)
    else:
        assert outcome(under_test, ends, message_id) is ChangeOutcome.DONE
    restart(under_test)
    assert outcome(under_test, CANCEL, message_id, topic=TOPIC) is expected
    assert outcome(under_test, RESCHEDULE, message_id, delay_level=1) is expected
    assert outcome(under_test, CANCEL, message_id, topic="mail") is ChangeOutcome.NOT_FOUND
    deliver_all(under_test)
    times = 0 if ends is CANCEL else 1
    assert bodies(under_test).count(message_id) == times


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("restart", "message_id"), by_turns([nothing, *WAYS], ["a", "b"]))
def test_an_offset_message_id_names_the_record_that_waits(
    under_test: BrokerUnderTest, message_id: str, restart: Restart
) -> None:
    """As the answer to the send and every list have it; a move makes another record."""
    mixed(under_test)
    asked = PendingFilter(ids=(message_id,))

    def offset_id() -> str:
        (one,) = waiting(under_test, asked)
        return one.offset_message_id

    first = offset_id()
    restart(under_test)
    assert outcome(under_test, RESCHEDULE, first, deliver_after_ms=7_000) is ChangeOutcome.DONE
    second = offset_id()
    restart(under_test)
    assert outcome(under_test, CANCEL, first) is ChangeOutcome.NOT_FOUND
    assert outcome(under_test, CANCEL, second, topic="mail") is ChangeOutcome.NOT_FOUND
    assert outcome(under_test, CANCEL, second) is ChangeOutcome.DONE
    restart(under_test)
    for each in (second, second.lower(), message_id):
        assert outcome(under_test, FIRE, each) is ChangeOutcome.ALREADY_CANCELLED
    (other,) = waiting(under_test, PendingFilter(ids=("d",)))
    assert outcome(under_test, FIRE, other.offset_message_id) is ChangeOutcome.DONE
    restart(under_test)
    assert outcome(under_test, FIRE, other.offset_message_id) is ChangeOutcome.ALREADY_DELIVERED
    deliver_all(under_test)
    assert message_id not in bodies(under_test)
    assert bodies(under_test).count("d") == 1


@pytest.mark.parametrize("restart", [nothing, *WAYS])
@pytest.mark.parametrize("asked", [{"TIMER_DELAY_MS": "9000"}, {"DELAY": "3"}])
def test_a_message_without_an_id_of_its_producer_stays_cancelled(
    under_test: BrokerUnderTest, asked: dict[str, str], restart: Restart
) -> None:
    """A client may send none; the offset message id then names the message, also afterwards."""
    send_drafts(under_test, [Draft(TOPIC, 0, encode_properties(asked), b"x", 1, BORN_HOST)])
    (one,) = waiting(under_test, PendingFilter())
    assert outcome(under_test, CANCEL, one.offset_message_id) is ChangeOutcome.DONE
    restart(under_test)
    for each in (one.offset_message_id, one.offset_message_id.lower()):
        assert outcome(under_test, FIRE, each) is ChangeOutcome.ALREADY_CANCELLED
    deliver_all(under_test)
    assert bodies(under_test) == []


def test_messages_that_were_moved_often_are_changed_in_more_steps(
    under_test: BrokerUnderTest,
) -> None:
    """Each move leaves a record; other calls wait for a few of them, however many ids are named."""
    now_ms = under_test.clock.now_ms()
    ids = [f"id-{number}" for number in range(20)]
    under_test.send(*[timed(each, now_ms + 60_000) for each in ids])
    for number in range(30):
        by_ids(under_test, RESCHEDULE, *ids, deliver_after_ms=70_000 + number)
    steps = under_test.broker[Changes].by_ids(ChangeByIds(CANCEL, tuple(ids)))
    assert sum(1 for _ in steps) > 20 * 31 // ID_RECORDS_STEP
    assert waiting(under_test) == []


@pytest.mark.parametrize("message_id", ["e", "d"])
def test_a_past_instant_is_due_at_once(under_test: BrokerUnderTest, message_id: str) -> None:
    """And not late: lateness counts from when it could be delivered first."""
    now_ms = mixed(under_test)
    (changed,) = by_ids(under_test, RESCHEDULE, message_id, deliver_at_ms=now_ms - YEAR_MS)
    assert (changed.outcome, changed.deliver_at_ms) == (ChangeOutcome.DONE, now_ms)
    assert under_test.deliver() == 1
    assert bodies(under_test) == [message_id]
    assert level_status(under_test, TIMERS).lateness_max_ms == 0


def test_all_that_waits_is_moved_to_an_instant(under_test: BrokerUnderTest) -> None:
    """By a filter, in pages: each once, also those that wait for an instant already."""
    now_ms = mixed(under_test)
    under_test.send(*[timed(f"more-{n}", now_ms + 50_000 + n) for n in range(250)])
    assert by_filter(under_test, RESCHEDULE, deliver_at_ms=now_ms + 1_234, max_messages=60) == 255
    assert {each.deliver_at_ms for each in waiting(under_test)} == {now_ms + 1_234}
    assert by_filter(under_test, CANCEL, PendingFilter(levels=(TIMERS,)), dry_run=True) == 255
    forward_to(under_test, now_ms + 1_234)
    while under_test.deliver():
        pass
    assert len(bodies(under_test)) == 254
    assert bodies(under_test, "mail") == ["c"]


def test_a_retry_may_be_moved_to_an_instant(under_test: BrokerUnderTest) -> None:
    """It comes as the next attempt, and the one after it waits at its level again."""
    failed = received(under_test, message_id="r")
    send_back(under_test, failed, delay_level=5)
    now_ms = under_test.clock.now_ms()
    (changed,) = by_ids(under_test, RESCHEDULE, "r", deliver_after_ms=3_333)
    assert changed.deliver_at_ms == now_ms + 3_333
    deliver_all(under_test)
    (again,) = everything(under_test, retry_topic(GROUP))
    assert (again.reconsume_times, under_test.clock.now_ms()) == (1, now_ms + 3_333)
    send_back(under_test, again)
    (one,) = waiting(under_test)
    assert one.level == 4
    stored = under_test.store.read_message(one.physical_offset)
    assert not stored.properties.keys() & TIMER_PROPERTIES


# ---- refusals


@pytest.mark.parametrize(
    ("action", "new_time", "field", "rule"),
    [
        (RESCHEDULE, {}, "delay_level", "a level of the table in force, 1 to 18"),
        (RESCHEDULE, {"deliver_at_ms": -1}, "deliver_at_ms", "more than 0"),
        (RESCHEDULE, {"deliver_after_ms": -1}, "deliver_after_ms", "more than 0"),
        (
            RESCHEDULE,
            {"deliver_after_ms": MAX_MS + 1},
            "deliver_after_ms",
            "at most 63072000000 ms from now (timerMaxDelaySec)",
        ),
        (
            RESCHEDULE,
            {"deliver_at_ms": 2**63 - 1},
            "deliver_at_ms",
            "at most 63072000000 ms from now (timerMaxDelaySec)",
        ),
        (
            RESCHEDULE,
            {"deliver_after_ms": 2**63 - 1},
            "deliver_after_ms",
            "at most 63072000000 ms from now (timerMaxDelaySec)",
        ),
        (
            RESCHEDULE,
            {"delay_level": 3, "deliver_after_ms": 5},
            "delay_level",
            "left out if deliver_after_ms is given",
        ),
        (
            RESCHEDULE,
            {"deliver_at_ms": 5, "deliver_after_ms": 5},
            "deliver_at_ms",
            "left out if deliver_after_ms is given",
        ),
        (CANCEL, {"deliver_at_ms": 5}, "deliver_at_ms", "left out: CANCEL takes no new time"),
        (FIRE, {"deliver_after_ms": 5}, "deliver_after_ms", "left out: FIRE takes no new time"),
    ],
)
def test_a_new_time_that_cannot_be_meant_is_refused(
    under_test: BrokerUnderTest,
    action: ScheduleAction,
    new_time: dict[str, Any],
    field: str,
    rule: str,
) -> None:
    """By field, value and rule, and nothing is changed: not even of a dry run."""
    mixed(under_test)
    end = under_test.store.end
    for ask in (
        lambda: by_ids(under_test, action, "a", **new_time),
        lambda: by_filter(under_test, action, dry_run=True, **new_time),
    ):
        with pytest.raises(InvalidValue) as error:
            ask()
        assert (error.value.field, error.value.rule) == (field, rule)
    assert under_test.store.end == end


def test_a_broker_without_timers_moves_nothing_to_one(under_test: BrokerUnderTest) -> None:
    """What waits for an instant already is still delivered, cancelled and moved to a level."""
    now_ms = mixed(under_test)
    under_test.close()
    under_test.open(timer_wheel_enable=False)
    for new_time in ({"deliver_after_ms": 5}, {"deliver_at_ms": now_ms + 5}):
        with pytest.raises(InvalidValue) as error:
            by_ids(under_test, RESCHEDULE, "b", **new_time)
        assert "timerWheelEnable=false" in error.value.rule
    with pytest.raises(InvalidValue):
        under_test.send(timed("x", now_ms + 5))
    assert one_id(under_test, RESCHEDULE, "a", delay_level=1) == 1
    assert one_id(under_test, CANCEL, "e") == 1
    deliver_all(under_test)
    assert bodies(under_test) == ["a", "b", "d"]
    assert bodies(under_test, "mail") == ["c"]


def test_properties_without_room_are_refused_or_lose_what_nobody_needs(
    under_test: BrokerUnderTest,
) -> None:
    """A sent property string leaves room for what a change adds; nothing is half done."""
    create_topic(under_test, TOPIC)
    now_ms = under_test.clock.now_ms()
    rest = len(f"p\x01\x02UNIQ_KEY\x01a\x02TIMER_DELIVER_MS\x01{now_ms}")
    longest = SENT_PROPERTIES_BYTES_MAX - rest
    under_test.send(timed("a", now_ms + 60_000, properties={"p": "v" * longest}))
    with pytest.raises(MessageTooLarge):
        under_test.send(timed("b", now_ms + 60_000, properties={"p": "v" * (longest + 1)}))
    new_times: list[dict[str, int]] = [{"delay_level": 3}, {"deliver_after_ms": 9_000}]
    for new_time in new_times:
        assert one_id(under_test, RESCHEDULE, "a", **new_time) == 1
    deliver_all(under_test)
    assert bodies(under_test) == ["a"]


def test_a_timers_topic_is_not_for_producers(under_test: BrokerUnderTest) -> None:
    """One such message stops the timers of a RocketMQ broker after a take-over."""
    with pytest.raises(PermissionMissing):
        under_test.send(Message(TIMER_TOPIC, b"x"))

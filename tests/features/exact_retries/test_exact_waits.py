"""Retries that wait as long as was asked for, to the millisecond: by a policy, or by a consumer."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.features.exact_retries.exact_waits import exact_ms
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.waits.unindexed import Unindexed
from rmqlite.kernel.words.errors import InvalidValue, Overloaded, TimersOff
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, parse_levels
from rmqlite.kernel.words.message import ORIGIN_MESSAGE_ID, StoredMessage
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.levels import attempts_of, waits_text
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, bodies, received, save_group, send_back
from tests.support.pending import CANCEL, RESCHEDULE, by_ids, outcome, waiting
from tests.support.restarts import WAYS, Restart, crash

RETRY = retry_topic(GROUP)
DAY_MS = 86_400_000


def waits_ms(broker: BrokerUnderTest, message: StoredMessage, **how: Any) -> int:
    """How long the retry of one more failure waits; -1: the message is dead."""
    broker.broker.failing.sent_back.forget(GROUP)
    answer = send_back(broker, message, **how)
    return -1 if answer.is_dead else answer.deliver_at_ms - broker.clock.now_ms()


def next_attempt(broker: BrokerUnderTest, wait_ms: int) -> StoredMessage:
    """The retry, which comes after so long and not a millisecond before."""
    count = len(broker.messages(RETRY)) if broker.broker.topics.get(RETRY) else 0
    broker.clock.forward(wait_ms - 1)
    assert broker.deliver() == 0
    broker.clock.forward(1)
    assert broker.deliver() == 1
    assert len(broker.messages(RETRY)) == count + 1
    return broker.messages(RETRY)[-1]


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ("list(90s, 10m)", [90_000, 600_000, 600_000]),
        ("list(1ms,1m30s , 1500ms)", [1, 90_000, 1_500, 1_500]),
        ("exponential(7s, 3, 1m, jitter=0%)", [7_000, 21_000, 60_000, 60_000]),
        ("exponential(1h, 9.5, 20h, jitter = 0 %)", [3_600_000, 34_200_000, 72_000_000]),
    ],
)
def test_each_retry_waits_as_long_as_the_policy_says(
    under_test: BrokerUnderTest, policy: str, waits: list[int]
) -> None:
    """Neither longer nor shorter, also above the longest level."""
    save_group(under_test, retry_policy=policy)
    message = received(under_test)
    for wait_ms in waits:
        assert waits_ms(under_test, message) == wait_ms
        message = next_attempt(under_test, wait_ms)


def test_a_policy_without_an_exact_form_waits_at_levels(under_test: BrokerUnderTest) -> None:
    """So a store goes back to RocketMQ 4.9 as it is: policies that were there before stay."""
    for policy in ("", "7", "90s", "exponential(90s, 3, 1h)"):
        save_group(under_test, retry_policy=policy)
        under_test.broker.failing.sent_back.forget(GROUP)
        assert send_back(under_test, received(under_test)).delay_level > 0


def test_jitter_follows_from_id_and_attempt(under_test: BrokerUnderTest) -> None:
    """As the page says it, so that anybody can compute it; a restart changes nothing."""
    save_group(under_test, retry_policy="exponential(10s, 3, 1h, jitter=20%)")
    message = received(under_test, message_id="invoice-7")
    for attempt, longest_ms in ((2, 10_000), (3, 30_000), (4, 90_000)):
        digest = sha256(f"invoice-7 {attempt}".encode()).hexdigest()
        jitter_ms = longest_ms * 20 * int(digest[:8], 16) // (100 * 2**32)
        crash(under_test)
        wait_ms = waits_ms(under_test, message)
        assert wait_ms == longest_ms - jitter_ms
        assert 0.8 * longest_ms < wait_ms <= longest_ms
        message = next_attempt(under_test, wait_ms)


def test_a_message_without_an_id_has_the_jitter_of_its_first_record(
    under_test: BrokerUnderTest,
) -> None:
    """Its retries have other offsets, and still one id."""
    save_group(under_test, retry_policy="list(1h, jitter=100%)")
    policy = RetryPolicy.parse("list(1h, jitter=100%)")
    message = received(under_test, message_id="")
    first_id = ""
    for failed_before in range(3):
        wait_ms = waits_ms(under_test, message)
        message = next_attempt(under_test, wait_ms)
        first_id = first_id or message.properties[ORIGIN_MESSAGE_ID]
        assert message.properties[ORIGIN_MESSAGE_ID] == first_id
        own_id = message.message_id or first_id
        assert wait_ms == exact_ms(policy, failed_before, own_id)


@given(st.integers(1, 100 * DAY_MS), st.integers(0, 100), st.integers(-1, 100), st.text())
def test_a_wait_with_jitter_is_never_longer_nor_shorter_than_it_says(
    length_ms: int, jitter: int, failed_before: int, message_id: str
) -> None:
    """Whatever the id is, and at least a millisecond."""
    policy = RetryPolicy.parse(f"list({length_ms}ms, jitter={jitter}%)")
    wait_ms = exact_ms(policy, failed_before, message_id.encode("utf-8", "replace").decode())
    assert wait_ms is not None
    assert max(1, length_ms - length_ms * jitter // 100) <= wait_ms <= length_ms


def test_messages_that_failed_together_come_apart() -> None:
    """What jitter is for: of a thousand, no tenth of the span has twice its share."""
    policy = RetryPolicy.parse("list(10s, jitter=50%)")
    waits = [exact_ms(policy, 0, f"{number:032X}") or 0 for number in range(1_000)]
    tenths = [sum(5_000 + 500 * n < each <= 5_500 + 500 * n for each in waits) for n in range(10)]
    assert sum(tenths) == 1_000
    assert max(tenths) < 200


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("list()", "list(first, second, …)"),
        ("list(10s", "list(first, second, …)"),
        ("list(10s) 3", "list(first, second, …)"),
        ("list(10s, 7)", "'7' must be whole numbers and units"),
        ("list(soon)", "which are exact, or nothing"),
        ("list(0s)", "'0s' must be more than zero"),
        ("list(4000d)", "at most 3650d"),
        (f"list({', '.join(['1s'] * 65)})", "at most 64 steps"),
        ("list(10s, jitter=101%)", "the jitter is 0% to 100%"),
        ("list(10s, jitter=20)", "list(first, second, …)"),
        ("list(10s, jitter=-1%)", "list(first, second, …)"),
        ("list(jitter=20%)", "list(first, second, …)"),
        ("exponential(10s, 3, 1h, jitter=1e1%)", "exponential(first, factor, longest, jitter"),
        ("exponential(10s, 3, jitter=20%)", "exponential(first, factor, longest, jitter"),
        ("exponential(10s, 1, 1h, jitter=20%)", "the factor is above 1 and at most 1000"),
        ("exponential(10s, 3, 1s, jitter=20%)", "not below the first"),
    ],
)
def test_what_is_no_exact_policy_is_refused_with_the_rule(text: str, because: str) -> None:
    """Field, value and rule, so that the next try is right."""
    with pytest.raises(InvalidValue) as raised:
        RetryPolicy.parse(text)
    assert raised.value.field == "retry_policy"
    assert because in raised.value.rule


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=64),
    st.one_of(st.none(), st.integers(0, 100)),
)
def test_what_is_kept_means_the_same_again(lengths_ms: list[int], jitter: int | None) -> None:
    """The text goes to disk and is read at the next start."""
    ending = "" if jitter is None else f", jitter={jitter}%"
    policy = RetryPolicy.parse(f"list({', '.join(f'{each}ms' for each in lengths_ms)}{ending})")
    assert RetryPolicy.parse(policy.text) == policy
    assert (policy.delays_ms, policy.jitter) == (tuple(lengths_ms), jitter or 0)


# ---- the consumer's own word


def test_a_consumers_own_wait_goes_before_the_policy(under_test: BrokerUnderTest) -> None:
    """Of a policy of levels, and of an exact one."""
    for policy in ("", "list(1h)"):
        save_group(under_test, retry_policy=policy)
        assert waits_ms(under_test, received(under_test), delay_ms=90_001) == 90_001
    assert waits_ms(under_test, received(under_test), delay_level=3) == 10_000
    assert waits_ms(under_test, received(under_test), delay_level=-1) == -1


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"delay_ms": -1}, "above 0"),
        ({"delay_ms": 1_000, "delay_level": 3}, "without a delay_level"),
        ({"delay_ms": 1_000, "delay_level": -1}, "without a delay_level"),
        ({"delay_ms": 731 * DAY_MS}, "ms from now (timerMaxDelaySec)"),
    ],
)
def test_a_wait_that_cannot_be_kept_is_refused(
    under_test: BrokerUnderTest, how: dict[str, Any], rule: str
) -> None:
    """By name, and nothing is stored: the consumer says something else."""
    message = received(under_test)
    before = under_test.store.end
    with pytest.raises(InvalidValue) as raised:
        send_back(under_test, message, **how)
    assert (raised.value.field, raised.value.value) == ("delay_ms", str(how["delay_ms"]))
    assert rule in raised.value.rule
    assert waiting(under_test) == []
    # The group and its retry topic are made before; a message is not.
    assert bodies(under_test, RETRY) == bodies(under_test, dlq_topic(GROUP)) == []
    assert under_test.store.end >= before


# ---- the limit, and timers that are not there


def test_after_its_last_attempt_a_message_is_dead(under_test: BrokerUnderTest) -> None:
    """An exact policy says when, not how often."""
    save_group(under_test, retry_policy="list(90s)", max_reconsume_times=1)
    message = received(under_test)
    assert waits_ms(under_test, message) == 90_000
    assert waits_ms(under_test, next_attempt(under_test, 90_000), reason="no") == -1
    assert bodies(under_test, dlq_topic(GROUP)) == ["order"]


@pytest.mark.parametrize("policy", ["list(90s, 731d)", "exponential(1m, 2, 731d, jitter=5%)"])
def test_a_policy_that_no_timer_can_keep_is_refused(
    under_test: BrokerUnderTest, policy: str
) -> None:
    """When it is set, not at some failure later."""
    with pytest.raises(InvalidValue, match=r"retry_policy must be at most .* \(timerMaxDelaySec\)"):
        save_group(under_test, retry_policy=policy)
    assert under_test.broker.groups.get(GROUP) is None


def test_a_broker_without_timers_refuses_exact_policies(under_test: BrokerUnderTest) -> None:
    """If they are turned off later, a retry waits at the next longer level: it is not lost."""
    save_group(under_test, retry_policy="list(90s)")
    under_test.restart(timer_wheel_enable=False)
    with pytest.raises(TimersOff, match=r"retry_policy must be left out, .* timerWheel"):
        save_group(under_test, retry_policy="list(80s)")
    save_group(under_test, max_reconsume_times=3)
    assert under_test.broker.groups.existing(GROUP) == GroupInfo(GROUP, 3, retry_policy="list(90s)")
    assert waits_ms(under_test, received(under_test)) == 120_000


def test_while_timers_are_full_no_retry_is_rounded(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer sends its message back again a moment later."""

    def full(_: Unindexed) -> None:
        raise Overloaded("timers", 7)

    save_group(under_test, retry_policy="list(90s)")
    assert waits_ms(under_test, received(under_test)) == 90_000
    message = received(under_test)
    with monkeypatch.context() as patched:
        patched.setattr(Unindexed, "check_room", full)
        with pytest.raises(Overloaded):
            send_back(under_test, message)
    assert len(waiting(under_test)) == 1
    assert waits_ms(under_test, message) == 90_000


# ---- as any timer


def test_a_retry_is_listed_moved_and_cancelled_like_any_timer(
    under_test: BrokerUnderTest,
) -> None:
    """No mechanism of its own."""
    save_group(under_test, retry_policy="list(90s)")
    for name in ("a", "b"):
        assert waits_ms(under_test, received(under_test, body=name.encode(), message_id=name))
    listed = waiting(under_test)
    assert [(each.level, each.topic, each.message_id) for each in listed] == [
        (TIMERS, RETRY, "a"),
        (TIMERS, RETRY, "b"),
    ]
    (moved,) = by_ids(under_test, RESCHEDULE, "a", deliver_after_ms=91_000)
    assert moved.deliver_at_ms == under_test.clock.now_ms() + 91_000
    assert outcome(under_test, CANCEL, "b").name == "DONE"
    assert next_attempt(under_test, 91_000).body == b"a"


@pytest.mark.parametrize("restart", WAYS)
def test_a_retry_is_there_once_after_any_restart(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """The send back, its timer and its end are one record each."""
    save_group(under_test, retry_policy="list(90s)")
    message, failed_at_ms = received(under_test), under_test.clock.now_ms()
    assert waits_ms(under_test, message) == 90_000
    restart(under_test)
    ((topic, due_ms),) = [(each.topic, each.deliver_at_ms) for each in waiting(under_test)]
    assert (topic, due_ms) == (RETRY, failed_at_ms + 90_000)
    # An opening takes time, on a fake clock, too.
    assert next_attempt(under_test, due_ms - under_test.clock.now_ms()).body == b"order"
    restart(under_test)
    assert waiting(under_test) == []
    assert bodies(under_test, TOPIC) + bodies(under_test, RETRY) == ["order", "order"]


# ---- what people see


def test_a_group_shows_when_its_retries_come() -> None:
    """Exactly, or from when to when; no level."""
    table = parse_levels(DEFAULT_LEVELS)
    policy = RetryPolicy.parse("exponential(10s, 3, 1h, jitter=20%)")
    shown = [
        (each.first_attempt, each.last_attempt, each.level, waits_text(each, table))
        for each in attempts_of(policy, table, 8)
    ]
    assert shown == [
        (2, 2, 0, "8s to 10s"),
        (3, 3, 0, "24s to 30s"),
        (4, 4, 0, "1m 12s to 1m 30s"),
        (5, 5, 0, "3m 36s to 4m 30s"),
        (6, 6, 0, "10m 48s to 13m 30s"),
        (7, 7, 0, "32m 24s to 40m 30s"),
        (8, 9, 0, "48m to 1h"),
    ]
    (every,) = attempts_of(RetryPolicy.parse("list(90s)"), table, 5)
    assert (every.last_attempt, waits_text(every, table)) == (6, "1m 30s")

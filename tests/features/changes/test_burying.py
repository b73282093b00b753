"""A retry that waits becomes a dead letter now: one record, which says why."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.changes.requests import ChangeOutcome, PendingFilter
from rmqlite.features.dead_letters.history import Histories
from rmqlite.features.dead_letters.requests import EventKind, HistoryQuery
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    StoredMessage,
)
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, bodies, received, save_group, send_back
from tests.support.pending import (
    BURY,
    CANCEL,
    by_filter,
    by_ids,
    counts,
    deliver_all,
    everything,
    outcome,
    true_counts,
    waiting_ids,
)
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done

RETRY, DEAD = retry_topic(GROUP), dlq_topic(GROUP)
POLICIES = ["", "list(90s)"]


def failed(broker: BrokerUnderTest, name: str, group: str = GROUP) -> StoredMessage:
    message = received(broker, body=name.encode(), message_id=name)
    send_back(broker, message, reason="HTTP 503", group=group)
    return message


def bury(broker: BrokerUnderTest, *names: str, **more: Any) -> list[ChangeOutcome]:
    changed = by_ids(broker, BURY, *names, topic=RETRY, **more)
    return [each.outcome for each in changed]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("restart", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_buried_retry_is_dead_once_and_never_delivered(
    under_test: BrokerUnderTest, policy: str, restart: Restart
) -> None:
    """At a level and as a timer, after any restart; the one beside it goes on."""
    save_group(under_test, retry_policy=policy)
    message = failed(under_test, "a")
    failed(under_test, "b")
    assert bury(under_test, "a", reason="refunded") == [ChangeOutcome.DONE]
    restart(under_test)
    assert waiting_ids(under_test) == ["b"]
    assert counts(under_test) == true_counts(under_test)
    (dead,) = under_test.messages(DEAD)
    assert dead.body == b"a"
    told = (FAILURE_REASON, DLQ_ORIGIN_TOPIC, DELIVERY_ATTEMPTS, DLQ_ORIGIN_MESSAGE_ID)
    assert [dead.properties[name] for name in told] == [
        "refunded",
        TOPIC,
        "1",
        message.offset_message_id,
    ]
    deliver_all(under_test)
    assert [each.body for each in everything(under_test, RETRY)] == [b"b"]
    assert outcome(under_test, BURY, "a", topic=RETRY) is ChangeOutcome.ALREADY_CANCELLED
    assert outcome(under_test, BURY, "b", topic=RETRY) is ChangeOutcome.ALREADY_DELIVERED
    restart(under_test)
    assert counts(under_test) == true_counts(under_test) == {}
    assert bodies(under_test, DEAD) == ["a"]


def test_without_a_reason_the_last_failures_stays(under_test: BrokerUnderTest) -> None:
    """It is still the best that is known."""
    failed(under_test, "a")
    assert under_test.broker.counts.dead[GROUP] == 0
    bury(under_test, "a")
    assert under_test.messages(DEAD)[0].properties[FAILURE_REASON] == "HTTP 503"
    assert under_test.broker.counts.dead[GROUP] == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_history_ends_with_the_dead_letter(under_test: BrokerUnderTest, policy: str) -> None:
    """As that of a message that failed too often."""
    save_group(under_test, retry_policy=policy)
    failed(under_test, "a")
    bury(under_test, "a", reason="no\x01such\ncustomer " + 2_000 * "x")
    events = done(under_test.broker[Histories].history(HistoryQuery("a"))).events
    assert [each.kind for each in events] == [EventKind.SENT, EventKind.FAILED, EventKind.DEAD]
    assert not events[1].is_pending
    assert (events[2].group, events[2].attempt) == (GROUP, 1)
    assert events[2].reason.startswith("no such\ncustomer x")
    assert len(events[2].reason) == 1_024


def test_those_of_a_filter_are_buried_and_no_others(under_test: BrokerUnderTest) -> None:
    """Of one group, however many they are; a dry run counts."""
    for number in range(7):
        failed(under_test, f"m{number}")
    failed(under_test, "other", group="other")
    wanted = PendingFilter(topic=RETRY)
    assert by_filter(under_test, BURY, wanted, dry_run=True) == 7
    assert bodies(under_test, DEAD) == []
    assert by_filter(under_test, BURY, wanted, max_messages=3, reason="all") == 7
    assert len(bodies(under_test, DEAD)) == 7
    assert waiting_ids(under_test) == ["other"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, "topic"),
        ({"topic": TOPIC}, "topic"),
        ({"topic": DEAD}, "topic"),
        ({"topic": RETRY, "delay_level": 3}, "delay_level"),
    ],
)
def test_only_what_a_group_has_failed_is_buried(
    under_test: BrokerUnderTest, more: dict[str, Any], field: str
) -> None:
    """A message that nobody has got yet is cancelled instead."""
    failed(under_test, "a")
    with pytest.raises(InvalidValue) as raised:
        by_ids(under_test, BURY, "a", **more)
    assert raised.value.field == field
    assert waiting_ids(under_test) == ["a"]


def test_only_a_burial_has_a_reason(under_test: BrokerUnderTest) -> None:
    """It would be lost in silence."""
    with pytest.raises(InvalidValue, match=r"reason must be left out.*CANCEL takes no reason"):
        by_ids(under_test, CANCEL, "a", reason="refunded")

"""What a group was not handed in time is skipped for it, or its dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.expiry.expiry import DEAD_AT_ONCE, HANDLED_MAX, Expiry
from rmqlite.kernel.requests.groups import HeartbeatRequest, MemberKind, Subscription
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import EXPIRES_AT_MS, FAILURE_REASON, Message, StoredMessage
from rmqlite.kernel.words.names import TOOLS_GROUP, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.leases import INVISIBLE_MS, Consumer, body, expire
from tests.support.messages import GROUP, TOPIC, bodies, plain, save_group, send_back
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done

SOON_MS = 5_000
DLQ = dlq_topic(GROUP)


def expiring(text: str, at_ms: int | str, **more: Any) -> Message:
    return plain(text, **more).with_properties({EXPIRES_AT_MS: str(at_ms)})


def send_mixed(broker: BrokerUnderTest, count: int = 3) -> None:
    """Messages that expire, each with one behind it that does not."""
    at_ms = broker.clock.now_ms() + SOON_MS
    pairs = [(expiring(f"soon-{n}", at_ms), plain(f"never-{n}")) for n in range(count)]
    broker.send(*[message for pair in pairs for message in pair])


def pulled(broker: BrokerUnderTest, queue_offset: int = 0, group: str = GROUP) -> list[str]:
    found = broker.pull(TOPIC, queue_offset=queue_offset, group=group).messages
    return [each.body.decode() for each in found]


def dead_letters(broker: BrokerUnderTest) -> list[StoredMessage]:
    broker.sync()
    return list(broker.messages(DLQ)) if broker.broker.topics.get(DLQ) else []


def expired(broker: BrokerUnderTest, group: str = GROUP) -> int:
    return broker.broker.counts.expired[group]


@pytest.mark.usefixtures("each_form")
def test_a_message_is_handed_out_until_it_expires(under_test: BrokerUnderTest) -> None:
    """To the millisecond; and the messages beside it come as they are."""
    send_mixed(under_test, 2)
    under_test.clock.forward(SOON_MS - 1)
    assert pulled(under_test) == ["soon-0", "never-0", "soon-1", "never-1"]
    assert expired(under_test) == 0
    under_test.clock.forward(1)
    assert pulled(under_test) == ["never-0", "never-1"]
    assert pulled(under_test, group="late") == ["never-0", "never-1"]
    assert (expired(under_test), expired(under_test, "late")) == (2, 2)
    assert dead_letters(under_test) == []


def test_a_pull_of_nothing_else_goes_on_behind_them(under_test: BrokerUnderTest) -> None:
    """Like one whose filter leaves all out, so that the group's offset moves."""
    at_ms = under_test.clock.now_ms() + SOON_MS
    under_test.send(*[expiring(f"{n}", at_ms) for n in range(5)])
    under_test.clock.forward(SOON_MS)
    found = under_test.pull(TOPIC, group=GROUP)
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 5)
    # Also with a filter.
    by_tags = done(under_test.broker.pull(PullRequest(GROUP, TOPIC, 0, 0, "A")))
    assert (by_tags.status, by_tags.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 5)


def test_who_comes_by_again_counts_nothing_twice(under_test: BrokerUnderTest) -> None:
    """Two members with one client id, or a pull whose answer was lost."""
    save_group(under_test, bury_expired=True)
    send_mixed(under_test)
    under_test.clock.forward(SOON_MS)
    for _ in range(3):
        assert pulled(under_test) == ["never-0", "never-1", "never-2"]
    assert expired(under_test) == under_test.broker.counts.dead[GROUP] == 3
    assert len(dead_letters(under_test)) == 3


def test_a_dead_letter_says_that_it_has_expired(under_test: BrokerUnderTest) -> None:
    """And it never expires itself, whoever reads it."""
    save_group(under_test, bury_expired=True)
    send_mixed(under_test, 1)
    under_test.clock.forward(SOON_MS)
    pulled(under_test)
    pulled(under_test, group="another")
    (dead,) = dead_letters(under_test)
    assert (dead.body, dead.properties[FAILURE_REASON]) == (b"soon-0", "expired")
    assert dead.origin_topic == TOPIC
    assert len(under_test.pull(DLQ, group="menders").messages) == 1
    assert under_test.broker.topics.get(dlq_topic("another")) is None


def test_who_only_looks_sees_everything(under_test: BrokerUnderTest) -> None:
    """The tools are no group, and no offset of a broadcasting group moves."""
    send_mixed(under_test, 1)
    heartbeat = HeartbeatRequest("all", "me", (Subscription(TOPIC),), is_broadcasting=True)
    under_test.broker.heartbeat(heartbeat, kind=MemberKind.POLLS)
    under_test.clock.forward(SOON_MS)
    assert pulled(under_test, group=TOOLS_GROUP) == ["soon-0", "never-0"]
    assert pulled(under_test, group="all") == ["soon-0", "never-0"]


def test_a_retry_expires_too(under_test: BrokerUnderTest) -> None:
    """It has the property of its message, whatever its own wait is."""
    save_group(under_test, bury_expired=True)
    send_mixed(under_test, 1)
    (failed, _) = under_test.pull(TOPIC, group=GROUP).messages
    send_back(under_test, failed, delay_level=3)
    under_test.clock.forward(2 * SOON_MS)
    assert under_test.deliver() == 1
    found = under_test.pull(retry_topic(GROUP), group=GROUP)
    assert (found.messages, found.next_offset) == ((), 1)
    (dead,) = dead_letters(under_test)
    assert dead.properties[FAILURE_REASON] == "expired"
    assert dead.origin_topic == TOPIC


@pytest.mark.parametrize("delay_level", [-1, 3])
def test_a_message_that_was_sent_back_meanwhile_is_dead_once(
    under_test: BrokerUnderTest, delay_level: int
) -> None:
    """Its dead letter is there, or its retry, which will expire."""
    save_group(under_test, bury_expired=True)
    send_mixed(under_test, 1)
    (failed, _) = under_test.pull(TOPIC, group=GROUP).messages
    send_back(under_test, failed, delay_level=delay_level, reason="no such user")
    under_test.clock.forward(SOON_MS)
    assert pulled(under_test) == ["never-0"]
    assert len(dead_letters(under_test)) == (delay_level < 0)
    under_test.clock.forward(2 * SOON_MS)
    under_test.deliver()
    under_test.pull(retry_topic(GROUP), group=GROUP)
    (dead,) = dead_letters(under_test)
    assert dead.properties[FAILURE_REASON] == ("expired" if delay_level > 0 else "no such user")


def test_a_step_makes_few_dead_letters(under_test: BrokerUnderTest) -> None:
    """A long pull would else hold up all other calls."""
    save_group(under_test, bury_expired=True)
    at_ms = under_test.clock.now_ms() + SOON_MS
    count = 3 * DEAD_AT_ONCE
    under_test.send(*[expiring(f"{n}", at_ms) for n in range(count)])
    under_test.clock.forward(SOON_MS)
    steps = under_test.broker.pull(PullRequest(GROUP, TOPIC, 0, 0, max_messages=1_000))
    dead = under_test.broker.counts.dead
    made = [dead[GROUP] for _ in steps] + [dead[GROUP]]
    assert made[-1] == count
    assert max(b - a for a, b in zip([0, *made], made, strict=False)) <= DEAD_AT_ONCE


def test_what_is_known_to_have_expired_has_a_limit(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the backlog."""
    assert HANDLED_MAX <= 100_000
    monkeypatch.setattr("rmqlite.features.expiry.expiry.HANDLED_MAX", 2)
    send_mixed(under_test)
    under_test.clock.forward(SOON_MS)
    pulled(under_test)
    assert len(under_test.broker[Expiry]._handled) == 2


@pytest.mark.parametrize(
    "value", ["soon", "-1", "0", "1700000000", "1700000000.5", "9" * 15, "9" * 40]
)
@pytest.mark.usefixtures("each_form")
def test_a_time_that_is_none_is_refused(under_test: BrokerUnderTest, value: str) -> None:
    """By name, from whichever client: ignored, it would break a promise in silence."""
    with pytest.raises(InvalidValue, match=f"{EXPIRES_AT_MS} must be milliseconds since 1970"):
        under_test.send(expiring("bad", value))
    assert bodies(under_test) == []


@pytest.mark.parametrize(
    "how", [{"delay_level": 2}, {"deliver_after": "5s"}, {"deliver_at": "due"}], ids=str
)
@pytest.mark.usefixtures("each_form")
def test_a_message_that_expires_before_it_is_due_is_refused(
    under_test: BrokerUnderTest, how: dict[str, Any]
) -> None:
    """It could never be handed out; a millisecond later it could."""
    due_ms = under_test.clock.now_ms() + 5_000
    if "deliver_at" in how:
        how = {"deliver_at": due_ms}
    with pytest.raises(InvalidValue, match=f"{EXPIRES_AT_MS} must be later than {due_ms}"):
        under_test.send(expiring("never", due_ms, **how))
    under_test.send(expiring("once", due_ms + 1, **how))
    under_test.clock.forward(5_000)
    assert under_test.deliver() == 1
    assert pulled(under_test) == ["once"]


def test_one_that_comes_late_is_accepted_and_skipped(under_test: BrokerUnderTest) -> None:
    """The network was slow; a producer that is refused would send it once more."""
    under_test.send(expiring("late", under_test.clock.now_ms() - 1), plain("next"))
    assert pulled(under_test) == ["next"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_restart_keeps_times_and_wishes(under_test: BrokerUnderTest, restart: Restart) -> None:
    """All of it is in the log: the property in the message, the wish in the table of groups."""
    save_group(under_test, bury_expired=True)
    send_mixed(under_test, 1)
    restart(under_test)
    under_test.clock.forward(SOON_MS)
    assert pulled(under_test) == ["never-0"]
    assert len(dead_letters(under_test)) == 1


@pytest.mark.parametrize("restart", WAYS)
def test_a_crash_makes_no_second_dead_letter(under_test: BrokerUnderTest, restart: Restart) -> None:
    """The group comes by again, because its offset was not saved: of a message, and of a retry.

    Another message may have the same id: it was sent twice.
    """
    save_group(under_test, bury_expired=True)
    at_ms = under_test.clock.now_ms() + SOON_MS
    under_test.send(*[expiring(f"{n}", at_ms, message_id="twice") for n in range(2)])
    under_test.send(expiring("failed", at_ms))
    *_, failed = under_test.pull(TOPIC, group=GROUP).messages
    send_back(under_test, failed, delay_level=3)
    under_test.clock.forward(2 * SOON_MS)
    under_test.deliver()
    for _ in range(2):
        assert under_test.pull(TOPIC, group=GROUP, queue_offset=0).messages == ()
        assert under_test.pull(retry_topic(GROUP), group=GROUP).messages == ()
        under_test.sync()
        restart(under_test)
    assert [each.body for each in dead_letters(under_test)] == [b"0", b"1", b"failed"]


def test_a_receive_skips_them_and_is_done_with_them(under_test: BrokerUnderTest) -> None:
    """Else the group's offset would stand still before the first of them."""
    consumer = Consumer(under_test)
    send_mixed(under_test)
    under_test.clock.forward(SOON_MS)
    received = consumer.receive()
    assert [body(each) for each in received.messages] == ["never-0", "never-1", "never-2"]
    consumer.ack(*received.messages)
    committed = under_test.broker.offsets.of(GROUP)
    assert max(committed.values()) == 6
    assert expired(under_test) == 3


@pytest.mark.parametrize("buries", [False, True])
def test_a_leased_retry_expires_and_is_done(under_test: BrokerUnderTest, buries: bool) -> None:
    """An expired retry that is not done would be looked at for ever."""
    save_group(under_test, bury_expired=buries, retry_policy="1s")
    consumer = Consumer(under_test)
    send_mixed(under_test, 1)
    consumer.receive()
    under_test.clock.forward(INVISIBLE_MS)
    expire(under_test)
    under_test.clock.forward(1_000)
    under_test.deliver()
    received = consumer.receive()
    assert [body(each) for each in received.messages] == ["never-0"]
    consumer.ack(*received.messages)
    assert under_test.broker.offsets.of(GROUP)[Queue(retry_topic(GROUP), 0)] == 2
    assert expired(under_test) == 1
    assert len(dead_letters(under_test)) == buries


@pytest.mark.parametrize("orderly", [False, True])
def test_one_that_was_given_back_expires(under_test: BrokerUnderTest, orderly: bool) -> None:
    """What is visible again is handed out once more, or not; those behind it come at once."""
    save_group(under_test, bury_expired=True, orderly=orderly)
    consumer = Consumer(under_test)
    send_mixed(under_test, 2)
    for each in consumer.receive().messages:
        consumer.hold(each.handle, 0, counts=False)
    under_test.clock.forward(SOON_MS)
    assert consumer.bodies(1) == ["never-0"]
    assert [each.body for each in dead_letters(under_test)] == [b"soon-0"]

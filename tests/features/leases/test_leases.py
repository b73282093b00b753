"""Leases of an ordinary group: received, acknowledged, held, failed, given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqlite.features.leases.leased_queue import RETURNS_MAX
from rmqlite.features.leases.leases import ATTEMPT_ID_BYTES_MAX, Leases
from rmqlite.features.leases.requests import Handle, ReceiveRequest
from rmqlite.features.leases.taking import BYTES_MAX, Received
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.requests import OffsetReset
from rmqlite.features.operating.resetting import Resetting
from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import RequestMode, RequestModeChange
from rmqlite.kernel import Steps
from rmqlite.kernel.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    MemberKind,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import (
    HandleInvalid,
    InvalidValue,
    Overloaded,
    PermissionMissing,
    TopicUnknown,
)
from rmqlite.kernel.words.message import FAILURE_REASON, Message
from rmqlite.kernel.words.names import HALF_TOPIC, SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.leases import CLIENT, INVISIBLE_MS, Consumer, body, expire
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, plain
from tests.support.steps import done

RETRIES = retry_topic(GROUP)


@pytest.fixture
def five(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Five messages in one queue."""
    under_test.send(*[plain(str(number)) for number in range(5)])
    return under_test


def committed(broker: BrokerUnderTest, topic: str = TOPIC) -> int | None:
    return broker.broker.offsets.of(GROUP).get(Queue(topic, 0))


def fail_often(broker: BrokerUnderTest, consumer: Consumer, times: int) -> list[int]:
    """Receive one message again and again, and let each lease end; its attempts."""
    attempts = []
    for _ in range(times):
        (delivery,) = consumer.receive().messages
        attempts.append(delivery.attempt)
        broker.clock.forward(INVISIBLE_MS)
        expire(broker)
    return attempts


def test_a_leased_message_is_given_to_nobody_else(five: BrokerUnderTest) -> None:
    """Two clients of a group share its messages; another group gets all of them."""
    first, second = Consumer(five), Consumer(five, client_id="client-2")
    assert first.bodies(2) == ["0", "1"]
    assert second.bodies() == ["2", "3", "4"]
    assert first.bodies() == second.bodies() == []
    assert Consumer(five, group="others").bodies() == ["0", "1", "2", "3", "4"]


def test_all_queues_of_a_topic_are_received_from(under_test: BrokerUnderTest) -> None:
    """A client asks for a topic; which queues it has is the broker's business."""
    for queue_id in range(4):
        under_test.send(plain(f"in {queue_id}"), queue_id=queue_id)
    assert sorted(Consumer(under_test).bodies()) == ["in 0", "in 1", "in 2", "in 3"]


def test_what_is_acknowledged_never_comes_again(five: BrokerUnderTest) -> None:
    """The committed offset is where consumers of other protocols go on."""
    consumer = Consumer(five)
    deliveries = consumer.receive().messages
    assert consumer.ack(deliveries[1], deliveries[2]) == (True, True)
    assert committed(five) == 0
    assert consumer.ack(deliveries[0]) == (True,)
    assert committed(five) == 3
    five.clock.forward(INVISIBLE_MS)
    expire(five)
    assert sorted(consumer.bodies()) == ["3", "4"]


def test_a_lease_that_ends_is_a_retry_at_once(five: BrokerUnderTest) -> None:
    """Like a message that a consumer sends back, so that every protocol gets it."""
    consumer = Consumer(five)
    consumer.receive(1)
    assert expire(five) == five.clock.now_ms() + INVISIBLE_MS
    five.clock.forward(INVISIBLE_MS - 1)
    expire(five)
    assert consumer.bodies(32) == ["1", "2", "3", "4"]
    five.clock.forward(1)
    expire(five)
    (again,) = consumer.receive().messages
    assert (again.record.body, again.topic, again.attempt) == (b"0", TOPIC, 2)
    assert again.record.head.topic == RETRIES
    assert committed(five) == 1


def test_a_message_is_dead_after_seventeen_deliveries(under_test: BrokerUnderTest) -> None:
    """As with every other protocol: one delivery and sixteen retries."""
    under_test.send(plain("poison"))
    assert fail_often(under_test, Consumer(under_test), 17) == list(range(1, 18))
    assert Consumer(under_test).bodies() == []
    (dead,) = under_test.messages(dlq_topic(GROUP), 0)
    assert dead.body == b"poison"
    assert under_test.broker.counts.dead[GROUP] == 1


def test_the_limit_of_a_group_counts(under_test: BrokerUnderTest) -> None:
    """An administrator has set it for every protocol."""
    under_test.broker.groups.change(GroupChange(GROUP, max_reconsume_times=1))
    under_test.send(plain("poison"))
    assert fail_often(under_test, Consumer(under_test), 2) == [1, 2]
    assert len(under_test.messages(dlq_topic(GROUP), 0)) == 1


def test_a_message_that_is_held_comes_later(five: BrokerUnderTest) -> None:
    """Its old handle ends; whoever holds it can still acknowledge it, and nothing failed."""
    consumer = Consumer(five)
    old = consumer.receive(1).messages[0].handle
    new = consumer.hold(old, 60_000)
    assert consumer.is_valid(new)
    with pytest.raises(HandleInvalid, match="receipt_handle"):
        consumer.hold(old, 60_000)
    five.clock.forward(59_999)
    expire(five)
    assert "0" not in consumer.bodies()
    assert consumer.is_valid(new)
    five.clock.forward(1)
    expire(five)
    assert not consumer.is_valid(new)


def test_a_push_consumers_failure_waits_on_disk(five: BrokerUnderTest) -> None:
    """A delay of hours must not keep memory, and an operator can see, cancel or change it."""
    consumer = Consumer(five, auto_renew=True, invisible_ms=0)
    (delivery,) = consumer.receive(1).messages
    consumer.hold(delivery.handle, 7_777)
    assert not consumer.is_valid(delivery.handle)
    assert committed(five) == 1
    five.clock.forward(7_776)
    five.deliver()
    assert consumer.bodies(32) == ["1", "2", "3", "4"]
    five.clock.forward(1)
    five.deliver()
    (again,) = consumer.receive().messages
    assert (again.record.body, again.attempt) == (b"0", 2)


def test_without_timers_a_failure_waits_at_the_next_longer_level(make: Make) -> None:
    """Never early: 7 seconds are 10 then."""
    broker = make(timer_wheel_enable=False)
    broker.send(plain("a"))
    consumer = Consumer(broker, auto_renew=True, invisible_ms=0)
    consumer.hold(consumer.receive().messages[0].handle, 7_000)
    broker.clock.forward(9_999)
    broker.deliver()
    assert consumer.bodies() == []
    broker.clock.forward(1)
    broker.deliver()
    assert consumer.bodies() == ["a"]


def test_a_failure_without_delay_comes_at_once(five: BrokerUnderTest) -> None:
    """A client that cannot use a message lets another one try."""
    consumer = Consumer(five)
    consumer.hold(consumer.receive(1).messages[0].handle, 0)
    assert sorted(Consumer(five, client_id="other").bodies()) == ["0", "1", "2", "3", "4"]


def test_a_message_given_back_unseen_has_not_failed(five: BrokerUnderTest) -> None:
    """Its next delivery is the first attempt still."""
    consumer = Consumer(five)
    consumer.hold(consumer.receive(1).messages[0].handle, 0, counts=False)
    first = consumer.receive(1).messages[0]
    assert (first.record.body, first.attempt) == (b"0", 1)
    consumer.hold(first.handle, 5_000, counts=False)
    five.clock.forward(5_000)
    expire(five)
    again = consumer.receive(1).messages[0]
    assert (again.record.body, again.attempt) == (b"0", 1)


def test_a_message_can_be_made_a_dead_letter(five: BrokerUnderTest) -> None:
    """With the reason, for whoever reads it."""
    consumer = Consumer(five)
    delivery = consumer.receive(1).messages[0]
    consumer.bury(delivery.handle, "no such customer")
    (dead,) = five.messages(dlq_topic(GROUP), 0)
    assert dead.properties[FAILURE_REASON] == "no such customer"
    assert committed(five) == 1
    with pytest.raises(HandleInvalid):
        consumer.bury(delivery.handle)


def test_a_push_consumers_lease_lasts_while_it_is_a_member(five: BrokerUnderTest) -> None:
    """A listener may take an hour; a client that is gone must not keep its messages."""
    consumer = Consumer(five, auto_renew=True, invisible_ms=0)
    subscriptions = (Subscription(TOPIC),)
    membership = five.broker.membership
    membership.heartbeat(HeartbeatRequest(GROUP, CLIENT, subscriptions))
    deliveries = consumer.receive().messages
    for _ in range(60):
        five.clock.forward(60_000)
        membership.heartbeat(HeartbeatRequest(GROUP, CLIENT, subscriptions))
        expire(five)
    assert consumer.ack(deliveries[0]) == (True,)
    membership.leave(GROUP, CLIENT)
    five.clock.forward(60_000)
    expire(five)
    assert not consumer.is_valid(deliveries[1].handle)
    assert [each.attempt for each in consumer.receive().messages] == [2] * 4


def test_an_answer_that_its_client_has_not_got_is_taken_back(five: BrokerUnderTest) -> None:
    """Nothing has failed; what was acknowledged meanwhile stays done."""
    consumer = Consumer(five, auto_renew=True, invisible_ms=0)
    lost = consumer.receive(3)
    consumer.ack(lost.messages[1])
    five.broker[Leases].take_back(lost)
    five.broker[Leases].take_back(lost)
    after = Consumer(five, client_id="next")
    # Those whose answer broke come one by one.
    found = [after.receive().messages for _ in range(3)]
    assert [[(body(each), each.attempt) for each in some] for some in found] == [
        [("0", 1)],
        [("2", 1)],
        [("3", 1), ("4", 1)],
    ]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_whose_answer_breaks_again_and_again_is_dead(
    five: BrokerUnderTest, orderly: bool
) -> None:
    """No client of the group can take it.  The others come in an answer of their own."""
    five.broker.groups.change(GroupChange(GROUP, orderly=orderly, max_reconsume_times=2))
    poison = "2"
    consumer = Consumer(five, auto_renew=True, invisible_ms=0)
    got: list[str] = []
    attempts: list[int] = []
    breaks = 0
    while (received := consumer.receive()).messages:
        names = [body(each) for each in received.messages]
        if poison in names:
            breaks += 1
            attempts += [each.attempt for each in received.messages if body(each) == poison]
            assert breaks % 2 or names == [poison]
            five.broker[Leases].take_back(received)
            five.sync()
        else:
            got += names
            consumer.ack(*received.messages)
    assert (sorted(got), max(attempts)) == (["0", "1", "3", "4"], 3)
    assert breaks == (4 if orderly else 6)
    (dead,) = five.messages(dlq_topic(GROUP), 0)
    assert dead.body.decode() == poison
    assert "the answer with this message broke" in dead.properties[FAILURE_REASON]


def test_a_large_message_comes_alone(under_test: BrokerUnderTest) -> None:
    """A client that cannot take it must get the small ones around it."""
    large = Message(TOPIC, b"x" * (BYTES_MAX * 3 // 2))
    broker = under_test
    broker.restart(max_message_bytes=4 << 20, mapped_file_size_commit_log=16 << 20)
    broker.send(plain("a"), large, plain("b"), large, plain("c"))
    consumer = Consumer(broker)
    answers = []
    while received := consumer.receive().messages:
        answers.append([len(each.record.body) for each in received])
    assert answers.count([len(large.body)]) == 2
    assert sum([sizes.count(1) for sizes in answers]) == sum(map(len, answers)) - 2 == 3


@pytest.mark.parametrize("way", ["leaves", "does not count", "does not count later", "breaks"])
def test_no_way_back_that_counts_nothing_goes_on_for_ever(
    under_test: BrokerUnderTest, way: str
) -> None:
    """A message that ends its clients in order would keep them busy for good."""
    under_test.broker.groups.change(GroupChange(GROUP, max_reconsume_times=0))
    under_test.send(plain("poison"))
    consumer = Consumer(under_test)
    times = 0
    while received := consumer.receive().messages:
        times += 1
        assert times <= RETURNS_MAX + 1, "it comes again and again"
        if way == "leaves":
            done(under_test.broker[Leases].release(GROUP, CLIENT))
        elif way == "breaks":
            under_test.broker[Leases].take_back(Received(received, 0, 0))
        else:
            later_ms = 1_000 if "later" in way else 0
            consumer.hold(received[0].handle, later_ms, counts=False)
            under_test.clock.forward(later_ms)
            expire(under_test)
        under_test.sync()
    assert times == (2 if way == "breaks" else RETURNS_MAX + 1)
    assert len(under_test.messages(dlq_topic(GROUP), 0)) == 1


def test_what_a_client_has_when_it_ends_is_visible_at_once(five: BrokerUnderTest) -> None:
    """It says goodbye: nothing has failed."""
    consumer = Consumer(five)
    consumer.receive(3)
    done(five.broker[Leases].release(GROUP, CLIENT))
    found = Consumer(five, client_id="next").receive().messages
    assert [(each.record.body, each.attempt) for each in found] == [
        (str(number).encode(), 1) for number in range(5)
    ]


def test_the_same_attempt_gets_the_same_messages(five: BrokerUnderTest) -> None:
    """The answer to the first was lost on its way."""
    consumer = Consumer(five)
    first = consumer.receive(2, attempt_id="a-1")
    again = consumer.receive(2, attempt_id="a-1")
    assert [each.handle for each in again.messages] == [each.handle for each in first.messages]
    assert consumer.bodies(2, attempt_id="a-2") == ["2", "3"]
    consumer.ack(*first.messages)
    assert consumer.bodies(2, attempt_id="a-1") == ["4"]


def test_a_handle_counts_for_its_own_delivery_only(five: BrokerUnderTest) -> None:
    """Every changed character, another group, another topic, an older delivery: not valid."""
    consumer = Consumer(five)
    (delivery,) = consumer.receive(1).messages
    text = delivery.handle.text
    for at in range(len(text)):
        other = "A" if text[at] != "A" else "B"
        try:
            changed = Handle.parse(text[:at] + other + text[at + 1 :])
        except HandleInvalid:
            continue
        assert not consumer.is_valid(changed)
    for wrong in ("", "nothing", text + "A", text[:-4], "é" * len(text)):
        with pytest.raises(HandleInvalid):
            Handle.parse(wrong)
    Consumer(five, group="others").receive(1)
    assert not Consumer(five, group="others").is_valid(delivery.handle)
    assert not Consumer(five, topic="none").is_valid(delivery.handle)
    assert Handle.parse(text) == delivery.handle
    assert consumer.is_valid(Handle.parse(text))


def test_a_filter_leaves_messages_out_for_good(under_test: BrokerUnderTest) -> None:
    """As for every consumer: what it does not subscribe to is done for its group."""
    for number in range(6):
        under_test.send(plain(str(number), tags="even" if number % 2 == 0 else "odd"))
    consumer = Consumer(under_test, expression="even")
    deliveries = consumer.receive().messages
    assert [each.record.body for each in deliveries] == [b"0", b"2", b"4"]
    consumer.ack(*deliveries)
    assert committed(under_test) == 6


def test_an_sql_expression_filters_too(under_test: BrokerUnderTest) -> None:
    """The official clients can ask with SQL92."""
    for price in ("5", "50"):
        under_test.send(plain(price, properties={"price": price}))
    assert Consumer(under_test, sql="price > 10").bodies() == ["50"]


def test_retries_come_to_whoever_asks_for_their_topic(under_test: BrokerUnderTest) -> None:
    """All retries of a group are in one topic; a client of one topic must not get the others."""
    under_test.send(plain("order"))
    under_test.send(plain("bill", topic="bills"))
    orders, bills = Consumer(under_test), Consumer(under_test, topic="bills")
    for consumer in (orders, bills):
        consumer.hold(consumer.receive().messages[0].handle, 0)
    assert bills.bodies() == ["bill"]
    assert orders.bodies() == ["order"]


def test_a_group_goes_on_where_another_protocol_has_stopped(five: BrokerUnderTest) -> None:
    """A team moves its consumers from one client to the other."""
    five.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 3}))
    assert Consumer(five).bodies() == ["3", "4"]


@pytest.mark.parametrize(("offset", "left"), [(0, ["0", "1", "2", "3", "4"]), (4, ["4"])])
def test_an_offset_that_somebody_else_commits_counts(
    five: BrokerUnderTest, offset: int, left: list[str]
) -> None:
    """An administrator resets a group, back or forward."""
    consumer = Consumer(five)
    consumer.ack(*consumer.receive(3).messages)
    held = consumer.receive(1).messages[0]
    five.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): offset}))
    assert consumer.bodies() == left
    assert not consumer.is_valid(held.handle)


@pytest.mark.parametrize("ends", ["acknowledged", "over", "given back", "a dead letter"])
@pytest.mark.parametrize(("offset", "left"), [(5, []), (0, ["0", "1", "2", "3", "4"])])
def test_the_end_of_a_lease_undoes_no_reset(
    five: BrokerUnderTest, offset: int, left: list[str], ends: str
) -> None:
    """A client has a message in hand while an operator moves its group, back or forward."""
    consumer = Consumer(five)
    consumer.ack(*consumer.receive(2).messages)
    (held,) = consumer.receive(1).messages
    reset = OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=offset)
    done(five.broker[Resetting].reset(reset))
    if ends == "acknowledged":
        assert consumer.ack(held, held) == (True, True)
        for other in (Consumer(five, group="other"), Consumer(five, topic="other")):
            assert other.ack(held) == (False,)
        forged = held.handle._replace(proof=bytes(len(held.handle.proof or b"")))
        assert consumer.ack(held._replace(handle=forged)) == (False,)
    elif ends == "over":
        five.clock.forward(INVISIBLE_MS)
        expire(five)
    elif ends == "given back":
        done(five.broker[Leases].release(GROUP, CLIENT))
    else:
        with pytest.raises(HandleInvalid):
            consumer.bury(held.handle)
    assert committed(five) == offset
    assert [(body(each), each.attempt) for each in consumer.receive().messages] == [
        (each, 1) for each in left
    ]
    assert len(five.messages(RETRIES, 0) if five.broker.topics.get(RETRIES) else ()) == 0
    five.clock.forward(INVISIBLE_MS)
    expire(five)
    assert not five.broker[Leases].table._leases


def test_a_reset_to_where_the_group_is_brings_what_it_had_done(five: BrokerUnderTest) -> None:
    """One message holds the committed offset; all behind it are done."""
    consumer = Consumer(five)
    held, *others = consumer.receive().messages
    consumer.ack(*others)
    commit = OffsetsCommit(GROUP, {Queue(TOPIC, 0): 0})
    beat = HeartbeatRequest(GROUP, CLIENT, (Subscription(TOPIC),))
    five.broker.heartbeat(beat, kind=MemberKind.LEASES)
    # A member that says where it is resets nothing.
    five.broker.commit_offsets(commit)
    assert consumer.is_valid(held.handle)
    five.broker.commit_offsets(commit, is_reset=True)
    assert consumer.bodies() == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(("offset", "left"), [(0, "abcdef"), (3, "def")])
def test_a_reset_in_the_middle_of_a_receive_counts(make: Make, offset: int, left: str) -> None:
    """It has looked at some messages already, and reads on."""
    broker = make(filter_scan_max=2)
    for name in "abc":
        broker.send(plain(name, tags="y"), queue_id=0)
    broker.send(*[plain("-", tags="x") for _ in range(20)])
    for name in "def":
        broker.send(plain(name, tags="y"), queue_id=0)
    consumer = Consumer(broker, expression="y")
    consumer.ack(*consumer.receive(2).messages)
    request = ReceiveRequest(
        GROUP, TOPIC, CLIENT, expression="y", max_messages=4, invisible_ms=INVISIBLE_MS
    )
    reading = broker.broker[Leases].receive(request)
    for _ in range(3):
        next(reading)
    broker.broker.offsets.commit(GROUP, {Queue(TOPIC, 0): offset}, is_reset=True)
    first = [body(each) for each in done(reading).messages]
    assert "".join(first + consumer.bodies()) == left
    assert broker.broker[Leases].table.total.messages == len(left)


def test_a_group_that_is_deleted_in_the_middle_of_a_receive_leaves_nothing(make: Make) -> None:
    """The receive holds a queue that nobody knows any more."""
    broker = make(filter_scan_max=2)
    broker.send(plain("a", tags="y"), *[plain("-", tags="x") for _ in range(20)])
    broker.send(plain("b", tags="y"))
    request = ReceiveRequest(GROUP, TOPIC, CLIENT, expression="y", invisible_ms=INVISIBLE_MS)
    reading = broker.broker[Leases].receive(request)
    for _ in range(3):
        next(reading)
    broker.broker.offsets.forget_group(GROUP)
    assert [body(each) for each in done(reading).messages] == ["a", "b"]
    assert broker.broker[Leases].table.total.messages == 2


def test_a_group_pulls_or_receives_single_messages(five: BrokerUnderTest) -> None:
    """A member that pulls gets all messages of its queues, and so would whoever receives them."""
    broker, consumer = five.broker, Consumer(five, client_id="stranger")
    beat = HeartbeatRequest(GROUP, "first", (Subscription(TOPIC),))
    other = replace(beat, client_id="other")
    for kind in (MemberKind.POLLS, MemberKind.SHARES):
        broker.heartbeat(beat, kind=kind)
        with pytest.raises(InvalidValue, match="one kind of members"):
            broker.heartbeat(other, kind=MemberKind.LEASES)
        with pytest.raises(InvalidValue, match="one kind of members"):
            consumer.receive()
        broker.membership.leave(GROUP, "first")
        broker.heartbeat(other, kind=MemberKind.LEASES)
        with pytest.raises(InvalidValue, match="one kind of members"):
            broker.heartbeat(beat, kind=kind)
        broker.membership.leave(GROUP, "other")
    # RocketMQ's members that pop are of the same kind.
    broker[RequestModes].change(RequestModeChange(GROUP, TOPIC, RequestMode.POP))
    broker.heartbeat(beat, kind=MemberKind.SHARES)
    broker.heartbeat(other, kind=MemberKind.LEASES)
    assert consumer.bodies() == ["0", "1", "2", "3", "4"]


def test_a_message_that_another_protocol_failed_is_received(five: BrokerUnderTest) -> None:
    """The retry topic is one for all protocols."""
    (failed, *_) = five.messages(TOPIC, 0)
    five.broker.send_back(SendBackRequest(GROUP, failed.physical_offset))
    five.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 5}))
    five.clock.forward(10_000)
    five.deliver()
    (again,) = Consumer(five).receive().messages
    assert (again.record.body, again.topic, again.attempt) == (b"0", TOPIC, 2)


def test_a_deleted_topic_has_no_messages(five: BrokerUnderTest) -> None:
    """A new one of the same name begins with its first message."""
    consumer = Consumer(five)
    held = consumer.receive(2).messages[0]
    five.broker[Deleting].delete_topic(TOPIC)
    with pytest.raises(TopicUnknown):
        consumer.receive()
    five.send(plain("new"))
    assert consumer.bodies() == ["new"]
    assert not consumer.is_valid(held.handle)
    five.clock.forward(INVISIBLE_MS)
    expire(five)


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC])
def test_what_waits_is_leased_to_nobody(under_test: BrokerUnderTest, topic: str) -> None:
    """It would come before its time, or uncommitted, as a retry."""
    under_test.send(Message(TOPIC, b"x", delay_level=3))
    under_test.broker.topics.ensure(HALF_TOPIC, 1)
    with pytest.raises(PermissionMissing, match="the broker's own"):
        done(under_test.broker[Leases].receive(ReceiveRequest("g", topic, "c", auto_renew=True)))
    with pytest.raises(PermissionMissing, match="the broker's own"):
        done(under_test.broker[Leases].peek(ReceiveRequest("g", topic, "", auto_renew=True)))


def test_what_a_caller_may_ask_is_bounded(make: Make) -> None:
    """Each with the field, the value and the rule."""
    broker = make(leased_messages_max=40)
    broker.send(plain("a"))
    consumer = Consumer(broker)
    for changes in (
        {"most": 0},
        {"most": 33},
        {"invisible_ms": 0},
        {"invisible_ms": -1},
        {"invisible_ms": 12 * 3_600_000 + 1},
        {"attempt_id": "a" * (ATTEMPT_ID_BYTES_MAX + 1)},
    ):
        with pytest.raises(InvalidValue):
            consumer.receive(**changes)
    broker.send(*[plain(str(number)) for number in range(39)])
    consumer.receive()
    with pytest.raises(Overloaded, match="maxLeasedMessages=40"):
        consumer.receive(9)
    assert len(consumer.receive(8).messages) == 8
    broker.broker.groups.change(GroupChange(GROUP, can_consume=False))
    with pytest.raises(PermissionMissing):
        consumer.receive(1)


def test_large_messages_do_not_come_together(make: Make) -> None:
    """A turn of the loop copies a megabyte at most, or one message."""
    under_test = make(**LONG_BODIES)
    for _ in range(5):
        under_test.send(Message(TOPIC, b"x" * 400_000))
    assert len(Consumer(under_test).receive().messages) == 3
    assert len(Consumer(under_test).receive().messages) == 2


def test_a_queue_that_another_receive_reads_is_not_lost_from_sight(make: Make) -> None:
    """Who reads it wakes a call that waits; a call that is still looking looks at it again."""
    broker = make(filter_scan_max=10)
    broker.send(*[plain(str(number), tags="x") for number in range(40)], plain("a", tags="y"))
    broker.send(plain("b", tags="y"), plain("c", tags="y"))

    def receive(client_id: str) -> Steps[Received]:
        request = ReceiveRequest(
            GROUP, TOPIC, client_id, expression="y", max_messages=1, invisible_ms=INVISIBLE_MS
        )
        return broker.broker[Leases].receive(request)

    def bodies_of(received: Received) -> list[bytes]:
        return [each.record.body for each in received.messages]

    reading = receive("reads")
    next(reading)
    # Nothing is found, and nobody else is woken to find nothing, too.
    passing = done(receive("passes"))
    assert (passing.messages, passing.has_more) == ((), False)
    found = done(reading)
    assert (bodies_of(found), found.has_more) == ([b"a"], True)
    assert bodies_of(done(receive("passes"))) == [b"b"]
    # One that is gone in the middle has woken the others.
    woken: list[tuple[str, str]] = []
    broker.broker[Leases].table.on_visible = lambda *key: woken.append(key)
    broker.send(*[plain(str(number), tags="x") for number in range(40)])
    done(receive("takes"))
    reading = receive("is gone")
    next(reading)
    done(receive("passes"))
    reading.close()
    assert woken == [(GROUP, TOPIC)]

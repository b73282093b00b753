"""Send-back: the decision table of reference §7.1, row by row, as design §5 changes it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rmqlite.features.dead_letters.requests import EventKind
from rmqlite.kernel.failing import SENT_BACK_MS
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import (
    GroupUnknown,
    InvalidName,
    InvalidValue,
    MessageNotFound,
    PermissionMissing,
    StoreUnavailable,
)
from rmqlite.kernel.words.message import (
    DELAY,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from rmqlite.kernel.words.names import GROUP_BYTES_MAX, dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.letters import dead_letters, life
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    create_topic,
    delayed,
    level_status,
    physical_offset,
    received,
    save_group,
    send_back,
)
from tests.support.steps import done
from tests.support.stores import new_record

RETRY = retry_topic(GROUP)
DLQ = dlq_topic(GROUP)


def test_row_1_an_unknown_group_is_refused_unless_made_on_demand(make: Make) -> None:
    """autoCreateSubscriptionGroup decides; nothing is stored."""
    broker = make(auto_create_group=False)
    broker.send(delayed("a", 0))
    end = broker.store.end
    with pytest.raises(GroupUnknown):
        broker.broker.send_back(SendBackRequest(GROUP, 0))
    assert broker.store.end == end
    broker.restart(auto_create_group=True)
    assert broker.broker.send_back(SendBackRequest(GROUP, 0)).topic == RETRY
    assert broker.broker.groups.existing(GROUP).max_reconsume_times == 16


@pytest.mark.parametrize("name", ["", "a b", "a@b", "x" * (GROUP_BYTES_MAX + 1), "ü"])
def test_row_1_a_group_name_that_cannot_have_a_retry_topic_is_refused(
    under_test: BrokerUnderTest, name: str
) -> None:
    """Up front, wherever the group is first named; RocketMQ fails at the first failure."""
    message = received(under_test)
    heartbeat = HeartbeatRequest(name, "c", (Subscription(TOPIC),))
    for ask in (
        lambda: under_test.broker.send_back(SendBackRequest(name, message.physical_offset)),
        lambda: done(under_test.broker.pull(PullRequest(name, TOPIC, 0, 0))),
        lambda: under_test.broker.heartbeat(heartbeat),
        lambda: save_group(under_test, group=name),
    ):
        with pytest.raises(InvalidName):
            ask()


def test_row_1_the_longest_group_name_can_fail_and_die(under_test: BrokerUnderTest) -> None:
    """Its retry topic is exactly as long as a topic may be."""
    name = "g" * GROUP_BYTES_MAX
    message = received(under_test)
    assert len(send_back(under_test, message, group=name).topic) == 127
    assert send_back(under_test, message, group=name, delay_level=-1).is_dead


@pytest.mark.parametrize("queues", [0, -1])
def test_row_3_a_group_without_retry_queues_cannot_be(
    under_test: BrokerUnderTest, queues: int
) -> None:
    """RocketMQ takes it, and then drops every failed message without a word."""
    with pytest.raises(InvalidValue, match="retry_queues"):
        save_group(under_test, retry_queues=queues)


def test_row_3_a_group_that_rocketmq_left_without_retry_queues_has_one(
    under_test: BrokerUnderTest,
) -> None:
    """Its failures must not vanish here."""
    under_test.close()
    row = {"groupName": GROUP, "retryQueueNums": 0, "retryMaxTimes": 16}
    path = under_test.config.store_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps({"subscriptionGroupTable": {GROUP: row}}))
    under_test.open()
    assert send_back(under_test, received(under_test)).topic == RETRY
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert bodies(under_test, RETRY) == ["order"]


def test_row_4_the_retry_topic_is_made_with_the_groups_queues(
    under_test: BrokerUnderTest,
) -> None:
    """Readable and writable."""
    save_group(under_test, retry_queues=3)
    send_back(under_test, received(under_test))
    info = under_test.broker.topics.existing(RETRY)
    assert (info.read_queues, info.write_queues, info.perm) == (3, 3, 6)


def test_row_4_retries_go_only_to_queues_that_the_topic_has(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ gave the group more of them and not the topic; nobody would read there."""
    send_back(under_test, received(under_test))
    under_test.close()
    row = {"groupName": GROUP, "retryQueueNums": 8}
    path = under_test.config.store_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps({"subscriptionGroupTable": {GROUP: row}}))
    under_test.open()
    for number in range(16):
        send_back(under_test, received(under_test, body=b"x%d" % number))
    under_test.clock.forward(10_000)
    assert under_test.deliver() == 17
    assert len(bodies(under_test, RETRY)) == 17


@pytest.mark.parametrize("level", [0, -1])
def test_row_5_a_retry_topic_without_write_permission_is_refused(
    under_test: BrokerUnderTest, level: int
) -> None:
    """Also when the message would die."""
    create_topic(under_test, RETRY, 1, perm=4)
    with pytest.raises(PermissionMissing):
        send_back(under_test, received(under_test), delay_level=level)


@pytest.mark.parametrize("offset", [-1, 1, 17, 10**6, 2**62])
def test_row_6_an_offset_at_which_no_message_begins_is_refused(
    under_test: BrokerUnderTest, offset: int
) -> None:
    """Before the log, inside of a record, behind the log's end."""
    received(under_test)
    end = under_test.store.end
    with pytest.raises(MessageNotFound):
        under_test.broker.send_back(SendBackRequest(GROUP, offset))
    assert under_test.store.end == end


def test_row_6_a_record_of_the_schedule_is_refused(under_test: BrokerUnderTest) -> None:
    """No consumer can have received it; a retry of it would be early."""
    (result,) = under_test.send(delayed("a", 1))
    with pytest.raises(InvalidValue, match="physical_offset"):
        under_test.broker.send_back(SendBackRequest(GROUP, physical_offset(result)))


def test_row_7_the_first_failure_notes_where_the_message_came_from(
    under_test: BrokerUnderTest,
) -> None:
    """And later failures leave that as it is."""
    first = received(under_test, properties={"colour": "red"}, tags="T")
    send_back(under_test, first)
    under_test.clock.forward(10_000)
    under_test.deliver()
    (retried,) = under_test.messages(RETRY)
    assert retried.properties[RETRY_TOPIC] == retried.origin_topic == TOPIC
    assert retried.properties[WAIT] == "false"
    assert retried.properties["colour"] == "red"
    assert (retried.tags, retried.message_id) == ("T", first.message_id)
    send_back(under_test, retried)
    under_test.clock.forward(30_000)
    under_test.deliver()
    twice = under_test.messages(RETRY)[1]
    for name in (RETRY_TOPIC, ORIGIN_MESSAGE_ID, UNIQ_KEY, FIRST_FAILURE_TIMESTAMP):
        assert twice.properties[name] == retried.properties[name]
    assert twice.properties[LAST_FAILURE_TIMESTAMP] > retried.properties[LAST_FAILURE_TIMESTAMP]
    assert twice.properties[ORIGIN_MESSAGE_ID] == first.offset_message_id


@pytest.mark.parametrize(
    ("group_most", "asked", "is_dead"),
    [
        (16, None, False),
        (0, None, True),
        (0, 16, False),
        (16, 0, True),
        (16, 1, False),
        (1, None, False),
        (16, -1, True),
    ],
)
def test_row_8_the_request_decides_before_the_group(
    under_test: BrokerUnderTest, group_most: int, asked: int | None, is_dead: bool
) -> None:
    """A first failure against either limit."""
    save_group(under_test, max_reconsume_times=group_most)
    message = received(under_test)
    assert send_back(under_test, message, max_reconsume_times=asked).is_dead is is_dead


@pytest.mark.parametrize("level", [-1, -7])
def test_row_9_a_negative_level_is_a_dead_letter_at_once(
    under_test: BrokerUnderTest, level: int
) -> None:
    """The consumer knows that no retry will help."""
    answer = send_back(under_test, received(under_test), delay_level=level)
    assert (answer.topic, answer.reconsume_times, answer.delay_level) == (DLQ, 1, 0)
    assert (answer.is_dead, answer.deliver_at_ms) == (True, 0)
    (dead,) = under_test.messages(DLQ)
    assert (dead.queue_id, dead.reconsume_times, dead.properties[DELAY]) == (0, 1, "0")
    info = under_test.broker.topics.existing(DLQ)
    assert (info.read_queues, info.write_queues, info.perm) == (1, 1, 6)
    status = under_test.broker.status(0)
    assert (status.retried, status.dead) == (0, 1)


def test_row_9_a_dead_letter_of_a_delayed_message_is_not_delayed_again(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ before 4.9.2 sent it through the old level."""
    under_test.send(delayed("a", 5))
    under_test.clock.forward(60_000)
    under_test.deliver()
    (message,) = under_test.messages(TOPIC)
    send_back(under_test, message, delay_level=-1)
    assert bodies(under_test, DLQ) == ["a"]
    assert under_test.broker.wait_queues.oldest_pending() is None


def test_row_10_the_broker_chooses_three_plus_the_attempts(under_test: BrokerUnderTest) -> None:
    """Level 3 first: 10 s."""
    now_ms = under_test.clock.now_ms()
    answer = send_back(under_test, received(under_test))
    assert (answer.topic, answer.reconsume_times, answer.delay_level) == (RETRY, 1, 3)
    assert answer.deliver_at_ms == now_ms + 10_000
    assert level_status(under_test, 3).pending == 1
    assert under_test.broker.status(0).retried == 1


@pytest.mark.parametrize(("asked", "level"), [(1, 1), (5, 5), (18, 18), (99, 18)])
def test_row_10_an_explicit_level_is_taken(
    under_test: BrokerUnderTest, asked: int, level: int
) -> None:
    """Clamped as in a send; it counts as an attempt all the same."""
    answer = send_back(under_test, received(under_test), delay_level=asked)
    assert (answer.delay_level, answer.reconsume_times) == (level, 1)
    under_test.clock.forward(answer.deliver_at_ms - 1 - under_test.clock.now_ms())
    assert under_test.deliver() == 0
    under_test.clock.forward(1)
    assert under_test.deliver() == 1
    (retried,) = under_test.messages(RETRY)
    assert (retried.reconsume_times, retried.properties[DELAY]) == (1, str(level))


def test_row_10_a_short_table_clamps_the_chosen_level(make: Make) -> None:
    """Levels 3, 4, 5 … of a table with two levels are its last."""
    broker = make(message_delay_level="1s 5s")
    message = received(broker)
    for attempt in range(1, 5):
        answer = send_back(broker, message)
        assert (answer.delay_level, answer.reconsume_times) == (2, attempt)
        broker.clock.forward(5_000)
        assert broker.deliver() == 1
        message = broker.messages(RETRY)[-1]


def test_row_11_the_new_record_keeps_what_the_producer_made(under_test: BrokerUnderTest) -> None:
    """Body, flag, times and addresses of birth; REAL_* are those of the hop."""
    first = received(under_test, body=b"\x00\xff", flag=9, keys=("k",))
    under_test.clock.forward(5)
    send_back(under_test, first)
    under_test.clock.forward(10_000)
    under_test.deliver()
    (retried,) = under_test.messages(RETRY)
    for name in "body flag sys_flag born_timestamp_ms born_host store_host keys".split():  # noqa: SIM905
        assert getattr(retried, name) == getattr(first, name)
    assert retried.properties[REAL_TOPIC] == RETRY
    assert retried.properties[REAL_QID] == str(retried.queue_id)


def test_row_11_addresses_of_ipv6_survive_every_hop(make: Make) -> None:
    """Their records have another layout."""
    broker = make(broker_ip="::1")
    first = received(broker)
    send_back(broker, first)
    broker.clock.forward(10_000)
    broker.restart(broker_ip="::1")
    broker.deliver()
    (retried,) = broker.messages(RETRY)
    assert (retried.born_host, retried.store_host) == (first.born_host, "[::1]:10911")
    assert send_back(broker, retried, delay_level=-1).is_dead
    assert broker.messages(DLQ)[0].properties[ORIGIN_MESSAGE_ID] == first.offset_message_id


def test_row_12_a_full_disk_is_unavailable_and_keeps_nothing(make: Make) -> None:
    """The consumer sends it back again later."""
    disk = FaultyFiles()
    broker = make(files=disk)
    message = received(broker)
    end = broker.store.end
    disk.take_writes(0)
    with pytest.raises(StoreUnavailable):
        send_back(broker, message)
    disk.heal()
    assert (broker.store.end, broker.broker.status(0).retried) == (end, 0)
    assert send_back(broker, message).reconsume_times == 1


def test_a_reason_stays_on_the_record_until_a_failure_gives_another(
    under_test: BrokerUnderTest,
) -> None:
    """A client of RocketMQ gives none: the letter names the last one, and the attempt it is of."""

    def failed_again(reason: str, level: int = 3) -> None:
        send_back(under_test, under_test.messages(RETRY)[-1], reason=reason, delay_level=level)
        under_test.clock.forward(10_000)
        under_test.deliver()

    def why(topic: str) -> tuple[str | None, str | None]:
        properties = under_test.messages(topic)[-1].properties
        return properties.get(FAILURE_REASON), properties.get(FAILURE_REASON_ATTEMPT)

    send_back(under_test, received(under_test, message_id="m1"), delay_level=3)
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert why(RETRY) == (None, None)
    failed_again("ValueError: no such shop")
    assert why(RETRY) == ("ValueError: no such shop", None)
    failed_again("")
    failed_again("")
    assert why(RETRY) == ("ValueError: no such shop", "2")
    failed_again("KeyError")
    assert why(RETRY) == ("KeyError", None)
    under_test.restart()
    failed_again("", level=-1)
    assert why(DLQ) == ("KeyError", "5")
    (letter,) = dead_letters(under_test)
    assert (letter.reason, letter.delivery_attempts) == ("KeyError", 6)
    last = life(under_test, "m1").events[-1]
    assert (last.kind, last.attempt, last.reason) == (EventKind.DEAD, 6, "")


def test_a_reason_that_a_producer_made_up_is_not_kept(under_test: BrokerUnderTest) -> None:
    """Only a message that has failed has a reason."""
    properties = encode_properties({FAILURE_REASON: "no", "color": "red"})
    written = new_record("x", TOPIC, properties=properties)
    create_topic(under_test, TOPIC)
    under_test.store.append([written])
    under_test.sync()
    send_back(under_test, under_test.messages(TOPIC)[0], delay_level=-1)
    letter = under_test.messages(DLQ)[0]
    assert letter.properties["color"] == "red"
    assert FAILURE_REASON not in letter.properties


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("x" * 1_024, "x" * 1_024),
        ("x" * 1_025, "x" * 1_024),
        ("x" + "ü" * 600, "x" + "ü" * 511),
        ("a\x01b\x02c", "a b c"),
        ("line 1\n\tline 2", "line 1\n\tline 2"),
        ("null\x00bell\x07escape\x1b[31m", "null bell escape [31m"),
        ("half \ud800 pair", "half ? pair"),
        ("  ", None),
        ("\x01\x02", None),
        ("", None),
    ],
)
def test_a_reason_is_cut_and_cleaned(
    under_test: BrokerUnderTest, reason: str, kept: str | None
) -> None:
    """At most 1 KiB of whole characters, none of which ends a property or drives a terminal."""
    send_back(under_test, received(under_test), reason=reason, delay_level=-1)
    assert under_test.messages(DLQ)[0].properties.get(FAILURE_REASON) == kept


@pytest.mark.one_of(2)
@pytest.mark.parametrize("room", [0, 1, 40, 200, 400, 700, 2_000])
@pytest.mark.parametrize("level", [0, -1])
def test_a_message_full_of_properties_is_not_lost(
    under_test: BrokerUnderTest, room: int, level: int
) -> None:
    """An older broker took it.  What a failure adds gives way, but for the origin topic; the
    message's own longest property does only if not even that fits."""
    properties = {UNIQ_KEY: "full", "short": "s", "p": ""}
    value = "x" * (32_767 - len(encode_properties(properties)) - room)
    create_topic(under_test, TOPIC)
    new = new_record(b"order", TOPIC, 0, properties={**properties, "p": value})
    (at,) = under_test.store.append([new])
    under_test.sync()
    message = under_test.pull(TOPIC, 0, at.queue_offset).messages[0]
    answer = send_back(under_test, message, delay_level=level, reason="r" * 1_024)
    if not answer.is_dead:
        under_test.clock.forward(10_000)
        under_test.deliver()
    (found,) = under_test.messages(answer.topic)
    assert (found.properties["short"], found.message_id) == ("s", "full")
    assert found.properties.get("p") == (value if room >= 40 else None)
    assert found.properties[DLQ_ORIGIN_TOPIC if answer.is_dead else RETRY_TOPIC] == TOPIC
    assert answer.is_dead == (level < 0 or room < 200)


def test_a_dead_letter_that_fails_again_belongs_to_its_own_group(
    under_test: BrokerUnderTest,
) -> None:
    """Whoever reads a DLQ has retries and a DLQ of their own, and has failed the message once."""
    send_back(under_test, received(under_test), delay_level=-1)
    (dead,) = under_test.messages(DLQ)
    answer = send_back(under_test, dead, group="mourner")
    assert (answer.topic, answer.reconsume_times) == ("%RETRY%mourner", 1)
    under_test.clock.forward(60_000)
    under_test.deliver()
    (retried,) = under_test.messages("%RETRY%mourner")
    assert retried.origin_topic == DLQ


def test_two_processes_of_one_client_id_make_one_dead_letter(under_test: BrokerUnderTest) -> None:
    """Both read the same queues, and both fail all that they get: without a rule 8 letters."""
    save_group(under_test, max_reconsume_times=2)
    message = received(under_test)
    while message.topic in (TOPIC, RETRY):
        before = under_test.store.end
        first = send_back(under_test, message)
        stored = under_test.store.end
        assert send_back(under_test, message, reason="the other one") == first
        assert before < stored == under_test.store.end
        under_test.clock.forward(7_200_000)
        under_test.deliver()
        message = under_test.messages(first.topic)[-1]
    assert len(under_test.messages(RETRY)) == 2
    assert len(under_test.messages(dlq_topic(GROUP))) == 1
    assert under_test.broker.counts.retried[GROUP] == 2


def test_a_message_that_comes_anew_may_fail_anew(under_test: BrokerUnderTest) -> None:
    """An operator has reset the group, or its listener took longer than any may."""
    message = received(under_test)
    offsets, clock = under_test.broker.offsets, under_test.clock
    ways: tuple[Callable[[], None], ...] = (
        lambda: offsets.commit(GROUP, {Queue(TOPIC, 0): 0}, is_reset=True),
        lambda: offsets.forget_group(GROUP),
        lambda: clock.forward(SENT_BACK_MS),
    )
    for again in ways:
        first = send_back(under_test, message)
        count = under_test.broker.counts.retried[GROUP]
        assert send_back(under_test, message) == first
        again()
        send_back(under_test, message)
        assert under_test.broker.counts.retried[GROUP] == count + 1
        under_test.clock.forward(SENT_BACK_MS)


def test_remembered_send_backs_have_a_limit(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is forgotten first."""
    monkeypatch.setattr("rmqlite.kernel.failing.SENT_BACK_MAX", 4)
    at = [each.physical_offset for each in under_test.send(*[delayed(str(n), 0) for n in range(6)])]
    for each in at:
        under_test.broker.send_back(SendBackRequest(GROUP, each))
    known = under_test.broker.failing.sent_back
    assert len(known) == 4
    assert [known.result(SendBackRequest(GROUP, each)) is None for each in at] == [
        True,
        True,
        *[False] * 4,
    ]
    known.forget(GROUP)
    assert (len(known), known._of_group) == (0, {})

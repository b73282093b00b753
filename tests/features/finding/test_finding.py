"""Messages are found by key, by message id and by offset message id, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.features.finding import finding
from rmqlite.features.finding.finding import find_messages, message_at
from rmqlite.features.finding.requests import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    MessageState,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, TopicUnknown
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.message import KEYS, UNIQ_KEY, Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.brokers import BODY_BYTES_MAX, LONG_BODIES, BrokerUnderTest
from tests.support.golden import unpack_golden
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, create_topic, plain, received, send_back
from tests.support.sends import sending
from tests.support.steps import done

STORED, SCHEDULED = MessageState.STORED, MessageState.SCHEDULED
RETRY, DEAD = MessageState.RETRY, MessageState.DEAD


def find(broker: BrokerUnderTest, key: str, **more: Any) -> FoundMessages:
    return done(
        find_messages(broker.broker.parts, MessageQuery(**{"topic": TOPIC, "key": key, **more}))
    )


def bodies(found: FoundMessages) -> list[str]:
    return [each.message.body.decode() for each in found.messages]


def places(found: FoundMessages) -> list[tuple[str, MessageState]]:
    return [(each.message.topic, each.state) for each in found.messages]


def test_messages_are_found_by_each_of_their_keys(under_test: BrokerUnderTest) -> None:
    """In the order of the log; part of a key is none."""
    under_test.send(plain("a", keys="k1 k2"), plain("b", keys=["k2"]), plain("c", keys="k3"))
    assert bodies(find(under_test, "k1")) == ["a"]
    assert bodies(find(under_test, "k2")) == ["a", "b"]
    assert bodies(find(under_test, "k")) == bodies(find(under_test, "K2")) == []
    assert {each.state for each in find(under_test, "k2").messages} == {STORED}


def test_a_message_is_found_by_its_message_id(under_test: BrokerUnderTest) -> None:
    """The producer's; a key that reads the same is another message's."""
    (result,) = under_test.send(plain("a"))
    under_test.send(plain("b", keys=[result.message_id]))
    assert bodies(find(under_test, result.message_id, by_message_id=True)) == ["a"]
    assert bodies(find(under_test, result.message_id)) == ["b"]


def test_another_topics_messages_are_not_found(under_test: BrokerUnderTest) -> None:
    """Keys are a topic's own, also on the way through the schedule."""
    under_test.send(plain("mine", keys="k"))
    under_test.send(plain("other's", "payments", keys="k"))
    under_test.send(Message("payments", b"other's later", keys="k", delay_level=1))
    assert bodies(find(under_test, "k", history=True)) == ["mine"]
    assert bodies(find(under_test, "k", topic="payments", history=True)) == [
        "other's",
        "other's later",
    ]


def test_keys_with_one_hash_are_told_apart(under_test: BrokerUnderTest) -> None:
    """The index keeps only a hash, and Java's of "Aa" is that of "BB"."""
    under_test.send(plain("1", keys="Aa"), plain("2", keys="BB"), plain("3", keys="Aa"))
    assert bodies(find(under_test, "Aa")) == ["1", "3"]
    assert bodies(find(under_test, "BB")) == ["2"]


def test_topics_with_one_hash_give_a_message_once(under_test: BrokerUnderTest) -> None:
    """Two places of one search may share a chain."""
    for topic in ("%RETRY%Aa", "%RETRY%BB"):
        create_topic(under_test, topic, 1)
        under_test.send(plain("again", topic, keys="k"))
    found = find(under_test, "k", topic="%RETRY%Aa", history=True)
    assert places(found) == [("%RETRY%Aa", RETRY)]


def test_a_scheduled_message_is_pending_until_it_is_delivered(under_test: BrokerUnderTest) -> None:
    """Where a message that was sent with a delay is before its time, and what became of it."""
    (result,) = under_test.send(Message(TOPIC, b"order", keys="k", delay_level=3))
    assert find(under_test, "k") == FoundMessages(())
    (waiting,) = find(under_test, "k", history=True).messages
    assert (waiting.message.topic, waiting.state) == (SCHEDULE_TOPIC, SCHEDULED)
    assert (waiting.deliver_at_ms, waiting.is_pending) == (result.deliver_at_ms, True)
    assert message_at(under_test.broker.parts, result.offset_message_id) == waiting
    under_test.clock.forward(10_000)
    under_test.deliver()
    delivered, stored = find(under_test, "k", history=True).messages
    due_ms = result.deliver_at_ms
    assert delivered == FoundMessage(waiting.message, SCHEDULED, due_ms, False, "delivered")
    assert (stored.message.topic, stored.state, stored.deliver_at_ms) == (TOPIC, STORED, 0)
    assert find(under_test, "k").messages == (stored,)


def test_messages_of_one_level_are_pending_each_for_itself(under_test: BrokerUnderTest) -> None:
    """Also when an edit of the table has the second delivered before the first."""
    (slow,) = under_test.send(Message(TOPIC, b"slow", keys="k", delay_level=18))
    under_test.clock.forward(1)
    under_test.store.change_levels(parse_levels(" ".join(["1s"] * 18)))
    (quick,) = under_test.send(Message(TOPIC, b"quick", keys="k", delay_level=18))
    under_test.clock.forward(1_000)
    under_test.deliver()
    found = find(under_test, "k", history=True)
    assert bodies(found) == ["slow", "quick", "quick"]
    assert [each.is_pending for each in found.messages] == [True, False, False]
    due_ms = [slow.deliver_at_ms, quick.deliver_at_ms, 0]
    assert [each.deliver_at_ms for each in found.messages] == due_ms


def test_every_change_of_a_scheduled_message_is_told(under_test: BrokerUnderTest) -> None:
    """Who asks what became of a message learns who ended its wait, and how."""
    for name in ("cancelled", "fired", "moved"):
        under_test.send(Message(TOPIC, b"order", message_id=name, delay_level=5))
    for action, message_id, level in (
        (ScheduleAction.CANCEL, "cancelled", 0),
        (ScheduleAction.FIRE, "fired", 0),
        (ScheduleAction.RESCHEDULE, "moved", 1),
    ):
        list(under_test.broker[Changes].by_ids(ChangeByIds(action, (message_id,), "", level)))
    under_test.sync()
    told = {}
    for name in ("cancelled", "fired", "moved"):
        found = done(
            find_messages(under_test.broker.parts, MessageQuery(TOPIC, name, True, history=True))
        )
        told[name] = [(each.state, each.is_pending, each.ended) for each in found.messages]
    assert told == {
        "cancelled": [(SCHEDULED, False, "cancelled"), (MessageState.CANCELLED, False, "")],
        "fired": [(SCHEDULED, False, "fired"), (STORED, False, "")],
        "moved": [(SCHEDULED, False, "rescheduled"), (SCHEDULED, True, "")],
    }


def a_whole_life(broker: BrokerUnderTest) -> None:
    """Delayed, delivered, failed once, failed again and dead."""
    broker.send(Message(TOPIC, b"order", keys="k", message_id="ID", delay_level=1))
    broker.clock.forward(1_000)
    broker.deliver()
    answer = send_back(broker, broker.messages(TOPIC)[0])
    broker.clock.forward(answer.deliver_at_ms - broker.clock.now_ms())
    broker.deliver()
    send_back(broker, broker.messages(retry_topic(GROUP))[0], delay_level=-1)


LIFE = [
    (SCHEDULE_TOPIC, SCHEDULED),
    (TOPIC, STORED),
    (SCHEDULE_TOPIC, SCHEDULED),
    (retry_topic(GROUP), RETRY),
    (dlq_topic(GROUP), DEAD),
]


@pytest.mark.parametrize("how", [{"key": "k"}, {"key": "ID", "by_message_id": True}])
def test_a_message_is_found_on_every_hop(under_test: BrokerUnderTest, how: dict[str, Any]) -> None:
    """Its whole life under the topic it was sent to; without hops only what is there."""
    a_whole_life(under_test)
    found = find(under_test, **how, history=True)
    assert places(found) == LIFE
    assert [each.is_pending for each in found.messages] == [False] * 5
    assert not found.is_cut
    assert places(find(under_test, **how)) == LIFE[1:2]
    assert places(find(under_test, **how, topic=dlq_topic(GROUP))) == LIFE[4:]
    retried = find(under_test, **how, topic=retry_topic(GROUP), history=True)
    assert places(retried) == LIFE[2:4]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_what_is_found_outlives_the_broker(under_test: BrokerUnderTest, how: str) -> None:
    """The index is made again from where it was last on disk."""
    a_whole_life(under_test)
    before = find(under_test, "k", history=True)
    under_test.persist()
    under_test.send(plain("later", keys="k"))
    if how == "crash":
        under_test.crash()
        under_test.open()
    else:
        under_test.restart()
    after = find(under_test, "k", history=True)
    assert after.messages[:-1] == before.messages
    assert bodies(after)[-1] == "later"


def test_only_what_is_durable_is_found(under_test: BrokerUnderTest) -> None:
    """A power cut could take it back."""
    (result,) = done(sending(under_test.broker, [plain("a", keys="k")], 0))
    assert find(under_test, "k").messages == ()
    with pytest.raises(MessageNotFound):
        message_at(under_test.broker.parts, result.offset_message_id)
    under_test.sync()
    assert bodies(find(under_test, "k")) == ["a"]
    assert message_at(under_test.broker.parts, result.offset_message_id).message.body == b"a"


def test_times_are_exact_to_the_millisecond(under_test: BrokerUnderTest) -> None:
    """The index knows seconds; the end is not part of the time that is asked for."""
    begin_ms = under_test.clock.now_ms()
    for n in range(5):
        under_test.send(plain(str(n), keys="k"))
        under_test.clock.forward(700)
    times = [each.message.store_timestamp_ms for each in find(under_test, "k").messages]
    assert times == [begin_ms + 700 * n for n in range(5)]
    for first in range(5):
        assert bodies(find(under_test, "k", begin_ms=times[first])) == list("01234"[first:])
        assert bodies(find(under_test, "k", begin_ms=times[first] + 1)) == list(
            "01234"[first + 1 :]
        )
        assert bodies(find(under_test, "k", end_ms=times[first])) == list("01234"[:first])
        assert bodies(find(under_test, "k", end_ms=times[first] + 1)) == list("01234"[: first + 1])


def test_the_newest_are_given_and_it_is_said_that_there_are_more(
    under_test: BrokerUnderTest,
) -> None:
    """32 unless asked otherwise; who wants the older ones asks for the time before."""
    for n in range(40):
        under_test.send(plain(str(n), keys="k"))
        under_test.clock.forward(1)
    found = find(under_test, "k")
    assert (bodies(found), found.is_cut) == ([str(n) for n in range(8, 40)], True)
    older = find(under_test, "k", end_ms=found.messages[0].message.store_timestamp_ms)
    assert (bodies(older), older.is_cut) == ([str(n) for n in range(8)], False)
    for count, is_cut in ((1, True), (39, True), (40, False), (64, False)):
        some = find(under_test, "k", max_messages=count)
        assert (len(some.messages), some.is_cut) == (min(40, count), is_cut)


def test_an_answer_is_no_larger_than_a_pulls(make: Make) -> None:
    """64 bodies of 4 MiB would not fit a call; one is given however large it is."""
    broker = make(pull_bytes_max=BODY_BYTES_MAX)
    for size in (25_000, 25_000, 25_000):
        broker.send(Message(TOPIC, bytes(size), keys="k"))
    found = find(broker, "k")
    assert (len(found.messages), found.is_cut) == (2, True)
    broker.send(Message(TOPIC, bytes(BODY_BYTES_MAX), keys="k"))
    found = find(broker, "k")
    assert (len(found.messages), found.is_cut) == (1, True)


def test_a_search_ends_at_its_limit(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What shares a hash is read from the log: a million of them would stop everybody else."""
    monkeypatch.setattr(finding, "CANDIDATES_MAX", 20)
    under_test.send(Message(TOPIC, b"mine", keys="k", delay_level=1))
    for n in range(20):
        under_test.send(Message("payments", str(n).encode(), keys="k", delay_level=1))
    found = find(under_test, "k", history=True)
    assert (found.messages, found.is_cut) == ((), True)
    monkeypatch.setattr(finding, "CANDIDATES_MAX", 21)
    found = find(under_test, "k", history=True)
    assert (bodies(found), found.is_cut) == (["mine"], False)
    monkeypatch.setattr(finding, "CANDIDATE_BYTES_MAX", 2_000)
    assert find(under_test, "k", history=True) == FoundMessages((), is_cut=True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"key": ""}, "key"),
        ({"key": "", "by_message_id": True}, "message_id"),
        ({"key": "a b"}, "key"),
        ({"key": "a", "max_messages": -1}, "max_messages"),
        ({"key": "a", "max_messages": 65}, "max_messages"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    under_test: BrokerUnderTest, query: dict[str, Any], field: str
) -> None:
    """It names the field and the rule."""
    under_test.send(plain("a"))
    with pytest.raises(InvalidValue) as raised:
        find(under_test, **query)
    assert raised.value.field == field


def test_a_topic_that_is_not_there_is_said(under_test: BrokerUnderTest) -> None:
    """A mistyped one would otherwise be a message that is not there."""
    with pytest.raises(TopicUnknown):
        find(under_test, "k", topic="ordres")


# ---- by offset message id


def test_an_offset_message_id_names_one_record(under_test: BrokerUnderTest) -> None:
    """Of each kind; upper or lower case; whatever address is in it."""
    a_whole_life(under_test)
    for each in find(under_test, "k", history=True).messages:
        name = each.message.offset_message_id
        offset = name[-16:]
        same = (name, name.lower(), "0" * 16 + offset, "F" * 40 + offset)
        assert [message_at(under_test.broker.parts, one) for one in same] == [each] * 4


@pytest.mark.parametrize("name", ["", "1", "0" * 31, "0" * 33, "G" * 32, "0" * 55, "0" * 57])
def test_what_is_no_offset_message_id_is_refused(under_test: BrokerUnderTest, name: str) -> None:
    """The rule is named; a message id that a producer chose is not one."""
    with pytest.raises(InvalidValue, match="hexadecimal"):
        message_at(under_test.broker.parts, name)


def test_a_record_that_is_not_there_is_not_found(under_test: BrokerUnderTest) -> None:
    """Between records, at the log's end, or where no log ever was."""
    (result,) = under_test.send(plain("a"))
    for offset in (result.physical_offset + 1, under_test.store.end, 2**63, 2**64 - 1):
        with pytest.raises(MessageNotFound):
            message_at(under_test.broker.parts, f"{offset:032X}")


def test_what_retention_took_is_not_found(make: Make) -> None:
    """The index keeps its newest file, with entries of records that are gone."""
    broker = make()
    results = [broker.send(Message(TOPIC, bytes(50_000), keys="k"))[0] for _ in range(4)]
    broker.persist()
    assert len(find(broker, "k").messages) == 4
    broker.store.drop_before(broker.store.log_file_bytes)
    assert [each.message.physical_offset for each in find(broker, "k").messages] == [
        each.physical_offset for each in results[2:]
    ]
    with pytest.raises(MessageNotFound):
        message_at(broker.broker.parts, results[0].offset_message_id)


# ---- RocketMQ's own


def test_every_message_of_rocketmqs_is_found(tmp_path: Path) -> None:
    """By its keys and its message id, in a store that RocketMQ wrote."""
    broker = BrokerUnderTest(unpack_golden(tmp_path) / "clean", **LONG_BODIES)
    for topic in ("orders", "reminders", retry_topic("order-closer"), dlq_topic("order-closer")):
        messages: Sequence[Any] = broker.messages(topic)
        assert messages
        for message in messages[:: max(1, len(messages) // 10)]:
            time_ms = message.store_timestamp_ms
            window = {"begin_ms": time_ms, "end_ms": time_ms + 1, "max_messages": 64}
            for key in message.keys:
                found = find(broker, key, topic=topic, **window).messages
                assert message in [each.message for each in found]
                assert all(key in each.message.properties[KEYS] for each in found)
            found = find(
                broker, message.properties[UNIQ_KEY], topic=topic, by_message_id=True, **window
            ).messages
            assert message in [each.message for each in found]
    broker.store.release()


def test_a_failed_message_is_found_by_its_first_topic(under_test: BrokerUnderTest) -> None:
    """A dead letter without a retry before leaves nothing in the schedule that names its group."""
    message = received(under_test, keys="k")
    send_back(under_test, message, group="another", delay_level=-1)
    assert places(find(under_test, "k", history=True)) == [(TOPIC, STORED), ("%DLQ%another", DEAD)]

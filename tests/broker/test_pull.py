"""Pulls: statuses, filters, limits, and what is not to be seen yet (reference §9)."""

from __future__ import annotations

import pytest

from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.words.errors import (
    ExpressionInvalid,
    GroupUnknown,
    InvalidValue,
    PermissionMissing,
    QueueUnknown,
    TopicUnknown,
)
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest, decoded
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, create_topic, plain, save_group
from tests.support.pulls import pull, texts
from tests.support.sends import sending
from tests.support.steps import done
from tests.support.stores import new_record

FOUND = PullStatus.FOUND
NOTHING_NEW = PullStatus.NO_NEW_MESSAGE
NO_MATCH = PullStatus.NO_MATCHED_MESSAGE
MOVED = PullStatus.OFFSET_MOVED


@pytest.fixture
def tagged(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Ten messages 0 to 9 in queue 0; the even ones have tag E, 1 and 3 tag O, others none."""
    for number in range(10):
        tags = "E" if number % 2 == 0 else "O" if number < 5 else ""
        under_test.send(plain(str(number), tags=tags))
    return under_test


def test_a_pull_answers_records_with_every_byte(under_test: BrokerUnderTest) -> None:
    """A protocol whose protocol is RocketMQ's sends them as they are; only text loses bytes."""
    create_topic(under_test, TOPIC)
    own = b"name\x01caf\xe9\x02TAGS\x01E"
    other = new_record("b", TOPIC, properties=b"TAGS\x01other")
    under_test.store.append([new_record("a", TOPIC, properties=own), other])
    under_test.sync()
    request = PullRequest("readers", TOPIC, 0, 0, expression="E")
    pulled = done(under_test.broker.pull(request))
    (record,) = pulled.records
    assert (record.properties.encoded, record.body) == (own, b"a")
    stored = under_test.store.read(record.head.physical_offset, record.head.size)
    assert own in stored
    (message,) = decoded(pulled).messages
    assert message.properties == {"name": "caf\ufffd", "TAGS": "E"}
    assert decoded(pulled).next_offset == pulled.next_offset == 2


def test_a_pull_gives_messages_from_an_offset_on(tagged: BrokerUnderTest) -> None:
    """And where to go on, and what the queue holds."""
    result = pull(tagged, 3)
    assert (result.status, texts(result)) == (FOUND, "3456789")
    assert (result.next_offset, result.min_offset, result.max_offset) == (10, 0, 10)
    assert [message.queue_offset for message in result.messages] == list(range(3, 10))


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [(10, NOTHING_NEW, 10), (11, MOVED, 10), (10**12, MOVED, 10)],
)
def test_behind_the_end_there_is_nothing(
    tagged: BrokerUnderTest, offset: int, status: PullStatus, next_offset: int
) -> None:
    """At the end one waits; beyond it the offset is wrong."""
    result = pull(tagged, offset)
    assert (result.status, result.next_offset, result.messages) == (status, next_offset, ())


def test_a_queue_that_never_held_a_message_is_empty(tagged: BrokerUnderTest) -> None:
    """Offset 0 is right there, any other is not."""
    assert (pull(tagged, 0, queue_id=3).status, pull(tagged, 0, queue_id=3).next_offset) == (
        NOTHING_NEW,
        0,
    )
    assert (pull(tagged, 5, queue_id=3).status, pull(tagged, 5, queue_id=3).next_offset) == (
        MOVED,
        0,
    )


def test_before_the_begin_the_offset_is_moved(make: Make) -> None:
    """Retention has taken what was there."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=40_000)
    for number in range(9):
        broker.send(Message(TOPIC, bytes([48 + number]) * 30_000))
    broker.store.drop_before(1 << 17)
    result = pull(broker, 0)
    assert result.status is MOVED
    assert result.next_offset == result.min_offset == 4
    assert texts(pull(broker, result.next_offset, max_messages=1))[0] == "4"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("*", "0123456789"),
        ("", "0123456789"),
        ("E", "02468"),
        ("O", "13"),
        (" E||O ", "0123468"),
        ("E || X", "02468"),
    ],
)
def test_tags_choose(tagged: BrokerUnderTest, expression: str, found: str) -> None:
    """Messages without tags match only the star."""
    result = pull(tagged, expression=expression)
    assert (result.status, texts(result), result.next_offset) == (FOUND, found, 10)


def test_when_nothing_matches_the_offset_goes_on(tagged: BrokerUnderTest) -> None:
    """Else the reader would stand before these messages for ever."""
    result = pull(tagged, 4, expression="O")
    assert (result.status, result.next_offset, result.messages) == (NO_MATCH, 10, ())


@pytest.mark.parametrize(
    ("expression", "character"), [("||", 1), ("A ||", 5), ("|| A", 1), ("A || * ", 5)]
)
def test_an_expression_with_a_hole_is_refused(
    tagged: BrokerUnderTest, expression: str, character: int
) -> None:
    """It was meant to say something else."""
    with pytest.raises(ExpressionInvalid, match=rf"expression=.* at character {character},"):
        pull(tagged, expression=expression)


def test_tags_that_share_a_hash_are_told_apart(under_test: BrokerUnderTest) -> None:
    """The queue knows only the hash; the record knows the tag."""
    assert tags_hash("Aa") == tags_hash("BB")
    under_test.send(plain("a", tags="Aa"), plain("b", tags="BB"), plain("c", tags="Aa"))
    assert texts(pull(under_test, expression="Aa")) == "ac"
    result = pull(under_test, 0, expression="C#")
    assert tags_hash("C#") == tags_hash("BB")
    assert (result.status, result.next_offset) == (NO_MATCH, 3)


def test_a_filter_looks_at_a_bounded_number_of_entries(make: Make) -> None:
    """A filter that matches nothing must not read a whole backlog in one call."""
    broker = make(filter_scan_max=4)
    broker.send(*[plain(str(number), tags="T" if number == 6 else "") for number in range(8)])
    first = pull(broker, expression="T")
    assert (first.status, first.next_offset) == (NO_MATCH, 4)
    second = pull(broker, 4, expression="T")
    assert (texts(second), second.next_offset) == ("6", 8)


@pytest.mark.parametrize("most", [1, 3, 10, 32])
def test_a_pull_gives_at_most_what_was_asked(tagged: BrokerUnderTest, most: int) -> None:
    """And goes on right behind it, with and without a filter."""
    result = pull(tagged, max_messages=most)
    assert len(result.messages) == min(most, 10) == result.next_offset
    result = pull(tagged, max_messages=most, expression="E")
    assert len(result.messages) == min(most, 5)
    rest = pull(tagged, result.next_offset, expression="E")
    assert texts(result) + texts(rest) == "02468"


def test_a_pull_is_bounded_in_bytes_but_has_a_message(under_test: BrokerUnderTest) -> None:
    """A message larger than the limit still gets through."""
    for number in range(4):
        under_test.send(Message(TOPIC, bytes([48 + number]) * 1_000))
    assert pull(under_test, max_bytes=1).next_offset == 1
    assert pull(under_test, max_bytes=2_600).next_offset == 2
    assert pull(under_test).next_offset == 4


def test_defaults_are_rocketmqs(under_test: BrokerUnderTest) -> None:
    """32 messages, 256 KiB; zero asks for them."""
    under_test.send(*[plain("x") for _ in range(40)])
    assert len(pull(under_test, max_messages=0, max_bytes=0).messages) == 32


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_messages": -1},
        {"max_messages": 1_025},
        {"max_bytes": -1},
        {"max_bytes": 8_388_609},
        {"queue_offset": -1},
    ],
)
def test_limits_of_a_pull_are_checked(tagged: BrokerUnderTest, wrong: dict[str, int]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        pull(tagged, **wrong)


def test_who_may_not_read_is_told_why(make: Make) -> None:
    """Group, topic, permission, queue: in this order (reference §9.1)."""
    broker = make(auto_create_group=False)
    with pytest.raises(GroupUnknown):
        pull(broker)
    save_group(broker, group="readers", can_consume=False)
    with pytest.raises(PermissionMissing, match="readers"):
        pull(broker)
    save_group(broker, group="readers", can_consume=True)
    with pytest.raises(TopicUnknown):
        pull(broker)
    create_topic(broker, TOPIC, 2, perm=2)
    with pytest.raises(PermissionMissing, match=TOPIC):
        pull(broker)
    create_topic(broker, "open", 2)
    for queue_id in (-1, 2):
        with pytest.raises(QueueUnknown):
            pull(broker, topic="open", queue_id=queue_id)
    assert pull(broker, topic="open", queue_id=1).status is NOTHING_NEW


def test_a_pull_of_a_topic_that_is_not_there_makes_no_group(under_test: BrokerUnderTest) -> None:
    """Each made group is a record of the log, and a refused call stores nothing."""
    with pytest.raises(TopicUnknown):
        pull(under_test)
    assert under_test.broker.groups.all() == ()
    assert under_test.store.end == 0


@pytest.mark.parametrize(("flush", "seen"), [("SYNC_FLUSH", "a"), ("ASYNC_FLUSH", "abc")])
def test_what_is_not_on_disk_is_not_given(make: Make, flush: str, seen: str) -> None:
    """A power cut may take it back, and a commit beyond it would skip what comes next."""
    broker = make(flush_disk_type=flush)
    broker.send(plain("a"))
    done(sending(broker.broker, (plain("b"), plain("c")), queue_id=0))
    result = pull(broker)
    assert (texts(result), result.next_offset) == (seen, len(seen))
    behind = pull(broker, len(seen))
    assert (behind.status, behind.next_offset) == (NOTHING_NEW, len(seen))
    broker.sync()
    assert texts(pull(broker)) == "abc"


def test_an_unsynced_message_does_not_pass_a_filter_either(under_test: BrokerUnderTest) -> None:
    """The offset stays before it, although it would not match."""
    done(sending(under_test.broker, (plain("a", tags="X"),), queue_id=0))
    result = pull(under_test, expression="T")
    assert (result.status, result.next_offset) == (NOTHING_NEW, 0)


def test_a_sync_covers_only_what_was_written_before_it(under_test: BrokerUnderTest) -> None:
    """What is appended while it runs waits for the next one."""
    done(sending(under_test.broker, (plain("a"),), queue_id=0))
    job = under_test.store.begin_sync()
    done(sending(under_test.broker, (plain("b"),), queue_id=0))
    job.run()
    under_test.store.synced(job)
    assert texts(pull(under_test)) == "a"


@pytest.mark.parametrize(
    ("after_ms", "offset"),
    [(-(10**6), 0), (0, 0), (1, 1), (10, 1), (11, 3), (20, 3), (21, 4), (10**6, 4)],
)
def test_an_offset_is_found_by_time(
    under_test: BrokerUnderTest, after_ms: int, offset: int
) -> None:
    """The first message stored at or after it; the end when there is none."""
    started_ms = under_test.clock.now_ms()
    for batch in ("a", "bc", "d"):
        under_test.send(*[plain(body) for body in batch])
        under_test.clock.forward(10)
    query = TimeQuery(Queue(TOPIC, 0), started_ms + after_ms)
    assert under_test.broker.search_offset(query) == offset


def test_an_offset_by_time_in_an_empty_queue_is_its_begin(under_test: BrokerUnderTest) -> None:
    """And one in a topic that is not there is an error."""
    create_topic(under_test, TOPIC, 1)
    assert under_test.broker.search_offset(TimeQuery(Queue(TOPIC, 0), 0)) == 0
    with pytest.raises(TopicUnknown):
        under_test.broker.search_offset(TimeQuery(Queue("nothing", 0), 0))
    with pytest.raises(QueueUnknown):
        under_test.broker.search_offset(TimeQuery(Queue(TOPIC, 1), 0))


def test_a_topics_queues_tell_their_ranges(tagged: BrokerUnderTest) -> None:
    """Empty ones too."""
    ranges = done(tagged.broker.queue_ranges(TOPIC))
    assert [(each.min_offset, each.max_offset) for each in ranges] == [(0, 10)] + [(0, 0)] * 3
    assert ranges[0].newest_timestamp_ms == tagged.clock.now_ms()

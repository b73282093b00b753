"""What a send may ask for, and that it is all or none."""

from __future__ import annotations

import pytest

from rmqlite.features.changes.pending import Pending
from rmqlite.kernel import compiled
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.errors import (
    InvalidName,
    InvalidValue,
    MessageTooLarge,
    PermissionMissing,
    QueueUnknown,
    RmqliteError,
    StoreUnavailable,
    TopicUnknown,
)
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.limits import SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import CLUSTER, UNIQ_KEY, Message, encode_properties
from tests.support.brokers import BODY_BYTES_MAX, BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import (
    TOPIC,
    bodies,
    create_topic,
    delayed,
    level_status,
    physical_offset,
    plain,
    record,
)
from tests.support.sends import sending
from tests.support.steps import done


def refused(
    broker: BrokerUnderTest, error: type[RmqliteError], *messages: Message, queue_id: int = -1
) -> RmqliteError:
    """The send fails, and the log is as it was."""
    end = broker.store.end
    with pytest.raises(error) as caught:
        broker.send(*messages, queue_id=queue_id)
    assert broker.store.end == end
    assert caught.value.field
    assert caught.value.rule
    return caught.value


def test_a_body_of_four_mebibytes_is_taken(make: Make) -> None:
    """maxMessageSize is the last size that is allowed."""
    broker = make(mapped_file_size_commit_log=16 << 20, max_message_bytes=4 << 20)
    body = bytes(4 << 20)
    (result,) = broker.send(Message(TOPIC, body))
    assert record(broker, result).body == body
    broker.send(Message(TOPIC, body, delay_level=1))
    broker.clock.forward(1_000)
    assert broker.deliver() == 1


def test_a_body_of_one_byte_more_is_refused(make: Make) -> None:
    """With the size, the limit and its key."""
    broker = make(mapped_file_size_commit_log=16 << 20, max_message_bytes=4 << 20)
    error = refused(broker, MessageTooLarge, Message(TOPIC, bytes((4 << 20) + 1)))
    assert (error.field, error.value) == ("body", "4194305")
    assert "maxMessageSize" in error.rule


def test_an_empty_body_is_refused_with_its_reason() -> None:
    """RocketMQ's Java consumer throws at one, and loses the other messages of its pull."""
    with pytest.raises(InvalidValue) as raised:
        Message(TOPIC, b"")
    assert (raised.value.field, raised.value.value) == ("body", "")
    assert "at least 1 byte" in raised.value.rule
    assert "Java consumer" in str(raised.value)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("over", [0, 1])
def test_the_property_string_leaves_room_for_what_the_broker_adds(
    under_test: BrokerUnderTest, level: int, over: int
) -> None:
    """As it is sent, with UNIQ_KEY and DELAY: CLUSTER and the routing have room behind it."""

    def message(size: int) -> Message:
        properties = {"p": "x" * size}
        return Message(TOPIC, b"a", properties=properties, message_id="ID", delay_level=level)

    most = SENT_PROPERTIES_BYTES_MAX
    rest = len(encode_properties({"p": "", "UNIQ_KEY": "ID"} | ({"DELAY": "3"} if level else {})))
    if over:
        error = refused(under_test, MessageTooLarge, message(most + 1 - rest), queue_id=0)
        assert (error.field, error.value) == ("properties", str(most + 1))
        assert f"at most {most} bytes" in error.rule
        return
    (result,) = under_test.send(message(most - rest))
    stored = record(under_test, result).properties
    assert len(encode_properties(stored)) > most
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert under_test.messages(TOPIC)[-1].properties == stored


def test_properties_are_counted_in_bytes(under_test: BrokerUnderTest) -> None:
    """A character may be three of them."""
    refused(under_test, MessageTooLarge, plain("a", properties={"p": "€" * 11_000}))


def test_a_topic_may_have_127_bytes(under_test: BrokerUnderTest) -> None:
    """Its length is one signed byte in a record."""
    under_test.send(plain("a", topic="t" * 127), delayed("b", 1, topic="t" * 127))
    under_test.clock.forward(1_000)
    under_test.deliver()
    assert bodies(under_test, "t" * 127) == ["a", "b"]
    refused(under_test, InvalidName, plain("a", topic="t" * 128))


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "a@b", "ünder", "a\n", "../a", "a/b"])
def test_a_topic_name_has_rocketmqs_letters(under_test: BrokerUnderTest, name: str) -> None:
    """A name becomes a folder: nothing else may be in it."""
    refused(under_test, InvalidName, plain("a", topic=name))
    assert under_test.broker.topics.get(name) is None


@pytest.mark.parametrize("name", ["a", "A-b_c", "%x|y", "0"])
def test_every_allowed_letter_works(under_test: BrokerUnderTest, name: str) -> None:
    """Percent and bar included."""
    under_test.send(plain("a", topic=name))
    under_test.restart()
    assert bodies(under_test, name) == ["a"]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name",
    [
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_the_brokers_own_topics_take_no_messages(
    under_test: BrokerUnderTest, name: str, level: int
) -> None:
    """Not even after a delay."""
    assert refused(under_test, PermissionMissing, delayed("a", level, topic=name)).value == name


def test_a_topic_is_made_on_demand(make: Make) -> None:
    """With defaultTopicQueueNums queues."""
    broker = make(default_topic_queues=3)
    broker.send(plain("a"))
    info = broker.broker.topics.existing(TOPIC)
    assert (info.read_queues, info.write_queues, info.perm) == (3, 3, 6)


@pytest.mark.parametrize("level", [0, 1])
def test_a_topic_is_not_made_when_that_is_off(make: Make, level: int) -> None:
    """autoCreateTopicEnable=false: somebody else decides which topics there are."""
    broker = make(auto_create_topic=False)
    refused(broker, TopicUnknown, delayed("a", level))
    with pytest.raises(TopicUnknown):
        broker.broker.route(RouteRequest(TOPIC, create=True))
    create_topic(broker, TOPIC)
    broker.send(delayed("a", level))


def test_a_dead_letter_topic_is_not_made_by_a_send(under_test: BrokerUnderTest) -> None:
    """A typing error there would never be read."""
    refused(under_test, TopicUnknown, plain("a", topic="%DLQ%nobody"))


def test_a_retry_topic_is_made_with_its_group(make: Make) -> None:
    """Also when topics are not made on demand (reference §8.3)."""
    broker = make(auto_create_topic=False)
    broker.send(plain("a", topic="%RETRY%shop"))
    assert broker.broker.topics.existing("%RETRY%shop").write_queues == 1
    assert broker.broker.groups.existing("shop")
    refused(broker, InvalidName, plain("a", topic="%RETRY%"))


@pytest.mark.parametrize("queue_id", [4, 99, 2**31 - 1])
def test_a_queue_that_is_not_there_is_refused(under_test: BrokerUnderTest, queue_id: int) -> None:
    """With the queues that there are."""
    under_test.send(plain("a"))
    error = refused(under_test, QueueUnknown, plain("b"), queue_id=queue_id)
    assert (error.field, error.rule) == ("queue_id", "0 <= queue_id < 4")
    refused(under_test, QueueUnknown, delayed("b", 1), queue_id=queue_id)


def test_without_a_queue_the_queues_take_turns(under_test: BrokerUnderTest) -> None:
    """Call by call; the messages of one call stay together."""
    sent = [under_test.send(plain("a"), plain("b"), queue_id=-1) for _ in range(8)]
    assert all(first.queue_id == second.queue_id for first, second in sent)
    ids = [first.queue_id for first, _ in sent]
    assert sorted(ids[:4]) == sorted(ids[4:]) == [0, 1, 2, 3]


def test_a_topic_without_write_permission_is_refused(under_test: BrokerUnderTest) -> None:
    """A topic being retired is still read."""
    create_topic(under_test, "old", perm=4)
    refused(under_test, PermissionMissing, plain("a", topic="old"))


def test_an_empty_call_is_refused(under_test: BrokerUnderTest) -> None:
    """It can only be a mistake."""
    (error,) = done(under_test.broker.drafts.send([DraftCall(())]))
    assert isinstance(error, InvalidValue)
    assert error.field == "messages"


def test_a_batch_may_mix_topics_and_delays(under_test: BrokerUnderTest) -> None:
    """RocketMQ refuses both; here each message has its own way."""
    results = under_test.send(
        plain("a", "one"), delayed("b", 2, "two"), plain("c", "two"), delayed("d", 1, "one")
    )
    assert [(each.topic, each.queue_offset) for each in results] == [
        ("one", 0),
        ("two", 0),
        ("two", 0),
        ("one", 0),
    ]
    assert [each.deliver_at_ms > 0 for each in results] == [False, True, False, True]
    assert (bodies(under_test, "one"), bodies(under_test, "two")) == (["a"], ["c"])
    under_test.clock.forward(5_000)
    under_test.deliver()
    assert (bodies(under_test, "one"), bodies(under_test, "two")) == (["a", "d"], ["c", "b"])


def test_a_batch_lies_in_the_log_in_its_order(under_test: BrokerUnderTest) -> None:
    """One after the other, with one store time."""
    results = under_test.send(*[plain(str(number)) for number in range(4)])
    stored = [record(under_test, result) for result in results]
    assert [each.queue_offset for each in stored] == [0, 1, 2, 3]
    ends = [each.physical_offset + each.store_size for each in stored]
    assert [each.physical_offset for each in stored[1:]] == ends[:-1]
    assert len({each.store_timestamp_ms for each in stored}) == 1


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "wrong",
    [
        Message("no blanks", b"x"),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
        Message(TOPIC, bytes(BODY_BYTES_MAX + 1)),
        Message(TOPIC, b"x", properties={"p": "x" * 32_767}),
        Message("%DLQ%nobody", b"x"),
    ],
    ids=["name", "system", "body", "properties", "unknown"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_wrong_message_refuses_the_whole_call(
    under_test: BrokerUnderTest, wrong: Message, place: int
) -> None:
    """All or none, wherever it stands."""
    messages = [plain("a"), delayed("b", 1)]
    messages.insert(place, wrong)
    refused(under_test, RmqliteError, *messages)
    assert bodies(under_test) == []
    assert level_status(under_test, 1).pending == 0
    assert under_test.broker.status(0).sent == 0


@pytest.mark.parametrize("writes", range(3))
def test_a_full_disk_keeps_all_or_none(make: Make, writes: int) -> None:
    """The log, then a queue, then another one: wherever it fails, nothing is there."""
    disk = FaultyFiles()
    broker = make(files=disk)
    disk.take_writes(writes)
    batch = [plain("a"), delayed("b", 1), delayed("c", 2)]
    with pytest.raises(StoreUnavailable):
        broker.send(*batch)
    assert (broker.store.end, bodies(broker)) == (0, [])
    disk.heal()
    assert broker.broker.wait_queues.next_due_ms(1) is None
    results = broker.send(*batch)
    assert [each.queue_offset for each in results] == [0, 0, 0]
    broker.crash()
    broker.open()
    broker.clock.forward(5_000)
    broker.deliver()
    assert bodies(broker) == ["a", "b", "c"]


def test_a_message_without_an_id_gets_one(under_test: BrokerUnderTest) -> None:
    """The same in the answer, on the record, and on every hop."""
    first, second = under_test.send(plain("a"), plain("b"))
    assert first.message_id != second.message_id
    stored = record(under_test, first)
    assert stored.properties[UNIQ_KEY] == stored.message_id == first.message_id
    assert stored.properties[CLUSTER] == "DefaultCluster"


def test_the_birth_is_the_producers(under_test: BrokerUnderTest) -> None:
    """Its clock and its address; the broker's clock when it does not say."""
    (result,) = done(sending(under_test.broker, [plain("a")], 0, group="makers", born_at_ms=1_234))
    stored = record(under_test, result)
    assert (stored.born_timestamp_ms, stored.born_host) == (1_234, "10.0.0.1:1234")
    assert stored.store_host == "127.0.0.1:10911"
    (result,) = under_test.send(plain("b"))
    assert record(under_test, result).born_timestamp_ms == under_test.clock.now_ms()


def test_records_cross_from_file_to_file(make: Make) -> None:
    """None is torn at a file's end, plain, delayed or delivered."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=40_000)
    sent = [f"{number}" + "x" * 30_000 for number in range(9)]
    offsets = [physical_offset(broker.send(delayed(body, 1))[0]) for body in sent]
    assert offsets[-1] >= 2 << 17
    broker.clock.forward(1_000)
    assert broker.deliver() == 9
    broker.crash()
    broker.open()
    assert broker.deliver() == 0
    assert bodies(broker) == sent


def test_the_levels_in_force_when_a_send_is_stored_are_its_own(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain form makes a large send in steps; a table that changes between them counts."""
    monkeypatch.setattr(compiled, "is_on", False)
    messages = tuple([plain(str(number), delay="10s") for number in range(500)])
    steps = sending(under_test.broker, messages)
    next(steps)
    under_test.store.change_levels(parse_levels("1s 10s"))
    results = done(steps)
    now_ms = under_test.clock.now_ms()
    assert {each.deliver_at_ms for each in results} == {now_ms + 10_000}
    assert {each.level for each in done(under_test.broker[Pending].counts())} == {2}

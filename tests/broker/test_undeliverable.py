"""What cannot be delivered: a dead letter with the reason, and the level goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.features.changes.requests import ChangeOutcome
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import (
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    KEYS,
    LAST_FAILURE_TIMESTAMP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    StoredMessage,
    encode_properties,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TABLES_TOPIC, retry_topic
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
    scheduled_entry,
    send_back,
)
from tests.support.pending import (
    CANCEL,
    counts,
    deliver_all,
    everything,
    forget_topic,
    named,
    outcome,
    true_counts,
    waiting,
)
from tests.support.restarts import WAYS, Restart
from tests.support.stores import new_record

pytestmark = pytest.mark.usefixtures("each_form")

SOUND = {DELAY: "1", REAL_TOPIC: TOPIC, REAL_QID: "0", UNIQ_KEY: "x"}


def put(broker: BrokerUnderTest, properties: bytes, body: bytes = b"x", level: int = 1) -> int:
    """A record put into a level by hand, with this property string; when it is due."""
    new = new_record(body, SCHEDULE_TOPIC, level - 1, properties=properties)
    (at,) = broker.store.append([new])
    broker.broker.wait_queues.notice(level, at.queue_offset, at.due_ms)
    broker.sync()
    return at.due_ms


def dead(broker: BrokerUnderTest) -> list[StoredMessage]:
    return everything(broker, UNDELIVERABLE_TOPIC)


def lose_a_queue(broker: BrokerUnderTest, topic: str, queues: int) -> None:
    """topics.json is edited between two runs: the topic has fewer queues."""
    broker.close()
    path = broker.config.store_path / "config" / "topics.json"
    tree = json.loads(path.read_text())
    row = tree["topicConfigTable"][topic]
    row["readQueueNums"] = row["writeQueueNums"] = queues
    path.write_text(json.dumps(tree))
    broker.open()


def topic_gone(broker: BrokerUnderTest) -> str:
    create_topic(broker, "gone")
    broker.send(named("x", 1, topic="gone", tags="Tag", keys=("key",)))
    forget_topic(broker, "gone")
    return "there is no topic gone any more"


def queue_gone(broker: BrokerUnderTest) -> str:
    create_topic(broker, "gone", 4)
    broker.send(named("x", 1, topic="gone", tags="Tag", keys=("key",)), queue_id=3)
    lose_a_queue(broker, "gone", 3)
    return "topic gone has no queue 3 any more"


def too_large(broker: BrokerUnderTest) -> str:
    create_topic(broker, "gone")
    body = b"x".ljust(9_001)
    broker.send(named("x", 1, topic="gone", body=body, tags="Tag", keys=("key",)))
    broker.restart(max_message_bytes=9_000)
    return "its body of 9001 bytes is larger than maxMessageSize=9000"


def no_destination(broker: BrokerUnderTest) -> str:
    put(broker, encode_properties({DELAY: "1", UNIQ_KEY: "x", KEYS: "key", TAGS: "Tag"}))
    return "its properties do not say where it should go"


REASONS = [topic_gone, queue_gone, too_large, no_destination]
Spoil = Callable[[BrokerUnderTest], str]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("spoil", REASONS)
@pytest.mark.parametrize("restart", WAYS)
def test_it_becomes_a_dead_letter_with_the_reason_and_its_level_goes_on(
    make: Make, spoil: Spoil, restart: Restart, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ tries such a record for ever, and its level stands still."""
    broker = make()
    broker.send(named("before", 1))
    reason = spoil(broker)
    broker.send(named("behind", 1))
    broker.clock.forward(1_000)
    with caplog.at_level(logging.ERROR):
        assert broker.deliver() == 2
    assert bodies(broker) == ["before", "behind"]
    (letter,) = dead(broker)
    assert (letter.body.strip(), letter.message_id, letter.tags, letter.keys) == (
        *(b"x", "x", "Tag"),
        ("key",),
    )
    assert letter.properties[FAILURE_REASON].startswith(reason)
    (said,) = [each for each in caplog.messages if "cannot be delivered" in each]
    assert reason in said
    for _ in range(2):
        assert broker.broker.status(0).undeliverable in (0, 1)
        restart(broker)
        caplog.clear()
        assert broker.deliver() == 0
        assert len(dead(broker)) == 1
        assert not [each for each in caplog.messages if "cannot be delivered" in each]
    assert outcome(broker, CANCEL, "x") is ChangeOutcome.UNDELIVERABLE
    assert counts(broker) == true_counts(broker) == {}


def test_it_is_counted_once_and_not_as_delivered(under_test: BrokerUnderTest) -> None:
    """An operator's alarm; how late it was says nothing."""
    topic_gone(under_test)
    under_test.clock.forward(5_000)
    assert under_test.deliver() == 0
    assert under_test.deliver() == 0
    status = under_test.broker.status(0)
    assert (status.undeliverable, status.delivered) == (1, 0)
    assert level_status(under_test, 1).lateness_max_ms == 0
    assert (UNDELIVERABLE_TOPIC, 0) in under_test.heard.appended_to


def test_its_dead_letter_is_the_message_and_where_it_came_from(
    under_test: BrokerUnderTest,
) -> None:
    """What a person needs to send it again: all of it, and what was wrong."""
    reason = topic_gone(under_test)
    (one,) = waiting(under_test)
    sent = under_test.store.read_message(one.physical_offset)
    under_test.clock.forward(1_250)
    under_test.deliver()
    (letter,) = dead(under_test)
    kept = "body flag sys_flag born_timestamp_ms born_host store_host reconsume_times tags keys"
    for name in kept.split():
        assert getattr(letter, name) == getattr(sent, name), name
    added = {
        DLQ_ORIGIN_TOPIC: "gone",
        DLQ_ORIGIN_MESSAGE_ID: sent.offset_message_id,
        LAST_FAILURE_TIMESTAMP: str(under_test.clock.now_ms()),
        DELIVERY_ATTEMPTS: "0",
        FAILURE_REASON: reason,
    }
    assert letter.properties == dict(sent.properties) | added
    assert letter.prepared_transaction_offset == one.physical_offset + one.store_size


def test_a_retry_that_cannot_be_delivered_names_the_topic_of_its_message(
    under_test: BrokerUnderTest,
) -> None:
    """Its origin, and how often it has failed, are still those of the message."""
    message = received(under_test, message_id="x")
    send_back(under_test, message, reason="no stock")
    forget_topic(under_test, retry_topic(GROUP))
    deliver_all(under_test)
    (letter,) = dead(under_test)
    assert letter.reconsume_times == 1
    assert letter.properties[DLQ_ORIGIN_TOPIC] == TOPIC
    assert letter.properties[DLQ_ORIGIN_MESSAGE_ID] == message.offset_message_id
    assert letter.properties[DELIVERY_ATTEMPTS] == "1"
    assert retry_topic(GROUP) in letter.properties[FAILURE_REASON]


def test_a_topic_that_is_back_in_time_gets_its_message(under_test: BrokerUnderTest) -> None:
    """What counts is how things are when it is due."""
    topic_gone(under_test)
    create_topic(under_test, "gone")
    deliver_all(under_test)
    assert bodies(under_test, "gone") == ["x"]
    assert dead(under_test) == []


def test_a_body_just_as_long_as_the_lowered_limit_is_delivered(make: Make) -> None:
    """The limit itself is allowed, as in a send."""
    broker = make(max_message_bytes=10_000)
    broker.send(named("x", 1, body=bytes(9_000)))
    broker.restart(max_message_bytes=9_000)
    broker.clock.forward(1_000)
    assert broker.deliver() == 1


DAMAGED = [
    b"",
    b"\x01",
    b"\x02\x02\x01\x01",
    b"\xff\xfe\x80",
    bytes(range(256)),
    encode_properties({**SOUND, REAL_QID: "-1"}),
    encode_properties({**SOUND, REAL_QID: "0x0"}),
    encode_properties({**SOUND, REAL_QID: "99999999999999999999"}),
    encode_properties({**SOUND, REAL_QID: "9" * 5_000}),
    encode_properties({**SOUND, DELAY: "1" * 5_000}),
    encode_properties({**SOUND, REAL_QID: "4"}),
    encode_properties({**SOUND, REAL_QID: "\u0660"}),
    encode_properties({**SOUND, REAL_TOPIC: "order\u00e4"}),
    encode_properties({**SOUND, REAL_TOPIC: ".."}),
    encode_properties({**SOUND, REAL_TOPIC: SCHEDULE_TOPIC}),
    encode_properties({**SOUND, REAL_TOPIC: "t" * 300}),
    encode_properties({**SOUND, DELAY: "5"}),
    encode_properties({**SOUND, DELAY: "one"}),
    encode_properties({**SOUND, DELAY: ""}),
    encode_properties({name: each for name, each in SOUND.items() if name != DELAY}),
    encode_properties(SOUND).replace(b"REAL_TOPIC", b"REAL_TQPIC"),
    encode_properties(SOUND).replace(TOPIC.encode(), b"\xc3\x28"),
    encode_properties(SOUND).replace(b"\x02", b"\x03"),
    encode_properties(SOUND).replace(b"\x01", b"\x00"),
    encode_properties({"full": "f" * 32_700}),
    b"junk\x01" + b"\xff" * 32_700,
    encode_properties({FAILURE_REASON: "r" * 32_600, DELAY: "1"}),
]


@pytest.mark.parametrize("restart", WAYS)
def test_damaged_properties_of_any_kind_block_nobody(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """Dead letters with the same bodies, once, also after a restart."""
    under_test.send(named("before", 1))
    astray = [b"astray %d" % number for number in range(len(DAMAGED))]
    for properties, body in zip(DAMAGED, astray, strict=True):
        put(under_test, properties, body)
    under_test.send(named("behind", 1))
    assert counts(under_test) == true_counts(under_test)
    under_test.clock.forward(1_000)
    under_test.deliver()
    for _ in range(2):
        assert [each.body for each in dead(under_test)] == astray
        assert bodies(under_test) == ["before", "behind"]
        assert counts(under_test) == true_counts(under_test) == {}
        restart(under_test)
        assert under_test.deliver() == 0
        assert under_test.broker.status(0).undeliverable == 0


@pytest.mark.parametrize("flip", range(0, 8))
def test_every_flipped_byte_of_its_properties_is_delivered_or_a_dead_letter(
    under_test: BrokerUnderTest, flip: int
) -> None:
    """One bit, anywhere: the level comes to its end, and every body is somewhere, once."""
    under_test.send(named("first", 1))
    create_topic(under_test, "orderr")
    sound = encode_properties(SOUND)
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << flip
        put(under_test, bytes(damaged), f"{at}".encode())
    under_test.clock.forward(1_000)
    under_test.deliver()
    under_test.crash()
    under_test.open()
    assert under_test.deliver() == 0
    assert counts(under_test) == true_counts(under_test) == {}
    own = {SCHEDULE_TOPIC, TABLES_TOPIC}
    topics = {topic for topic, _ in under_test.store.queue_keys()} - own
    found = [each.body for topic in topics for each in everything(under_test, topic)]
    assert sorted(found) == sorted([b"first", *(f"{at}".encode() for at in range(len(sound)))])


def test_a_record_that_nobody_can_read_blocks_nobody(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes are damaged while the broker runs: a dead letter says where it lay."""
    under_test.send(named("before", 1), named("x", 1), named("behind", 1))
    entry = scheduled_entry(under_test, 1, 1)
    path = under_test.config.store_path / "commitlog" / f"{0:020d}"
    sound = path.read_bytes()
    spoil(path, entry.physical_offset + 4)
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 2
    spoil(path, entry.physical_offset + 4, sound[entry.physical_offset + 4])
    assert bodies(under_test) == ["before", "behind"]
    (letter,) = dead(under_test)
    # The reason is the body, too: RocketMQ's Java consumer would fail at an empty one.
    assert letter.body == b"the log has no sound record there"
    assert letter.properties[FAILURE_REASON] == "the log has no sound record there"
    assert int(letter.properties[DLQ_ORIGIN_MESSAGE_ID][-16:], 16) == entry.physical_offset
    assert len([each for each in caplog.messages if "cannot be delivered" in each]) == 1
    under_test.crash()
    under_test.open()
    assert under_test.deliver() == 0
    assert counts(under_test) == true_counts(under_test) == {}


def spoil(path: Path, position: int, byte: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([byte]))


@pytest.mark.parametrize("writes", range(6))
def test_on_a_full_disk_a_dead_letter_waits_like_a_delivery(make: Make, writes: int) -> None:
    """Nothing twice, nothing lost, wherever the room ends."""
    disk = FaultyFiles()
    broker = make(files=disk)
    broker.send(named("before", 1))
    topic_gone(broker)
    broker.send(named("behind", 1))
    broker.clock.forward(1_000)
    disk.take_writes(writes)
    try:
        broker.deliver_slice()
    except StoreUnavailable:
        assert broker.broker.status(0).undeliverable == 0
        assert len(waiting(broker)) == 3
    disk.heal()
    broker.deliver()
    broker.crash()
    broker.open()
    assert broker.deliver() == 0
    assert (bodies(broker), len(dead(broker))) == (["before", "behind"], 1)

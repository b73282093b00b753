"""Messages for a broker under test: made, sent, sent back, and read again."""

from __future__ import annotations

from typing import Any

from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.requests.broker import LevelStatus
from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.requests.messages import SendBackRequest, SendBackResult
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.protocols.native.bytes.messages import SendResult
from tests.support.brokers import BrokerUnderTest

TOPIC = "orders"
GROUP = "shop"


def delayed(body: str, level: int, topic: str = TOPIC) -> Message:
    return Message(topic, body.encode(), delay_level=level)


def plain(body: str, topic: str = TOPIC, **more: Any) -> Message:
    return Message(topic, body.encode(), **more)


def bodies(broker: BrokerUnderTest, topic: str = TOPIC, queue_id: int = 0) -> list[str]:
    """What a queue holds, in order."""
    if broker.broker.topics.get(topic) is None:
        return []
    return [message.body.decode() for message in broker.messages(topic, queue_id)]


def arrival_times(broker: BrokerUnderTest, count: int) -> dict[str, int]:
    """When each body arrives, stepping from due time to due time; never a moment earlier."""
    arrived: dict[str, int] = {}
    while len(arrived) < count:
        due = [each.next_due_ms for each in broker.broker.wait_queues.status() if each.pending]
        assert due, f"nothing is left, only {arrived} arrived"
        broker.clock.forward(max(0, min(due) - 1 - broker.clock.now_ms()))
        assert broker.deliver() == 0
        broker.clock.forward(1)
        broker.deliver()
        for body in bodies(broker):
            arrived.setdefault(body, broker.clock.now_ms())
    assert len(bodies(broker)) == count
    return arrived


def physical_offset(result: SendResult) -> int:
    return int(result.offset_message_id[-16:], 16)


def record(broker: BrokerUnderTest, result: SendResult) -> StoredMessage:
    """The record that a send wrote."""
    return broker.store.read_message(physical_offset(result))


def scheduled_entry(broker: BrokerUnderTest, level: int, queue_offset: int = 0) -> Entry:
    queue = broker.store.queue(SCHEDULE_TOPIC, level - 1)
    assert queue is not None
    entry = queue.entry(queue_offset)
    assert entry is not None
    return entry


def level_status(broker: BrokerUnderTest, level: int) -> LevelStatus:
    (status,) = [each for each in broker.broker.status(0).levels if each.level == level]
    return status


def table(broker: BrokerUnderTest) -> LevelTable:
    return broker.store.levels.current


def received(broker: BrokerUnderTest, **message: Any) -> StoredMessage:
    """A plain message, sent and pulled."""
    (result,) = broker.send(Message(**{"topic": TOPIC, "body": b"order", **message}))
    return broker.pull(result.topic, result.queue_id, result.queue_offset).messages[0]


def send_back(
    broker: BrokerUnderTest, message: StoredMessage, *, group: str = GROUP, **how: Any
) -> SendBackResult:
    result = broker.broker.send_back(SendBackRequest(group, message.physical_offset, **how))
    broker.sync()
    return result


def save_group(broker: BrokerUnderTest, **settings: Any) -> None:
    broker.broker.groups.change(GroupChange(**{"group": GROUP, **settings}))


def create_topic(broker: BrokerUnderTest, topic: str, queues: int = 4, perm: int = 6) -> None:
    broker.broker.topics.create(TopicInfo(topic, queues, queues, perm))

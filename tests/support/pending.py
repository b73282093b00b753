"""Pending messages of a broker under test: listed, counted, changed and delivered."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TypeVar

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    ChangeOutcome,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
)
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.message import Message, StoredMessage, encode_properties
from rmqlite.kernel.words.property_string import PropertyString
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC
from tests.support.steps import done

CANCEL, FIRE, RESCHEDULE, BURY = ScheduleAction
ACTIONS = (CANCEL, FIRE, RESCHEDULE)
"""What may be done with any message that waits; only a retry can be buried."""
ALL = PendingFilter()
T = TypeVar("T")


def named(message_id: str, level: int, **more: Any) -> Message:
    """A delayed message whose body is its id."""
    return Message(
        **{"topic": TOPIC, "body": message_id.encode(), "message_id": message_id, **more},
        delay_level=level,
    )


def timed(message_id: str, due_ms: int, **more: Any) -> Message:
    """A message for an instant whose body is its id."""
    return named(message_id, 0, deliver_at=due_ms, **more)


def by_ids(
    broker: BrokerUnderTest, action: ScheduleAction, *message_ids: str, **more: Any
) -> tuple[ChangedId, ...]:
    changed = done(broker.broker[Changes].by_ids(ChangeByIds(action, message_ids, **more)))
    broker.sync()
    return changed


def outcome(
    broker: BrokerUnderTest, action: ScheduleAction, message_id: str, **more: Any
) -> ChangeOutcome:
    """Of one id."""
    (changed,) = by_ids(broker, action, message_id, **more)
    assert changed.message_id == message_id
    assert (changed.count > 0) == (changed.outcome is ChangeOutcome.DONE)
    return changed.outcome


def filter_page(
    broker: BrokerUnderTest, action: ScheduleAction, wanted: PendingFilter = ALL, **more: Any
) -> ChangedPage:
    page = done(broker.broker[Changes].by_filter(ChangeByFilter(action, wanted, **more)))
    broker.sync()
    return page


def by_filter(
    broker: BrokerUnderTest, action: ScheduleAction, wanted: PendingFilter = ALL, **more: Any
) -> int:
    """How many were changed, over all calls that it takes."""
    count, cursor = 0, ""
    while True:
        page = filter_page(broker, action, wanted, cursor=cursor, **more)
        count, cursor = count + page.changed, page.cursor
        if not cursor:
            return count


def pages(
    broker: BrokerUnderTest, wanted: PendingFilter = ALL, max_messages: int = 0
) -> list[PendingPage]:
    found = [done(broker.broker[Pending].pages(PendingQuery(wanted, "", max_messages)))]
    while found[-1].cursor:
        query = PendingQuery(wanted, found[-1].cursor, max_messages)
        found.append(done(broker.broker[Pending].pages(query)))
    return found


def waiting(
    broker: BrokerUnderTest, wanted: PendingFilter = ALL, max_messages: int = 0
) -> list[PendingMessage]:
    """All that waits, as it is listed."""
    return [each for page in pages(broker, wanted, max_messages) for each in page.messages]


def waiting_ids(broker: BrokerUnderTest, wanted: PendingFilter = ALL) -> list[str]:
    return [each.message_id for each in waiting(broker, wanted)]


def true_counts(broker: BrokerUnderTest) -> dict[tuple[int, str], int]:
    """What is pending by level and topic, from the records themselves."""
    counts = Counter[tuple[int, str]]()
    for topic, queue_id in broker.store.queue_keys():
        queue = broker.store.queue(topic, queue_id)
        wait_queue = wait_queue_of(topic, queue_id)
        if not wait_queue or queue is None:
            continue
        completed = broker.store.progress.of(wait_queue)
        for at, entry in enumerate(queue.read(queue.min_offset, 1 << 30), queue.min_offset):
            if completed.next_open(at) == at:
                message = broker.store.read_message(entry.physical_offset, entry.size)
                properties = encode_properties(message.properties)
                counts[wait_queue, topic_ahead(PropertyString(properties))] += 1
    return dict(counts)


def counts(broker: BrokerUnderTest) -> dict[tuple[int, str], int]:
    """What is pending by level and topic, as the broker says."""
    return {
        (each.level, each.topic): each.pending for each in done(broker.broker[Pending].counts())
    }


def everything(broker: BrokerUnderTest, topic: str) -> list[StoredMessage]:
    """All messages of a topic, whichever queue they lie in."""
    info = broker.broker.topics.get(topic)
    if info is None:
        return []
    queues = range(max(info.read_queues, info.write_queues))
    return [message for queue_id in queues for message in broker.messages(topic, queue_id)]


def forward_to(broker: BrokerUnderTest, now_ms: int) -> None:
    broker.clock.forward(max(0, now_ms - broker.clock.now_ms()))


def deliver_all(broker: BrokerUnderTest) -> None:
    """Until nothing waits."""
    while (due_ms := broker.next_due_ms()) is not None:
        forward_to(broker, due_ms)
        broker.deliver()


def forget_topic(broker: BrokerUnderTest, topic: str) -> int:
    """Edit topics.json between two runs, as an operator does; where the log ends."""
    broker.close()
    path = broker.config.store_path / "config" / "topics.json"
    tree = json.loads(path.read_text())
    del tree["topicConfigTable"][topic]
    path.write_text(json.dumps(tree))
    broker.open()
    return broker.store.end

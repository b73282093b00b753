"""Dead letters and redrive jobs in few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    DeadLetterOutcome,
    OutcomesQuery,
    RedriveJob,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.message import (
    REAL_TOPIC,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    Message,
    StoredMessage,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, dlq_topic, is_dlq
from tests.support.brokers import BrokerUnderTest
from tests.support.steps import done

GROUP = "shop"
DLQ = dlq_topic(GROUP)
T = TypeVar("T")


def bury(
    broker: BrokerUnderTest, *messages: Message, group: str = GROUP, reason: str = "boom"
) -> None:
    """Send messages whose first failure makes them dead letters."""
    for result in broker.send(*messages):
        broker.broker.send_back(
            SendBackRequest(group, result.physical_offset, delay_level=-1, reason=reason)
        )
    broker.sync()


def bury_many(broker: BrokerUnderTest, count: int, topic: str = "orders") -> None:
    """Letters with the bodies 0, 1, 2 …"""
    bury(broker, *[Message(topic, b"%d" % n) for n in range(count)])


def start(broker: BrokerUnderTest, job_id: str = "", **spec: Any) -> RedriveJob:
    job = broker.broker[Redrive].start(RedriveRequest(RedriveSpec(GROUP, **spec), job_id))
    broker.sync()
    return job


def run(broker: BrokerUnderTest, job_id: str, sent_max: int = 200) -> RedriveJob:
    """Let a job take all its steps."""
    redrive = broker.broker[Redrive]
    while job_id in {job.job_id for job in redrive.running()}:
        redrive.step(job_id, sent_max)
        broker.sync()
    return redrive.get(job_id)


def redrive(broker: BrokerUnderTest, **spec: Any) -> RedriveJob:
    """A job from start to end."""
    return run(broker, start(broker, **spec).job_id)


def outcomes(broker: BrokerUnderTest, job_id: str, **query: Any) -> list[DeadLetterOutcome]:
    """All of them, page by page."""
    found: list[DeadLetterOutcome] = []
    cursor = ""
    while True:
        page = done(broker.broker[Redrive].outcomes(OutcomesQuery(job_id, cursor=cursor, **query)))
        found += page.letters
        cursor = page.cursor
        if not cursor:
            return found


def redriven_messages(broker: BrokerUnderTest) -> Iterator[StoredMessage]:
    """Every message in the log that a redrive has sent, at once or with a delay."""
    for walked in broker.store.walk(broker.store.min_offset):
        message = broker.store.read_message(walked.head.physical_offset)
        is_first = message.topic == SCHEDULE_TOPIC or not message.prepared_transaction_offset
        has_failed = message.reconsume_times or is_dlq(message.topic)
        if REDRIVEN_BY in message.properties and is_first and not has_failed:
            yield message


def sent_by_job(broker: BrokerUnderTest) -> dict[str, Counter[str]]:
    """By job how often it has sent each letter, by the letter's place; as the log has it."""
    found: dict[str, Counter[str]] = {}
    for message in redriven_messages(broker):
        places = found.setdefault(message.properties[REDRIVEN_BY], Counter())
        places[message.properties[REDRIVEN_FROM]] += 1
    return found


def topic_of(message: StoredMessage) -> str:
    return message.properties.get(REAL_TOPIC, message.topic)

"""Transactions of a broker under test: half messages, their ends, and rounds of checks."""

from __future__ import annotations

from collections.abc import Collection

from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.record import Written
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.words.message import encode_properties
from rmqlite.kernel.words.names import HALF_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.sends import BORN_HOST
from tests.support.steps import done

GROUP = "payers"
TOPIC = "orders"


def half_draft(body: str, *, queue_id: int = 0, **properties: str) -> Draft:
    """A half message as RocketMQ's clients send it; the message id is the body."""
    own = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body, **properties}
    encoded = encode_properties({name: value for name, value in own.items() if value})
    return Draft(TOPIC, queue_id, encoded, body.encode(), 17, BORN_HOST, flag=5, sys_flag=0x304)


def send_half(
    broker: BrokerUnderTest, body: str, *, queue_id: int = 0, **properties: str
) -> Written:
    draft = half_draft(body, queue_id=queue_id, **properties)
    (outcome,) = done(broker.broker.drafts.send([DraftCall((draft,))]))
    if isinstance(outcome, Exception):
        raise outcome
    head = broker.store.read_record(outcome.physical_offsets[0]).head
    place = (head.queue_offset, head.physical_offset, head.size, head.store_timestamp_ms)
    return Written(*place, due_ms=0)


def end(
    broker: BrokerUnderTest,
    at: Written | TransactionQuestion,
    *,
    is_commit: bool = True,
    group: str = GROUP,
) -> bool:
    """A producer commits a half message, or rolls it back."""
    request = TransactionEnd(group, at.queue_offset, at.physical_offset, is_commit)
    return broker.broker[Transactions].end(request)


def checked(
    broker: BrokerUnderTest, producers: Collection[str] = (GROUP,)
) -> list[TransactionQuestion]:
    """One round; the producers that are there."""
    transactions = broker.broker[Transactions]
    questions: list[TransactionQuestion] = []
    rest = transactions.begin_round()
    while rest is not None:
        step = transactions.check(rest, producers.__contains__)
        questions += step.questions
        rest = step.rest
    return questions


def records(broker: BrokerUnderTest, topic: str, queue_id: int = 0) -> list[Record]:
    """Everything in a queue."""
    queue = broker.store.queue(topic, queue_id)
    entries = queue.read(queue.min_offset, 10_000) if queue else []
    return [found for found in broker.store.read_records(entries) if found is not None]


def bodies(broker: BrokerUnderTest, topic: str = TOPIC, queue_id: int = 0) -> list[str]:
    return [found.body.decode() for found in records(broker, topic, queue_id)]


def open_halves(broker: BrokerUnderTest) -> int:
    assert broker.broker[Transactions].halves.count <= len(bodies(broker, HALF_TOPIC))
    return broker.broker[Transactions].halves.count

"""Bulk calls in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkAnswer, BulkRequest
from tests.support.brokers import BrokerUnderTest
from tests.support.sends import BORN_HOST
from tests.support.steps import done

TOPIC = "orders"


def request(ids: Sequence[str], **columns: Any) -> BulkRequest:
    """Messages whose bodies are their ids, to one topic, unless columns say something else."""
    values: dict[str, Any] = {"topics": (TOPIC,) if ids else (), "job_id": "import"} | columns
    bodies = tuple([each.encode() for each in ids])
    return BulkRequest(**{"bodies": bodies, "message_ids": tuple(ids)} | values)


def schedule(broker: BrokerUnderTest, ids: Sequence[str], **columns: Any) -> BulkAnswer:
    """One call, on disk when it is answered."""
    answer = done(broker.broker[Bulk].schedule(request(ids, **columns), BORN_HOST))
    broker.sync()
    return answer


def outcomes(answer: BulkAnswer, count: int) -> str:
    """One letter for each message: accepted, duplicate or refused."""
    letters = ["a"] * count
    for position in answer.duplicates:
        letters[position] = "d"
    for each in answer.refused:
        letters[each.position] = "r"
    assert letters.count("a") == answer.accepted
    return "".join(letters)

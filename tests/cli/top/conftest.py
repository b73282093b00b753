"""A fake broker with a group that fails: it answers whatever top asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.dead_letters.requests import (
    DeadLetterPage,
    DeadLettersQuery,
    EventKind,
    History,
    HistoryEvent,
    HistoryQuery,
)
from rmqlite.features.finding.requests import FoundMessage, MessageState
from rmqlite.features.operating.requests import GroupStatus
from rmqlite.features.redrive.requests import JobState, RedriveJob, RedriveRequest
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.kernel.words.message import StoredMessage
from tests.support.broker_answers import HOSTILE, NOW_MS, STATUS, dead, group, letter, waiting
from tests.support.fake_broker import FakeBroker

DEAD_LETTERS = 100_000
GROUPS = {"workers": group("workers", lag=12, due=3), "mails": group("mails")}


def describe(name: str) -> GroupStatus:
    if name not in GROUPS:
        raise GroupUnknown(name)
    return GROUPS[name]


def page_of_dead(query: DeadLettersQuery) -> DeadLetterPage:
    """Any number of letters, made when they are asked for; a reason may be looked for."""
    start = int(query.cursor or "0")
    count = query.max_letters
    if query.filter.reason not in ("", "nowhere"):
        return DeadLetterPage((letter(7, reason=HOSTILE),), "", DEAD_LETTERS)
    if query.filter.reason:
        end = start + 10_000
        return DeadLetterPage((), str(end) if end < DEAD_LETTERS else "", 10_000)
    letters = [
        letter(n, reason=HOSTILE if n % 2 else "timeout") for n in range(start, start + count)
    ]
    end = start + count
    return DeadLetterPage(tuple(letters), str(end) if end < DEAD_LETTERS else "", count)


def page_of_retries(query: DeadLettersQuery) -> DeadLetterPage:
    del query
    waits = letter(3, topic="%RETRY%workers", delivery_attempts=2, due_ms=NOW_MS + 30_000)
    return DeadLetterPage((replace(waits, queue_offset=1, due_ms=NOW_MS - 5), waits))


def life(query: HistoryQuery) -> History:
    def hop(kind: EventKind, at_ms: int, topic: str, **fields: Any) -> HistoryEvent:
        made = HistoryEvent(kind, at_ms, topic, 0, 5, 0, f"OFFSET{kind.name}", query.message_id)
        return replace(made, **fields)

    return History(
        query.message_id,
        (
            hop(EventKind.SENT, NOW_MS - 60_000, "orders"),
            hop(EventKind.FAILED, NOW_MS - 59_000, "orders", group="workers", attempt=1, level=3,
                due_ms=NOW_MS - 49_000, reason=HOSTILE),
            hop(EventKind.DEAD, NOW_MS - 1_000, "%DLQ%workers", group="workers", attempt=17),
        ),
    )  # fmt: skip


def message(offset_message_id: str) -> FoundMessage:
    stored = StoredMessage(
        topic="%DLQ%workers",
        queue_id=0,
        queue_offset=5,
        physical_offset=1_000,
        store_size=300,
        body=b'{"id": 7, "text": "\\u001b[31m"}',
        properties={"UNIQ_KEY": "ID0", "asked for": offset_message_id, "evil": HOSTILE},
        flag=0,
        sys_flag=0,
        born_timestamp_ms=NOW_MS,
        born_host="127.0.0.1:1",
        store_timestamp_ms=NOW_MS,
        store_host="127.0.0.1:10911",
        reconsume_times=16,
        prepared_transaction_offset=0,
    )
    return FoundMessage(stored, MessageState.DEAD)


def start_redrive(request: RedriveRequest) -> RedriveJob:
    return RedriveJob("job-1", request.spec, JobState.RUNNING, 1)


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """100,000 dead letters, some retries, and a redrive."""
    broker.answers |= {
        "GetBrokerStatus": lambda _: STATUS,
        "ListGroups": lambda _: tuple([each.info for each in GROUPS.values()]),
        "DescribeGroup": describe,
        "CountPending": lambda _: (waiting("workers", 5),),
        "ListDeadLetterGroups": lambda _: (dead("workers", DEAD_LETTERS),),
        "ListRedriveJobs": lambda _: (),
        "ListDeadLetters": page_of_dead,
        "ListRetries": page_of_retries,
        "GetLife": life,
        "GetMessage": message,
        "StartRedrive": start_redrive,
    }
    return broker

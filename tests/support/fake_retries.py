"""Retries that a fake broker has, and lives of messages, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rmqlite.features.changes.requests import PendingCount
from rmqlite.features.dead_letters.requests import (
    DeadLetter,
    DeadLetterPage,
    EventKind,
    History,
    HistoryEvent,
)
from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.kernel.requests.groups import GroupInfo, MemberInfo
from rmqlite.kernel.requests.topics import Queue
from tests.support.fake_broker import FakeBroker
from tests.support.fake_schedule import NOW_MS, has_schedule, waiting

SECOND: Final = 1_000
MEMBER: Final = MemberInfo("10.0.0.1@77", (), NOW_MS)
ID: Final = "C0000202140D5E18BA61678330EF7E45"
RETRY: Final = "%RETRY%billing"


def retry(number: int, due_in_ms: int, **fields: Any) -> DeadLetter:
    """The number-th retry of billing."""
    plain = DeadLetter(
        group="billing",
        topic=RETRY,
        queue_id=0,
        queue_offset=number,
        physical_offset=number * 1_000,
        store_size=400,
        body_size=17,
        message_id=f"{number:032X}",
        origin_topic="orders",
        origin_message_id="",
        origin_queue_id=2,
        origin_queue_offset=number,
        tags="paid",
        keys=(f"order-{number}",),
        delivery_attempts=2,
        first_failure_ms=NOW_MS - 60_000,
        last_failure_ms=NOW_MS - 10_000,
        reason="card declined",
        born_timestamp_ms=NOW_MS - 61_000,
        store_timestamp_ms=NOW_MS - 10_000,
        store_host="10.0.0.2:10911",
        due_ms=NOW_MS + due_in_ms,
    )
    return replace(plain, **fields)


def has_retries(
    broker: FakeBroker,
    *pages: Sequence[DeadLetter],
    members: Sequence[MemberInfo] = (MEMBER,),
    can_consume: bool = True,
) -> None:
    """The broker's billing has these, page by page; what is not due waits in its schedule."""

    def answer(query: Any) -> DeadLetterPage:
        number = int(query.cursor.removeprefix("C") or 0)
        cursor = f"C{number + 1}" if number + 1 < len(pages) else ""
        return DeadLetterPage(tuple(pages[number]), cursor, len(pages[number]))

    every = [each for page in pages for each in page]
    waits = [each for each in every if each.due_ms > NOW_MS]
    due = len(every) - len(waits)
    info = GroupInfo("billing", 16, 1, can_consume)
    has_schedule(broker, [waiting(0, topic=RETRY, deliver_at_ms=e.due_ms) for e in waits[:1]])

    progress = QueueProgress(Queue(RETRY, 0), 3, 3 + due, None, "")
    broker.answers |= {
        "ListRetries": answer,
        "DescribeGroup": lambda _: GroupStatus(info, tuple(members), (progress,)),
        "CountPending": lambda _: (
            PendingCount(3, RETRY, len(waits)),
            PendingCount(3, "orders", 1_000_000),
        ),
    }


class Record:
    """Hops one after the other, each so many milliseconds after the one before."""

    def __init__(self, message_id: str = ID) -> None:
        self.message_id = message_id
        self.at_ms = NOW_MS
        self.events: list[HistoryEvent] = []

    def __call__(self, kind: EventKind, after_ms: int, topic: str, **fields: Any) -> Record:
        self.at_ms += after_ms
        number = len(self.events)
        if "due_in_ms" in fields:
            fields["due_ms"] = self.at_ms + fields.pop("due_in_ms")
        place = {"queue_id": 0, "queue_offset": number, "physical_offset": number * 1_000}
        named = {"offset_message_id": f"{number:032x}", "message_id": self.message_id}
        self.events.append(
            HistoryEvent(kind=kind, at_ms=self.at_ms, topic=topic, **{**place, **named, **fields})
        )
        return self

    def failed(self, attempt: int, due_in_ms: int, reason: str = "", **fields: Any) -> Record:
        """billing fails it after 5 ms; the retry is at level 2 + attempt."""
        return self(
            *(EventKind.FAILED, 5, "SCHEDULE_TOPIC_XXXX"),
            group="billing",
            attempt=attempt,
            level=2 + attempt,
            due_in_ms=due_in_ms,
            reason=reason,
            **fields,
        )

    def retried(self, after_ms: int, attempt: int, **fields: Any) -> Record:
        return self(EventKind.RETRIED, after_ms, RETRY, group="billing", attempt=attempt, **fields)

    @property
    def life(self) -> History:
        return History(ID, tuple(self.events))


def has_life(broker: FakeBroker, record: Record, now_ms: int = 0) -> None:
    """The broker tells this life, a second after its last hop."""
    has_retries(broker, [])
    plain = broker.answers["GetBrokerStatus"]
    broker.answers["GetBrokerStatus"] = lambda request: replace(
        plain(request), now_ms=now_ms or record.at_ms + SECOND
    )
    broker.answers["GetLife"] = lambda _: record.life

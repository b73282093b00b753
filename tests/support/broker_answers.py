"""Values for the tests of top: a broker's answers, and the rounds that bring them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rmqlite.cli.status import Picture, StatusCalls, StatusRound
from rmqlite.features.changes.requests import PendingCount
from rmqlite.features.dead_letters.requests import DeadLetter, DeadLetterGroup, ReasonCount
from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.requests.groups import GroupInfo, MemberInfo, Subscription
from rmqlite.kernel.requests.topics import Queue

NOW_MS = 1_700_000_100_000
HOSTILE = "\x1b[31mred\x1b[0m [bold]b[/bold] \u202egnp.exe\x07"

STATUS = BrokerStatus(
    version="0.6.0",
    broker_name="broker-a",
    now_ms=NOW_MS,
    started_at_ms=NOW_MS - 100_000,
    log_min_offset=0,
    log_max_offset=4_096,
    sent=1_000,
    delivered=900,
    retried=17,
    dead=1,
    parked_polls=3,
    disk_used_ratio=0.42,
    levels=(
        LevelStatus(1, "1s", 99_100, NOW_MS + 60_000, 900, 1, 3, 9),
        LevelStatus(2, "5s", 0, 0, 0, 0, 0, 0),
    ),
)


def group(name: str, *, lag: int = 0, due: int = 0, members: int = 1) -> GroupStatus:
    """A group that reads the topic orders."""
    member = MemberInfo("10.0.0.1@77", (Subscription("orders", "A || B"),), NOW_MS - 5_000)
    return GroupStatus(
        GroupInfo(name),
        (member,) * members,
        (
            QueueProgress(Queue(f"%RETRY%{name}", 0), 0, due, 0, "10.0.0.1@77"),
            QueueProgress(Queue("orders", 0), 0, 1_000 + lag, 1_000, "10.0.0.1@77"),
        ),
    )


def waiting(name: str, count: int) -> PendingCount:
    return PendingCount(3, f"%RETRY%{name}", count)


def dead(name: str, letters: int, *, redriven: int = 0, purged: int = 0) -> DeadLetterGroup:
    reasons = (ReasonCount(f"timeout {HOSTILE}", letters),) if letters else ()
    return DeadLetterGroup(name, letters, redriven, purged, NOW_MS, NOW_MS, reasons, letters)


def letter(number: int, **fields: Any) -> DeadLetter:
    """A dead letter of the group workers."""
    made = DeadLetter(
        group="workers",
        topic="%DLQ%workers",
        queue_id=0,
        queue_offset=number,
        physical_offset=1_000 * number,
        store_size=200,
        body_size=20,
        message_id=f"ID{number}",
        origin_topic="orders",
        origin_message_id="",
        origin_queue_id=1,
        origin_queue_offset=number,
        tags="A",
        keys=(f"order-{number}",),
        delivery_attempts=17,
        first_failure_ms=NOW_MS - 60_000,
        last_failure_ms=NOW_MS - 1_000,
        reason="connection refused",
        born_timestamp_ms=NOW_MS - 61_000,
        store_timestamp_ms=NOW_MS - 1_000,
        store_host="127.0.0.1:10911",
    )
    return replace(made, **fields)


def status(after_ms: int = 0, **fields: Any) -> BrokerStatus:
    """The status so much later."""
    return replace(STATUS, now_ms=NOW_MS + after_ms, **fields)


def told(at_s: float, answer: Any = STATUS, **parts: Any) -> StatusRound:
    """A round that was asked and answered at once; parts: by their names in lower case."""
    described = parts.pop("described", ())
    answers = {StatusCalls[name.upper()]: part for name, part in parts.items()}
    return StatusRound(at_s, at_s, answer, answers, described)


def seen(answer: Any = STATUS, **parts: Any) -> Picture:
    """A picture with one answer."""
    picture = Picture()
    picture.take(told(1.0, answer, **parts))
    return picture

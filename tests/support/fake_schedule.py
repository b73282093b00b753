"""A schedule that a fake broker has: what waits, in pages, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from rmqlite.kernel.requests.broker import LevelsInForce
from tests.support.fake_broker import STATUS, FakeBroker

NOW_MS = STATUS.now_ms
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e"


def waiting(number: int, **fields: Any) -> PendingMessage:
    """The number-th message of level 5, due so many seconds from now."""
    due_ms = NOW_MS + number * 1_000
    plain: dict[str, Any] = {
        "level": 5,
        "queue_offset": number,
        "deliver_at_ms": due_ms,
        "topic": "orders",
        "queue_id": 2,
        "message_id": f"{number:032X}",
        "tags": "",
        "keys": (f"order-{number}",),
        "born_timestamp_ms": due_ms - 60_007,
        "store_timestamp_ms": due_ms - 60_000,
        "physical_offset": 0x3FA,
        "store_size": 300,
        "body_size": 17,
        "reconsume_times": 0,
        "store_host": "10.0.0.2:10911",
    }
    return PendingMessage(**{**plain, **fields})


def has_schedule(broker: FakeBroker, *pages: Sequence[PendingMessage]) -> None:
    """The broker gives these pages, whatever is asked; cursors are C1, C2 …"""
    broker.answers["ListPending"] = _paged(pages, lambda page: (tuple(page),), PendingPage)
    broker.answers["GetLevels"] = lambda _: LevelsInForce(broker.levels, broker.levels, ())


def changes(broker: FakeBroker, *pages: int, **outcomes: ChangeOutcome) -> None:
    """The broker changes so many in each call by filter; an id is done, or what outcomes say."""

    def answer(change: ChangeByIds) -> tuple[ChangedId, ...]:
        found = [(each, outcomes.get(each, ChangeOutcome.DONE)) for each in change.message_ids]
        is_done = {each: outcome is ChangeOutcome.DONE for each, outcome in found}
        due_ms = NOW_MS + 600_000
        return tuple(
            [
                ChangedId(each, how, int(is_done[each]), due_ms * is_done[each])
                for each, how in found
            ]
        )

    broker.answers["ChangeByIds"] = answer
    broker.answers["ChangeByFilter"] = _paged(pages, lambda page: (page,), ChangedPage)
    broker.answers["GetLevels"] = lambda _: LevelsInForce(broker.levels, broker.levels, ())


def _paged(
    pages: Sequence[Any], fields: Callable[[Any], tuple[Any, ...]], page_class: type
) -> Callable[[Any], Any]:
    def answer(query: Any) -> Any:
        number = int(query.cursor.removeprefix("C") or 0)
        cursor = f"C{number + 1}" if number + 1 < len(pages) else ""
        return page_class(*fields(pages[number]), cursor)

    return answer


def asked_for(broker: FakeBroker) -> PendingFilter:
    """The filter of the last page that was asked for."""
    query: PendingQuery = broker.asked["ListPending"][-1]
    return query.filter


def asked_to_change(broker: FakeBroker) -> list[ChangeByFilter]:
    return broker.asked["ChangeByFilter"]

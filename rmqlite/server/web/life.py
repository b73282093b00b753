"""Pages of one message: its life, hop by hop, and each of its records with headers and body."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response

from rmqlite.message import (
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    REAL_TOPIC,
    REDRIVEN_FROM,
    RETRY_TOPIC,
)
from rmqlite.names import group_of, is_dlq
from rmqlite.requests.dead_letters import EventKind, HistoryEvent, HistoryQuery
from rmqlite.requests.messages import MessageQuery
from rmqlite.server.web.body_view import VIEWS, body_view
from rmqlite.server.web.schedule import level_table
from rmqlite.server.web.site import ROWS, Visit

_FIRST: frozenset[str] = frozenset(
    {FAILURE_REASON, FAILURE_REASON_ATTEMPT, DELIVERY_ATTEMPTS, DLQ_ORIGIN_TOPIC, RETRY_TOPIC}
    | {REDRIVEN_FROM}
)


@dataclass(frozen=True, slots=True)
class Step:
    """A hop, and the time since the hop before it."""

    hop: HistoryEvent
    kind: str
    after_ms: int | None


async def life(visit: Visit) -> Response:
    """The life of a message; without an id, the forms that find a message."""
    message_id = visit.args.text("id")
    if not message_id:
        return await _search(visit)
    found = await visit.service.letters.life(HistoryQuery(message_id))
    steps = [
        Step(hop, hop.kind.name.lower(), hop.at_ms - found.hops[n - 1].at_ms if n else None)
        for n, hop in enumerate(found.hops)
    ]
    shown, after = visit.part_of(steps)
    begin = visit.args.number("begin")
    return visit.page(
        "life.html", life=found, steps=shown, begin=begin, after=after, kinds=EventKind
    )


async def _search(visit: Visit) -> Response:
    """The messages of a topic with a key, the newest last."""
    kept = visit.args.kept("topic", "key")
    found = None
    if kept:
        query = MessageQuery(
            visit.args.required("topic"), visit.args.required("key"), max_messages=ROWS
        )
        found = await visit.service.messages.find(query)
    return visit.page("life_form.html", kept=kept, found=found)


async def record(visit: Visit) -> Response:
    """A record with its headers and its body; reading it never consumes it."""
    found = await visit.service.messages.at(visit.args.required("id"))
    message = found.message
    wanted = visit.args.one_of("as", ("", *VIEWS))
    # A hostile body takes tens of milliseconds to inflate: not on the loop.
    body = await asyncio.to_thread(body_view, message, wanted)
    # The properties of a failure first: readers look for them.
    properties = sorted(message.properties.items(), key=lambda each: (each[0] not in _FIRST, each))
    return visit.page(
        "record.html",
        found=found,
        message=message,
        state=found.state.name.lower(),
        body=body,
        properties=properties,
        destination=message.properties.get(REAL_TOPIC, ""),
        group=group_of(message.properties.get(REAL_TOPIC, message.topic)),
        table=await level_table(visit),
        is_dead=is_dlq(message.topic),
    )

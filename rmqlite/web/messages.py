"""Pages of one message: its history, and each of its records with headers and body."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.responses import Response

from rmqlite.features.dead_letters.requests import HistoryQuery
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.finding.requests import MessageQuery
from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.operating.service import ProgressCalls
from rmqlite.kernel.words.compression import readable
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.kernel.words.message import (
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    REAL_TOPIC,
    REDRIVEN_FROM,
    RETRY_TOPIC,
    StoredMessage,
)
from rmqlite.kernel.words.names import group_of, is_dlq
from rmqlite.views.history import Surroundings, heading, outcome, shown
from rmqlite.views.messages import FORM_NAMES, BodyView, body_view, message_facts
from rmqlite.web.site import ROWS, Visit

BODY_BYTES_MAX: Final = 24 << 10
_FIRST: frozenset[str] = frozenset(
    {FAILURE_REASON, FAILURE_REASON_ATTEMPT, DELIVERY_ATTEMPTS, DLQ_ORIGIN_TOPIC, RETRY_TOPIC}
    | {REDRIVEN_FROM}
)


async def history(visit: Visit) -> Response:
    """The history of a message; without an id, the forms that find a message."""
    message_id = visit.args.text("id")
    if not message_id:
        return await _search(visit)
    found = await visit.service[DeadLetterCalls].history(HistoryQuery(message_id))
    part, after = visit.part_of(shown(found))
    groups = {}
    for name in {each.group for each in found.events if each.group} if visit.sees_all else ():
        with suppress(GroupUnknown):
            groups[name] = await visit.service[ProgressCalls].status(name)
    return visit.page(
        "history.html",
        history=found,
        heading=heading(found),
        events=part,
        outcome=list(outcome(found, Surroundings(visit.now_ms, groups))),
        begin=visit.args.number("begin"),
        after=after,
    )


async def _search(visit: Visit) -> Response:
    """The messages of a topic with a key, the newest last."""
    fields = visit.args.given("topic", "key")
    found = None
    if fields:
        query = MessageQuery(
            visit.args.required("topic"), visit.args.required("key"), max_messages=ROWS
        )
        found = await visit.service[FindingCalls].find(query)
    return visit.page("message_form.html", fields=fields, found=found)


async def record(visit: Visit) -> Response:
    """A record with its headers and its body; reading it never consumes it."""
    found = await visit.service[FindingCalls].at(visit.args.required("id"))
    message = found.message
    wanted = visit.args.one_of("as", ("", *FORM_NAMES))
    # A hostile body takes tens of milliseconds to inflate: not on the loop.
    body = await asyncio.to_thread(body_beginning, message, wanted)
    # The properties of a failure first: readers look for them.
    properties = sorted(message.properties.items(), key=lambda each: (each[0] not in _FIRST, each))
    return visit.page(
        "record.html",
        found=found,
        message=message,
        facts=message_facts(message),
        state=found.state.name.lower(),
        body=body,
        form_names=FORM_NAMES,
        properties=properties,
        destination=message.properties.get(REAL_TOPIC, ""),
        group=group_of(message.properties.get(REAL_TOPIC, message.topic)),
        table=await visit.level_table(),
        is_dead=is_dlq(message.topic),
    )


def body_beginning(message: StoredMessage, form: str) -> BodyView:
    """The beginning of the body, inflated no further than it is shown."""
    body, is_whole, note = readable(message.body, message.sys_flag, BODY_BYTES_MAX)
    begin = body[:BODY_BYTES_MAX]
    is_whole = is_whole and len(begin) == len(body)
    return body_view(begin, form, is_whole=is_whole, note=note)

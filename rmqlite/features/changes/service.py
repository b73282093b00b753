"""Pending messages: shown, counted, changed, recalled.

Long work is done in steps, and other calls get their turns between them.  A change is answered
when it is on disk.
"""

from __future__ import annotations

from typing import Final

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    ChangeOutcome,
    LevelTimeline,
    PendingCount,
    PendingPage,
    PendingQuery,
    TimelineRequest,
    read_handle,
)
from rmqlite.kernel.service.access import Need, Right, admin, needs, of_topic, view
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.errors import InvalidValue


def _pending_rights(query: PendingQuery) -> list[Need]:
    topic = query.filter.topic
    return [Need(Right.VIEW, "topic" if topic else "", topic)]


class ChangeCalls(Part):
    """Calls about what waits."""

    @needs(_pending_rights)
    async def pending(self, query: PendingQuery) -> PendingPage:
        """One page of the pending messages."""
        return await done_in_turns(self._broker[Pending].pages(query))

    @view
    async def counts(self) -> tuple[PendingCount, ...]:
        """How many messages are pending, by topic and level."""
        return await done_in_turns(self._broker[Pending].counts())

    @view
    async def timeline(self, request: TimelineRequest) -> tuple[LevelTimeline, ...]:
        """How many messages of each level fall due between each two instants."""
        return await done_in_turns(self._broker[Pending].timeline(request))

    @admin
    async def change_by_ids(self, request: ChangeByIds) -> tuple[ChangedId, ...]:
        return await self._stored(self._broker[Changes].by_ids(request))

    @admin
    async def change_by_filter(self, request: ChangeByFilter) -> ChangedPage:
        return await self._stored(self._broker[Changes].by_filter(request))

    @of_topic(Right.PUB)
    async def recall(self, topic: str, handle: str) -> ChangedId:
        """Cancel the timer that a recall handle names: who may send it may also take it back.

        Raises TopicUnknown, InvalidValue.
        """
        self._broker.topics.existing(topic)
        wanted = read_handle(handle)
        for field, asked, named in (
            ("topic", topic, wanted.topic),
            ("brokerName", self._config.broker_name, wanted.broker_name),
        ):
            if asked != named:
                raise InvalidValue(field, asked, f"{named!r}, as the recall handle says")
        return await self._stored(self._broker[Changes].recall(wanted))


_NOT_RECALLED: Final = {
    ChangeOutcome.NOT_FOUND: "is not known here: it was not sent to this broker, was moved to"
    " another instant, or has been deleted since",
    ChangeOutcome.ALREADY_DELIVERED: "is delivered already",
    ChangeOutcome.ALREADY_CANCELLED: "is cancelled already",
    ChangeOutcome.UNDELIVERABLE: "could not be delivered: it is a dead letter of the schedule",
}


def why_not_recalled(changed: ChangedId) -> str:
    """What a client reads whose recall() has not cancelled the message."""
    return f"the message {changed.message_id} {_NOT_RECALLED[changed.outcome]}"

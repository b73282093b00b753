"""Messages by their key or id."""

from __future__ import annotations

from rmqlite.features.finding.finding import find_messages, message_at
from rmqlite.features.finding.requests import FoundMessage, FoundMessages, MessageQuery
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.access import Right, admin, needs, topic_right, view
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns


class FindingCalls(Part):
    """Calls of those who look for a message."""

    @needs(lambda query: [topic_right(Right.VIEW, query.topic)])
    async def find(self, query: MessageQuery) -> FoundMessages:
        """Messages by key or message id, in the order of the log; only durable ones.

        Raises TopicUnknown, InvalidValue, StoreDamaged, StoreUnavailable.
        """
        return await done_in_turns(find_messages(self._broker.parts, query))

    @view
    async def at(self, offset_message_id: str) -> FoundMessage:
        """The message of the record that an offset message id names.

        Raises InvalidValue, MessageNotFound, StoreDamaged.
        """
        return message_at(self._broker.parts, offset_message_id)

    @admin
    async def hand_out(self, offset_message_id: str) -> Record:
        """The record that a member of a group gets now, whatever its offsets."""
        found = message_at(self._broker.parts, offset_message_id)
        return self._broker.record_at(found.message.physical_offset)

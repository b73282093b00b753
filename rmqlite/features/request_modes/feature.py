"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import Assigned, AssignmentQuery, RequestModeChange
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.access import Need, Right, admin, group_right, needs, topic_right, view
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    made = RequestModes(broker.store, broker.topics, broker.membership)
    broker.groups.on_delete.append(made.forget_group)
    yield made


def _assignment_rights(query: AssignmentQuery) -> list[Need]:
    return [group_right(Right.SUB, query.group), topic_right(Right.SUB, query.topic)]


class ModeCalls(Part):
    """How the members of a group get a topic's messages."""

    @admin
    async def change_mode(self, change: RequestModeChange) -> None:
        """How the members of a group get a topic's messages, from their next rebalancing on."""
        self._broker[RequestModes].change(change)
        await self._saved()

    @view
    async def modes(self) -> tuple[RequestModeChange, ...]:
        """The modes of all groups."""
        return self._broker[RequestModes].modes()

    @needs(_assignment_rights)
    async def assigned(self, query: AssignmentQuery) -> Assigned | None:
        """What a member reads of a topic, and how; None: there is no such topic or member."""
        return self._broker[RequestModes].assigned(query)


FEATURE: Final = Feature(make=_make, calls=(ModeCalls,))

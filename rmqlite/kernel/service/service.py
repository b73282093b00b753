"""The one door to a running broker: every call of every protocol comes through here.

A protocol turns bytes or a form into a request, calls a method of the part with that noun, and
turns the answer back; the parts of features are asked by their type.  The service knows no protocol
and no connection: everything that a method needs from its caller is an argument.  It waits (for the
disk, for a message, for an assignment) and gives other calls their turns; the broker decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from rmqlite.kernel.records.wait_queues import queue_of
from rmqlite.kernel.requests.figures import BrokerStatus, RegisteredBroker
from rmqlite.kernel.requests.schedule import LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.kernel.service.access import admin, anyone, view
from rmqlite.kernel.service.groups import GroupCalls
from rmqlite.kernel.service.messages import MessageCalls
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.topics import TopicCalls

C = TypeVar("C", bound=Part)
DOUBLED_SHOWN: Final = 10
"""How many client ids of two processes the status names."""


@dataclass(slots=True)
class Ports:
    """away: which ports do not answer at the moment, a sentence for each.  opened_anew: how often
    one was opened again since the start."""

    away: list[str] = field(default_factory=list)
    opened_anew: int = 0


class Service(Part):
    """Everything that a caller can ask one broker."""

    def __init__(self, parts: ServiceParts, of_features: Iterable[type[Part]] = ()) -> None:
        """of_features: their calls."""
        super().__init__(parts)
        self.limits = parts.limits
        self.clock = parts.clock
        self.access = parts.access
        self.open_ports = parts.open_ports
        """What other machines can do here without an account, a sentence for each address."""
        self.watched = parts.watched
        self.name_servers = parts.name_servers
        self.ports = Ports()
        self.registered: Callable[[], tuple[RegisteredBroker, ...]] = tuple
        """The other brokers that have registered at the name server of this one."""
        self.messages = MessageCalls(parts)
        self.topics = TopicCalls(parts)
        self.groups = GroupCalls(parts)
        self.schedule = ScheduleCalls(parts)
        self._of_features = {kind: kind(parts) for kind in of_features}

    def __getitem__(self, kind: type[C]) -> C:
        """The calls of this type, which are a feature's."""
        found: Any = self._of_features.get(kind)
        if found is None:
            raise LookupError(f"no feature of this broker has {kind.__name__}")
        return cast(C, found)

    @view
    async def status(self) -> BrokerStatus:
        """Counts since the start, the pending messages of every level, and the last disk use."""
        of_files = [sentence for files in self.watched for sentence in files.warnings]
        status = self._broker.status(self._pulls.count)
        servers = tuple(self.name_servers())
        away = [
            f"this broker is not registered at the name server {each.address}: {each.reason}"
            for each in servers
            if each.reason
        ]
        doubled = self._broker.membership.doubled()
        twice = [
            f"two processes of group {group!r} have the client id {client_id!r}: each needs its own"
            for group, client_id in doubled[:DOUBLED_SHOWN]
        ]
        of_ports = (*self.ports.away, *self.open_ports)
        warnings = (*of_ports, *of_files, *away, *twice, *status.warnings)
        others = self.registered()
        return replace(status, warnings=warnings, name_servers=servers, registered=others)

    @property
    def parked(self) -> int:
        """How many pulls and heartbeats wait."""
        return self._pulls.count + self._heartbeats.count

    @property
    def is_closing(self) -> bool:
        return self._pulls.is_closed

    def close(self) -> None:
        """Answer every call that waits; from now on no call waits or stores a message."""
        self._pulls.close()
        self._heartbeats.close()


class ScheduleCalls(Part):
    """Calls about the schedule."""

    @view
    async def delivered(self) -> dict[int, int]:
        """The queue offset up to which each level is delivered."""
        return self._broker.store.progress.delay_offsets()

    @view
    async def positions(self) -> dict[int, tuple[int, int]]:
        """The same, and the end of each level's queue; without empty levels."""
        store = self._broker.store
        delivered = store.progress.delay_offsets()
        return {
            status.level: (delivered.get(status.level, 0), queue.max_offset)
            for status in self._broker.wait_queues.status()
            if (queue := store.queue(*queue_of(status.level))) is not None
        }

    @anyone
    async def levels(self) -> LevelsInForce:
        return self._broker.levels.in_force()

    @admin
    async def change_levels(self, change: LevelsChange) -> LevelsChanged:
        changed = self._broker.levels.change(change)
        await self._saved()
        return changed

"""The one door to a running broker: every call of every protocol comes through here.

A protocol turns bytes or a form into a request, calls a method of the part with that noun, and
turns the answer back; the parts of features are asked by their type.  The service knows no protocol
and no connection: everything that a method needs from its caller is an argument.  It waits (for the
disk, for a message, for an assignment) and gives other calls their turns; the broker decides.

A Feature is what a folder of rmqlite/features adds to a broker; features/every.py is
the list of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.records.wait_queues import queue_of
from rmqlite.kernel.requests.broker import (
    ArchiveStatus,
    BrokerStatus,
    LevelsChange,
    LevelsChanged,
    LevelsInForce,
    RegisteredBroker,
    ReplicationStatus,
)
from rmqlite.kernel.service.access import admin, anyone, view
from rmqlite.kernel.service.messages import MessageCalls
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.tables import GroupCalls, TopicCalls

Loops = Mapping[str, Coroutine[Any, Any, None]]
"""What runs beside the calls, by name; one that fails ends the broker."""

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
        self.archives: Callable[[], tuple[ArchiveStatus, ...]] = tuple
        self.replication: Callable[[], tuple[ReplicationStatus, ...]] = tuple
        self.serve_again: Callable[[], None] = lambda: None
        """Drains, closes the store, and lets it be served again, in another role."""
        self.before_drain: list[Callable[[], Awaitable[None]]] = []
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
        archives = self.archives()
        replication = self.replication()
        troubles = [*[each.trouble for each in archives], *[each.trouble for each in replication]]
        of_copies = filter(None, troubles)
        warnings = (*of_ports, *of_files, *away, *twice, *of_copies, *status.warnings)
        return replace(
            status,
            warnings=warnings,
            name_servers=servers,
            registered=self.registered(),
            archives=archives,
            replication=replication,
        )

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


def _makes_nothing(_: Broker) -> Iterable[object]:
    return ()


def _runs_nothing(_: ServiceParts, __: Service) -> Loops:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """make: its parts of the broker, which are found again by their type; they are made in the
    order of the list, and attach themselves to the kernel's.  calls: its parts of the service.
    loops: made when all parts are.
    """

    make: Callable[[Broker], Iterable[object]] = _makes_nothing
    calls: tuple[type[Part], ...] = ()
    loops: Callable[[ServiceParts, Service], Loops] = _runs_nothing

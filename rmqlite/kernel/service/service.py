"""The one door to a running broker: every call of every protocol comes through here.

A protocol turns bytes or a form into a request, calls a method of the part with
that noun, and turns the answer back.  The service knows no protocol and no connection: everything
that a method needs from its caller is an argument.  The service waits (for the disk, for a message,
for an assignment) and gives other calls their turns; broker/ decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from rmqlite.kernel.counts import Histogram
from rmqlite.kernel.requests.figures import BrokerStatus, Rate, Rates, RegisteredBroker, Traffic
from rmqlite.kernel.service.access import admin, view
from rmqlite.kernel.service.groups import GroupCalls
from rmqlite.kernel.service.messages import MessageCalls
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.schedule import ScheduleCalls
from rmqlite.kernel.service.topics import TopicCalls
from rmqlite.kernel.settings import Settings

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
        self.figures = FigureCalls(parts)
        self.settings = SettingCalls(parts)
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


class FigureCalls(Part):
    """Calls about what the broker does, and how full its disk is."""

    @view
    async def traffic(self) -> Traffic:
        """What the whole broker does."""
        return self._broker.traffic.now()

    @view
    async def of_topic(self, topic: str) -> Rates:
        """Records stored under a topic.  Raises TopicUnknown."""
        self._broker.topics.existing(topic)
        return self._broker.traffic.of_topic(topic)

    @view
    async def of_timers(self) -> tuple[Rate, Rate]:
        """Timers that were stored, and timers that were completed, in the last minute."""
        return self._broker.traffic.of_timers()

    @view
    async def of_group(self, topic: str, group: str) -> Rates:
        """Messages of a topic that a group has taken.  Raises GroupUnknown, TopicUnknown."""
        self._broker.topics.existing(topic)
        self._broker.groups.existing(group)
        return self._broker.traffic.of_group(topic, group)

    @view
    async def appends(self) -> Histogram:
        """How long the appends of calls and jobs took."""
        return self._broker.counts.appends.histogram()

    @view
    async def refused_sends(self) -> int:
        """How many sends were refused since the start because the disk was full."""
        return self._broker.retention.sends_refused

    @view
    async def unsynced_bytes(self) -> int:
        """Bytes of the log that are not on disk yet."""
        return self._broker.store.end - self._broker.store.durable_end

    @view
    async def disk(self) -> tuple[int, int]:
        """Bytes of the store's disk, and how many of them are free."""
        return self._broker.store.disk_bytes()

    @view
    async def first_stored_ms(self) -> int | None:
        """When the first record that the log still has was stored; None if there is none."""
        store = self._broker.store
        return store.store_timestamp_ms(store.min_offset)


class SettingCalls(Part):
    """Calls about the broker's configuration."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._settings = Settings(parts.config, parts.broker.levels)

    @view
    async def all(self) -> dict[str, str]:
        """The value in force of each key of broker.conf."""
        return self._settings.all()

    @admin
    async def change(self, wanted: Mapping[str, str]) -> None:
        """Change keys at once, all or none; only messageDelayLevel needs no restart."""
        self._settings.change(wanted)

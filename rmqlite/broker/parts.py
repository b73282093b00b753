"""The parts of a broker that its jobs and its queries about failed messages work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqlite.broker.appending import Appending
from rmqlite.broker.figures.progress import readers_of
from rmqlite.broker.retention import Retention
from rmqlite.broker.tables.groups import GroupTable, OnDemand
from rmqlite.broker.tables.membership import Membership
from rmqlite.broker.tables.offsets import ConsumerOffsets
from rmqlite.broker.tables.purge_markers import PurgeMarkers
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.names import group_of
from rmqlite.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """host: the broker's own address, packed; readable_end: as Broker's."""

    config: BrokerConfig
    store: MessageStore
    clock: Clock
    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    membership: Membership
    markers: PurgeMarkers
    retention: Retention
    appending: Appending
    readable_end: Callable[[], int]
    host: bytes

    def on_demand(self) -> OnDemand:
        """Topics and groups to make for a job."""
        return OnDemand(self.store, self.topics, self.groups)

    def readers_of(self, topic: str) -> tuple[str, ...]:
        """The groups that get a message of a topic; of a retry topic its own."""
        group = group_of(topic)
        return (group,) if group else readers_of(topic, self.offsets, self.membership)

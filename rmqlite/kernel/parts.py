"""The parts of a broker with which its other parts work: tables, counts, limits, appending.

They are made once, in this order: each needs only those before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqlite.kernel.admission import Room, TimerRules
from rmqlite.kernel.appending import Appending, Listener
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.counts import Counts
from rmqlite.kernel.filters import Filters
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.tables.groups import GroupTable, OnDemand
from rmqlite.kernel.tables.membership import Membership
from rmqlite.kernel.tables.offsets import ConsumerOffsets
from rmqlite.kernel.tables.topics import READ, TopicTable, check_queue
from rmqlite.kernel.waits.wait_queues import LevelChanges, WaitQueues
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import PermissionMissing
from rmqlite.kernel.words.message import host_text, pack_host
from rmqlite.kernel.words.names import group_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """store_host: the broker's own address, "ip:port"; host: the same, packed."""

    config: BrokerConfig
    store: MessageStore
    clock: Clock
    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    filters: Filters
    membership: Membership
    wait_queues: WaitQueues
    timers: TimerRules
    room: Room
    counts: Counts
    appending: Appending
    levels: LevelChanges
    store_host: str
    host: bytes

    @classmethod
    def of(
        cls, config: BrokerConfig, store: MessageStore, clock: Clock, listener: Listener
    ) -> BrokerParts:
        """Raises StoreDamaged for a table that cannot be read, StoreUnavailable."""
        topics = TopicTable(store, config)
        filters = Filters()
        membership = Membership(config, clock, topics.read_queues, filters)
        topics.on_change.append(membership.topic_changed)
        wait_queues, counts = WaitQueues(store), Counts()
        store_host = host_text(config.broker_ip, config.listen_port)
        return cls(
            config=config,
            store=store,
            clock=clock,
            topics=topics,
            groups=GroupTable(store, config, topics),
            offsets=ConsumerOffsets(store, config, clock),
            filters=filters,
            membership=membership,
            wait_queues=wait_queues,
            timers=TimerRules.of(config, wait_queues.check_room),
            room=Room(store.log_file_bytes, config.max_message_bytes),
            counts=counts,
            appending=Appending(store, wait_queues, counts, listener),
            levels=LevelChanges(store, wait_queues),
            store_host=store_host,
            host=pack_host(store_host),
        )

    def readable_end(self) -> int:
        """Consumers get only records that end at or before this physical offset."""
        is_sync = self.config.flush_disk_type == "SYNC_FLUSH"
        return self.store.durable_end if is_sync else self.store.end

    def on_demand(self, turn: int = 0) -> OnDemand:
        """Topics and groups to make for a call or a job."""
        return OnDemand(self.store, self.topics, self.groups, turn)

    def readable(self, group: str, topic: str) -> tuple[GroupInfo, TopicInfo]:
        """A group, made on demand, and a topic that it may read.

        Raises GroupUnknown, InvalidName, TopicUnknown, PermissionMissing, Overloaded.
        """
        reader = self.groups.wanted(group)
        if not reader.can_consume:
            raise PermissionMissing(group, "consuming as", "the group may not consume")
        read = self.readable_topic(topic)
        self.groups.make([reader])
        return reader, read

    def readable_topic(self, topic: str) -> TopicInfo:
        """A topic that anybody may read.  Raises TopicUnknown, PermissionMissing."""
        read = self.topics.existing(topic)
        if not read.perm & READ:
            raise PermissionMissing(read.topic, "reading", f"its perm is {read.perm}")
        return read

    def check_readable(self, queue: Queue) -> None:
        """Raises TopicUnknown, QueueUnknown unless there is such a queue to read."""
        topic = self.topics.existing(queue.topic)
        check_queue(topic, queue.queue_id, topic.read_queues)

    def with_retry_topic(self, group: str) -> GroupInfo:
        """The group, made on demand with its retry topic.

        Raises GroupUnknown, InvalidName, Overloaded, StoreUnavailable.
        """
        needed = self.on_demand()
        info = needed.retry_topic(group)
        needed.make()
        return info

    def readers_of(self, topic: str) -> tuple[str, ...]:
        """The groups that get a message of a topic; of a retry topic its own."""
        group = group_of(topic)
        return (group,) if group else self.groups_at(topic)

    def groups_at(self, topic: str) -> tuple[str, ...]:
        """The groups that have committed an offset in a topic, or have a member that reads it."""
        found = self.offsets.groups_of(topic) | self.membership.groups_of(topic)
        return tuple(sorted(found))

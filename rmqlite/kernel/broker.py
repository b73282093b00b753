"""The broker's interface, which is the same for every protocol.

Every method decides and returns at once; the server waits for messages, for the disk and for
due times, and a Listener informs it of changes.  Bad input raises Refused with field, value and
rule and stores no message; a topic or group that was made on demand before the refusal stays,
as with RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from rmqlite import __version__
from rmqlite.kernel import Steps
from rmqlite.kernel.appending import Listener
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.failing import Failing
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import Pulled, offset_at, pull, queue_ranges, readable_record
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.requests.broker import BrokerStatus, ScheduleAction
from rmqlite.kernel.requests.groups import (
    Assignment,
    HeartbeatRequest,
    MemberKind,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest, SendBackResult
from rmqlite.kernel.requests.topics import Queue, QueueRange, Route, RouteRequest, TimeQuery
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.schedule.schedule import Schedule
from rmqlite.kernel.sends.sends import Sends
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.tables import Snapshot, Tree
from rmqlite.kernel.tables.offsets import TABLE as OFFSETS_TABLE
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.names import check_sendable

F = TypeVar("F")


class Broker:
    """One broker on one store; used by one thread."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        listener: Listener,
        features: Sequence[Callable[[Broker], Iterable[object]]] = (),
    ) -> None:
        """features: each makes its parts of this broker, after the kernel's own are made."""
        parts = self.parts = BrokerParts.of(config, store, clock, listener)
        self.store = store
        self.topics = parts.topics
        self.groups = parts.groups
        self.offsets = parts.offsets
        self.membership = parts.membership
        self.wait_queues = parts.wait_queues
        self.timers = parts.timers
        self.counts = parts.counts
        self.levels = parts.levels
        self.schedule = Schedule(parts)
        self.retention = Retention(parts, self.schedule)
        self._config = config
        self.store_host = parts.store_host
        self.failing = Failing(parts)
        self.drafts = Sends(parts, self.retention)
        self._started_at_ms = clock.now_ms()
        self.tables_of_features: list[Callable[[], Mapping[str, Tree]]] = []
        """Each gives tables to save, by file name."""
        self.pull_unlimited = partial(pull, parts)
        self.limited_pulls: dict[str, Callable[[PullRequest], Steps[Pulled]]] = {}
        """In place of pull_unlimited() for groups that have a rate limit."""
        self._made: dict[type, object] = {}
        for make in features:
            for made in make(self):
                self._made[type(made)] = made

    def __getitem__(self, kind: type[F]) -> F:
        """The part of this type that a feature has made."""
        made = self.get(kind)
        if made is None:
            raise LookupError(f"no feature of this broker has made a {kind.__name__}")
        return made

    def get(self, kind: type[F]) -> F | None:
        """The same; None if no feature has made one."""
        made: Any = self._made.get(kind)
        return None if made is None else made

    # ---- sending

    def send_back(self, request: SendBackRequest) -> SendBackResult:
        """A consumer failed a message: retry it later, or make it a dead letter.

        If this delivery was sent back before, the answer is the first one, and nothing is stored.
        Raises GroupUnknown, InvalidName, InvalidValue, MessageNotFound, PermissionMissing,
        StoreUnavailable.
        """
        return self.failing.send_back(request)

    def deliver(self, wait_queue: int) -> int | None:
        """Deliver a slice of what is due in a wait queue; the time of the next call, or None."""
        if self.store.is_copy:
            return None
        return self.schedule.deliver(wait_queue, self._config.deliver_batch_max)

    # ---- pulling

    def pull(self, request: PullRequest) -> Steps[Pulled]:
        """Messages of a queue from a queue offset on, in steps; there may be none.

        Only durable messages are returned, so that a group can never commit an offset behind
        messages that a power cut takes back.  Raises TopicUnknown, GroupUnknown,
        QueueUnknown, PermissionMissing, InvalidValue, StoreDamaged.
        """
        return self.limited_pulls.get(request.group, self.pull_unlimited)(request)

    @property
    def readable_end(self) -> int:
        """Consumers get only records that end at or before this physical offset."""
        return self.parts.readable_end()

    # ---- finding

    def record_at(self, physical_offset: int) -> Record:
        """The durable record that begins there.  Raises MessageNotFound, StoreDamaged."""
        return readable_record(self.parts, physical_offset)

    # ---- offsets

    def query_offsets(self, request: OffsetsQuery) -> dict[Queue, int]:
        """A group's committed offsets; queues without a commit are left out."""
        known = self.offsets.of(request.group)
        return {queue: known[queue] for queue in request.queues if queue in known}

    def commit_offsets(self, request: OffsetsCommit, *, is_reset: bool = False) -> None:
        """Commit all offsets, or none; the group is made on demand.

        is_reset: by an operator.  Raises GroupUnknown, InvalidName, TopicUnknown, QueueUnknown,
        InvalidValue, Overloaded, StoreUnavailable.
        """
        group = self.groups.wanted(request.group)
        for queue in request.offsets:
            self.parts.check_readable(queue)
        self.offsets.check(request.group, request.offsets)
        self.groups.make([group])
        # Without members it is no consumer that has come to this place: mqadmin resets a group in
        # this way if no member can be told.
        is_reset |= not self.membership.has_members(request.group)
        self.offsets.commit(request.group, request.offsets, is_reset=is_reset)

    def search_offset(self, request: TimeQuery) -> int:
        """The first queue offset stored at or after a time; the queue's end if none."""
        queue = self.store.queue(request.queue.topic, request.queue.queue_id)
        if queue is None:
            self.parts.check_readable(request.queue)
            return 0
        return offset_at(self.store, queue, request.timestamp_ms)

    def queue_ranges(self, topic: str) -> Steps[tuple[QueueRange, ...]]:
        """The ranges of all read queues of a topic, in steps.  Raises TopicUnknown."""
        return queue_ranges(self.store, topic, self.topics.existing(topic).read_queues)

    # ---- topics and groups

    def route(self, request: RouteRequest) -> Route:
        """A topic's queues and limits for a client.  Raises InvalidName, TopicUnknown."""
        if request.create:
            check_sendable(request.topic)
            info = self.topics.wanted(request.topic)
            self.topics.make([info])
        else:
            info = self.topics.existing(request.topic)
        levels = self.store.levels.current.text
        return Route(info, self._config.broker_name, levels, self.parts.room.body_bytes_max)

    def heartbeat(
        self,
        request: HeartbeatRequest,
        account: str = "",
        kind: MemberKind = MemberKind.POLLS,
    ) -> Assignment:
        """Note that a member is alive; its group and retry topic are made on demand.

        account: for which the member is counted.
        Raises GroupUnknown, InvalidName, InvalidValue, Overloaded.
        """
        self.parts.with_retry_topic(request.group)
        return self.membership.heartbeat(request, account, kind)

    def status(self, parked_polls: int) -> BrokerStatus:
        """Counts since the start, the waiting messages of every level, and the last disk use."""
        counts, retention, timers = self.counts, self.retention, self.wait_queues.timers
        return BrokerStatus(
            __version__,
            self._config.broker_name,
            self.parts.clock.now_ms(),
            self._started_at_ms,
            self.store.min_offset,
            self.store.end,
            counts.sent,
            self.schedule.delivered,
            counts.retried.total(),
            counts.dead.total(),
            parked_polls,
            tuple(self.wait_queues.status()),
            retention.used_ratio,
            retention.is_disk_full,
            *retention.pin,
            cancelled=counts.changed[ScheduleAction.CANCEL],
            fired=counts.changed[ScheduleAction.FIRE],
            rescheduled=counts.changed[ScheduleAction.RESCHEDULE],
            undeliverable=self.schedule.undeliverable,
            disk_bytes=retention.disk_bytes,
            warnings=tuple(timers.keys.unindexed.warnings()) if timers else (),
        )

    # ---- upkeep

    def tables(self) -> dict[str, Snapshot]:
        """The tables to save with every persist of the store, by file name."""
        found: dict[str, Snapshot] = {}
        end = self.store.end
        for tables in self.tables_of_features:
            found |= {name: self.store.tables.dated(tree, end) for name, tree in tables().items()}
        # Last, because a feature may commit an offset of its own.
        return {OFFSETS_TABLE: self.offsets.snapshot(), **found}

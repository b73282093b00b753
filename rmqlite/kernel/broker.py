"""The broker's interface, which is the same for every protocol.

Every method decides and returns at once; the server waits for messages, for the disk and for
due times, and a Listener informs it of changes.  Bad input raises Refused with field, value and
rule and stores no message; a topic or group that was made on demand before the refusal stays,
as with RocketMQ.
"""

from __future__ import annotations

from functools import partial

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.bulk_rows import Sender
from rmqlite.features.bulk.requests import BulkAnswer, BulkRequest
from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.dead_letters.history import Histories
from rmqlite.features.dead_letters.listing import DeadLetters, Shown
from rmqlite.features.dead_letters.purging import Purging
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.features.leases.leases import Leases
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.resetting import Resetting
from rmqlite.features.raw_log.raw_reading import RawReading
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.appending import Listener
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.failing import Failing
from rmqlite.kernel.figures import Traffic, status_of
from rmqlite.kernel.finding.finding import find_messages, message_at, record_at
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import Pulled, offset_at, pull, queue_ranges
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.requests.figures import BrokerStatus
from rmqlite.kernel.requests.groups import (
    Assignment,
    GroupStatus,
    HeartbeatRequest,
    MemberKind,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.kernel.requests.messages import (
    FoundMessage,
    FoundMessages,
    MessageQuery,
    PullRequest,
    SendBackRequest,
    SendBackResult,
)
from rmqlite.kernel.requests.topics import Queue, QueueRange, Route, RouteRequest, TimeQuery
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.schedule.level_changes import LevelChanges
from rmqlite.kernel.schedule.schedule import Schedule
from rmqlite.kernel.sends.sends import Sends
from rmqlite.kernel.steps import Steps
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.tables import Snapshot
from rmqlite.kernel.tables.groups import OnDemand
from rmqlite.kernel.tables.offsets import TABLE as OFFSETS_TABLE
from rmqlite.kernel.tables.queue_locks import QueueLocks
from rmqlite.kernel.tables.request_modes import RequestModes
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import MessageNotFound
from rmqlite.kernel.words.message import host_text
from rmqlite.kernel.words.names import TOOLS_GROUP, check_sendable


class Broker:
    """One broker on one store; used by one thread."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, clock: Clock, listener: Listener
    ) -> None:
        parts = self.parts = BrokerParts.of(config, store, clock, listener)
        self.store = store
        self.topics = parts.topics
        self.groups = parts.groups
        self.offsets = parts.offsets
        self.membership = parts.membership
        self.markers = parts.markers
        self.wait_queues = parts.wait_queues
        self.timers = parts.timers
        self.counts = parts.counts
        self.traffic = Traffic(parts)
        self.locks = QueueLocks(config, clock)
        self.request_modes = RequestModes(store, parts.topics, parts.membership)
        self.levels = LevelChanges(store, self.wait_queues)
        self.raw = RawReading(parts, self.levels)
        self.schedule = Schedule(
            config, store, clock, self.topics, self.wait_queues, parts.appending
        )
        self.pending = Pending(store, self.wait_queues)
        self.changes = Changes(store, clock, self.timers, self.schedule, self.topics, self.pending)
        self.bulk = Bulk(parts)
        self.transactions = Transactions(parts)
        oldest_half = self.transactions.halves.oldest_open
        self.retention = Retention(config, store, self.wait_queues, self.schedule, oldest_half)
        self.redrive = Redrive(parts, self.retention)
        self.redriven = self.redrive.jobs.redriven
        shown = Shown(parts.markers, self.redriven)
        self.dead_letters = DeadLetters(parts, shown, self.redriven)
        self.purging = Purging(parts, self.dead_letters, shown, self.redriven)
        self.retries = Retries(parts, self.pending)
        self.histories = Histories(parts, self.redriven)
        self._config = config
        self._clock = clock
        self._room = parts.room
        self._log = parts.appending
        self.store_host = host_text(config.broker_ip, config.listen_port)
        self.failing = Failing(parts)
        self.leases = Leases(parts, self.failing)
        self.progress = Progress(parts, self.traffic, self.leases.table)
        self.deleting = Deleting(parts, self.pending, self.progress)
        self.resetting = Resetting(parts, self.progress)
        self.drafts = Sends(parts, self.retention, self._needed)
        self._turn = 0
        self._started_at_ms = clock.now_ms()

    # ---- sending

    def schedule_bulk(self, request: BulkRequest, born_host: bytes) -> Steps[BulkAnswer]:
        """Store messages, each with its own outcome, in steps; valid once the store is durable.

        Raises InvalidValue, MessageTooLarge for the call as a whole, DiskFull,
        StoreUnavailable: then no message of the call is stored.
        """
        self.retention.check_room()
        needed = self._needed()
        now_ms = self._clock.now_ms()
        born_at_ms = request.born_at_ms or now_ms
        sender = Sender(self._config.cluster_name, born_at_ms, born_host, self.parts.host)
        call = yield from self.bulk.begin(request, needed.sendable_queue, sender, now_ms)
        needed.make()
        if call.records:
            self._log.append(call.records)
        self.counts.sent += call.answer.accepted
        self.bulk.end(call)
        return call.answer

    def send_back(self, request: SendBackRequest) -> SendBackResult:
        """A consumer failed a message: retry it later, or make it a dead letter.

        If this delivery was sent back before, the answer is the first one, and nothing is stored.
        Raises GroupUnknown, InvalidName, InvalidValue, MessageNotFound, PermissionMissing,
        StoreUnavailable.
        """
        # First of all: an unknown group is the caller's clearer mistake.
        self.parts.with_retry_topic(request.group)
        if (known := self.failing.sent_back.result(request)) is not None:
            return known
        failed = self.failing.record(record_at(self.store, request.physical_offset), request)
        (at,) = self._log.append([failed.record])
        self.failing.count(failed)
        level = wait_queue_of(failed.record.topic, failed.record.queue_id)
        times = failed.record.reconsume_times
        result = SendBackResult(failed.topic, times, level, at.due_ms)
        self.failing.sent_back.note(request, result)
        return result

    def deliver(self, wait_queue: int) -> int | None:
        """Deliver a slice of what is due in a wait queue; the time of the next call, or None."""
        return self.schedule.deliver(wait_queue, self._config.deliver_batch_max)

    # ---- pulling

    def pull(self, request: PullRequest) -> Steps[Pulled]:
        """Messages of a queue from a queue offset on, in steps; there may be none.

        Only durable messages are returned, so that a group can never commit an offset behind
        messages that a power cut takes back.  Raises TopicUnknown, GroupUnknown,
        QueueUnknown, PermissionMissing, InvalidValue, StoreDamaged.
        """
        if request.group == TOOLS_GROUP:
            # It only looks, and does not become a group.
            topic = self.parts.readable_topic(request.topic)
        else:
            _, topic = self.parts.readable(request.group, request.topic)
        check_queue(topic, request.queue_id, topic.read_queues)
        result = yield from pull(self.store, self._config, self.readable_end, request)
        self.counts.pull(topic.topic, request.group, len(result.records))
        return result

    @property
    def readable_end(self) -> int:
        """Consumers get only records that end at or before this physical offset."""
        return self.parts.readable_end()

    # ---- finding

    def find_messages(self, query: MessageQuery) -> Steps[FoundMessages]:
        """Messages by key or message id, in the order of the log, in steps.

        Only durable messages are returned.  Raises TopicUnknown, InvalidValue, StoreDamaged,
        StoreUnavailable.
        """
        self.topics.existing(query.topic)
        limit = self._config.pull_bytes_max
        return find_messages(self.store, query, readable_end=self.readable_end, bytes_max=limit)

    def message_at(self, offset_message_id: str) -> FoundMessage:
        """The message whose record an offset message id names.

        Raises InvalidValue, MessageNotFound, StoreDamaged.
        """
        return message_at(self.store, offset_message_id, readable_end=self.readable_end)

    def record_at(self, physical_offset: int) -> Record:
        """The durable record that begins there.  Raises MessageNotFound, StoreDamaged."""
        record = record_at(self.store, physical_offset)
        if record.end > self.readable_end:
            raise MessageNotFound(physical_offset)
        return record

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
            topic = self.topics.existing(queue.topic)
            check_queue(topic, queue.queue_id, topic.read_queues)
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
            topic = self.topics.existing(request.queue.topic)
            check_queue(topic, request.queue.queue_id, topic.read_queues)
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
        return Route(info, self._config.broker_name, levels, self._room.body_bytes_max)

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

    def group_status(self, group: str) -> Steps[GroupStatus]:
        """Settings, members, and progress in every queue that it has to read, in steps."""
        info = self.groups.existing(group)
        progress = yield from self.progress.of_queues(group)
        return GroupStatus(
            info,
            self.membership.members(group),
            progress,
            self.membership.is_broadcasting(group),
            self._clock.now_ms(),
        )

    def status(self, parked_polls: int) -> BrokerStatus:
        """Counts since the start, the waiting messages of every level, and the last disk use."""
        return status_of(
            self.parts,
            self.schedule,
            self.changes,
            self.retention,
            started_at_ms=self._started_at_ms,
            parked_polls=parked_polls,
        )

    # ---- upkeep

    def tables(self) -> dict[str, Snapshot]:
        """The tables to save with every persist of the store, by file name."""
        self.transactions.halves.note_progress()
        jobs = {**self.bulk.jobs.tree(), **self.redrive.jobs.tree(), **self.leases.table.tree()}
        snapshots: dict[str, Snapshot] = {name: partial(dict, tree) for name, tree in jobs.items()}
        return {OFFSETS_TABLE: self.offsets.snapshot(), **snapshots}

    # ---- inside

    def _needed(self, queue_id: int = -1) -> OnDemand:
        """The topics and groups of one send; those that name no queue take the next in turn."""
        self._turn += queue_id < 0
        return self.parts.on_demand(self._turn)

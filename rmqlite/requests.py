"""What is asked of the broker and what it answers: plain values.

Every face (the native gRPC one first) converts to and from these; the broker knows no
other form.  Times are milliseconds since 1970, sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.limits import QUEUES_MAX
from rmqlite.message import Message, StoredMessage, offset_message_id


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Store these messages, all or none.

    queue_id: -1 lets the broker take each topic's queues in turn.  born_at_ms: the
    producer's clock; 0 means the broker's.
    """

    messages: tuple[Message, ...]
    producer_group: str = ""
    queue_id: int = -1
    born_at_ms: int = 0


class SendResult(NamedTuple):
    """Where a message went; a tuple because there are many of them.

    message_id: the producer's id (UNIQ_KEY), the same on every hop.  For a delayed message
    queue_id is the queue it will be delivered to, while queue_offset, physical_offset and
    offset_message_id are those of the scheduled record, as RocketMQ answers; deliver_at_ms
    is 0 for a message that is not delayed.  store_host: the broker, "ip:port".
    """

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    physical_offset: int
    deliver_at_ms: int
    store_host: str

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of this record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


class PullStatus(enum.IntEnum):
    """RocketMQ's response codes of a pull (reference §9.2)."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_MOVED = 21


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Ask for messages of one queue from queue_offset on.

    expression: "*" or "TagA || TagB".  wait_ms: how long to wait for a first message.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    expression: str = "*"
    max_messages: int = 32
    max_bytes: int = 256 * 1024
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class PullResult:
    """next_offset is where to go on, also when messages is empty."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class SendBackRequest:
    """A consumer of group failed the message at physical_offset.

    delay_level: 0 lets the group's retry policy choose, more is that level, less is a dead
    letter at once.  max_reconsume_times: None means the group's; a limit that the message's
    sender set goes before both.
    """

    group: str
    physical_offset: int
    delay_level: int = 0
    reason: str = ""
    max_reconsume_times: int | None = None


@dataclass(frozen=True, slots=True)
class SendBackResult:
    """What became of a failed message: a retry due at deliver_at_ms, or a dead letter (0)."""

    topic: str
    reconsume_times: int
    delay_level: int
    deliver_at_ms: int

    @property
    def is_dead(self) -> bool:
        return self.deliver_at_ms == 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's settings; perm is RocketMQ's bits: 4 read, 2 write, 1 inherit."""

    topic: str
    read_queues: int
    write_queues: int
    perm: int = 6


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """create: make the topic on demand, as a send would."""

    topic: str
    create: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """What a client must know to send to and read from a topic."""

    topic: TopicInfo
    broker_name: str
    message_delay_level: str
    max_message_bytes: int


class MessageState(enum.IntEnum):
    """What a record is in the life of its message."""

    STORED = 0
    """In the topic it was sent to."""
    SCHEDULED = 1
    """In the schedule: it waits for its delivery, or is delivered."""
    RETRY = 2
    """Failed, and given to its consumer group again."""
    DEAD = 3
    """Failed too often, or could not be delivered."""
    CANCELLED = 4
    """The word that a scheduled message is not to be delivered."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages of a topic have this key, or (by_message_id) this message id?

    Stored at begin_ms <= t < end_ms, the broker's clock; None is no end.  max_messages: the
    newest so many, 1 to 64; 0 means 32.  hops: also the other records of such a message,
    where it waits or waited in the schedule, in retry and in dead-letter topics.
    """

    topic: str
    key: str
    by_message_id: bool = False
    begin_ms: int = 0
    end_ms: int | None = None
    max_messages: int = 0
    hops: bool = False


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A record and what it is; the last three only of a scheduled one, else 0 and nothing.

    ended: of one that does not wait any more, how its wait ended: delivered, fired (at once,
    at a user's wish), rescheduled, cancelled, or undeliverable.
    """

    message: StoredMessage
    state: MessageState
    deliver_at_ms: int = 0
    is_pending: bool = False
    ended: str = ""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """In the order of the log; is_cut: older ones may be there that a limit left out."""

    messages: tuple[FoundMessage, ...]
    is_cut: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue of a topic."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A queue holds the queue offsets min_offset <= n < max_offset."""

    queue: Queue
    min_offset: int
    max_offset: int
    newest_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class OffsetsQuery:
    """How far is this group in these queues?"""

    group: str
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class OffsetsCommit:
    """This group is that far: per queue, the next queue offset to read."""

    group: str
    offsets: dict[Queue, int]

    def parts(self) -> Iterator[OffsetsCommit]:
        """The same as calls, each of which has no more queues than it may have."""
        pairs = list(self.offsets.items())
        for begin in range(0, len(pairs), QUEUES_MAX):
            yield OffsetsCommit(self.group, dict(pairs[begin : begin + QUEUES_MAX]))


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """Which queue offset was stored at or after this time?"""

    queue: Queue
    timestamp_ms: int


class Subscription(NamedTuple):
    """A tuple, because each heartbeat's are compared with those of the one before."""

    topic: str
    expression: str = "*"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member says that it lives and what it subscribes to.

    known_epoch: the assignment it works by (0: none yet).  The answer waits up to wait_ms
    for an assignment of another epoch.
    """

    group: str
    client_id: str
    subscriptions: tuple[Subscription, ...]
    known_epoch: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    group: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The queues that a member of a group reads from now on."""

    epoch: int
    queues: tuple[Queue, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group's settings (RocketMQ's subscription group).

    retry_policy: at which levels failed messages come again, see rmqlite.retry_policy.
    """

    group: str
    max_reconsume_times: int = 16
    retry_queues: int = 1
    can_consume: bool = True
    retry_policy: str = ""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue; committed_offset is None before the first commit."""

    queue: Queue
    min_offset: int
    max_offset: int
    committed_offset: int | None
    client_id: str

    @property
    def lag(self) -> int:
        done = self.min_offset if self.committed_offset is None else self.committed_offset
        return max(0, self.max_offset - max(done, self.min_offset))


@dataclass(frozen=True, slots=True)
class MemberInfo:
    client_id: str
    subscriptions: tuple[Subscription, ...]
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    info: GroupInfo
    members: tuple[MemberInfo, ...]
    progress: tuple[QueueProgress, ...]


@dataclass(frozen=True, slots=True)
class LevelStatus:
    """One delay level: what waits in it, and how late it delivered since the broker started.

    delay: as the table spells it, empty for a level that only older tables had.
    next_due_ms: deliver time of its earliest message, 0 when none waits.
    """

    level: int
    delay: str
    pending: int
    next_due_ms: int
    delivered: int
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Counts are since the broker started; offsets are physical offsets of the log.

    disk_used_ratio: used share of the store's disk, 0 to 1.  is_disk_full: sends are refused
    now.  pinned_*: the undelivered message that keeps whole log files older than
    fileReservedTime, and how many bytes of them; all 0 while there is none.  undeliverable:
    scheduled messages that became dead letters of the schedule itself.
    """

    version: str
    broker_name: str
    now_ms: int
    started_at_ms: int
    log_min_offset: int
    log_max_offset: int
    sent: int
    delivered: int
    retried: int
    dead: int
    parked_polls: int
    levels: tuple[LevelStatus, ...]
    disk_used_ratio: float = 0.0
    is_disk_full: bool = False
    pinned_by_level: int = 0
    pinned_deliver_at_ms: int = 0
    pinned_physical_offset: int = 0
    pinned_bytes: int = 0
    cancelled: int = 0
    fired: int = 0
    rescheduled: int = 0
    undeliverable: int = 0

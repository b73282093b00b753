"""Consumer groups: settings, members, assignment, committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.limits import QUEUES_MAX


@dataclass(frozen=True, slots=True)
class OffsetsQuery:
    """Asks for the offsets that this group has committed in these queues."""

    group: str
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class OffsetsCommit:
    """Commits for a group, per queue, the next queue offset to read."""

    group: str
    offsets: dict[Queue, int]

    def parts(self) -> Iterator[OffsetsCommit]:
        """The same commit in calls of at most QUEUES_MAX queues."""
        pairs = list(self.offsets.items())
        for begin in range(0, len(pairs), QUEUES_MAX):
            yield OffsetsCommit(self.group, dict(pairs[begin : begin + QUEUES_MAX]))


class Subscription(NamedTuple):
    """What a member reads of a topic: messages that match both expressions, see PullRequest.

    A tuple, because each heartbeat's subscriptions are compared with the previous one's.
    """

    topic: str
    expression: str = "*"
    sql: str = ""

    def __str__(self) -> str:
        """For a person: the topic, and what is not all of it."""
        tags = f" {self.expression}" if self.expression != "*" or not self.sql else ""
        return f"{self.topic}{tags}{f' sql: {self.sql}' if self.sql else ''}"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member says that it is alive, and lists its subscriptions.

    known_epoch: the epoch of the member's present assignment, 0 if it has none.  The answer
    waits up to wait_ms for an assignment of another epoch.  is_broadcasting: it reads all queues,
    and keeps its offsets itself.
    """

    group: str
    client_id: str
    subscriptions: tuple[Subscription, ...]
    known_epoch: int = 0
    wait_ms: int = 0
    is_broadcasting: bool = False


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


class MemberKind(StrEnum):
    """How a member gets its messages.

    POLLS: members of rmqlite's own clients wait for their queues.  SHARES: RocketMQ's clients share
    out the queues themselves, or pop if their group does.  LEASES: RocketMQ 5's clients receive
    messages one by one.
    """

    POLLS = "POLLS"
    SHARES = "SHARES"
    LEASES = "LEASES"


class RequestMode(StrEnum):
    """How a group gets messages: each member reads queues of its own, or leases any message."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class RequestModeChange:
    """shared_by: how many further members pop the queues of each; 0: all pop all queues."""

    group: str
    topic: str
    mode: RequestMode
    shared_by: int = 0


@dataclass(frozen=True, slots=True)
class AssignmentQuery:
    """Asks which queues of a topic a member of a group reads.

    is_broadcasting: each member reads all of them.
    """

    group: str
    topic: str
    client_id: str
    is_broadcasting: bool = False


class Assigned(NamedTuple):
    """queue_ids: -1 is every queue.  queues: how many the topic has.  members: of the group."""

    mode: RequestMode
    queue_ids: tuple[int, ...]
    queues: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group's settings (RocketMQ's subscription group).

    retry_policy: the levels at which failed messages wait, see words/retry_policy.py.  orderly: the
    messages of a message group are consumed in order, by clients that the broker gives messages
    one by one (RocketMQ 5's consumeMessageOrderly).
    """

    group: str
    max_reconsume_times: int = 16
    retry_queues: int = 1
    can_consume: bool = True
    retry_policy: str = ""
    orderly: bool = False


@dataclass(frozen=True, slots=True)
class GroupExtras:
    """Settings of a group that only RocketMQ's own tools read."""

    broker_id: int = 0
    may_broadcast: bool = True
    begins_at_min: bool = True
    notifies_members: bool = True
    broker_id_when_slow: int = 1


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's progress in one queue; committed_offset is None before the first commit.

    client_id: the member that reads the queue now, or to which its oldest message is leased.
    in_flight: how many messages clients of RocketMQ 5 have received, and neither acknowledged nor
    failed.  has_no_lag: no member reads the topic any more, or all of them are broadcasting.

    oldest_timestamp_ms: when the oldest message that is not consumed was stored; 0 if there is
    none.  progressed_at_ms: when the group last finished a message here; 0 if it has not since the
    broker's start.  silent_since_ms: since when it has finished none, although there was one; 0 if
    there is none.
    """

    queue: Queue
    min_offset: int
    max_offset: int
    committed_offset: int | None
    client_id: str
    in_flight: int = 0
    has_no_lag: bool = False
    oldest_timestamp_ms: int = 0
    progressed_at_ms: int = 0
    silent_since_ms: int = 0

    @property
    def next_offset(self) -> int:
        """The queue offset of the oldest message that is not consumed, or the queue's end."""
        return max(self.committed_offset or 0, self.min_offset)

    @property
    def lag(self) -> int:
        """LAG: the messages from the group's committed offset to the end of the queue.

        Without a committed offset it is all that the queue has.  Of leased messages those that are
        done count, too, until all before them are done.  Messages that a filter leaves out count
        until the group has looked at them; retries, when they are due.  0: see has_no_lag.
        """
        return 0 if self.has_no_lag else max(0, self.max_offset - self.next_offset)


@dataclass(frozen=True, slots=True)
class MemberInfo:
    client_id: str
    subscriptions: tuple[Subscription, ...]
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """is_broadcasting: each member reads all queues and keeps its own offsets, so that nobody else
    knows how far it is.  now_ms: the broker's clock; 0 from a broker before 0.12."""

    info: GroupInfo
    members: tuple[MemberInfo, ...]
    progress: tuple[QueueProgress, ...]
    is_broadcasting: bool = False
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Change a group's settings at once, or make the group; None leaves a setting as it is.

    retry_policy: see rmqlite.kernel.words.retry_policy; empty means RocketMQ's levels 3, 4, 5 …
    """

    group: str
    max_reconsume_times: int | None = None
    retry_queues: int | None = None
    can_consume: bool | None = None
    retry_policy: str | None = None
    orderly: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """Delete a group's settings and offsets; force: although it has members."""

    group: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Let a group go on from another place.

    topic: None means all topics that the group reads or has read, without its retry topic.
    timestamp_ms: the first message stored at that time or later, 0 the earliest; None: behind the
    last one.  queue_id and queue_offset, instead: one place in one queue of the topic.  force:
    although the group has members, whose next commits may undo it.
    """

    group: str
    topic: str | None = None
    timestamp_ms: int | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class QueueReset:
    """before: the committed offset, None without one; after: the next offset to read."""

    queue: Queue
    min_offset: int
    max_offset: int
    before: int | None
    after: int

    @property
    def _begin(self) -> int:
        """Where the group would have gone on; without a commit it has consumed nothing."""
        before = self.min_offset if self.before is None else self.before
        return max(before, self.min_offset)

    @property
    def again(self) -> int:
        """How many messages come again."""
        return max(0, self._begin - self.after)

    @property
    def skipped(self) -> int:
        """How many messages never come."""
        return max(0, self.after - self._begin)

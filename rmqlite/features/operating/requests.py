"""Progress of groups, resets and deletions: what is asked and answered."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Final

from rmqlite.features.rows import Row
from rmqlite.kernel.requests.groups import GroupInfo, MemberInfo
from rmqlite.kernel.requests.topics import Queue


@dataclass(frozen=True, slots=True)
class TakenQueue:
    """A group's progress in one queue.

    committed_offset: without a commit the begin of the queue, so that the difference is the LAG.
    taken_at_ms: when the last message before it was stored; 0 if there is none.
    """

    queue: Queue
    end_offset: int
    committed_offset: int
    taken_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group's progress in the queues of one topic, and how fast it takes messages."""

    topic: str
    per_second: float
    queues: tuple[TakenQueue, ...]

    @property
    def behind(self) -> int:
        """How many messages the group has still to take."""
        return sum([each.end_offset - each.committed_offset for each in self.queues])


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """When messages of a queue were stored, in milliseconds.

    first, last: of all messages; next: of the first message that the group has not taken; each
    is None if there is none.  taken: of the last message that the group has taken, else first.
    """

    queue: Queue
    first_ms: int | None
    last_ms: int | None
    taken_ms: int | None
    next_ms: int | None


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
class GroupStatus:
    """is_broadcasting: each member reads all queues and keeps its own offsets, so that nobody else
    knows how far it is.  now_ms: the broker's clock; 0 from a broker before 0.12.  held_back_at_ms:
    when its rate limit last left a call without a message; 0: never since the broker's start.
    expired: what had expired when the group came to it, since then."""

    info: GroupInfo
    members: tuple[MemberInfo, ...]
    progress: tuple[QueueProgress, ...]
    is_broadcasting: bool = False
    now_ms: int = 0
    held_back_at_ms: int = 0
    expired: int = 0


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


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A group that reads a topic, or has read it; unread: the messages that it has not consumed."""

    group: str
    unread: int
    members: int


@dataclass(frozen=True, slots=True)
class TopicLoss:
    """What is lost with a topic.

    messages: all that its queues hold.  unread: those that no group has consumed.  waiting:
    messages that wait for it in the schedule; they become dead letters when they are due.
    """

    topic: str
    messages: int
    unread: int
    waiting: int
    readers: tuple[TopicReader, ...] = ()


PREVIEW_TOPIC_DELETION: Final = Row("Admin", "PreviewTopicDeletion", str, TopicLoss)
DELETE_TOPIC: Final = Row("Admin", "DeleteTopic", str, NoneType, is_short=True)
DELETE_GROUP: Final = Row("Admin", "DeleteGroup", GroupDeletion, NoneType, is_short=True)
DESCRIBE_GROUP: Final = Row("Admin", "DescribeGroup", str, GroupStatus)
PREVIEW_OFFSET_RESET: Final = Row(
    "Admin", "PreviewOffsetReset", OffsetReset, tuple[QueueReset, ...]
)
RESET_OFFSETS: Final = Row("Admin", "ResetOffsets", OffsetReset, tuple[QueueReset, ...])

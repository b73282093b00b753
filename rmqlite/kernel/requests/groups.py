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


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group's settings (RocketMQ's subscription group).

    retry_policy: the levels at which failed messages wait, see words/retry_policy.py.  orderly: the
    messages of a message group are consumed in order, by clients that the broker gives messages
    one by one (RocketMQ 5's consumeMessageOrderly).  max_per_second, burst: its rate limit.
    bury_expired: what expires is a dead letter.
    """

    group: str
    max_reconsume_times: int = 16
    retry_queues: int = 1
    can_consume: bool = True
    retry_policy: str = ""
    orderly: bool = False
    max_per_second: float = 0.0
    burst: int = 0
    bury_expired: bool = False


@dataclass(frozen=True, slots=True)
class GroupExtras:
    """Settings of a group that only RocketMQ's own tools read."""

    broker_id: int = 0
    may_broadcast: bool = True
    begins_at_min: bool = True
    notifies_members: bool = True
    broker_id_when_slow: int = 1


@dataclass(frozen=True, slots=True)
class MemberInfo:
    client_id: str
    subscriptions: tuple[Subscription, ...]
    last_seen_ms: int


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
    max_per_second: float | None = None
    burst: int | None = None
    bury_expired: bool | None = None

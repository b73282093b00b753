"""Consumer groups: settings, members, assignment, committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.limits import QUEUES_MAX
from rmqlite.requests.topics import Queue


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
class GroupChange:
    """Change a group's settings at once, or make the group; None leaves a setting as it is.

    retry_policy: see rmqlite.retry_policy; empty is RocketMQ's levels 3, 4, 5 …
    """

    group: str
    max_reconsume_times: int | None = None
    retry_queues: int | None = None
    can_consume: bool | None = None
    retry_policy: str | None = None

"""How a group gets messages, and which queues a member reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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

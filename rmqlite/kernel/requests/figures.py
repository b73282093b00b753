"""The state of the broker and its delay levels, and figures about traffic and progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TableVersion(NamedTuple):
    """counter: the changes of a table; changed_at_ms: the newest record at the last change."""

    counter: int
    changed_at_ms: int

    def next(self, changed_at_ms: int) -> TableVersion:
        """The version after one more change."""
        return TableVersion(self.counter + 1, changed_at_ms)

    def row(self) -> tuple[tuple[str], dict[str, int]]:
        """As it stands in RocketMQ's tables."""
        return ("dataVersion",), {"counter": self.counter, "timestamp": self.changed_at_ms}


@dataclass(frozen=True, slots=True)
class LevelStatus:
    """One delay level: its waiting messages, and how late it delivered since the broker started.

    delay: as the table spells it; empty for a level that only older tables had.  The level -1 with
    the delay "timers" stands for the messages that wait for an instant of their own.
    next_due_ms: deliver time of its earliest message; 0 if none waits.
    """

    level: int
    delay: str
    pending: int
    next_due_ms: int
    delivered: int
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int

    @property
    def is_used(self) -> bool:
        """Does it hold a message, or has it delivered one since the broker started?"""
        return self.pending > 0 or self.delivered > 0


@dataclass(frozen=True, slots=True)
class NameServerStatus:
    """A name server of namesrvAddr, at which the broker registers.

    since_ms: when the present state began.  registered_at_ms: of the last registration, and topics
    the number of topics in it; both 0 before the first one.  reason: why it is not registered.
    """

    address: str
    is_registered: bool = False
    since_ms: int = 0
    registered_at_ms: int = 0
    topics: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """Another broker that has registered at the name server of this one.

    broker_id: 0 for a master.  topics: of all addresses of the name.
    """

    broker_name: str
    broker_id: int
    address: str
    cluster: str
    topics: int
    registered_at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Counts are since the broker started; offsets are physical offsets of the log.

    disk_used_ratio: used share of the store's disk, 0 to 1.  is_disk_full: sends are refused
    now.  pinned_*: the undelivered message for which whole log files older than
    fileReservedTime stay, and the bytes of these files; all 0 if there is none.  Level 0 beside
    such bytes: an open half message keeps them.  undeliverable:
    scheduled messages that became dead letters of the schedule itself.  warnings: what an
    operator should mend, a sentence each, such as a port that others reach without an account.
    disk_bytes: the size of the store's disk; 0: it was not measured yet.
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
    warnings: tuple[str, ...] = ()
    name_servers: tuple[NameServerStatus, ...] = ()
    registered: tuple[RegisteredBroker, ...] = ()
    disk_bytes: int = 0

"""The state of the broker, and its table of delay levels, which may be read and changed.

Times are milliseconds since 1970, on the broker's clock; sizes are bytes.  A level is a delay
level, 1 or more, or -1: the messages that wait for an instant of their own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from rmqlite.kernel.words.levels import parse_levels


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
class ArchiveStatus:
    """The second copy of the store.  owner, term: who archives there; empty and 0: not known yet.

    end: the archive has the log up to this physical offset, since archived_at_ms.  behind_bytes:
    what is on disk and not in the archive; behind_since_ms: since when, 0 if nothing is.
    lost_bytes: log files that a full disk lost before they were archived.  trouble: why it is
    behind, or has stopped.
    """

    url: str
    owner: str = ""
    term: int = 0
    end: int = 0
    archived_at_ms: int = 0
    behind_bytes: int = 0
    behind_since_ms: int = 0
    lost_bytes: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The copy of the log on another broker.  role: as brokerRole, of this broker.

    peer: the address of the other one; empty: none has come yet.  is_connected: are there frames
    between both?  end: the other one's synced end if this is a master, else the master's.
    behind_bytes: what the copy lacks; behind_since_ms: since when, 0 if nothing.  alone_since_ms:
    since when there is one copy, 0 if there are two.  trouble: what an operator should mend.
    authority: what decides who is the master; authority_master, in_sync: as it has said last.
    unheard_since_ms: 0 if it answers.  lease_left_ms: how long a master may answer without it.
    """

    role: str
    term: int = 0
    peer: str = ""
    is_connected: bool = False
    end: int = 0
    behind_bytes: int = 0
    behind_since_ms: int = 0
    alone_since_ms: int = 0
    trouble: str = ""
    authority: str = ""
    unheard_since_ms: int = 0
    authority_master: str = ""
    lease_left_ms: int = 0
    in_sync: tuple[str, ...] = ()


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
    disk_bytes: the size of the store's disk; 0: it was not measured yet.  archives: a second copy.
    replication: another one, on a standby; none if there never was a standby.
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
    archives: tuple[ArchiveStatus, ...] = ()
    replication: tuple[ReplicationStatus, ...] = ()


class ScheduleAction(enum.IntEnum):
    """What to do with a pending message."""

    CANCEL = 0
    """Do not deliver it."""
    FIRE = 1
    """Deliver it at once."""
    RESCHEDULE = 2
    """Let it wait for the delay of another level from now on, or for another instant."""
    BURY = 3
    """It is a retry: make a dead letter of it."""


@dataclass(frozen=True, slots=True)
class LevelsChange:
    """Put this messageDelayLevel in force; dry_run: only answer what it would change."""

    message_delay_level: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LevelChange:
    """What a new table changes for one level; a delay is empty if a table has no such level.

    pending: how many messages wait at this level; they keep their deliver times.
    next_due_ms: the earliest deliver time; 0 if none waits.
    """

    level: int
    delay_before: str
    delay_after: str
    pending: int
    next_due_ms: int


@dataclass(frozen=True, slots=True)
class LevelsChanged:
    """before: the table until now.  levels: those of either table, and those with messages."""

    before: str
    after: str
    levels: tuple[LevelChange, ...]

    @property
    def loss(self) -> str:
        """What the change takes away: it "removes levels 2 to 18".

        Empty if every level stays and the last one is at least as long as before: then nobody who
        sends to a long delay gets a short one.
        """
        before, after = parse_levels(self.before), parse_levels(self.after)
        last, first_gone = before.max_level, after.max_level + 1
        if first_gone > last:
            if after.delay_ms(last) >= before.delay_ms(last):
                return ""
            return f"makes level {last} shorter: {after.name(last)} instead of {before.name(last)}"
        gone = f"levels {first_gone} to {last}" if first_gone < last else f"level {last}"
        waiting = sum([each.pending for each in self.levels if each.level >= first_gone])
        return f"removes {gone}" + (f" (messages that wait there: {waiting})" if waiting else "")


@dataclass(frozen=True, slots=True)
class DatedTable:
    """A table of delay levels and its start; 0 means that no earlier table is recorded."""

    in_force_from_ms: int
    message_delay_level: str


@dataclass(frozen=True, slots=True)
class LevelsInForce:
    """The table in force and its origin.

    configured: the table of broker.conf at its last reading; if the table in force is another
    one, somebody has set it since.  tables: every table so far, the oldest first.
    """

    message_delay_level: str
    configured: str
    tables: tuple[DatedTable, ...]

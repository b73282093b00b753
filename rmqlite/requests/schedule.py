"""What is asked of the schedule and what it answers: plain values.

Which messages wait, when they come due, and what should become of them instead.  Times are
milliseconds since 1970, on the broker's clock; sizes are bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rmqlite.message import offset_message_id

IDS_MAX: Final = 1_000
"""How many message ids one call may name."""
PAGE_MAX: Final = 1_000
"""How many pending messages one call lists at most."""
PAGE_DEFAULT: Final = 100
CHANGES_MAX: Final = 10_000
"""How many pending messages one call changes at most."""
CHANGES_DEFAULT: Final = 5_000
BOUNDS_MAX: Final = 200
"""How many instants one timeline may have."""


@dataclass(frozen=True, slots=True)
class PendingFilter:
    """Which pending messages: all that fit every field that is given.

    levels: none is all.  topic: where they will be delivered; %RETRY%group for a group's
    retries.  due_from_ms <= deliver time < due_until_ms; None is no end.  key: one of their
    keys.  message_id: the producer's (UNIQ_KEY).  origin_topic: of retries, the topic they
    were sent to first.  tag: their tags.  reason: of retries, part of the last failure's
    reason, in any case.
    """

    levels: tuple[int, ...] = ()
    topic: str = ""
    due_from_ms: int = 0
    due_until_ms: int | None = None
    key: str = ""
    message_id: str = ""
    origin_topic: str = ""
    tag: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """One page of what waits, in the order in which it comes due.

    cursor: empty for the first page, then what the page before said.  max_messages: 1 to
    1,000; 0 means 100.  A page may be shorter than that, even empty, and not the last.
    """

    filter: PendingFilter = PendingFilter()
    cursor: str = ""
    max_messages: int = 0


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that waits: everything but its body.

    topic, queue_id: where it will be delivered.  queue_offset: in its level's queue.
    physical_offset, store_size: where its scheduled record lies in the log.
    """

    level: int
    queue_offset: int
    deliver_at_ms: int
    topic: str
    queue_id: int
    message_id: str
    tags: str
    keys: tuple[str, ...]
    born_timestamp_ms: int
    store_timestamp_ms: int
    physical_offset: int
    store_size: int
    body_size: int
    reconsume_times: int
    store_host: str

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of the scheduled record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


@dataclass(frozen=True, slots=True)
class PendingPage:
    """cursor: where the next page goes on; empty when there is none."""

    messages: tuple[PendingMessage, ...]
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class PendingCount:
    """So many messages of a level wait for their delivery to a topic."""

    level: int
    topic: str
    pending: int


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """How many come due between these instants, ascending, 1 to 200 of them.

    levels: none is all.
    """

    bounds_ms: tuple[int, ...]
    levels: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelTimeline:
    """counts: before the first instant, from each one to the next, and from the last one on."""

    level: int
    counts: tuple[int, ...]


class ScheduleAction(enum.IntEnum):
    """What becomes of a pending message."""

    CANCEL = 0
    """It is not delivered."""
    FIRE = 1
    """It is delivered at once."""
    RESCHEDULE = 2
    """It waits once more, from now on, as long as another level."""


class ChangeOutcome(enum.IntEnum):
    """What a change found, and did."""

    DONE = 0
    NOT_FOUND = 1
    """No message with this id was ever scheduled, or retention has taken it."""
    ALREADY_DELIVERED = 2
    ALREADY_CANCELLED = 3
    UNDELIVERABLE = 4
    """It cannot be delivered: it is a dead letter, or will be one when it is due."""


@dataclass(frozen=True, slots=True)
class ChangeByIds:
    """Change the pending messages with these message ids, at most 1,000.

    topic: only what will be delivered there; empty is anywhere.  delay_level: the new one,
    1 or more, of a RESCHEDULE; of another action 0.  dry_run: only say what would be done.
    """

    action: ScheduleAction
    message_ids: tuple[str, ...]
    topic: str = ""
    delay_level: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ChangedId:
    """What became of a message id.

    count: how many pending messages had it; a message that failed in several groups waits
    once for each.  deliver_at_ms: when the last of them is due now; 0 when none is.
    """

    message_id: str
    outcome: ChangeOutcome
    count: int = 0
    deliver_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ChangeByFilter:
    """Change the pending messages that fit, those that were there at the first call.

    A call goes on where the cursor says, and changes at most max_messages: 1 to 10,000; 0
    means 5,000.  delay_level, dry_run: as in ChangeByIds.
    """

    action: ScheduleAction
    filter: PendingFilter
    delay_level: int = 0
    dry_run: bool = False
    cursor: str = ""
    max_messages: int = 0


@dataclass(frozen=True, slots=True)
class ChangedPage:
    """How many messages were changed, or would be; cursor: as in PendingPage."""

    changed: int
    cursor: str = ""

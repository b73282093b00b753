"""Waiting messages: what is asked about them, what is changed, and the answers."""

from __future__ import annotations

import enum
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from types import NoneType
from typing import Final, NamedTuple

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, Row
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import offset_message_id

CHANGED_IDS_MAX: Final = 1_000
"""The most message ids that one call may name."""
PENDING_PAGE_MAX: Final = 1_000
"""The most pending messages that one call lists."""
PAGE_DEFAULT: Final = 100
CHANGES_MAX: Final = 10_000
"""The most pending messages that one call changes."""
CHANGES_DEFAULT: Final = 5_000
TIMELINE_BOUNDS_MAX: Final = 200
"""The most instants that one timeline may have."""
_VERSION: Final = "v1"
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}").fullmatch
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_HANDLE_RULE: Final = "the handle that the answer to a send has, unchanged"


@dataclass(frozen=True, slots=True)
class PendingFilter:
    """Selects the pending messages that match every given field.

    levels: empty means all.  topic: the topic of the delivery; %RETRY%group for a group's
    retries.  due_from_ms <= deliver time < due_until_ms; None means no end.  key: one of the
    message's keys.  ids: any of these, at most 100; the producer's (UNIQ_KEY).  origin_topic:
    the topic that a retry was sent to first.  tag: the message's tags.  reason: part of the
    reason of a retry's last failure or of its kind, in upper or lower case.  failure_kind: the
    kind of that reason (failure_kind()).
    """

    levels: tuple[int, ...] = ()
    topic: str = ""
    due_from_ms: int = 0
    due_until_ms: int | None = None
    key: str = ""
    ids: tuple[str, ...] = ()
    origin_topic: str = ""
    tag: str = ""
    reason: str = ""
    failure_kind: str = ""


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """One page of the pending messages, in the order of their deliver times.

    cursor: empty for the first page, then the cursor of the page before.  max_messages: 1 to
    1,000; 0 means 100.  A page may be shorter, or even empty, without being the last.
    """

    filter: PendingFilter = PendingFilter()
    cursor: str = ""
    max_messages: int = 0


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A pending message without its body.

    topic, queue_id: where it will be delivered.  queue_offset: its place in its wait queue.
    physical_offset, store_size: the place of its scheduled record in the log.
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
    """cursor: where the next page begins; empty on the last page."""

    messages: tuple[PendingMessage, ...]
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class PendingCount:
    """How many messages of a level wait for their delivery to a topic."""

    level: int
    topic: str
    pending: int


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """Asks how many messages come due between instants.

    bounds_ms: 1 to 200 instants, ascending.  levels: empty means all.
    """

    bounds_ms: tuple[int, ...]
    levels: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelTimeline:
    """counts: before the first instant, from each one to the next, and from the last one on."""

    level: int
    counts: tuple[int, ...]


class ChangeOutcome(enum.IntEnum):
    """The result of a change."""

    DONE = 0
    NOT_FOUND = 1
    """No message with this id was ever scheduled, or retention has deleted it."""
    ALREADY_DELIVERED = 2
    ALREADY_CANCELLED = 3
    UNDELIVERABLE = 4
    """It cannot be delivered: it is a dead letter of the schedule, or will be one when due."""


@dataclass(frozen=True, slots=True)
class ChangeByIds:
    """Change the pending messages with these message ids, at most 1,000.

    message_ids: the producers' ids, or offset message ids of the records that wait.
    topic: only messages that will be delivered there; empty means any topic.  A RESCHEDULE has
    exactly one of delay_level, deliver_at_ms and deliver_after_ms, which counts from now on; other
    actions have none, which is 0.  An instant that is past is due at once.  dry_run: only answer
    what the change would do.  reason: of a BURY, whose topic is a retry topic; empty: that of the
    last failure stays.
    """

    action: ScheduleAction
    message_ids: tuple[str, ...]
    topic: str = ""
    delay_level: int = 0
    dry_run: bool = False
    deliver_at_ms: int = 0
    deliver_after_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChangedId:
    """The outcome for one message id.

    count: how many pending messages had the id; a message that failed in several groups waits
    once for each.  deliver_at_ms: when the last of them is due after the change; 0 if none is.
    """

    message_id: str
    outcome: ChangeOutcome
    count: int = 0
    deliver_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ChangeByFilter:
    """Change the pending messages that match a filter, if they existed at the first call.

    cursor: empty for the first call, then the cursor of the answer before.  max_messages: how
    many one call changes at most, 1 to 10,000; 0 means 5,000.  The other fields are those of
    ChangeByIds.
    """

    action: ScheduleAction
    filter: PendingFilter
    delay_level: int = 0
    dry_run: bool = False
    cursor: str = ""
    max_messages: int = 0
    deliver_at_ms: int = 0
    deliver_after_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ChangedPage:
    """changed: how many messages were changed, or would be; cursor: as in PendingPage."""

    changed: int
    cursor: str = ""


class RecallHandle(NamedTuple):
    """What a client of RocketMQ 5 recalls a timer by: the names of one message of one instant.

    It travels as text, in URL-safe base64 with padding:

        v1 <topic> <broker name> <TIMER_OUT_MS + 1> <message id>

    timer_out_ms: of the record.  message_id: the producer's (UNIQ_KEY).
    """

    topic: str
    broker_name: str
    timer_out_ms: int
    message_id: str

    def text(self) -> str:
        """What the client gets; "" if the message has no id, or one that no handle can name."""
        parts = (_VERSION, self.topic, self.broker_name, f"{self.timer_out_ms + 1}")
        if not self.message_id or any(" " in part for part in (*parts, self.message_id)):
            return ""
        return urlsafe_b64encode(" ".join((*parts, self.message_id)).encode()).decode("ascii")


def read_handle(text: str) -> RecallHandle:
    """The inverse of text().  As for RocketMQ, padding may be missing, and whatever stands behind
    a further blank does not count.  Raises InvalidValue."""
    if not _BASE64(text) or ("=" in text and len(text) % 4):
        raise InvalidValue("recallHandle", text, _HANDLE_RULE)
    try:
        parts = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "replace")
    except ValueError:
        raise InvalidValue("recallHandle", text, _HANDLE_RULE) from None
    version, topic, broker_name, after_ms, message_id, *_ = [*parts.split(" "), *[""] * 4]
    if version != _VERSION or not message_id:
        raise InvalidValue("recallHandle", text, _HANDLE_RULE)
    if not _WHOLE(after_ms):
        raise InvalidValue("recallHandle", text, f"{_HANDLE_RULE}: {after_ms!r} in it is no time")
    return RecallHandle(topic, broker_name, int(after_ms) - 1, message_id)


LIST_PENDING: Final = Row("Admin", "ListPending", PendingQuery, PendingPage)
COUNT_PENDING: Final = Row("Admin", "CountPending", NoneType, tuple[PendingCount, ...])
GET_TIMELINE: Final = Row("Admin", "GetTimeline", TimelineRequest, tuple[LevelTimeline, ...])
CHANGE_BY_IDS: Final = Row(
    "Admin", "ChangeByIds", ChangeByIds, tuple[ChangedId, ...], bytes_max=LIST_REQUEST_BYTES_MAX
)
CHANGE_BY_FILTER: Final = Row("Admin", "ChangeByFilter", ChangeByFilter, ChangedPage)

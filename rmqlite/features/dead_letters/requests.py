"""Requests about failed messages and their answers: plain values.

A DeadLetter describes either kind: a dead letter, or a retry that its group will get again.
Times are milliseconds since 1970, on the broker's clock; sizes are bytes.

Five thousand dead letters have few kinds of reasons, which differ only in numbers and ids.  The
kind is a pure function of the reason, so whoever groups by it and whoever filters by it find the
same ones: the broker, the command line, the page and Spark's tables.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import NoneType
from typing import Final

from rmqlite.features.rows import Row
from rmqlite.kernel.words.message import offset_message_id

DEAD_LETTERS_MAX: Final = 1_000
"""The most dead letters that one call lists."""
DEAD_LETTERS_DEFAULT: Final = 100
REASONS_MAX: Final = 5
"""A group's summary has this many kinds of reasons, the most frequent ones."""
REASONS_OF_MAX: Final = 100_000
"""The broker counts the reasons of this many dead letters of a group, the newest ones."""
EVENTS_MAX: Final = 1_000
"""One answer has this many events of a message's history, the newest ones."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects the dead letters that match every given field.

    topic: the topic that a dead letter was sent to first.  tag: its tags.  key: one of its keys.
    reason: part of the last failure's reason or of its kind, in upper or lower case.
    since_ms <= time of the last failure < until_ms; None means no end.  ids: any of these, at
    most 100; each is the producer's message id (UNIQ_KEY), the offset message id of the dead letter
    itself, or its place such as billing:0:17.  failure_kind: the kind of the reason
    that is shown.  job_id: its message was sent by this redrive job.
    """

    topic: str = ""
    tag: str = ""
    key: str = ""
    reason: str = ""
    since_ms: int = 0
    until_ms: int | None = None
    ids: tuple[str, ...] = ()
    failure_kind: str = ""
    job_id: str = ""


EVERY_DEAD_LETTER: Final = DeadLetterFilter()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A failed message without its body.

    topic, queue_id, queue_offset: its place in %DLQ%group or %RETRY%group.  A retry that still
    waits in the schedule has the topic and queue of its delivery, but its queue offset in the
    schedule.  delivery_attempts: how often a consumer has received it.  redriven_before: how
    often it was redriven before it died again.  redriven_by: the redrive job that has sent it again
    since, or empty.  due_ms: when a retry comes, 0 for a dead letter.  If RocketMQ wrote the
    dead letter, its failure times are store timestamps and its reason is empty.
    max_reconsume_times: the sender's own limit of retries, which overrides the consumer's and
    the group's.  failure_kind: the kind of reason.  claimed_topic, claimed_message_id: the origin
    that the client which sent it says, if the broker's log has no such message: then origin_topic
    is the retry topic that it was sent to.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body_size: int
    message_id: str
    origin_topic: str
    origin_message_id: str
    origin_queue_id: int
    origin_queue_offset: int
    tags: str
    keys: tuple[str, ...]
    delivery_attempts: int
    first_failure_ms: int
    last_failure_ms: int
    reason: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    store_host: str
    redriven_before: int = 0
    redriven_by: str = ""
    due_ms: int = 0
    max_reconsume_times: int | None = None
    failure_kind: str = ""
    claimed_topic: str = ""
    claimed_message_id: str = ""

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of the dead letter's record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


@dataclass(frozen=True, slots=True)
class DeadLettersQuery:
    """One page of a group's dead letters or retries.

    group: empty means every group, and needs filter.ids.  newest_first: dead letters
    only.  is_open: only dead letters that no job has redriven.  cursor: empty for the first
    page, then the cursor of the page before.  max_letters: 1 to 1,000; 0 means 100.  A page
    may be shorter, or even empty, without being the last.
    """

    group: str
    filter: DeadLetterFilter = EVERY_DEAD_LETTER
    newest_first: bool = False
    is_open: bool = False
    cursor: str = ""
    max_letters: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """looked_at: how many dead letters this call has read.  cursor: of the next page, or empty."""

    letters: tuple[DeadLetter, ...]
    cursor: str = ""
    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many dead letters failed for a reason of this kind."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of a group.

    letters: how many are not purged.  redriven: how many of these a job has sent again.  purged:
    how many purged ones the log still has.  oldest_ms, newest_ms: when
    the first and the last of them died, 0 without any.  reasons: the kinds of the open ones
    (not redriven) among the newest reasons_of dead letters, the most frequent kind first.
    rest_letters: how many of these open ones have none of these kinds; rest_kinds: how many
    kinds they have.
    """

    group: str
    letters: int
    redriven: int
    purged: int
    oldest_ms: int
    newest_ms: int
    reasons: tuple[ReasonCount, ...] = ()
    reasons_of: int = 0
    rest_letters: int = 0
    rest_kinds: int = 0

    @property
    def open(self) -> int:
        """How many dead letters are not redriven."""
        return self.letters - self.redriven


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """Hide the dead letters of a group that match: they are no longer listed, counted or redriven.

    until_ms: of older clients, which have no filter: the same as filter.until_ms.  restore: show
    all dead letters again that the log still has; without a filter.  dry_run: only count.
    """

    group: str
    until_ms: int | None = None
    restore: bool = False
    dry_run: bool = False
    filter: DeadLetterFilter = EVERY_DEAD_LETTER


@dataclass(frozen=True, slots=True)
class Purged:
    """letters: how many are hidden or shown again; open: how many of these are not redriven."""

    letters: int
    open: int


class EventKind(enum.IntEnum):
    """The event in a message's history that a record stands for."""

    SENT = 0
    """Sent without a delay, into its topic."""
    SCHEDULED = 1
    """Sent with a delay, into the schedule."""
    DELIVERED = 2
    """Delivered from the schedule to its topic."""
    FAILED = 3
    """Failed by a consumer; a retry was scheduled."""
    RETRIED = 4
    """Delivered to the group's retry topic."""
    DEAD = 5
    CANCELLED = 6
    FIRED = 7
    """Delivered before its time, at a user's wish."""
    RESCHEDULED = 8
    """Scheduled once more, for another time."""
    UNDELIVERABLE = 9
    """Due, but it could not be delivered: a dead letter of the schedule."""
    REDRIVEN = 10
    """Sent again, as a dead letter, under a new message id."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One record of a message's history.

    group: the group of a failure, retry or dead letter.  attempt: how often a consumer had
    failed the message by then.  level, due_ms: 0 unless it was scheduled.  is_pending: it still
    waits.  readers: the groups that have committed behind a message in a topic.
    max_reconsume_times: its sender's own limit of retries; None without one.
    """

    kind: EventKind
    at_ms: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    offset_message_id: str
    message_id: str
    group: str = ""
    attempt: int = 0
    level: int = 0
    due_ms: int = 0
    is_pending: bool = False
    reason: str = ""
    job_id: str = ""
    readers: tuple[str, ...] = ()
    max_reconsume_times: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Asks for the whole history of a message; message_id may be the offset id of any record."""

    message_id: str


@dataclass(frozen=True, slots=True)
class History:
    """events: in the order of the log.  is_cut: older ones may be left out.

    The new id of a redriven dead letter belongs to the same history: each event names its own id.
    """

    message_id: str
    events: tuple[HistoryEvent, ...]
    is_cut: bool = False


LIST_DEAD_LETTER_GROUPS: Final = Row(
    "Admin", "ListDeadLetterGroups", NoneType, tuple[DeadLetterGroup, ...]
)
LIST_REASONS: Final = Row("Admin", "ListReasons", str, DeadLetterGroup)
LIST_DEAD_LETTERS: Final = Row("Admin", "ListDeadLetters", DeadLettersQuery, DeadLetterPage)
PURGE_DEAD_LETTERS: Final = Row("Admin", "PurgeDeadLetters", PurgeRequest, Purged, is_short=True)
LIST_RETRIES: Final = Row("Admin", "ListRetries", DeadLettersQuery, DeadLetterPage)
GET_HISTORY: Final = Row("Admin", "GetLife", HistoryQuery, History)

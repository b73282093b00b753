"""What is asked about failed messages and what is answered: plain values.

A letter is a message that has failed: a dead one, or one that is given to its group again.
Times are milliseconds since 1970, on the broker's clock; sizes are bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from rmqlite.message import offset_message_id

LETTERS_MAX: Final = 1_000
"""How many letters one call lists at most."""
LETTERS_DEFAULT: Final = 100
REASONS_MAX: Final = 5
"""How many reasons a group's summary names, the most frequent ones."""
REASONS_OF_MAX: Final = 100_000
"""Of how many letters of a group, the newest ones, reasons are counted."""
HOPS_MAX: Final = 1_000
"""How many hops of a message's life one answer tells, the newest ones."""
UNREADABLE: Final = "the log has no sound record there"
"""The reason, and the body, of a dead letter whose scheduled record could not be read."""
LEFT_BEHIND: Final = "its body did not fit into a log file once more: look at the origin message"
"""The body of a dead letter whose own one stayed in the record that it was made of."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters: all that fit every field that is given.

    topic: the one they were sent to first.  tag: their tags.  key: one of their keys.
    reason: part of the last failure's reason, in any case.  since_ms <= time of the last
    failure < until_ms; None is no end.  message_id: the producer's (UNIQ_KEY), or the
    offset message id of the letter itself.
    """

    topic: str = ""
    tag: str = ""
    key: str = ""
    reason: str = ""
    since_ms: int = 0
    until_ms: int | None = None
    message_id: str = ""


EVERY_LETTER: Final = LetterFilter()


@dataclass(frozen=True, slots=True)
class Letter:
    """A failed message without its body.

    topic, queue_id, queue_offset: where it lies, %DLQ%group or %RETRY%group; of a retry that
    still waits in the schedule, where it will be delivered and its queue offset there.
    delivery_attempts: how often a consumer has had it.  redriven_before: how often it was
    redriven in earlier lives.  redriven_by: the redrive job that has sent it again since, or
    empty.  due_ms: when a retry comes, 0 for a dead letter.  Of a letter that RocketMQ wrote
    the failure times are store timestamps and the reason is empty.  max_reconsume_times: the
    sender's own limit of retries, which goes before the consumer's and the group's.
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

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id of the letter's record (reference §5.1)."""
        return offset_message_id(self.store_host, self.physical_offset)


@dataclass(frozen=True, slots=True)
class LettersQuery:
    """One page of a group's letters, dead letters or retries.

    group: empty is every group, which needs filter.message_id.  newest_first: dead letters
    only.  is_open: only dead letters that no job has redriven.  cursor: empty for the first
    page, then what the page before said.  max_letters: 1 to 1,000; 0 means 100.  A page may
    be shorter, even empty, and not the last.
    """

    group: str
    filter: LetterFilter = EVERY_LETTER
    newest_first: bool = False
    is_open: bool = False
    cursor: str = ""
    max_letters: int = 0


@dataclass(frozen=True, slots=True)
class LetterPage:
    """looked_at: how many letters this call has looked at.  cursor: empty at the end."""

    letters: tuple[Letter, ...]
    cursor: str = ""
    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """So many letters have failed for this reason, cut to its first line and 200 characters.

    Where many differ in numbers and ids only, they are one, with # for each of these.
    """

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of a group.

    letters: those behind the purge marker, redriven: of these the ones a job has sent
    again.  purged: those before the marker that the log still has.  oldest_ms, newest_ms:
    when the first and the last of letters died, 0 without any.  reasons: of the open ones
    (not redriven) among the newest reasons_of letters, the most frequent first.
    """

    group: str
    letters: int
    redriven: int
    purged: int
    oldest_ms: int
    newest_ms: int
    reasons: tuple[ReasonCount, ...] = ()
    reasons_of: int = 0

    @property
    def open(self) -> int:
        """Letters that nobody has dealt with."""
        return self.letters - self.redriven


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """Move a group's purge marker: what lies before it is not shown or redriven any more.

    until_ms: behind the letters that died before then; None is behind all.  restore: back to
    the first letter that the log still has.  dry_run: only say what that would mean.
    """

    group: str
    until_ms: int | None = None
    restore: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Purged:
    """letters: how many went out of sight, or came back; open: of these, not redriven."""

    letters: int
    open: int


class HopKind(enum.IntEnum):
    """What a record tells of a message's life."""

    SENT = 0
    """Into its topic, at once."""
    SCHEDULED = 1
    """Sent with a delay."""
    DELIVERED = 2
    """Out of the schedule into its topic."""
    FAILED = 3
    """A consumer failed it; a retry was scheduled."""
    RETRIED = 4
    """Given to the group's retry topic."""
    DEAD = 5
    CANCELLED = 6
    FIRED = 7
    """Delivered before its time, at a user's wish."""
    RESCHEDULED = 8
    """Given another time."""
    UNDELIVERABLE = 9
    """It came due and could not be delivered: a dead letter of the schedule."""
    REDRIVEN = 10
    """A dead letter sent again, under a message id of its own."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One record of a message's life.

    group: of a failure, retry or dead letter.  attempt: how often a consumer had failed it
    by then.  level, due_ms: of what was scheduled, else 0; is_pending: it still waits.
    readers: of a message in a topic, the groups that have committed behind it.
    max_reconsume_times: its sender's own limit of retries; None without one.
    """

    kind: HopKind
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
class LifeQuery:
    """The whole life of a message, by its message id or an offset message id of any hop."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Life:
    """hops in the order of the log; is_cut: older ones may be left out.

    A redriven letter's new id belongs to the same life: hops name the id they have.
    """

    message_id: str
    hops: tuple[Hop, ...]
    is_cut: bool = False

"""Pull and send back: requests and answers as plain values.

Every protocol converts to and from these values; the broker uses no other form.  Times are
milliseconds since 1970, sizes are bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PullStatus(enum.IntEnum):
    """RocketMQ's response codes of a pull (reference §9.2)."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_MOVED = 21


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Ask for messages of one queue from queue_offset on.

    expression: tags, "*" or "TagA || TagB".  wait_ms: how long to wait for a first message.
    sql: an SQL92 expression over properties, or empty; a message has to match both.  as_records:
    only for a broker before 0.13, which else answers with messages as values.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    expression: str = "*"
    max_messages: int = 32
    max_bytes: int = 256 * 1024
    wait_ms: int = 0
    sql: str = ""
    as_records: bool = True


@dataclass(frozen=True, slots=True)
class SendBackRequest:
    """A consumer of group failed the message at physical_offset.

    delay_level: 0 lets the group's retry policy choose; a number above 0 is the level; a number
    below 0 makes a dead letter at once.  max_reconsume_times: None means the group's; a limit
    set by the message's sender overrides both.  delay_ms: the retry waits exactly so long; 0: as
    delay_level says.
    """

    group: str
    physical_offset: int
    delay_level: int = 0
    reason: str = ""
    max_reconsume_times: int | None = None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendBackResult:
    """The failed message is now a retry due at deliver_at_ms, or a dead letter (0)."""

    topic: str
    reconsume_times: int
    delay_level: int
    deliver_at_ms: int

    @property
    def is_dead(self) -> bool:
        return self.deliver_at_ms == 0

"""Reads one queue: finds its start, then long-polls again and again into the backlog.

The state is the call under way; every answer leads to the next call at once, or after a pause if
it was an error.  While the queue's cache is full no call is under way: the
listener that makes room starts the next.  Belongs to the loop.

A subscription takes "*" or "TagA || TagB", as RocketMQ writes it, and SQL92.  The broker compares
hashes of tags, and two tags can share one; so the reader compares the tags themselves once more.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rmqlite.client.channel import retry_pause_s
from rmqlite.client.consuming.backlog import Backlog, CacheLimits, ProcessQueue
from rmqlite.client.consuming.broker_link import BrokerLink, LinkCall, Loop
from rmqlite.features.rows import A, Q, Row
from rmqlite.kernel.requests.groups import OffsetsQuery, Subscription
from rmqlite.kernel.requests.messages import PullRequest, PullStatus
from rmqlite.kernel.requests.topics import Queue, QueueRange, TimeQuery
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, QueueUnknown, Refused, RmqliteError
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import PullResult

EVERYTHING: Final = "*"
PULL_WAIT_MS: Final = 15_000
ANSWER_S_MAX: Final = 15.0
"""How long an answer may take, without the wait of a long poll."""
REFUSED_PAUSE_S: Final = 3.0
"""The pause after a refusal: someone has to create the topic or the group first."""
SPIN_PAUSE_S: Final = 0.02
"""The pause after an empty answer that came sooner than this: it prevents a busy loop."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TagExpression:
    """tags: None takes every message, the untagged included."""

    tags: frozenset[str] | None

    def takes(self, message: StoredMessage) -> bool:
        return self.tags is None or message.tags in self.tags


def parse_tags(expression: str) -> TagExpression:
    """Read an expression; an empty one means "*", blanks round a tag are ignored."""
    if expression.strip() in ("", EVERYTHING):
        return TagExpression(None)
    tags = (tag.strip() for tag in expression.split("||"))
    return TagExpression(frozenset(tag for tag in tags if tag))


def given_sql(sql: str | None) -> str:
    """What a request says for it: "" for none.  Raises InvalidValue for an empty expression.

    It would take every message, and comes from a condition that was never filled in.
    """
    if sql is not None and not sql.strip():
        raise InvalidValue("sql", sql, "an SQL92 expression; None for none")
    return sql or ""


class ConsumeFrom(enum.Enum):
    """Where a group starts in a queue that it never committed."""

    FIRST_OFFSET = "first"
    LAST_OFFSET = "last"


Start: TypeAlias = ConsumeFrom | int
"""An int is a store timestamp in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class PullSettings:
    """How the queues of one consumer are read."""

    group: str
    batch: int
    limits: CacheLimits


class QueueReader:
    """Reads one queue, from start() to stop()."""

    def __init__(
        self,
        queue: Queue,
        subscription: Subscription,
        consume_from: Start,
        settings: PullSettings,
        link: BrokerLink,
        loop: Loop,
        backlog: Backlog,
    ) -> None:
        self.queue = queue
        self.process_queue: ProcessQueue | None = None
        self._subscription = subscription
        self._tags: TagExpression = parse_tags(subscription.expression)
        self._consume_from = consume_from
        self._settings = settings
        self._link = link
        self._loop = loop
        self._backlog = backlog
        self._asked: LinkCall | None = None
        self._asked_at_s = 0.0
        self._failures = 0
        self._stopped = False

    def start(self) -> None:
        """Ask for the group's committed offset, then pull."""
        self._ask(
            rpcs.QUERY_OFFSETS,
            OffsetsQuery(self._settings.group, (self.queue,)),
            self._on_committed,
            self.start,
        )

    def stop(self) -> None:
        """Stop pulling.  Pulled messages stay in the backlog."""
        self._stopped = True
        if self._asked is not None:
            self._asked.cancel()

    # ---- where to start

    def _on_committed(self, offsets: dict[Queue, int]) -> None:
        if self.queue in offsets:
            self._begin(offsets[self.queue], offsets[self.queue])
        else:
            self._find_start()

    def _find_start(self) -> None:
        if isinstance(self._consume_from, int):
            query = TimeQuery(self.queue, self._consume_from)
            self._ask(rpcs.SEARCH_OFFSET, query, self._on_found, self._find_start)
        else:
            topic = self.queue.topic
            self._ask(rpcs.GET_QUEUE_RANGES, topic, self._on_ranges, self._find_start)

    def _on_ranges(self, ranges: tuple[QueueRange, ...]) -> None:
        for each in ranges:
            if each.queue == self.queue:
                is_last = self._consume_from is ConsumeFrom.LAST_OFFSET
                self._on_found(each.max_offset if is_last else each.min_offset)
                return
        error = QueueUnknown(self.queue.topic, self.queue.queue_id, len(ranges))
        self._on_error(error, self._find_start)

    def _on_found(self, queue_offset: int) -> None:
        # None makes the next commit store this offset, so that a consumer that takes over starts
        # here too, and not at a later last offset.
        self._begin(queue_offset, None)

    def _begin(self, queue_offset: int, committed_offset: int | None) -> None:
        self.process_queue = ProcessQueue(
            self.queue,
            queue_offset,
            committed_offset,
            self._settings.limits,
            lambda: self._loop.post(self._pull),
        )
        self._backlog.add(self.process_queue)
        self._pull()

    # ---- pulling

    def _pull(self) -> None:
        if self._stopped:
            return
        assert self.process_queue is not None
        request = PullRequest(
            self._settings.group,
            self.queue.topic,
            self.queue.queue_id,
            self.process_queue.next_offset,
            self._subscription.expression,
            self._settings.batch,
            wait_ms=PULL_WAIT_MS,
            sql=self._subscription.sql,
        )
        self._asked_at_s = elapsed_s()
        self._ask(rpcs.PULL, request, self._on_pulled, self._pull, PULL_WAIT_MS)

    def _on_pulled(self, result: PullResult) -> None:
        assert self.process_queue is not None
        if result.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "the offset is outside of the queue, going on topic=%s queue_id=%d "
                "queue_offset=%d next_offset=%d",
                self.queue.topic,
                self.queue.queue_id,
                self.process_queue.next_offset,
                result.next_offset,
            )
        has_moved = result.next_offset != self.process_queue.next_offset
        messages = [message for message in result.messages if self._tags.takes(message)]
        if not self._backlog.put(self.process_queue, messages, result.next_offset):
            return
        if has_moved or elapsed_s() - self._asked_at_s >= SPIN_PAUSE_S:
            self._pull()
        else:
            self._loop.later(SPIN_PAUSE_S, self._pull)

    # ---- asking

    def _ask(
        self,
        rpc: Row[Q, A],
        value: Q,
        on_answer: Callable[[A], None],
        again: Callable[[], None],
        wait_ms: int = 0,
    ) -> None:
        """Ask; on an error, do `again` after a pause."""
        if self._stopped:
            return

        def on_outcome(outcome: A | RmqliteError) -> None:
            if isinstance(outcome, RmqliteError):
                self._on_error(outcome, again)
            else:
                self._failures = 0
                on_answer(outcome)

        self._asked = self._link.ask(rpc, value, wait_ms / 1000 + ANSWER_S_MAX, on_outcome)

    def _on_error(self, error: RmqliteError, again: Callable[[], None]) -> None:
        is_refused = isinstance(error, Refused)
        if is_refused and self._failures == 0:
            log.warning(
                "a queue cannot be read, trying again topic=%s queue_id=%d: %s",
                self.queue.topic,
                self.queue.queue_id,
                error,
            )
        pause_s = REFUSED_PAUSE_S if is_refused else retry_pause_s(self._failures)
        self._failures += 1
        self._loop.later(pause_s, again)

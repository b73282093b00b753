"""Membership in a group: the queues that a consumer reads now, and their commits.

The broker distributes the queues.  It answers a heartbeat with the next assignment; until then the
waiting heartbeat costs nothing.  Belongs to the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from rmqlite.client.channel import Connection, retry_pause_s
from rmqlite.client.consuming.backlog import Backlog
from rmqlite.client.consuming.broker_link import BrokerLink, LinkCall, Loop
from rmqlite.client.consuming.queue_reader import ConsumeFrom, PullSettings, QueueReader, Start
from rmqlite.kernel.requests.groups import (
    Assignment,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import RmqliteError, Unavailable
from rmqlite.kernel.words.names import retry_topic
from rmqlite.protocols.native.bytes import rpcs

SPIN_PAUSE_S: Final = 0.02
ANSWER_S_MAX: Final = 5.0
log = logging.getLogger(__name__)


class OwnMembership:
    """on_assignment is called for every new epoch."""

    def __init__(
        self,
        group: str,
        client_id: str,
        subscriptions: tuple[Subscription, ...],
        wait_ms: int,
        link: BrokerLink,
        loop: Loop,
        on_assignment: Callable[[Assignment], None],
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._wait_ms = wait_ms
        self._link = link
        self._loop = loop
        self._on_assignment = on_assignment
        self._known_epoch = 0
        self._failures = 0
        self._asked: LinkCall | None = None
        self._stopped = False

    def join(self, connection: Connection, timeout_s: float) -> None:
        """Send the first heartbeat, before start(), and wait.  Raises Refused if it cannot work.

        A broker that is away is no error: a consumer may start before its broker.
        """
        # The next heartbeat logs that the broker is away.
        with suppress(Unavailable):
            connection.call(rpcs.HEARTBEAT, self._request(0), timeout_s)

    def start(self) -> None:
        """Send heartbeats from now on."""
        if not self._stopped:
            timeout_s = self._wait_ms / 1000 + ANSWER_S_MAX
            request = self._request(self._wait_ms)
            self._asked = self._link.ask(rpcs.HEARTBEAT, request, timeout_s, self._on_outcome)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopped = True
        if self._asked is not None:
            self._asked.cancel()

    def leave(self, connection: Connection, timeout_s: float) -> None:
        """Tell the broker, after stop(), that the queues are free.  Not on the loop: it blocks."""
        try:
            connection.call(rpcs.LEAVE, LeaveRequest(self._group, self._client_id), timeout_s)
        except RmqliteError as error:
            log.warning("the broker does not know that we left group=%s: %s", self._group, error)

    def _request(self, wait_ms: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            self._group, self._client_id, self._subscriptions, self._known_epoch, wait_ms
        )

    def _on_outcome(self, outcome: Assignment | RmqliteError) -> None:
        if isinstance(outcome, RmqliteError):
            # A restarted broker counts epochs from the start: 0 asks for the assignment of any
            # epoch.
            self._known_epoch = 0
            if self._failures == 0 and not outcome.can_retry:
                log.error("the heartbeat is refused group=%s: %s", self._group, outcome)
            self._loop.later(retry_pause_s(self._failures), self.start)
            self._failures += 1
            return
        self._failures = 0
        if outcome.epoch == self._known_epoch:
            self._loop.later(SPIN_PAUSE_S, self.start)
            return
        self._known_epoch = outcome.epoch
        self._on_assignment(outcome)
        self.start()


class Readers:
    """subscriptions: by topic.  The retry topic is read from its beginning and without a filter:
    its messages matched when they came the first time.
    """

    def __init__(
        self,
        subscriptions: Mapping[str, Subscription],
        consume_from: Start,
        commit_interval_s: float,
        settings: PullSettings,
        link: BrokerLink,
        loop: Loop,
        backlog: Backlog,
    ) -> None:
        self._subscriptions = subscriptions
        self._consume_from = consume_from
        self._commit_interval_s = commit_interval_s
        self._settings = settings
        self._link = link
        self._loop = loop
        self._backlog = backlog
        self._readers: dict[Queue, QueueReader] = {}
        self._stopped = False
        self._changed = threading.Condition()
        self.queues: tuple[Queue, ...] = ()
        """Replaced as a whole, so that any thread may read it."""

    def start(self) -> None:
        self._loop.later(self._commit_interval_s, self._commit_and_again)

    def assign(self, assignment: Assignment) -> None:
        """Read these queues and no others."""
        if self._stopped:
            return
        wanted = set(assignment.queues)
        # A queue is added when its offset is known; the first one could hold every thread by then.
        self._backlog.expect(len(wanted))
        lost = [self._readers.pop(queue) for queue in self._readers.keys() - wanted]
        for reader in lost:
            reader.stop()
        held = [each.process_queue for each in lost if each.process_queue is not None]
        # Commit the finished messages now: from here on another member owns the offset.
        self._commit(self._backlog.lose(held))
        gained = sorted(wanted - self._readers.keys())
        for queue in gained:
            self._readers[queue] = self._reader(queue)
            self._readers[queue].start()
        if lost or gained:
            log.info(
                "queues were reassigned group=%s reading=%d lost=%d gained=%d members=%d",
                self._settings.group,
                len(self._readers),
                len(lost),
                len(gained),
                len(assignment.members),
            )
        with self._changed:
            self.queues = tuple(sorted(self._readers))
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop pulling and committing; pulled messages stay in the backlog."""
        self._stopped = True
        for reader in self._readers.values():
            reader.stop()

    def wait_assigned(self, timeout_s: float) -> bool:
        """Wait, on any thread but the loop's, until there is a queue to read."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self.queues), timeout_s)

    def _reader(self, queue: Queue) -> QueueReader:
        is_retry = queue.topic == retry_topic(self._settings.group)
        return QueueReader(
            queue,
            self._subscriptions.get(queue.topic) or Subscription(queue.topic),
            ConsumeFrom.FIRST_OFFSET if is_retry else self._consume_from,
            self._settings,
            self._link,
            self._loop,
            self._backlog,
        )

    def _commit_and_again(self) -> None:
        if not self._stopped:
            self._commit(self._backlog.uncommitted())
            self._loop.later(self._commit_interval_s, self._commit_and_again)

    def _commit(self, offsets: dict[Queue, int]) -> None:
        for commit in OffsetsCommit(self._settings.group, offsets).parts():
            on_outcome = partial(self._committed, commit.offsets)
            self._link.ask(rpcs.COMMIT_OFFSETS, commit, ANSWER_S_MAX, on_outcome)

    def _committed(self, offsets: dict[Queue, int], outcome: RmqliteError | None) -> None:
        if outcome is None:
            self._backlog.committed(offsets)
        elif not outcome.can_retry:
            log.error("a commit is refused group=%s: %s", self._settings.group, outcome)

"""The queues that a consumer reads now, and their commits.  Belongs to the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Final

from rmqlite.client.consuming.backlog import Backlog
from rmqlite.client.consuming.broker_link import BrokerLink
from rmqlite.client.consuming.loop import Loop
from rmqlite.client.consuming.queue_reader import ConsumeFrom, PullSettings, QueueReader, Start
from rmqlite.kernel.requests.groups import Assignment, OffsetsCommit, Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.names import retry_topic
from rmqlite.protocols.native.bytes import rpcs

ANSWER_S_MAX: Final = 5.0

log = logging.getLogger(__name__)


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

"""Deletes the queues of topics, and later their files; the log keeps the records.

A deletion is a change of config/deletedTopics.json.  From then on the queues are as empty as if
retention had taken all their messages, also after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from rmqlite.kernel.store.deleted_topics import Deleted, DeletedTopics
from rmqlite.kernel.store.dispatch import Dispatch
from rmqlite.kernel.store.tables.logged_tables import Row
from rmqlite.kernel.words.errors import Overloaded

QUEUES_MAX: Final = 20_000
"""Queues of deleted topics that are remembered."""
QUEUES_A_ROUND: Final = 2
"""Queues whose files are removed at once: each takes four syncs of a folder."""


class Deletions:
    """The deleted topics of one store.  change: appends rows of their table."""

    def __init__(self, dispatch: Dispatch, change: Callable[[Sequence[Row]], None]) -> None:
        self._dispatch = dispatch
        self._change = change

    @property
    def topics(self) -> DeletedTopics:
        return self._dispatch.deleted

    def empty(self, topic: str, log_end: int) -> None:
        """Take all messages from a topic's queues; log_end: a physical offset.

        The queues go on at their next offset if the topic is made again.  Raises Overloaded,
        StoreUnavailable: then nothing has changed.
        """
        queues = {key: queue for key, queue in self._dispatch.queues.items() if key[0] == topic}
        if not queues:
            return
        ends = {key[1]: queue.max_offset for key, queue in queues.items()}
        deleted = DeletedTopics({**self.topics.topics, topic: Deleted(log_end, ends)})
        if deleted.queue_count > QUEUES_MAX:
            raise Overloaded("QUEUES_MAX of deleted topics", QUEUES_MAX)
        self._save(deleted, topic)
        for queue in queues.values():
            queue.empty(queue.max_offset)

    def remove_files(self) -> None:
        """Remove files of emptied queues, for some queues at a time; call it now and then.

        Not while a persist job runs, which may sync these files.  Raises StoreUnavailable.
        """
        queues = [self._dispatch.queues.get(key) for key in self.topics.queues()]
        for queue in islice((each for each in queues if each and each.is_dead), QUEUES_A_ROUND):
            queue.remove_dead_files()

    def clamp(self, log_end: int) -> list[Row]:
        """Note at an opening where the log ends now: a crash may have taken its last records.

        Otherwise new records would look as if they were older than the deletion.  Returns the rows
        that have changed.
        """
        before = self.topics.topics
        clamped = {
            topic: each._replace(physical_end=min(each.physical_end, log_end))
            for topic, each in before.items()
        }
        self._dispatch.deleted = deleted = DeletedTopics(clamped)
        return [deleted.row(topic) for topic in clamped if clamped[topic] != before[topic]]

    def forget(self, topic: str) -> None:
        """Forget a deletion whose records retention has taken.  Raises StoreUnavailable."""
        rest = dict(self.topics.topics)
        gone = rest.pop(topic)
        self._save(DeletedTopics(rest), topic)
        for queue_id in gone.ends:
            self._dispatch.forget((topic, queue_id))

    def _save(self, deleted: DeletedTopics, topic: str) -> None:
        self._change([deleted.row(topic)])
        self._dispatch.deleted = deleted

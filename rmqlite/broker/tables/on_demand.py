"""The topics and groups that one call needs; missing ones are made all at once.

A call first looks up everything it needs, and is refused if something is missing and may not
be made.  Only then make() adds the missing ones to their tables, which the next sync writes before
the records of the call.
"""

from __future__ import annotations

from rmqlite.broker.tables.groups import GroupTable
from rmqlite.broker.tables.topics import TopicTable, check_queue
from rmqlite.errors import MessageTooLarge
from rmqlite.limits import NEW_QUEUES_MAX
from rmqlite.names import check_sendable, group_of, is_retry, retry_topic
from rmqlite.requests.groups import GroupInfo
from rmqlite.requests.topics import TopicInfo
from rmqlite.store.message_store import MessageStore


class OnDemand:
    """The topics and groups of one call; turn: a number that chooses a queue of each topic."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, groups: GroupTable, turn: int = 0
    ) -> None:
        self._store = store
        self._new_queues = 0
        self._topics = topics
        self._groups = groups
        self._turn = turn
        self._new_topics: dict[str, TopicInfo] = {}
        self._new_groups: dict[str, GroupInfo] = {}

    def queue_for(self, topic: str, queue_id: int = -1) -> int:
        """The given queue id, or for -1 the topic's next queue in turn.

        Raises GroupUnknown, InvalidName, PermissionMissing, QueueUnknown, TopicUnknown.
        """
        if is_retry(topic):
            self.retry_topic(group_of(topic) or "")
        info = self._new_topics.get(topic)
        if info is None:
            info = self._topics.wanted(topic)
            if self._topics.get(topic) is None:
                self._new_topics[topic] = info
        if queue_id < 0:
            queue_id = self._turn % max(1, info.write_queues)
        check_queue(info, queue_id, info.write_queues)
        self._new_queues += self._store.queue(topic, queue_id) is None
        return queue_id

    def sendable_queue(self, topic: str) -> int:
        """queue_for(), after check_sendable(), whose errors it raises, too."""
        check_sendable(topic)
        return self.queue_for(topic)

    def retry_topic(self, group: str) -> GroupInfo:
        """The group; it is planned with its retry topic.  Raises GroupUnknown, InvalidName."""
        info = self._new_groups.get(group)
        if info is None:
            info = self._new_groups[group] = self._groups.wanted(group)
        topic = retry_topic(group)
        if self._topics.get(topic) is None:
            self._new_topics[topic] = TopicInfo(topic, info.retry_queues, info.retry_queues)
        return info

    def make(self) -> None:
        """Make the missing groups, then the missing topics.

        Raises MessageTooLarge for too many new queues; Overloaded: groups that were made before
        the topics were refused stay.
        """
        if self._new_queues > NEW_QUEUES_MAX:
            rule = f"at most {NEW_QUEUES_MAX} in one call that sends their first messages"
            raise MessageTooLarge("queues", self._new_queues, rule)
        if self._new_groups:
            self._groups.make(self._new_groups.values())
        if self._new_topics:
            self._topics.make(self._new_topics.values())

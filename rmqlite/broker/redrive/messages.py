"""The records of redriven letters, each for a queue of its topic.

A topic that is missing is made, and a retry topic with its group, as every send and every failure
does it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqlite.broker.redrive.judge import Judged
from rmqlite.broker.sending import record_of
from rmqlite.broker.tables.groups import GroupTable
from rmqlite.broker.tables.on_demand import OnDemand
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.compression import COMPRESSION_BITS
from rmqlite.config import BrokerConfig
from rmqlite.names import group_of, is_retry
from rmqlite.records.drafts import Draft
from rmqlite.records.record import NewRecord
from rmqlite.requests.topics import TopicInfo
from rmqlite.store.message_store import MessageStore


class RedrivenMessages:
    """Makes the records; host: the broker's own address, packed."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        host: bytes,
    ) -> None:
        self._cluster = config.cluster_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._host = host
        self._turn = 0

    def records(self, sent: Sequence[Judged], delay_level: int, now_ms: int) -> list[NewRecord]:
        """The new messages of letters, to the queues of each topic by turns.

        Raises Overloaded, and the errors of a send to these topics.
        """
        level = self._store.levels.current.clamp(delay_level)
        queues = {info.topic: _queues(info) for info in self._made({each.topic for each in sent})}
        records = []
        for each in sent:
            self._turn += 1
            queue_id = self._turn % queues[each.topic]
            records.append(self._record(each, queue_id, level, now_ms))
        return records

    def _made(self, names: set[str]) -> list[TopicInfo]:
        """These topics; missing ones are made."""
        retries = OnDemand(self._store, self._topics, self._groups)
        for topic in filter(is_retry, names):
            retries.retry_topic(group_of(topic) or "")
        retries.make()
        topics = [self._topics.wanted(name) for name in names]
        self._topics.make(topics)
        return topics

    def _record(self, judged: Judged, queue_id: int, level: int, now_ms: int) -> NewRecord:
        assert judged.letter is not None
        head = judged.letter.head
        draft = Draft(
            judged.topic,
            queue_id,
            judged.properties.encoded,
            judged.letter.body,
            now_ms,
            self._host,
            head.flag,
            head.sys_flag & COMPRESSION_BITS,
        )
        return record_of(draft, level, cluster=self._cluster, store_host=self._host)


def _queues(info: TopicInfo) -> int:
    """The number of a topic's queues that get messages."""
    # As for every retry: nobody would read it in a queue that is only written.
    both = min(info.read_queues, info.write_queues)
    return max(1, both if is_retry(info.topic) else info.write_queues)

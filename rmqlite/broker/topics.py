"""Which topics exist, with how many queues: RocketMQ's config/topics.json.

Rows that RocketMQ wrote keep the fields that mean nothing here.  Every change is on disk
before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rmqlite.config import BrokerConfig
from rmqlite.errors import (
    InvalidValue,
    PermissionMissing,
    QueueUnknown,
    TopicExists,
    TopicUnknown,
)
from rmqlite.names import (
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    check_topic,
    is_dlq,
    is_retry,
    is_system,
)
from rmqlite.requests import TopicInfo
from rmqlite.store.message_store import MessageStore

READ: Final = 4
WRITE: Final = 2
INHERIT: Final = 1
_TABLE: Final = "topics.json"
_SCHEDULE_QUEUES: Final = 18
Row = dict[str, Any]
_NOT_OURS: Final[Row] = {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
"""What RocketMQ keeps beside our settings, with its defaults."""


class TopicTable:
    """Topics by name."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._rows: dict[str, Row] = {}
        self._infos: dict[str, TopicInfo] = {}
        self._version = 0
        self.on_change: Callable[[str], None] = lambda _topic: None
        for info in self._built_in():
            self._put(info)
        tree = store.load_table(_TABLE) or {}
        self._version = int(tree.get("dataVersion", {}).get("counter", 0))
        for row in tree.get("topicConfigTable", {}).values():
            self._rows[row["topicName"]] = row
            self._infos[row["topicName"]] = _info(row)

    def all(self) -> tuple[TopicInfo, ...]:
        """Sorted by name, the system's included."""
        return tuple(self._infos[name] for name in sorted(self._infos))

    def get(self, topic: str) -> TopicInfo | None:
        return self._infos.get(topic)

    def existing(self, topic: str) -> TopicInfo:
        """Raises TopicUnknown."""
        info = self._infos.get(topic)
        if info is None:
            raise TopicUnknown(topic)
        return info

    def for_send(self, topic: str) -> TopicInfo:
        """The topic, created on demand (reference §8.3).  Raises TopicUnknown.

        A retry topic is not made here but with its group.
        """
        info = self._infos.get(topic)
        if info is None:
            if not self._config.auto_create_topic or is_retry(topic) or is_dlq(topic):
                raise TopicUnknown(topic)
            info = TopicInfo(
                topic, self._config.default_topic_queues, self._config.default_topic_queues
            )
            self._save(info)
        if not info.perm & WRITE:
            raise PermissionMissing(topic, "sending to", f"its perm is {info.perm}, 2 is missing")
        return info

    def create(self, info: TopicInfo) -> TopicInfo:
        """Create a topic; the same again is no error.

        Raises InvalidName, InvalidValue, PermissionMissing, TopicExists.
        """
        check_topic(info.topic)
        if is_system(info.topic):
            raise PermissionMissing(info.topic, "creating", "the name is a system topic's")
        for field, queues in (
            ("read_queues", info.read_queues),
            ("write_queues", info.write_queues),
        ):
            if not 1 <= queues <= self._config.topic_queues_max:
                raise InvalidValue(field, queues, f"1 to {self._config.topic_queues_max}")
        if not 0 < info.perm <= READ + WRITE + INHERIT:
            raise InvalidValue("perm", info.perm, "1 to 7: 4 read, 2 write, 1 inherit, added up")
        existing = self._infos.get(info.topic)
        if existing is not None and existing != info:
            raise TopicExists(info.topic)
        if existing is None:
            self._save(info)
        return info

    def ensure(self, topic: str, queues: int) -> TopicInfo:
        """A retry or dead-letter topic, created when missing."""
        info = self._infos.get(topic)
        if info is None:
            info = TopicInfo(topic, queues, queues)
            self._save(info)
        return info

    def widen(self, topic: str, queues: int) -> None:
        """Give a topic at least so many queues, if it exists; no queue is ever taken away.

        RocketMQ leaves that to updateTopic, and until then puts retries where nobody reads
        (reference §7.4).
        """
        info = self._infos.get(topic)
        if info is None:
            return
        wider = replace(
            info,
            read_queues=max(info.read_queues, queues),
            write_queues=max(info.write_queues, queues),
        )
        if wider != info:
            self._save(wider)

    def _save(self, info: TopicInfo) -> None:
        info_before, row_before = self._infos.get(info.topic), self._rows.get(info.topic)
        self._put(info)
        self._version += 1
        tree = {
            "dataVersion": {
                "counter": self._version,
                "timestamp": self._store.newest_timestamp_ms,
            },
            "topicConfigTable": self._rows,
        }
        try:
            self._store.save_table(_TABLE, tree)
        except Exception:
            del self._rows[info.topic], self._infos[info.topic]
            if info_before and row_before:
                self._infos[info.topic], self._rows[info.topic] = info_before, row_before
            raise
        self.on_change(info.topic)

    def _put(self, info: TopicInfo) -> None:
        self._infos[info.topic] = info
        row = {
            **(self._rows.get(info.topic) or _NOT_OURS),
            "perm": info.perm,
            "readQueueNums": info.read_queues,
            "topicName": info.topic,
            "writeQueueNums": info.write_queues,
        }
        # In the order in which RocketMQ writes them.
        self._rows[info.topic] = dict(sorted(row.items()))

    def _built_in(self) -> list[TopicInfo]:
        queues = self._config.default_topic_queues
        topics = [TopicInfo(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES)]
        if self._config.auto_create_topic:
            topics.append(TopicInfo(AUTO_CREATE_TOPIC, queues, queues, READ + WRITE + INHERIT))
        return topics


def check_queue(topic: TopicInfo, queue_id: int, queues: int) -> None:
    """Raises QueueUnknown."""
    if not 0 <= queue_id < queues:
        raise QueueUnknown(topic.topic, queue_id, queues)


def _info(row: Row) -> TopicInfo:
    return TopicInfo(
        str(row["topicName"]),
        int(row["readQueueNums"]),
        int(row["writeQueueNums"]),
        int(row["perm"]),
    )

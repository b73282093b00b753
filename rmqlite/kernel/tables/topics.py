"""The existing topics and the numbers of their queues: RocketMQ's config/topics.json.

Rows that RocketMQ wrote keep their other fields.  A change is a record of the log
(store/tables/logged_tables.py): it stands before every message that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import TopicsTable
from rmqlite.kernel.requests.broker import TableVersion
from rmqlite.kernel.requests.topics import TopicExtras, TopicInfo
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.logged_tables import put_all
from rmqlite.kernel.words.errors import (
    InvalidName,
    InvalidValue,
    Overloaded,
    PermissionMissing,
    QueueUnknown,
    TopicExists,
    TopicUnknown,
)
from rmqlite.kernel.words.names import (
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    TABLES_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    check_topic,
    is_dlq,
    is_retry,
    is_system,
    reply_topic,
)

READ: Final = 4
WRITE: Final = 2
INHERIT: Final = 1
TABLE: Final = "topics.json"
_SCHEDULE_QUEUES: Final = 18
_CLUSTER_QUEUES: Final = 16
_USERS_RULE: Final = "a topic that is not the broker's own"
_SECTION: Final = "topicConfigTable"
Row = dict[str, Any]
_NOT_OURS: Final[Row] = {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
"""RocketMQ's other columns of a row, with its defaults."""


class _Known(NamedTuple):
    info: TopicInfo
    row: Row


class TopicTable:
    """Topics by name."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._known: dict[str, _Known] = {}
        self.on_change: list[Callable[[str], None]] = []
        """Each is called with every topic that was made, changed or deleted."""
        table = store.tables.load(TABLE, TopicsTable) or TopicsTable()
        for info in self._built_in():
            self._known[info.topic] = _Known(info, self._row(info))
        self._unsaved = self._known.keys() - table.topic_config_table
        """Topics that the file lacks; RocketMQ needs them."""
        version = table.data_version
        self.version = TableVersion(version.counter, version.timestamp)
        for row in table.topic_config_table.values():
            info = TopicInfo(row.topic_name, row.read_queue_nums, row.write_queue_nums, row.perm)
            self._known[info.topic] = _Known(info, row.row())

    def all(self) -> tuple[TopicInfo, ...]:
        """All topics, sorted by name, with the system's own."""
        return tuple(self._known[name].info for name in sorted(self._known))

    def get(self, topic: str) -> TopicInfo | None:
        known = self._known.get(topic)
        return None if known is None else known.info

    def read_queues(self, topic: str) -> int:
        """How many queues of a topic may be read; 0 if it is unknown or not readable."""
        info = self.get(topic)
        return info.read_queues if info and info.perm & READ else 0

    def existing(self, topic: str) -> TopicInfo:
        """Raises TopicUnknown."""
        info = self.get(topic)
        if info is None:
            raise TopicUnknown(topic)
        return info

    def probed(self, topic: str) -> TopicInfo | None:
        """A topic that RocketMQ's tools send to in order to measure a broker or a cluster.

        It has the name of either; it is made on demand even if other topics are not.
        """
        if topic == self._config.broker_name:
            return TopicInfo(topic, 1, 1)
        if topic == self._config.cluster_name:
            return TopicInfo(topic, _CLUSTER_QUEUES, _CLUSTER_QUEUES)
        return None

    def wanted(self, topic: str) -> TopicInfo:
        """The topic for a send, or the one that make() would make (reference §8.3).

        Retry topics are only made with their groups.  Raises TopicUnknown, PermissionMissing.
        """
        info = self.get(topic)
        if info is None:
            probed = self.probed(topic)
            if probed is not None:
                return probed
            if not self._config.auto_create_topic or is_retry(topic) or is_dlq(topic):
                raise TopicUnknown(topic)
            queues = self._config.default_topic_queues
            return TopicInfo(topic, queues, queues)
        if not info.perm & WRITE:
            raise PermissionMissing(topic, "sending to", f"its perm is {info.perm}, 2 is missing")
        return info

    def why_not_to(self, target: tuple[str, int], body_bytes: int) -> str:
        """Why a message that waited, with such a body, cannot go to a topic and queue; or ""."""
        topic, most = self.get(target[0]), self._config.max_message_bytes
        if topic is None:
            return f"there is no topic {target[0]} any more"
        if target[1] >= max(topic.read_queues, topic.write_queues):
            return f"topic {target[0]} has no queue {target[1]} any more"
        if body_bytes > most:
            return f"its body of {body_bytes} bytes is larger than maxMessageSize={most}"
        return ""

    def make(self, infos: Iterable[TopicInfo]) -> None:
        """Make the missing ones of these topics, or none.

        Raises Overloaded; retry topics do not count, because maxGroups limits them.
        """
        missing = [info for info in infos if info.topic not in self._known]
        self._check_room(missing)
        if missing:
            self._save(missing)

    def create(self, info: TopicInfo) -> TopicInfo:
        """Create a topic; the same again is no error.

        Raises InvalidName, InvalidValue, PermissionMissing, TopicExists, Overloaded.
        """
        check_topic(info.topic)
        if is_system(info.topic):
            raise PermissionMissing(info.topic, "creating", "the name is a system topic's")
        self._check_settings(info)
        existing = self.get(info.topic)
        if existing is not None and existing != info:
            raise TopicExists(info.topic)
        self.make([info])
        return info

    def change(self, info: TopicInfo, extras: TopicExtras) -> None:
        """Give a topic other settings, or create it.

        If it loses queues, their messages stay in the log, but nobody can read them until it
        has as many queues again.  Raises InvalidName, InvalidValue, Overloaded; then nothing has
        changed.
        """
        check_topic(info.topic)
        _check_users(info.topic)
        self._check_settings(info)
        known = self.get(info.topic)
        if known is None:
            self._check_room([info])
        elif info == known and extras == self.extras(info.topic):
            return
        self._save([info], {info.topic: extras})

    def delete(self, topic: str) -> None:
        """Forget a topic that exists."""
        self._change({topic: None})

    def check_deletable(self, topic: str) -> None:
        """Raises InvalidName for a topic that the broker needs."""
        _check_users(topic)
        if topic in [info.topic for info in self._built_in()]:
            raise InvalidName("topic", topic, _USERS_RULE)

    def extras(self, topic: str) -> TopicExtras:
        row = self._row_of(topic)
        sys_flag = row.get("topicSysFlag")
        # Whoever edited the table may have written anything there.
        sys_flag = sys_flag if isinstance(sys_flag, int) else 0
        return TopicExtras(row.get("order") is True, sys_flag)

    def ensure(self, topic: str, queues: int) -> TopicInfo:
        """A topic of the broker's own; it is created if missing, without regard to maxTopics."""
        info = self.get(topic)
        if info is None:
            info = TopicInfo(topic, queues, queues)
            self._save([info])
        return info

    def widen(self, topic: str, queues: int) -> None:
        """Give a topic at least this many queues, if it exists; queues are never removed.

        RocketMQ leaves this to updateTopic, and until then puts retries into queues that no
        consumer reads (reference §7.4).
        """
        info = self.get(topic)
        if info is None:
            return
        wider = replace(
            info,
            read_queues=max(info.read_queues, queues),
            write_queues=max(info.write_queues, queues),
        )
        if wider != info:
            self._save([wider])

    def _check_settings(self, info: TopicInfo) -> None:
        for field, queues in (
            ("read_queues", info.read_queues),
            ("write_queues", info.write_queues),
        ):
            if not 1 <= queues <= self._config.topic_queues_max:
                raise InvalidValue(field, queues, f"1 to {self._config.topic_queues_max}")
        if not 0 < info.perm <= READ + WRITE + INHERIT:
            raise InvalidValue("perm", info.perm, "1 to 7: 4 read, 2 write, 1 inherit, added up")

    def _check_room(self, missing: Iterable[TopicInfo]) -> None:
        added = sum(not is_retry(info.topic) for info in missing)
        if added and len(self._known) + added > self._config.topics_max:
            raise Overloaded("maxTopics", self._config.topics_max)

    def _save(
        self, infos: Iterable[TopicInfo], extras: Mapping[str, TopicExtras] | None = None
    ) -> None:
        """Put these topics into the table."""
        extras = extras or {}
        self._change(
            {info.topic: _Known(info, self._row(info, extras.get(info.topic))) for info in infos}
        )

    def _change(self, changes: Mapping[str, _Known | None]) -> None:
        """Put rows into the table, or remove those that are None.

        Raises StoreUnavailable: nothing has changed.
        """
        version = self.version.next(self._store.newest_timestamp_ms)
        unsaved = {topic: self._known[topic] for topic in sorted(self._unsaved)}
        rows = [
            ((_SECTION, topic), known and known.row)
            for topic, known in (unsaved | {**changes}).items()
        ]
        self._store.change_table(TABLE, [version.row(), *rows])
        self._unsaved = set()
        self.version = version
        put_all(self._known, changes)
        for topic in changes:
            for changed in self.on_change:
                changed(topic)

    def _row(self, info: TopicInfo, extras: TopicExtras | None = None) -> Row:
        row = {
            **self._row_of(info.topic),
            "perm": info.perm,
            "readQueueNums": info.read_queues,
            "topicName": info.topic,
            "writeQueueNums": info.write_queues,
        }
        if extras is not None:
            row |= {"order": extras.is_ordered, "topicSysFlag": extras.sys_flag}
        # RocketMQ writes the fields in this order.
        return dict(sorted(row.items()))

    def _row_of(self, topic: str) -> Row:
        known = self._known.get(topic)
        return _NOT_OURS if known is None else known.row

    def _built_in(self) -> list[TopicInfo]:
        queues = self._config.default_topic_queues
        topics = [
            TopicInfo(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
            TopicInfo(TIMER_TOPIC, 1, 1),
            TopicInfo(TABLES_TOPIC, 1, 1),
            # Clients with message traces, and those that reply, send here without a question.
            TopicInfo(TRACE_TOPIC, 1, 1),
            TopicInfo(reply_topic(self._config.cluster_name), 1, 1),
        ]
        if self._config.auto_create_topic:
            topics.append(TopicInfo(AUTO_CREATE_TOPIC, queues, queues, READ + WRITE + INHERIT))
        return topics


def _check_users(topic: str) -> None:
    """Raises InvalidName for a topic of the broker or of RocketMQ."""
    if is_system(topic):
        raise InvalidName("topic", topic, _USERS_RULE)


def check_queue(topic: TopicInfo, queue_id: int, queues: int) -> None:
    """Raises QueueUnknown."""
    if not 0 <= queue_id < queues:
        raise QueueUnknown(topic.topic, queue_id, queues)

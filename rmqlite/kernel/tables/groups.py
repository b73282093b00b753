"""The settings of consumer groups: RocketMQ's config/subscriptionGroup.json.

A retry policy and a rate limit stand beside them: RocketMQ ignores them, and drops them from
the table that it writes.  A change is a record of the log (store/tables/logged_tables.py).  The
members of groups are in membership.py.

A call first looks up all groups and topics that it needs (OnDemand), and is refused if something is
missing and may not be made.  Only then the missing ones are added to their tables, before the
records of the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, replace
from typing import Any, Final, NamedTuple

from rmqlite.kernel.admission import TimerRules
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import GroupRow, GroupsTable
from rmqlite.kernel.requests.broker import TableVersion
from rmqlite.kernel.requests.groups import GroupChange, GroupExtras, GroupInfo
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.logged_tables import put_all
from rmqlite.kernel.tables.topics import TopicTable, check_queue
from rmqlite.kernel.words.errors import GroupUnknown, InvalidValue, MessageTooLarge, Overloaded
from rmqlite.kernel.words.limits import NEW_QUEUES_MAX, PER_SECOND_MAX
from rmqlite.kernel.words.names import check_group, group_of, is_retry, retry_topic
from rmqlite.kernel.words.retry_policy import ROCKETMQS, TABLE_KEY, RetryPolicy

_COMPARED_MAX: Final = 500
log = logging.getLogger(__name__)

TABLE: Final = "subscriptionGroup.json"
_SECTION: Final = "subscriptionGroupTable"
INT_MAX: Final = 2**31 - 1
Row = dict[str, Any]
_NOT_OURS: Final[Row] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""RocketMQ's other columns of a row, with its defaults; GroupExtras has them in this order."""
_ORDERLY: Final = "consumeMessageOrderly"
_LIMIT: Final = ("rmqliteMaxPerSecond", "rmqliteBurst")
_EXPIRED: Final = "rmqliteBuryExpired"
_OURS_OR_NEW: Final = (TABLE_KEY, _ORDERLY, *_LIMIT, _EXPIRED)


class _Known(NamedTuple):
    info: GroupInfo
    policy: RetryPolicy
    row: Row


class GroupTable:
    """Settings of consumer groups, by name."""

    def __init__(self, store: MessageStore, config: BrokerConfig, topics: TopicTable) -> None:
        """Raises StoreDamaged, which names the group."""
        self._store = store
        self._config = config
        self._topics = topics
        self._known: dict[str, _Known] = {}
        self.on_change: list[Callable[[Iterable[str]], None]] = []
        """Called with the names of groups that are made, changed or deleted."""
        self.on_delete: list[Callable[[str], None]] = []
        """Called with a group that is deleted or was never there.  Raises StoreUnavailable."""
        table = store.tables.load(TABLE, GroupsTable) or GroupsTable()
        version = table.data_version
        self.version = TableVersion(version.counter, version.timestamp)
        for row in table.subscription_group_table.values():
            info = _info(row)
            self._known[info.group] = _Known(info, RetryPolicy.parse(info.retry_policy), row.row())

    def all(self) -> tuple[GroupInfo, ...]:
        return tuple(self._known[name].info for name in sorted(self._known))

    def get(self, group: str) -> GroupInfo | None:
        known = self._known.get(group)
        return None if known is None else known.info

    def existing(self, group: str) -> GroupInfo:
        """Raises GroupUnknown."""
        info = self.get(group)
        if info is None:
            # With very many groups the search for a similar name would take too long a turn.
            raise GroupUnknown(group, self._known if len(self._known) <= _COMPARED_MAX else ())
        return info

    def wanted(self, group: str) -> GroupInfo:
        """The group, or the one that make() would make.  Raises InvalidName, GroupUnknown."""
        info = self.get(group)
        if info is not None:
            return info
        check_group(group)
        if not self._config.auto_create_group:
            raise GroupUnknown(group)
        return GroupInfo(group)

    def make(self, infos: Iterable[GroupInfo]) -> None:
        """Make the missing ones of these groups, or none.  Raises Overloaded."""
        missing = {info: ROCKETMQS for info in infos if info.group not in self._known}
        if missing:
            self._save(missing)

    def policy(self, group: str) -> RetryPolicy:
        known = self._known.get(group)
        return ROCKETMQS if known is None else known.policy

    def change(self, change: GroupChange, extras: GroupExtras | None = None) -> GroupInfo:
        """Change settings, or make the group; in force for the next failure.

        Waiting retries keep their times.  More retry queues widen the retry topic, fewer leave
        it as it is.  Raises InvalidName, InvalidValue, Overloaded; then nothing has changed.
        """
        check_group(change.group)
        _check_limit("max_reconsume_times", change.max_reconsume_times, 0, INT_MAX)
        _check_limit("retry_queues", change.retry_queues, 1, self._config.topic_queues_max)
        _check_limit("max_per_second", change.max_per_second, 0, PER_SECOND_MAX)
        _check_limit("burst", change.burst, 0, PER_SECOND_MAX)
        known = self._known.get(change.group)
        info = known.info if known else GroupInfo(change.group)
        policy = known.policy if known else ROCKETMQS
        if change.retry_policy is not None:
            policy = RetryPolicy.parse(change.retry_policy)
            if policy.is_exact:
                timers = TimerRules.of(self._config, lambda: None)
                timers.check("retry_policy", policy.text, policy.longest_ms)
        wanted = {name: value for name, value in asdict(change).items() if value is not None}
        info = replace(info, **wanted | {"retry_policy": policy.text})
        self._check_room([info])
        # Widen first: nobody would read retries in queues that the topic lacks.
        self._topics.widen(retry_topic(info.group), info.retry_queues)
        has_new_extras = extras not in (None, self.extras(info.group))
        if info != self.get(info.group) or has_new_extras:
            self._save({info: policy}, extras)
            settings = [f"{name}={value!r}" for name, value in asdict(info).items()]
            log.info("group changed %s", " ".join(settings))
        return info

    def delete(self, group: str) -> None:
        """Forget a group; an unknown one is no error.

        Its members make it again, with RocketMQ's defaults, if groups are made on demand.
        """
        if group in self._known:
            self._change({group: None})
            log.info("group deleted group=%s", group)
        for forget in self.on_delete:
            forget(group)

    def extras(self, group: str) -> GroupExtras:
        row = self._row_of(group)
        # Whoever edited the table may have written anything there.
        known = {
            key: row[key] if type(row.get(key)) is type(usual) else usual
            for key, usual in _NOT_OURS.items()
        }
        return GroupExtras(*known.values())

    def _save(
        self, policies: Mapping[GroupInfo, RetryPolicy], extras: GroupExtras | None = None
    ) -> None:
        """Put these groups into the table.  Raises Overloaded: nothing has changed."""
        self._check_room(policies)
        columns = {} if extras is None else dict(zip(_NOT_OURS, astuple(extras), strict=True))
        self._change(
            {
                info.group: _Known(info, policy, self._row(info) | columns)
                for info, policy in policies.items()
            }
        )

    def _change(self, changes: Mapping[str, _Known | None]) -> None:
        """Put rows into the table, or remove those that are None.

        Raises StoreUnavailable: nothing has changed.
        """
        version = self.version.next(self._store.newest_timestamp_ms)
        rows = [((_SECTION, group), known and known.row) for group, known in changes.items()]
        self._store.change_table(TABLE, [version.row(), *rows])
        self.version = version
        put_all(self._known, changes)
        for changed in self.on_change:
            changed(changes)

    def _check_room(self, infos: Iterable[GroupInfo]) -> None:
        added = sum(info.group not in self._known for info in infos)
        if added and len(self._known) + added > self._config.groups_max:
            raise Overloaded("maxGroups", self._config.groups_max)

    def _row(self, info: GroupInfo) -> Row:
        row = {
            **(self._row_of(info.group) or _NOT_OURS),
            "consumeEnable": info.can_consume,
            "groupName": info.group,
            "retryMaxTimes": info.max_reconsume_times,
            "retryQueueNums": info.retry_queues,
            TABLE_KEY: info.retry_policy,
            _ORDERLY: info.orderly,
            **dict(zip(_LIMIT, (info.max_per_second, info.burst), strict=True)),
            _EXPIRED: info.bury_expired,
        }
        # RocketMQ 4.9 has no such column.
        return {key: value for key, value in row.items() if value or key not in _OURS_OR_NEW}

    def _row_of(self, group: str) -> Row:
        known = self._known.get(group)
        return {} if known is None else known.row


def _check_limit(field: str, value: float | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidValue(field, value, f"{least} to {most}")


def _info(row: GroupRow) -> GroupInfo:
    return GroupInfo(
        row.group_name,
        row.retry_max_times,
        # RocketMQ allows 0 queues, and then drops every failed message (reference §7.1).
        max(1, row.retry_queue_nums),
        row.consume_enable,
        row.rmqlite_retry_policy,
        row.consume_message_orderly,
        row.rmqlite_max_per_second,
        row.rmqlite_burst,
        row.rmqlite_bury_expired,
    )


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

    def retry_topic(self, group: str) -> GroupInfo:
        """The group; it is planned with its retry topic.  Raises GroupUnknown, InvalidName."""
        info = self._new_groups.get(group)
        if info is None:
            info = self._new_groups[group] = self._groups.wanted(group)
        topic = retry_topic(group)
        if self._topics.get(topic) is None:
            self._new_topics[topic] = TopicInfo(topic, info.retry_queues, info.retry_queues)
        return info

    @property
    def is_missing(self) -> bool:
        """Is there anything to make?"""
        return bool(self._new_groups or self._new_topics)

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

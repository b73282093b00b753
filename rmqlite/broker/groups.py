"""Who reads which queue: consumer groups, their members, and the queues of each member.

Settings are RocketMQ's config/subscriptionGroup.json, with a retry policy of our own beside
them: RocketMQ ignores it, and drops it when it writes the table.  Members live in memory:
they say so by heartbeats and are gone when these stop.  Queues are shared by RocketMQ's
average allocation (reference §9.7), worked out here once for all members, so that no two of
them can disagree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqlite.broker.topics import TopicTable
from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.errors import GroupUnknown, InvalidValue, Overloaded, StoreDamaged
from rmqlite.letter_requests import GroupChange
from rmqlite.names import check_group, check_topic, retry_topic
from rmqlite.requests import (
    Assignment,
    GroupInfo,
    HeartbeatRequest,
    MemberInfo,
    Queue,
    Subscription,
)
from rmqlite.retry_policy import ROCKETMQS, TABLE_KEY, RetryPolicy
from rmqlite.store.message_store import MessageStore
from rmqlite.store.tables import Tree

log = logging.getLogger(__name__)

_TABLE: Final = "subscriptionGroup.json"
BETWEEN_POLLS_MS_MAX: Final = 15_000
"""How long a member that polls may take from one heartbeat's answer to the next heartbeat."""
CLIENT_ID_BYTES_MAX: Final = 255
INT_MAX: Final = 2**31 - 1
SUBSCRIPTIONS_MAX: Final = 256
Row = dict[str, Any]
_NOT_OURS: Final[Row] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""What RocketMQ keeps beside our settings, with its defaults."""


class GroupTable:
    """Settings of consumer groups, by name; changes are on disk before they are answered."""

    def __init__(self, store: MessageStore, config: BrokerConfig, topics: TopicTable) -> None:
        """Raises StoreDamaged, which names the group."""
        self._store = store
        self._config = config
        self._topics = topics
        self._rows: dict[str, Row] = {}
        self._infos: dict[str, GroupInfo] = {}
        self._policies: dict[str, RetryPolicy] = {}
        self._version = 0
        self._load(store.load_table(_TABLE) or {})

    def all(self) -> tuple[GroupInfo, ...]:
        return tuple(self._infos[name] for name in sorted(self._infos))

    def existing(self, group: str) -> GroupInfo:
        """Raises GroupUnknown."""
        info = self._infos.get(group)
        if info is None:
            raise GroupUnknown(group)
        return info

    def for_use(self, group: str) -> GroupInfo:
        """The group, created on demand.  Raises InvalidName, GroupUnknown."""
        info = self._infos.get(group)
        if info is not None:
            return info
        check_group(group)
        if not self._config.auto_create_group:
            raise GroupUnknown(group)
        info = GroupInfo(group)
        self._save(info, ROCKETMQS)
        return info

    def retry_level(self, group: str, failed_before: int) -> int:
        """Where the group's policy and the levels in force now put the next retry."""
        return self._policies[group].level(failed_before, self._store.levels.current)

    def change(self, change: GroupChange) -> GroupInfo:
        """Change settings, or make the group; in force for the next failure.

        What waits keeps its time.  More retry queues widen the retry topic, fewer leave it as
        it is.  Raises InvalidName, InvalidValue; StoreUnavailable, and nothing has changed.
        """
        check_group(change.group)
        _check_limit("max_reconsume_times", change.max_reconsume_times, 0, INT_MAX)
        _check_limit("retry_queues", change.retry_queues, 1, self._config.topic_queues_max)
        info = self._infos.get(change.group) or GroupInfo(change.group)
        policy = self._policies.get(change.group, ROCKETMQS)
        if change.retry_policy is not None:
            policy = RetryPolicy.parse(change.retry_policy)
        wanted = {
            name: value
            for name in ("max_reconsume_times", "retry_queues", "can_consume")
            if (value := getattr(change, name)) is not None
        }
        info = replace(info, **wanted, retry_policy=policy.text)
        # First: with the group's number alone, nobody would read the queues that it counts.
        self._topics.widen(retry_topic(info.group), info.retry_queues)
        if info != self._infos.get(info.group):
            self._save(info, policy)
            log.info(
                "group changed group=%s max_reconsume_times=%d retry_policy=%r retry_queues=%d"
                " can_consume=%s",
                *(info.group, info.max_reconsume_times, info.retry_policy, info.retry_queues),
                info.can_consume,
            )
        return info

    def _save(self, info: GroupInfo, policy: RetryPolicy) -> None:
        row = {
            **(self._rows.get(info.group) or _NOT_OURS),
            "consumeEnable": info.can_consume,
            "groupName": info.group,
            "retryMaxTimes": info.max_reconsume_times,
            "retryQueueNums": info.retry_queues,
            TABLE_KEY: info.retry_policy,
        }
        if not info.retry_policy:
            del row[TABLE_KEY]
        rows = self._rows | {info.group: row}
        tree = {
            "dataVersion": {
                "counter": self._version + 1,
                "timestamp": self._store.newest_timestamp_ms,
            },
            "subscriptionGroupTable": rows,
        }
        self._store.save_table(_TABLE, tree)
        self._version += 1
        self._rows = rows
        self._infos[info.group] = info
        self._policies[info.group] = policy

    def _load(self, tree: Tree) -> None:
        expected = "a table of consumer groups"
        try:
            self._version = int(tree.get("dataVersion", {}).get("counter", 0))
            for name, row in tree.get("subscriptionGroupTable", {}).items():
                expected = f"the settings of group {name!r}"
                info = _info(row)
                self._policies[info.group] = RetryPolicy.parse(info.retry_policy)
                self._rows[info.group] = row
                self._infos[info.group] = info
        except (InvalidValue, AttributeError, KeyError, TypeError, ValueError) as error:
            path = str(self._config.store_path / "config" / _TABLE)
            raise StoreDamaged(path, 0, expected, _said(error)) from error


@dataclass(slots=True)
class _Member:
    subscriptions: tuple[Subscription, ...]
    last_seen_ms: int
    silent_ms_max: int
    """It is gone when it was not seen for longer."""


@dataclass(slots=True)
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    queues: dict[str, tuple[Queue, ...]] = field(default_factory=dict)
    epoch: int = 0


class Membership:
    """The members of every group and the queues they read.

    queues_of: the number of read queues of a topic, 0 for an unknown one.  An epoch numbers
    the assignments of a group; it rises with every change and never repeats, not even after
    a restart.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, queues_of: Callable[[str], int]) -> None:
        self._config = config
        self._clock = clock
        self._queues_of = queues_of
        self._groups: dict[str, _Group] = {}
        self.on_change: Callable[[str], None] = lambda _group: None

    def heartbeat(self, request: HeartbeatRequest) -> Assignment:
        """The member lives.  Raises InvalidValue, InvalidName, Overloaded."""
        _check_member(request)
        group = self._groups.setdefault(request.group, _Group())
        member = group.members.get(request.client_id)
        subscriptions = _with_retries(request)
        if member is None or member.subscriptions != subscriptions:
            if member is None and len(group.members) >= self._config.group_members_max:
                raise Overloaded("maxGroupMembers", self._config.group_members_max)
            member = _Member(subscriptions, 0, 0)
            group.members[request.client_id] = member
            self._reassign(request.group)
        member.last_seen_ms = self._clock.now_ms()
        member.silent_ms_max = self._config.client_expiry_ms
        if request.wait_ms:
            # It has a call here nearly always, and was killed if the next one does not come.
            waits_ms = request.wait_ms if request.known_epoch == group.epoch else 0
            member.silent_ms_max = min(waits_ms + BETWEEN_POLLS_MS_MAX, member.silent_ms_max)
        return self.assignment(request.group, request.client_id)

    def assignment(self, group: str, client_id: str) -> Assignment:
        known = self._groups.get(group) or _Group()
        return Assignment(
            known.epoch, known.queues.get(client_id, ()), tuple(sorted(known.members))
        )

    def epoch(self, group: str) -> int:
        known = self._groups.get(group)
        return known.epoch if known else 0

    def leave(self, group: str, client_id: str) -> None:
        """The member is gone; the others take over.  Unknown ones are ignored."""
        known = self._groups.get(group)
        if known is not None and known.members.pop(client_id, None) is not None:
            self._reassign(group)

    def expire(self) -> None:
        """Members are gone that were silent for longer than channelExpiredTimeout.

        Sooner those that poll: their next heartbeat follows the answer to the last one.
        """
        now_ms = self._clock.now_ms()
        for name, group in list(self._groups.items()):
            gone = [
                client_id
                for client_id, member in group.members.items()
                if now_ms - member.last_seen_ms > member.silent_ms_max
            ]
            for client_id in gone:
                del group.members[client_id]
            if gone:
                self._reassign(name)

    def topic_changed(self, topic: str) -> None:
        """A topic was made or has another number of queues."""
        for name, group in list(self._groups.items()):
            if any(topic == s.topic for m in group.members.values() for s in m.subscriptions):
                self._reassign(name)

    def members(self, group: str) -> tuple[MemberInfo, ...]:
        known = self._groups.get(group) or _Group()
        return tuple(
            MemberInfo(client_id, member.subscriptions, member.last_seen_ms)
            for client_id, member in sorted(known.members.items())
        )

    def readers(self, group: str) -> dict[Queue, str]:
        """Who reads each queue now."""
        known = self._groups.get(group) or _Group()
        return {queue: client for client, queues in known.queues.items() for queue in queues}

    def _reassign(self, name: str) -> None:
        group = self._groups[name]
        queues: dict[str, list[Queue]] = {client_id: [] for client_id in group.members}
        topics = {s.topic for member in group.members.values() for s in member.subscriptions}
        for topic in sorted(topics):
            readers = [
                client_id
                for client_id, member in sorted(group.members.items())
                if any(topic == s.topic for s in member.subscriptions)
            ]
            every = [Queue(topic, queue_id) for queue_id in range(self._queues_of(topic))]
            for client_id, share in zip(readers, allocate(every, len(readers)), strict=True):
                queues[client_id] += share
        group.queues = {client_id: tuple(each) for client_id, each in queues.items()}
        group.epoch = max(group.epoch + 1, self._clock.now_ms())
        self.on_change(name)


def allocate(queues: Sequence[Queue], readers: int) -> Iterable[Sequence[Queue]]:
    """RocketMQ's average allocation: consecutive shares, the first ones larger by one."""
    size, larger = divmod(len(queues), readers)
    start = 0
    for index in range(readers):
        end = start + size + (1 if index < larger else 0)
        yield queues[start:end]
        start = end


def _with_retries(request: HeartbeatRequest) -> tuple[Subscription, ...]:
    retries = Subscription(retry_topic(request.group))
    return tuple(sorted({*request.subscriptions, retries}, key=lambda s: s.topic))


def _check_member(request: HeartbeatRequest) -> None:
    if not request.client_id or len(request.client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise InvalidValue("client_id", request.client_id, f"1 to {CLIENT_ID_BYTES_MAX} bytes")
    if len(request.subscriptions) > SUBSCRIPTIONS_MAX:
        rule = f"at most {SUBSCRIPTIONS_MAX} topics"
        raise InvalidValue("subscriptions", len(request.subscriptions), rule)
    topics = [subscription.topic for subscription in request.subscriptions]
    for topic in topics:
        check_topic(topic)
        if topics.count(topic) > 1:
            raise InvalidValue("subscriptions", topic, "each topic once")


def _check_limit(field: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidValue(field, value, f"{least} to {most}")


def _info(row: Row) -> GroupInfo:
    return GroupInfo(
        str(row["groupName"]),
        int(row.get("retryMaxTimes", 16)),
        # RocketMQ allows none, and then drops every failed message (reference §7.1).
        max(1, int(row.get("retryQueueNums", 1))),
        bool(row.get("consumeEnable", True)),
        row.get(TABLE_KEY, ""),
    )


def _said(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)

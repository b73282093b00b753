"""Who reads which queue: the members of consumer groups, and the queues of each member.

Members live in memory: they say so by heartbeats and are gone when these stop.  Queues are
shared by RocketMQ's average allocation (reference §9.7), worked out here once for all members,
so that no two of them can disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqlite.clock import Clock
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, Overloaded
from rmqlite.names import check_topic, retry_topic
from rmqlite.requests import (
    Assignment,
    HeartbeatRequest,
    MemberInfo,
    Queue,
    Subscription,
)

BETWEEN_POLLS_MS_MAX: Final = 15_000
"""How long a member that polls may take from one heartbeat's answer to the next heartbeat."""
CLIENT_ID_BYTES_MAX: Final = 255
SUBSCRIPTIONS_MAX: Final = 256


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

"""The members of consumer groups, and the queues that each member reads.

Members live in memory: heartbeats keep a member, and it is removed when they stop.  Queues
are shared by RocketMQ's average allocation (reference §9.7), computed here once for all
members, so that no two of them can disagree.

An assignment is in force until the next one is complete.  A small group gets its next one at
once.  A large group gets it after a pause, for all changes of that time together: each change
moves the queues of all members, and if a thousand members joined one by one, each would get a
thousand assignments.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rmqlite.kernel import Steps
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.filters import Filters
from rmqlite.kernel.requests.groups import (
    Assignment,
    HeartbeatRequest,
    MemberInfo,
    MemberKind,
    Subscription,
)
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.tables.shares import AccountShares, allocate
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import GroupInUse, InvalidValue, Overloaded
from rmqlite.kernel.words.limits import (
    CLIENT_ID_BYTES_MAX,
    EXPRESSION_BYTES_MAX,
    SQL_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
    SUBSCRIPTIONS_SQL_BYTES_MAX,
    check_length,
)
from rmqlite.kernel.words.names import check_topic, retry_topic

BETWEEN_POLLS_MS_MAX: Final = 15_000
"""The longest time between a heartbeat's answer and the next heartbeat of a polling member."""
SMALL_MEMBERS_MAX: Final = 32
SMALL_QUEUES_MAX: Final = 2_000
"""A group with at most this many members and queues gets an assignment at once, within 2 ms."""
PAUSE_MS: Final = 2
"""Pause per member between two assignments of a large group: each answer to a member takes a
third of a millisecond."""
SUBSCRIPTION_BYTES: Final = 200
"""Memory of a subscription beside its texts."""
SECOND_MS: Final = 120_000
"""A client that comes back may find its old connection open, once.  If its id is on a second
connection twice within this time, two processes have it."""
DOUBLED_MS: Final = 600_000
"""For so long an operator is shown that two processes had one client id."""
DOUBLED_MAX: Final = 1_000
"""How many client ids on second connections are remembered."""
_STEP: Final = 2_000
"""Subscriptions and queues of an assignment that are computed in one step: 2 ms."""
_AT_ONCE_MAX: Final = 8
"""If a topic's change concerns more groups than this, their assignments wait for a pause."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shares:
    """An assignment of a whole group; names: its members, sorted."""

    epoch: int
    names: tuple[str, ...]
    queues: Mapping[str, tuple[Queue, ...]]


_NOBODYS: Final = Shares(0, (), {})


@dataclass(slots=True)
class _Member:
    given: tuple[Subscription, ...]
    """The subscriptions as the member sent them; it nearly always sends the same again."""
    subscriptions: tuple[Subscription, ...]
    account: str
    """For which it is counted."""
    kind: MemberKind
    last_seen_ms: int = 0
    silent_ms_max: int = 0
    """The member is removed after a longer silence."""
    is_broadcasting: bool = False


@dataclass(slots=True)
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)
    """The number of members that subscribe to each topic."""
    kinds: Counter[MemberKind] = field(default_factory=Counter)
    """The number of members of each kind."""
    in_force: Shares = _NOBODYS
    assigned_at_ms: int = 0


class Membership:
    """The members of every group and the queues they read.

    queues_of: the number of read queues of a topic, 0 for an unknown one.  An epoch numbers
    the assignments; it rises with every one and never repeats, not even after a restart.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        queues_of: Callable[[str], int],
        filters: Filters,
    ) -> None:
        self._config = config
        self._clock = clock
        self._queues_of = queues_of
        self._filters = filters
        self._groups: dict[str, _Group] = {}
        self._groups_of: dict[str, set[str]] = {}
        """The groups whose members subscribe to a topic."""
        self._stale: dict[str, int] = {}
        """Groups that wait for their next assignment, and the time when it is due."""
        self._shares = AccountShares("maxMembers", config.members_max)
        self._bytes = AccountShares("maxSubscriptionBytes", config.subscription_bytes_max)
        self._epoch = 0
        self._second: OrderedDict[tuple[str, str], int] = OrderedDict()
        """When a group's client id was last on a second connection, the oldest first."""
        self._doubled: dict[tuple[str, str], int] = {}
        """The same, of those that two processes have."""
        self.is_popped: Callable[[str], bool] = lambda _group: False
        """Does a group pop its topics?"""
        self.on_change: list[Callable[[str], None]] = []
        """Each is called with every group that has another assignment in force."""
        self.on_stale: Callable[[], None] = lambda: None
        """Called when rebalance() gets something to do, see due_ms()."""

    # ---- members

    def check_sql(self, request: HeartbeatRequest) -> Steps[None]:
        """Compile the SQL92 expressions of a member that is new or has changed, in steps.

        So a wrong expression is an error where the consumer starts.  Raises ExpressionInvalid,
        InvalidValue.
        """
        texts = [each.sql for each in request.subscriptions if each.sql]
        if not texts or self._given(request) == request.subscriptions:
            return
        total = sum([len(text.encode()) for text in texts])
        if total > SUBSCRIPTIONS_SQL_BYTES_MAX:
            rule = f"at most {SUBSCRIPTIONS_SQL_BYTES_MAX} bytes in all subscriptions"
            raise InvalidValue("sql", f"{total} bytes", rule)
        for text in texts:
            self._filters.sql(text)
            yield

    def check_unused(self, group: str, *, force: bool) -> None:
        """Raises GroupInUse if the group has members, and nobody asks for it by force."""
        members = len(self.members(group))
        if members and not force:
            raise GroupInUse(group, members)

    def heartbeat(
        self,
        request: HeartbeatRequest,
        account: str = "",
        kind: MemberKind = MemberKind.POLLS,
    ) -> Assignment:
        """Keep a member, or let it join, counted for an account.

        Raises InvalidValue, InvalidName, Overloaded.
        """
        group = self._groups.get(request.group)
        member = group.members.get(request.client_id) if group else None
        if member is None or member.kind is not kind or member.given != request.subscriptions:
            member = self._joined(request, member, account, kind)
        member.last_seen_ms = self._clock.now_ms()
        member.silent_ms_max = self._config.client_expiry_ms
        member.is_broadcasting = request.is_broadcasting
        if request.wait_ms:
            # A polling member nearly always has a call here: without one it was killed.
            waits_ms = request.wait_ms if request.known_epoch == self.epoch(request.group) else 0
            member.silent_ms_max = min(waits_ms + BETWEEN_POLLS_MS_MAX, member.silent_ms_max)
        return self.assignment(request.group, request.client_id)

    def kept(self, request: HeartbeatRequest) -> HeartbeatRequest:
        """The same request of a member, with the subscriptions that are kept of it here."""
        return replace(request, subscriptions=self._given(request) or request.subscriptions)

    def leave(self, group: str, client_id: str) -> None:
        """Remove a member; the others take over its queues.  Unknown names are ignored."""
        known = self._groups.get(group)
        if known is not None and client_id in known.members:
            self._remove(group, client_id)
            self._changed([group])

    def expire(self) -> None:
        """Remove members that were silent for longer than channelExpiredTimeout.

        Polling members are removed sooner: their next heartbeat follows at once after the
        answer to the last one.
        """
        now_ms = self._clock.now_ms()
        gone = [
            (name, client_id)
            for name, group in self._groups.items()
            for client_id, member in group.members.items()
            if now_ms - member.last_seen_ms > member.silent_ms_max
        ]
        for name, client_id in gone:
            self._remove(name, client_id)
        self._changed({name for name, _ in gone})

    def topic_changed(self, topic: str) -> None:
        """Assign anew after a topic was made or got another number of queues."""
        self._changed(self._groups_of.get(topic, ()))

    def second_connection(self, group: str, client_id: str) -> None:
        """A member's id is used on a connection while another one with it lives."""
        key, now_ms = (group, client_id), self._clock.now_ms()
        before_ms = self._second.pop(key, None)
        self._second[key] = now_ms
        if len(self._second) > DOUBLED_MAX:
            gone, _ = self._second.popitem(last=False)
            self._doubled.pop(gone, None)
        if before_ms is None or now_ms - before_ms > SECOND_MS:
            return
        if key not in dict.fromkeys(self.doubled()):
            log.warning("two processes have one client id group=%s client=%s", group, client_id)
        self._doubled[key] = now_ms

    def doubled(self) -> tuple[tuple[str, str], ...]:
        """The groups and client ids that two processes have had of late."""
        since_ms = self._clock.now_ms() - DOUBLED_MS
        return tuple([key for key, at_ms in self._doubled.items() if at_ms >= since_ms])

    # ---- assignments

    def assignment(self, group: str, client_id: str) -> Assignment:
        """The assignment in force of a member; a new member may have to wait for queues."""
        known = self._groups.get(group)
        shares = known.in_force if known else _NOBODYS
        return Assignment(shares.epoch, shares.queues.get(client_id, ()), shares.names)

    def epoch(self, group: str) -> int:
        known = self._groups.get(group)
        return known.in_force.epoch if known else 0

    def members(self, group: str) -> tuple[MemberInfo, ...]:
        known = self._groups.get(group) or _Group()
        return tuple(
            MemberInfo(client_id, member.subscriptions, member.last_seen_ms)
            for client_id, member in sorted(known.members.items())
        )

    def check_receiver(self, group: str, client_id: str) -> None:
        """Raises InvalidValue if a group pulls, and a client that is no member would receive."""
        known = self._groups.get(group)
        if known is not None and client_id not in known.members:
            self._check_kind(group, known.kinds, MemberKind.LEASES)

    def receives(self, group: str) -> bool:
        """Does the group receive messages one by one?"""
        known = self._groups.get(group)
        return self.is_popped(group) or (known is not None and MemberKind.LEASES in known.kinds)

    def has_members(self, group: str) -> bool:
        return group in self._groups

    def is_member(self, group: str, client_id: str) -> bool:
        known = self._groups.get(group)
        return known is not None and client_id in known.members

    def groups_of(self, topic: str) -> frozenset[str]:
        """The groups with a member that subscribes to a topic."""
        return frozenset(self._groups_of.get(topic, ()))

    def is_broadcasting(self, group: str) -> bool:
        """Does every member of a group read all queues, and keep its own offsets?"""
        known = self._groups.get(group)
        return known is not None and all(
            [member.is_broadcasting for member in known.members.values()]
        )

    def topics(self, group: str) -> frozenset[str]:
        """The topics to which the members of a group subscribe now, its retry topic included."""
        known = self._groups.get(group)
        return frozenset(known.topics if known else ())

    def readers(self, group: str) -> dict[Queue, str]:
        """The member that reads each queue now."""
        known = self._groups.get(group) or _Group()
        shares = known.in_force.queues
        return {queue: client for client, queues in shares.items() for queue in queues}

    def due_ms(self) -> int | None:
        """The time when rebalance() has something to do; None if there is nothing."""
        return min(self._stale.values(), default=None)

    def rebalance(self) -> Steps[None]:
        """Compute the assignments that are due; other calls may run at every yield."""
        now_ms = self._clock.now_ms()
        for name in [name for name, due_ms in self._stale.items() if due_ms <= now_ms]:
            group = self._groups.get(name)
            if self._stale.pop(name, None) is not None and group is not None:
                yield from self._assigned(name, group)
                yield

    # ---- inside

    def _given(self, request: HeartbeatRequest) -> tuple[Subscription, ...] | None:
        group = self._groups.get(request.group)
        member = group.members.get(request.client_id) if group else None
        return member.given if member else None

    def _joined(
        self, request: HeartbeatRequest, member: _Member | None, account: str, kind: MemberKind
    ) -> _Member:
        """Take a member that is new, or whose subscriptions have changed."""
        name, client_id = request.group, request.client_id
        group = self._groups.get(name) or _Group()
        like = next(iter(group.members.values()), None)
        if member is None or member.kind is not kind:
            others = group.kinds - Counter([member.kind] if member else ())
            self._check_kind(name, others, kind)
        if like is not None and like.given == request.subscriptions:
            # Nearly all members of a group have the same subscriptions: share one object.
            given, subscriptions = like.given, like.subscriptions
            check_client_id(client_id)
        else:
            _check_member(request)
            given, subscriptions = request.subscriptions, _with_retries(request)
        if member is not None and member.kind is kind and member.subscriptions == subscriptions:
            member.given = given
            return member
        self._check_room(group, member, subscriptions, account)
        if member is not None:
            self._remove(name, client_id)
        self._groups[name] = group
        group.members[client_id] = joined = _Member(given, subscriptions, account, kind)
        group.kinds[kind] += 1
        self._shares.add(account)
        self._bytes.add(account, _size_bytes(subscriptions))
        for subscription in subscriptions:
            group.topics[subscription.topic] += 1
            self._groups_of.setdefault(subscription.topic, set()).add(name)
        self._changed([name])
        return joined

    def _check_kind(self, name: str, others: Counter[MemberKind], kind: MemberKind) -> None:
        """Refuse a member of another kind than those that the group has.

        A member that pulls its queues gets all their messages, and so would whoever receives them
        one by one: each message twice.  In a cluster, members of RocketMQ's clients share out the
        queues of all brokers, and members of rmqlite's own clients know this broker only.
        """
        if any(self._leases(name, each) is not self._leases(name, kind) for each in others):
            rule = "a group of one kind of members: all pull queues, or all receive single messages"
            raise InvalidValue("group", name, f"{rule} (RocketMQ 5, POP)")
        polls = MemberKind.POLLS
        if self._config.is_in_cluster and any(
            (each is polls) is not (kind is polls) for each in others
        ):
            rule = "a group with one kind of clients, RocketMQ's or rmqlite's own, in a cluster"
            raise InvalidValue("group", name, rule)

    def _leases(self, name: str, kind: MemberKind) -> bool:
        return kind is MemberKind.LEASES or (kind is MemberKind.SHARES and self.is_popped(name))

    def _check_room(
        self,
        group: _Group,
        member: _Member | None,
        subscriptions: tuple[Subscription, ...],
        account: str,
    ) -> None:
        config = self._config
        if member is None and len(group.members) >= config.group_members_max:
            raise Overloaded("maxGroupMembers", config.group_members_max)
        if member is None:
            self._shares.check(account)
        added = _size_bytes(subscriptions)
        added -= _size_bytes(member.subscriptions) if member else 0
        self._bytes.check(account, added)

    def _remove(self, name: str, client_id: str) -> None:
        """Remove a member, without a new assignment yet."""
        group = self._groups[name]
        member = group.members.pop(client_id)
        subscriptions = member.subscriptions
        group.kinds -= Counter([member.kind])
        self._shares.add(member.account, -1)
        self._bytes.add(member.account, -_size_bytes(subscriptions))
        for topic in [each.topic for each in subscriptions]:
            group.topics[topic] -= 1
            if not group.topics[topic]:
                del group.topics[topic]
                self._groups_of[topic].discard(name)
                if not self._groups_of[topic]:
                    del self._groups_of[topic]

    def _changed(self, names: Collection[str]) -> None:
        """Assign these groups anew, at once or later."""
        is_one_of_many = len(names) > _AT_ONCE_MAX
        for name in tuple(names):
            group = self._groups[name]
            if not group.members:
                del self._groups[name]
                self._stale.pop(name, None)
                self._announce(name)
            elif not is_one_of_many and self._is_small(group):
                self._stale.pop(name, None)
                for _ in self._assigned(name, group):
                    pass
            elif name not in self._stale:
                self._stale[name] = group.assigned_at_ms + PAUSE_MS * len(group.members)
                self.on_stale()

    def _is_small(self, group: _Group) -> bool:
        if len(group.members) > SMALL_MEMBERS_MAX:
            return False
        return sum(map(self._queues_of, group.topics)) <= SMALL_QUEUES_MAX

    def _assigned(self, name: str, group: _Group) -> Steps[None]:
        """Compute an assignment of the present members, and put it in force."""
        before, done = group.in_force, 0
        members = [(each, member.subscriptions) for each, member in sorted(group.members.items())]
        readers: dict[str, list[str]] = {}
        for client_id, subscriptions in members:
            for subscription in subscriptions:
                readers.setdefault(subscription.topic, []).append(client_id)
            done += len(subscriptions)
            if done > _STEP:
                yield
                done = 0
        queues: dict[str, list[Queue]] = {client_id: [] for client_id, _ in members}
        for topic in sorted(readers):
            every = [Queue(topic, queue_id) for queue_id in range(self._queues_of(topic))]
            shares = allocate(every, len(readers[topic]))
            for client_id, share in zip(readers[topic], shares, strict=True):
                queues[client_id] += share
            done += len(every) + len(readers[topic])
            if done > _STEP:
                yield
                done = 0
        if group.in_force is not before:
            # A newer one is in force already: the group has become small meanwhile.
            return
        self._epoch = max(self._epoch + 1, self._clock.now_ms())
        group.assigned_at_ms = self._clock.now_ms()
        group.in_force = Shares(
            self._epoch,
            tuple(queues),
            {client_id: tuple(each) for client_id, each in queues.items()},
        )
        self._announce(name)

    def _announce(self, name: str) -> None:
        for changed in self.on_change:
            changed(name)


def _with_retries(request: HeartbeatRequest) -> tuple[Subscription, ...]:
    retries = Subscription(retry_topic(request.group))
    return tuple(sorted({*request.subscriptions, retries}, key=lambda each: each.topic))


def _size_bytes(subscriptions: tuple[Subscription, ...]) -> int:
    texts = sum([len(each.topic) + len(each.expression) + len(each.sql) for each in subscriptions])
    return texts + SUBSCRIPTION_BYTES * len(subscriptions)


def _check_member(request: HeartbeatRequest) -> None:
    check_client_id(request.client_id)
    count = len(request.subscriptions)
    if count > SUBSCRIPTIONS_MAX:
        raise InvalidValue("subscriptions", count, f"at most {SUBSCRIPTIONS_MAX} topics")
    topics = set()
    for topic, expression, sql in request.subscriptions:
        check_topic(topic)
        check_length("expression", expression, EXPRESSION_BYTES_MAX)
        check_length("sql", sql, SQL_BYTES_MAX)
        if topic in topics:
            raise InvalidValue("subscriptions", topic, "each topic once")
        topics.add(topic)


def check_client_id(client_id: str) -> None:
    """Raises InvalidValue unless a member may have this client id."""
    if not client_id:
        raise InvalidValue("client_id", client_id, f"1 to {CLIENT_ID_BYTES_MAX} bytes")
    check_length("client_id", client_id, CLIENT_ID_BYTES_MAX)

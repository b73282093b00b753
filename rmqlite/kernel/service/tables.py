"""Topics, and consumer groups: settings, queues, members, assignments, committed offsets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rmqlite.kernel.pulling import earliest_ms, queue_range, queue_ranges
from rmqlite.kernel.requests.broker import TableVersion
from rmqlite.kernel.requests.groups import (
    Assignment,
    GroupChange,
    GroupExtras,
    GroupInfo,
    HeartbeatRequest,
    LeaveRequest,
    MemberInfo,
    MemberKind,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.kernel.requests.topics import (
    Queue,
    QueueEntries,
    QueueRange,
    Route,
    RouteRequest,
    TimeQuery,
    TopicExtras,
    TopicInfo,
)
from rmqlite.kernel.service.access import (
    Need,
    Right,
    account_of_caller,
    admin,
    group_right,
    needs,
    of_group,
    of_topic,
    topic_right,
    view,
)
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.clock import elapsed_s

_of_queue = needs(lambda queue, *_: [topic_right(Right.VIEW, queue.topic)])


def _commit_rights(commit: OffsetsCommit) -> list[Need]:
    topics = {queue.topic for queue in commit.offsets}
    return [
        group_right(Right.SUB, commit.group),
        *[topic_right(Right.SUB, topic) for topic in sorted(topics)],
    ]


def _member_rights(request: HeartbeatRequest, *_: MemberKind) -> list[Need]:
    return [
        group_right(Right.SUB, request.group),
        *[topic_right(Right.SUB, each.topic) for each in request.subscriptions],
    ]


_of_request = needs(lambda request: [group_right(Right.SUB, request.group)])


class GroupCalls(Part):
    """Calls of consumers about their own group, and of administrators about any group."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._parked: Counter[tuple[str, str]] = Counter()
        """Heartbeats that wait, by group and client id."""

    @view
    async def all(self) -> tuple[GroupInfo, ...]:
        return self._broker.groups.all()

    @of_group(Right.SUB)
    async def info(self, group: str) -> GroupInfo:
        """A group's settings.  Raises GroupUnknown."""
        return self._broker.groups.existing(group)

    @admin
    async def change(
        self,
        change: GroupChange,
        extras: GroupExtras | None = None,
    ) -> GroupInfo:
        """Change a group's settings, or create the group."""
        changed = self._broker.groups.change(change, extras)
        await self._saved()
        return changed

    @admin
    async def delete(self, group: str, *, with_offsets: bool = False, force: bool = True) -> None:
        """Delete a group's settings, and its offsets when that is on disk.

        Raises GroupInUse, unless by force, if the group has members.
        """
        self._broker.membership.check_unused(group, force=force)
        self._broker.groups.delete(group)
        await self._saved()
        if with_offsets:
            self._broker.offsets.forget_group(group)
            await self._durable()

    @of_group(Right.VIEW)
    async def settings_of(self, group: str) -> tuple[GroupInfo, GroupExtras]:
        """All settings of a group.  Raises GroupUnknown."""
        return self._broker.groups.existing(group), self._broker.groups.extras(group)

    @view
    async def settings(self) -> Iterator[tuple[GroupInfo, GroupExtras]]:
        """All settings of all groups; take some at a time."""
        groups = self._broker.groups
        return ((info, groups.extras(info.group)) for info in groups.all())

    @view
    async def version(self) -> TableVersion:
        """The version of the table of groups."""
        return self._broker.groups.version

    @of_topic(Right.VIEW)
    async def readers(self, topic: str) -> tuple[str, ...]:
        """The groups that read a topic, or have read it."""
        return self._broker.parts.groups_at(topic)

    def receives(self, group: str) -> bool:
        """Does a group receive messages one by one, so that its members keep no offsets?"""
        return self._broker.membership.receives(group)

    @admin
    async def copy_offsets(self, group: str, source: str, topic: str = "") -> None:
        """Give a group another one's offsets, of one topic or of all that there still are."""
        offsets = {
            queue: offset
            for queue, offset in self._broker.offsets.of(source).items()
            if topic in ("", queue.topic) and self._broker.topics.get(queue.topic)
        }
        for part in OffsetsCommit(group, offsets).parts():
            self._broker.commit_offsets(part, is_reset=True)
        await self._durable()

    @of_group(Right.VIEW)
    async def committed_by_topic(self, group: str) -> dict[str, dict[int, int]]:
        """All offsets that a group has committed, by topic and queue id."""
        return await done_in_turns(self._broker.offsets.by_topic(group))

    @view
    async def committing(self) -> tuple[str, ...]:
        """The groups that have committed an offset."""
        return tuple(self._broker.offsets.groups())

    @_of_request
    async def offsets(self, query: OffsetsQuery) -> dict[Queue, int]:
        """The offsets that a group has committed; queues without one are left out."""
        return self._broker.query_offsets(query)

    @needs(_commit_rights)
    async def commit(self, commit: OffsetsCommit) -> None:
        """Store all of these offsets, or none."""
        end = self._broker.store.end
        self._broker.commit_offsets(commit)
        moved_to = self._broker.store.end
        # Leases that go back say so in the log.
        await self._commit.durable(moved_to if moved_to > end else 0)

    @needs(_member_rights)
    async def heartbeat(
        self, request: HeartbeatRequest, kind: MemberKind = MemberKind.POLLS
    ) -> Assignment:
        """The member's assignment; waits up to wait_ms while its epoch is request.known_epoch.

        Cancel the call when the caller's connection ends: then the member leaves at once.
        """
        self._check_open()
        until_s = self._wait_end_s(request.wait_ms)
        await done_in_turns(self._broker.membership.check_sql(request))
        account = account_of_caller()
        assignment = self._broker.heartbeat(request, account, kind)
        # While it waits, of its subscriptions only the table's are in memory.
        request = self._broker.membership.kept(request)
        await self._saved()
        if assignment.epoch != request.known_epoch:
            return assignment
        key = request.group, request.client_id
        if self._parked[key]:
            self.second_connection(*key)
        self._parked[key] += 1
        try:
            await self._heartbeats.wait(request.group, until_s - elapsed_s(), account)
        except asyncio.CancelledError:
            # The connection is gone: other members get its queues now, not at the expiry.
            if self._parked[key] == 1:
                self._broker.membership.leave(request.group, request.client_id)
            raise
        finally:
            self._parked[key] -= 1
            if not self._parked[key]:
                del self._parked[key]
        return self._broker.heartbeat(request, account, kind)

    @needs(_member_rights)
    async def check(self, request: HeartbeatRequest) -> None:
        """Do nothing but raise what heartbeat() would raise for these subscriptions."""
        await done_in_turns(self._broker.membership.check_sql(request))

    @_of_request
    async def leave(self, request: LeaveRequest) -> None:
        """Remove the member; the others get its queues."""
        self._broker.membership.leave(request.group, request.client_id)

    def left(self, request: LeaveRequest) -> None:
        """Like leave(), for a caller that cannot wait: its connection is gone."""
        self._broker.membership.leave(request.group, request.client_id)

    @of_group(Right.SUB)
    async def members(self, group: str) -> tuple[MemberInfo, ...]:
        """The members of a group now; none if no such group exists."""
        return self._broker.membership.members(group)

    def second_connection(self, group: str, client_id: str) -> None:
        """A living member's id is used on a second connection; an operator is to know."""
        self._broker.membership.second_connection(group, client_id)

    def listen(self, changed: Callable[[str], None]) -> None:
        """Call changed(group) after each change of a group's members or of their queues.

        It is called inside the request that made the change, so it must return at once.
        """
        self._broker.membership.on_change.append(changed)


def _route_rights(request: RouteRequest) -> list[Need]:
    right = Right.PUB if request.create else Right.VIEW
    return [topic_right(right, request.topic)]


class TopicCalls(Part):
    """Calls about topics."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._other_queues = parts.other_queues

    @view
    async def all(self) -> tuple[TopicInfo, ...]:
        return self._broker.topics.all()

    @of_topic(Right.VIEW)
    async def info(self, topic: str) -> TopicInfo | None:
        """A topic's settings; None if there is no such topic."""
        return self._broker.topics.get(topic)

    @of_topic(Right.SUB)
    async def elsewhere(self, topic: str) -> Mapping[str, int] | None:
        """How many queues of a topic other brokers have, by their names; None: not known now."""
        return await self._other_queues(topic)

    @of_topic(Right.VIEW)
    async def probed(self, topic: str) -> TopicInfo | None:
        """The topic that a send of RocketMQ's tools would make to measure this broker."""
        return self._broker.topics.probed(topic)

    @admin
    async def create(self, topic: TopicInfo) -> TopicInfo:
        """Create a topic, or change it."""
        made = self._broker.topics.create(topic)
        await self._saved()
        return made

    @admin
    async def change(self, topic: TopicInfo, extras: TopicExtras) -> None:
        """Give a topic other settings, or create it."""
        self._broker.topics.change(topic, extras)
        await self._saved()

    @of_topic(Right.VIEW)
    async def extras(self, topic: str) -> TopicExtras:
        """The settings of a topic that only RocketMQ's own tools read."""
        return self._broker.topics.extras(topic)

    @admin
    async def clean(self) -> None:
        """Let the next look at the disk remove old files, in whatever hour."""
        self._broker.retention.is_asked = True

    @needs(lambda queue, *_: [topic_right(Right.VIEW, queue.topic)])
    async def entries(self, queue: Queue, queue_offset: int, count: int) -> QueueEntries:
        """Entries of a queue.  Raises TopicUnknown, QueueUnknown."""
        topic = self._broker.topics.existing(queue.topic)
        check_queue(topic, queue.queue_id, max(topic.read_queues, topic.write_queues))
        stored = self._broker.store.queue(queue.topic, queue.queue_id)
        if stored is None:
            return QueueEntries(0, 0, ())
        begin = max(queue_offset, stored.min_offset)
        return QueueEntries(
            stored.min_offset, stored.max_offset, tuple(stored.read(begin, max(0, count)))
        )

    @of_topic(Right.VIEW)
    async def settings_of(self, topic: str) -> tuple[TopicInfo, TopicExtras]:
        """All settings of a topic.  Raises TopicUnknown."""
        return self._broker.topics.existing(topic), self._broker.topics.extras(topic)

    @view
    async def settings(self) -> Iterator[tuple[TopicInfo, TopicExtras]]:
        """All settings of all topics; take some at a time."""
        topics = self._broker.topics
        return ((info, topics.extras(info.topic)) for info in topics.all())

    @view
    async def version(self) -> TableVersion:
        """The version of the table of topics."""
        return self._broker.topics.version

    @needs(_route_rights)
    async def route(self, request: RouteRequest) -> Route:
        """The settings that a client needs before it sends to a topic or reads it."""
        route = self._broker.route(request)
        await self._saved()
        return route

    @of_topic(Right.VIEW)
    async def queue_ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The first and the end offset of each queue of a topic."""
        return await done_in_turns(self._broker.queue_ranges(topic))

    @of_topic(Right.VIEW)
    async def written_ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The same of the queues that producers send to.  Raises TopicUnknown."""
        queues = self._broker.topics.existing(topic).write_queues
        return await done_in_turns(queue_ranges(self._broker.store, topic, queues))

    @needs(lambda query: [topic_right(Right.VIEW, query.queue.topic)])
    async def search_offset(self, query: TimeQuery) -> int:
        """The first queue offset stored at or after a time; the queue's end if there is none."""
        return self._broker.search_offset(query)

    @_of_queue
    async def first_offset(self, queue: Queue) -> int:
        """The first queue offset that a queue still has; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).min_offset

    @_of_queue
    async def end_offset(self, queue: Queue) -> int:
        """The queue offset of the next message of a queue; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).max_offset

    @_of_queue
    async def earliest_ms(self, queue: Queue) -> int | None:
        """When the first message that a queue still has was stored; None if it is empty."""
        return earliest_ms(self._broker.store, queue)

"""How the members of a group get a topic's messages: RocketMQ's config/messageRequestMode.json.

PULL: each member reads the queues that are its own.  POP: the broker leases messages of any queue
to whoever asks.  All topics of a group share one retry topic, which can be read in one way only: a
group pops all its topics as soon as it pops one of them, and no member pulls its retries.
"""

from __future__ import annotations

from typing import Final

from rmqlite.features.leases.leases import check_leased
from rmqlite.features.request_modes.requests import (
    Assigned,
    AssignmentQuery,
    RequestMode,
    RequestModeChange,
)
from rmqlite.features.request_modes.table_shapes import MODES_TABLE, RequestModesTable
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.tables.membership import Membership
from rmqlite.kernel.tables.shares import allocate
from rmqlite.kernel.tables.topics import TopicTable
from rmqlite.kernel.words.errors import InvalidValue, Overloaded, PermissionMissing
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.names import check_group, check_topic, group_of, is_retry

ROWS_MAX: Final = 10_000
"""Pairs of group and topic."""


class RequestModes:
    """The modes by group and topic."""

    def __init__(self, store: MessageStore, topics: TopicTable, membership: Membership) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._store = store
        self._topics = topics
        self._membership = membership
        membership.is_popped = self.is_popped
        self._groups: dict[str, dict[str, RequestModeChange]] = {}
        self._count = 0
        table = store.tables.load(MODES_TABLE, RequestModesTable) or RequestModesTable()
        for topic, rows in table.message_request_mode_map.items():
            for group, row in rows.items():
                mode, shared = RequestMode(row.mode), row.pop_share_queue_num
                self._put(group, topic, RequestModeChange(group, topic, mode, shared))

    def change(self, change: RequestModeChange) -> None:
        """Raises InvalidName, InvalidValue, PermissionMissing, Overloaded: nothing has changed."""
        check_group(change.group)
        check_topic(change.topic)
        if change.mode is RequestMode.POP:
            check_leased(change.topic)
        if group_of(change.topic) is not None:
            raise PermissionMissing(change.topic, "a mode for", "it has that of its group")
        if not 0 <= change.shared_by <= INT32_MAX:
            raise InvalidValue("shared_by", change.shared_by, f"0 to {INT32_MAX}")
        before = self._groups.get(change.group, {}).get(change.topic)
        if before is None and self._count >= ROWS_MAX:
            raise Overloaded("ROWS_MAX of the request modes", ROWS_MAX)
        self._changed(change.group, change.topic, change)

    def forget_group(self, group: str) -> None:
        """A deleted group has no modes."""
        for topic in tuple(self._groups.get(group, ())):
            self._changed(group, topic, None)

    def modes(self) -> tuple[RequestModeChange, ...]:
        return tuple([row for rows in self._groups.values() for row in rows.values()])

    def is_popped(self, group: str) -> bool:
        """Does the group pop its topics?"""
        return any(each.mode is RequestMode.POP for each in self._groups.get(group, {}).values())

    def assigned(self, query: AssignmentQuery) -> Assigned | None:
        """The queues that a member reads of a topic, and how.

        None: there is no such topic, or no such member yet.
        """
        queues = self._topics.read_queues(query.topic)
        if query.is_broadcasting:
            return Assigned(RequestMode.PULL, tuple(range(queues)), queues) if queues else None
        assignment = self._membership.assignment(query.group, query.client_id)
        members = assignment.members
        if not queues or query.client_id not in members:
            return None
        mode = RequestMode.POP if self.is_popped(query.group) else RequestMode.PULL
        if mode is RequestMode.PULL:
            mine = [each.queue_id for each in assignment.queues if each.topic == query.topic]
            return Assigned(mode, tuple(mine), queues, members)
        if is_retry(query.topic):
            return Assigned(mode, (), queues, members)
        known = self._groups[query.group].get(query.topic)
        shared_by = known.shared_by if known else 0
        popped = _popped(queues, members, members.index(query.client_id), shared_by)
        return Assigned(mode, popped, queues, members)

    # ---- inside

    def _changed(self, group: str, topic: str, row: RequestModeChange | None) -> None:
        """Put a row, or remove it if it is None.  Raises StoreUnavailable."""
        value = row and {
            "consumerGroup": group,
            "mode": str(row.mode),
            "popShareQueueNum": row.shared_by,
            "topic": topic,
        }
        self._store.change_table(MODES_TABLE, [(("messageRequestModeMap", topic, group), value)])
        self._put(group, topic, row)

    def _put(self, group: str, topic: str, row: RequestModeChange | None) -> None:
        rows = self._groups.setdefault(group, {})
        self._count += (row is not None) - (topic in rows)
        if row is not None:
            rows[topic] = row
        else:
            rows.pop(topic, None)
        if not rows:
            del self._groups[group]


def _popped(queues: int, members: tuple[str, ...], index: int, shared_by: int) -> tuple[int, ...]:
    """The queue ids that a member pops, by RocketMQ's rule; -1 is every queue.

    shared_by: how many further members pop a member's own queues, too.
    """
    if not 0 < shared_by < len(members) - 1:
        return (-1,)
    if len(members) > queues:
        return (index % queues,)
    shares = list(allocate(range(queues), len(members)))
    mine = [shares[(index + each) % len(members)] for each in range(shared_by + 1)]
    return tuple(sorted({queue_id for share in mine for queue_id in share}))

"""The figures of a consumer group: what it has still to consume, and what it failed for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rmqlite.names import retry_topic
from rmqlite.requests.dead_letters import DeadLetterGroup
from rmqlite.requests.groups import GroupStatus
from rmqlite.requests.schedule import PendingCount


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of a group; None: not known yet.

    lag: messages that the group could get and has not got yet, in its topics and its retry topic.
    due: the part of the lag in the retry topic.  waiting: retries in the schedule.  dead: open
    dead letters.  new_dead: dead letters since a first look.
    """

    group: str
    lag: int | None = None
    members: int | None = None
    waiting: int | None = None
    due: int | None = None
    dead: int | None = None
    new_dead: int | None = None

    @property
    def unread(self) -> int:
        """Messages that the group could get now, and that no member is there to read."""
        return self.lag or 0 if self.members == 0 else 0

    @property
    def retries(self) -> int:
        """Those that wait, and the due ones."""
        return (self.waiting or 0) + (self.due or 0)


def group_figures(
    group: str,
    status: GroupStatus | None,
    waiting: Mapping[str, int] | None = None,
    dead: Mapping[str, DeadLetterGroup] | None = None,
    new_dead: int | None = None,
) -> GroupFigures:
    """waiting: see waiting_by_topic(); dead: by group.  None: the broker has not answered yet."""
    again = retry_topic(group)
    lag = due = members = None
    if status is not None:
        lag = sum([each.lag for each in status.progress])
        due = sum([each.lag for each in status.progress if each.queue.topic == again])
        members = len(status.members)
    letters = None if dead is None else dead.get(group)
    return GroupFigures(
        group,
        lag,
        members,
        None if waiting is None else waiting.get(again, 0),
        due,
        letters.open if letters else None if dead is None else 0,
        new_dead,
    )


def waiting_by_topic(counts: Iterable[PendingCount]) -> dict[str, int]:
    """The scheduled messages of each topic, at all levels together."""
    waiting: dict[str, int] = {}
    for each in counts:
        waiting[each.topic] = waiting.get(each.topic, 0) + each.pending
    return waiting

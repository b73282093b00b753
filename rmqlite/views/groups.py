"""A consumer group: what it has still to consume, what it failed for good, and its retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.levels import LevelTable
from rmqlite.names import retry_topic
from rmqlite.requests.dead_letters import DeadLetterGroup
from rmqlite.requests.groups import (
    GroupInfo,
    GroupStatus,
    MemberInfo,
    QueueProgress,
    QueueReset,
)
from rmqlite.requests.schedule import PendingCount
from rmqlite.requests.topics import TopicLoss, TopicReader
from rmqlite.retry_policy import Attempt
from rmqlite.views.counts import counted
from rmqlite.views.tables import (
    BAD,
    DIM,
    NOTHING,
    WARN,
    Column,
    Part,
    Row,
    Subject,
    Table,
    cell,
    row,
    table,
)
from rmqlite.views.times import age_text, delay_text
from rmqlite.visible import printable

_REASON_LEAST: Final = 24
_GROUPS: Final = (
    Column("GROUP", is_short=True),
    Column("LAG", right=True),
    Column("DUE", right=True),
    Column("MEMBERS", right=True, rank=1),
    Column("RETRIES", right=True),
    Column("DEAD", right=True),
    Column("NEW DEAD", right=True, rank=2),
    Column("MOST FREQUENT REASON", is_short=True, rank=3, least=_REASON_LEAST),
)
_PROGRESS: Final = (
    Column("TOPIC", is_short=True),
    Column("QUEUE", right=True),
    Column("COMMITTED", right=True),
    Column("MAX", right=True),
    Column("LAG", right=True),
    Column("IN FLIGHT", right=True, rank=2),
    Column("READ BY", is_short=True, rank=1),
)
_MEMBERS: Final = (
    Column("CLIENT", is_short=True),
    Column("SUBSCRIBES TO", is_short=True),
    Column("LAST SEEN"),
)
_ATTEMPTS: Final = (
    Column("ATTEMPT", right=True),
    Column("POLICY SAYS", rank=1),
    Column("LEVEL", right=True),
    Column("WAITS"),
    Column("AFTER THE FIRST FAILURE"),
)
_RESETS: Final = (
    Column("TOPIC", is_short=True),
    Column("QUEUE", right=True),
    Column("COMMITTED", right=True),
    Column("GOES ON AT", right=True),
    Column("COME AGAIN", right=True),
    Column("SKIPPED", right=True),
)
_READERS: Final = (
    Column("GROUP", is_short=True),
    Column("NOT CONSUMED", right=True),
    Column("MEMBERS", right=True),
)
ROCKETMQS_POLICY: Final = "RocketMQ's levels 3, 4, 5 and so on"


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of a group; None: not known yet.

    lag: messages that the group could get and has not got yet, in its topics and its retry topic.
    due: the part of the lag in the retry topic.  waiting: retries in the schedule.  dead: open
    dead letters.  new_dead: dead letters since a first look.  reason: their most frequent kind.
    """

    group: str
    lag: int | None = None
    members: int | None = None
    waiting: int | None = None
    due: int | None = None
    dead: int | None = None
    new_dead: int | None = None
    reason: str = ""

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
        letters.reasons[0].reason if letters and letters.reasons else "",
    )


def waiting_by_topic(counts: Iterable[PendingCount]) -> dict[str, int]:
    """The scheduled messages of each topic, at all levels together."""
    waiting: dict[str, int] = {}
    for each in counts:
        waiting[each.topic] = waiting.get(each.topic, 0) + each.pending
    return waiting


SORTS: Final[dict[str, Callable[[GroupFigures], tuple[int, ...]]]] = {
    "worst": lambda g: (-(g.new_dead or 0), -g.unread, -(g.dead or 0), -(g.lag or 0)),
    "lag": lambda g: (-(g.lag or 0),),
    "retries": lambda g: (-g.retries,),
    "dead": lambda g: (-(g.dead or 0),),
    "new dead": lambda g: (-(g.new_dead or 0),),
    "name": lambda _: (),
}
"""The sort keys of groups; equal groups stay in the order in which they come."""


def groups_table(every: Sequence[GroupFigures], *, sort: str = "name", wanted: str = "") -> Table:
    """The groups whose names contain the wanted text."""
    fitting = [each for each in every if wanted.lower() in each.group.lower()]
    fitting.sort(key=SORTS[sort])
    count = f"{len(fitting):,} of {len(every):,}" if wanted else f"{len(every):,}"
    about = f", with {printable(wanted)!r}" if wanted else ""
    return table(
        f"groups: {count}{about}, by {sort}",
        _GROUPS,
        [_group_row(each) for each in fitting],
        "no group matches" if wanted else "no groups yet",
    )


def _group_row(figures: GroupFigures) -> Row:
    group = figures.group
    new_dead = NOTHING if figures.new_dead is None else f"+{figures.new_dead:,}"
    return row(
        group,
        cell(group, "", Subject.GROUPS, group),
        figures.lag,
        figures.due,
        cell(figures.members, WARN if figures.unread else ""),
        cell(figures.waiting, "", Subject.RETRIES, group),
        cell(figures.dead, WARN if figures.dead else "", Subject.DEAD_LETTERS, group),
        Part(new_dead, BAD if figures.new_dead else DIM),
        cell(figures.reason or NOTHING, "", Subject.REASONS, group, figures.reason),
    )


def progress_table(progress: Sequence[QueueProgress]) -> Table:
    """How far a group is in each of its queues."""
    rows = [
        row(
            f"{each.queue.topic}/{each.queue.queue_id}",
            each.queue.topic,
            each.queue.queue_id,
            each.committed_offset,
            each.max_offset,
            cell(each.lag, WARN if each.lag and not each.client_id else ""),
            each.in_flight,
            each.client_id or NOTHING,
        )
        for each in progress
    ]
    return table(f"queues: {len(rows):,}", _PROGRESS, rows, "no progress yet")


def members_table(members: Sequence[MemberInfo], now_ms: int) -> Table:
    """Who reads for a group."""
    rows = [
        row(
            each.client_id,
            each.client_id,
            ", ".join(map(str, each.subscriptions)),
            age_text(each.last_seen_ms, now_ms),
        )
        for each in members
    ]
    return table(f"members: {len(rows):,}", _MEMBERS, rows, "no members")


def attempts_table(info: GroupInfo, attempts: Sequence[Attempt], levels: LevelTable) -> Table:
    """The retries of a message that fails every time, by the group's policy."""
    rows = [
        row(
            str(each.first_attempt),
            _attempts_text(each),
            NOTHING if each.asked_ms is None else delay_text(each.asked_ms),
            each.level,
            levels.name(each.level),
            delay_text(each.since_first_failure_ms),
        )
        for each in attempts
    ]
    return table(f"retries by {info.retry_policy or ROCKETMQS_POLICY}", _ATTEMPTS, rows)


def _attempts_text(attempts: Attempt) -> str:
    first, last = attempts.first_attempt, attempts.last_attempt
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def death_lines(info: GroupInfo, attempts: Sequence[Attempt] | None) -> list[str]:
    """When a message that keeps failing is dead; attempts: None for an unknown policy."""
    if attempts is None:
        return [f"this rmqlite does not know the retry policy {info.retry_policy!r}"]
    if not attempts:
        return ["a message is a dead letter at its first failure"]
    last = attempts[-1]
    return [
        f"when attempt {last.last_attempt:,} fails, too, it is a dead letter:"
        f" {delay_text(last.since_first_failure_ms)} after",
        "the first failure, plus the time that the attempts take",
    ]


def readers_text(group: str, members: int, *, can_consume: bool) -> str:
    """Who is there to read for a group."""
    if not can_consume:
        return f"{group} may not consume now"
    return f"{group} has {counted(members, 'member') if members else 'no member'} now"


def resets_table(resets: Sequence[QueueReset]) -> Table:
    """The queues in which a reset moves a group."""
    moved = [each for each in resets if each.before != each.after]
    rows = [
        row(
            f"{each.queue.topic}/{each.queue.queue_id}",
            each.queue.topic,
            each.queue.queue_id,
            each.before,
            each.after,
            each.again,
            cell(each.skipped, WARN if each.skipped else ""),
        )
        for each in moved
    ]
    title = f"queues that change: {len(moved):,} of {len(resets):,}"
    return table(title, _RESETS, rows, "no queue changes")


def resets_text(resets: Sequence[QueueReset]) -> str:
    """How many messages a reset brings again and how many it skips, in all queues together."""
    again = sum([each.again for each in resets])
    skipped = sum([each.skipped for each in resets])
    return f"{counted(again, 'message')} to come again, {skipped:,} to be skipped"


def loss_lines(loss: TopicLoss) -> list[str]:
    """What is lost with a topic."""
    held = counted(loss.messages, "message")
    waiting = counted(loss.waiting, "message")
    later = ": dead letters when they are due" if loss.waiting else ""
    return [
        f"{held} in its queues, of which no group has consumed {loss.unread:,}",
        f"{waiting} in the schedule for it{later}",
    ]


def readers_table(readers: Sequence[TopicReader]) -> Table:
    """The groups that read a topic, or have read it."""
    rows = [
        row(
            each.group,
            cell(each.group, "", Subject.GROUPS, each.group),
            cell(each.unread, WARN if each.unread else ""),
            each.members,
        )
        for each in readers
    ]
    return table(f"groups: {len(rows):,}", _READERS, rows, "no group has read it")

"""A consumer group: what it has still to consume, what it failed for good, and its retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqlite.features.changes.requests import PendingCount
from rmqlite.features.dead_letters.requests import DeadLetterGroup
from rmqlite.features.operating.requests import (
    GroupStatus,
    QueueProgress,
    QueueReset,
    TopicLoss,
    TopicReader,
)
from rmqlite.features.rate_limits.requests import burst_of
from rmqlite.kernel.requests.groups import GroupInfo, MemberInfo
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.names import retry_topic
from rmqlite.kernel.words.visible import printable
from rmqlite.views.levels import TIMER, Attempt, waits_text
from rmqlite.views.numbers import age_text, counted, delay_text, span_text
from rmqlite.views.tables import (
    BAD,
    DIM,
    NOTHING,
    WARN,
    Column,
    Subject,
    Table,
    TableRow,
    Tone,
    cell,
    row,
    table,
)

SILENT_MS: Final = 300_000
"""A group with members that has finished nothing for so long, although it had messages, is in
trouble: it hangs, or one message takes it that long."""
HELD_BACK_MS: Final = 60_000
"""A rate limit that left a call without a message within a minute is why its group lags."""
_REASON_LEAST: Final = 24
_SILENT_SHOWN: Final = 10
_GROUPS: Final = (
    Column("GROUP", is_short=True, least=12),
    Column("LAG", right=True),
    Column("OLDEST", right=True, rank=1),
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
    Column("OLDEST", right=True, rank=1),
    Column("LAST DONE", right=True, rank=3),
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
_SETTINGS: Final = (
    Column("GROUP", is_short=True, least=12),
    Column("LAG", right=True),
    Column("OLDEST", right=True),
    Column("MEMBERS", right=True),
    Column("WAITING RETRIES", right=True),
    Column("DEAD", right=True),
    Column("MAX RETRIES", right=True),
    Column("RETRY POLICY", is_short=True, rank=1),
    Column("MAY CONSUME", rank=2),
    Column("ORDERLY", rank=3),
    Column("RETRY QUEUES", right=True, rank=4),
    Column("PER SECOND", right=True, rank=1),
)
ROCKETMQS: Final = "RocketMQ's"
ROCKETMQS_POLICY: Final = "RocketMQ's levels 3, 4, 5 and so on"
BROADCASTING: Final = (
    "broadcasting: each member reads all queues and keeps its own offsets, so the group has no lag"
)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of a group; None: not known yet.

    lag: see QueueProgress.lag, in its topics and its retry topic; None of a broadcasting group.
    due: the part of the lag in the retry topic.  waiting: retries in the schedule.  dead: open
    dead letters.  new_dead: dead letters since a first look.  reason: their most frequent kind.

    oldest_ms: the age of the oldest message that is not consumed, 0 without one.  silent_ms: how
    long the group has finished nothing in a queue that has messages for it, 0 without one.
    busy_queues: how many of its queues have messages for it.  silent_queues: in how many of these
    that is SILENT_MS or longer.
    """

    group: str
    lag: int | None = None
    oldest_ms: int | None = None
    silent_ms: int = 0
    silent_queues: int = 0
    busy_queues: int = 0
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
    def is_silent(self) -> bool:
        """Has it members that finish nothing?"""
        return bool(self.members) and self.silent_ms >= SILENT_MS

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
    letters = None if dead is None else dead.get(group)
    figures = GroupFigures(
        group,
        waiting=None if waiting is None else waiting.get(again, 0),
        dead=letters.open if letters else None if dead is None else 0,
        new_dead=new_dead,
        reason=letters.reasons[0].reason if letters and letters.reasons else "",
    )
    if status is None:
        return figures
    figures = replace(figures, members=len(status.members))
    if status.is_broadcasting:
        return figures
    queues = [each for each in status.progress if not each.has_no_lag]
    silent = [silent_ms(each, status.now_ms) for each in queues]
    return replace(
        figures,
        lag=sum([each.lag for each in queues]),
        due=sum([each.lag for each in queues if each.queue.topic == again]),
        oldest_ms=max([oldest_age_ms(each, status.now_ms) for each in queues], default=0),
        silent_ms=max(silent, default=0),
        silent_queues=sum([each >= SILENT_MS for each in silent]),
        busy_queues=sum([each.lag > 0 for each in queues]),
    )


def oldest_age_ms(progress: QueueProgress, now_ms: int) -> int:
    """The age of the oldest message of a queue that is not consumed; 0 without one."""
    stored_ms = progress.oldest_timestamp_ms
    return max(0, now_ms - stored_ms) if stored_ms else 0


def silent_ms(progress: QueueProgress, now_ms: int) -> int:
    """How long a group has finished nothing in a queue that has messages for it; 0 without one."""
    since_ms = progress.silent_since_ms
    return max(0, now_ms - since_ms) if since_ms else 0


def waiting_by_topic(counts: Iterable[PendingCount]) -> dict[str, int]:
    """The scheduled messages of each topic, at all levels together."""
    waiting: dict[str, int] = {}
    for each in counts:
        waiting[each.topic] = waiting.get(each.topic, 0) + each.pending
    return waiting


SORTS: Final[dict[str, Callable[[GroupFigures], tuple[int, ...]]]] = {
    "worst": lambda g: (
        *(-(g.new_dead or 0), -g.unread, -g.is_silent * g.silent_ms),
        *(-(g.dead or 0), -(g.lag or 0)),
    ),
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


def _group_row(figures: GroupFigures) -> TableRow:
    group = figures.group
    new_dead = NOTHING if figures.new_dead is None else f"+{figures.new_dead:,}"
    return row(
        group,
        cell(group, "", Subject.GROUPS, group),
        figures.lag,
        oldest_cell(figures),
        figures.due,
        cell(figures.members, WARN if figures.unread else ""),
        cell(figures.waiting, "", Subject.RETRIES, group),
        cell(figures.dead, WARN if figures.dead else "", Subject.DEAD_LETTERS, group),
        Tone(new_dead, BAD if figures.new_dead else DIM),
        cell(figures.reason or NOTHING, "", Subject.REASONS, group, figures.reason),
    )


def settings_table(groups: Sequence[GroupInfo], figures: Mapping[str, GroupFigures]) -> Table:
    """Groups with their settings.  figures: of each of them."""
    rows = []
    for info in groups:
        known = figures[info.group]
        rows.append(
            row(
                info.group,
                info.group,
                known.lag,
                oldest_cell(known),
                cell(known.members, WARN if known.unread else ""),
                known.waiting,
                cell(known.dead, WARN if known.dead else ""),
                info.max_reconsume_times,
                info.retry_policy or ROCKETMQS,
                info.can_consume,
                info.orderly,
                info.retry_queues,
                f"{info.max_per_second:,.9g}" if info.max_per_second else NOTHING,
            )
        )
    return table("", _SETTINGS, rows, "no groups yet")


def oldest_cell(figures: GroupFigures) -> Tone:
    """The age of the oldest message that is not consumed."""
    text = span_text(figures.oldest_ms) if figures.oldest_ms else NOTHING
    return Tone(text, BAD if figures.is_silent else "")


def progress_table(progress: Sequence[QueueProgress], now_ms: int) -> Table:
    """How far a group is in each of its queues; now_ms: the broker's clock."""
    rows = [
        row(
            f"{each.queue.topic}/{each.queue.queue_id}",
            each.queue.topic,
            each.queue.queue_id,
            each.committed_offset,
            each.max_offset,
            NOTHING
            if each.has_no_lag
            else cell(each.lag, WARN if each.lag and not each.client_id else ""),
            _age_cell(oldest_age_ms(each, now_ms), silent_ms(each, now_ms)),
            age_text(each.progressed_at_ms, now_ms),
            each.in_flight,
            each.client_id or NOTHING,
        )
        for each in progress
    ]
    return table(f"queues: {len(rows):,}", _PROGRESS, rows, "no progress yet")


def _age_cell(oldest_ms: int, silent_for_ms: int) -> Tone:
    text = span_text(oldest_ms) if oldest_ms else NOTHING
    return Tone(text, BAD if silent_for_ms >= SILENT_MS else "")


def silent_lines(status: GroupStatus) -> list[str]:
    """Where a group has finished nothing for too long: which message waits there, and whose it is.

    The ones that wait longest first.
    """
    now_ms = status.now_ms
    silent = [each for each in status.progress if silent_ms(each, now_ms) >= SILENT_MS]
    silent.sort(key=lambda each: each.silent_since_ms)
    lines = [
        f"{printable(each.queue.topic)}/{each.queue.queue_id}: nothing finished for"
        f" {span_text(silent_ms(each, now_ms))}, at queue offset {each.next_offset:,},"
        f" {f'with {printable(each.client_id)}' if each.client_id else 'with nobody'}"
        for each in silent[:_SILENT_SHOWN]
    ]
    more = len(silent) - _SILENT_SHOWN
    return [*lines, *[f"and in {counted(more, 'more queue')}"] * (more > 0)]


def limit_line(status: GroupStatus) -> str:
    """A group's rate limit, and whether its lag comes from it; "" without one."""
    info, since_ms = status.info, status.now_ms - status.held_back_at_ms
    if not info.max_per_second:
        return ""
    burst = burst_of(info.max_per_second, info.burst)
    line = f"rate limit: {info.max_per_second:,.9g} a second, {burst:,} at once"
    if status.held_back_at_ms and since_ms < HELD_BACK_MS:
        return f"{line}; it holds messages back: a lag comes from it"
    return f"{line}; it held nothing back in the last minute"


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
            each.level or TIMER,
            waits_text(each, levels),
            delay_text(each.since_first_failure_ms),
        )
        for each in attempts
    ]
    return table(f"retries by {info.retry_policy or ROCKETMQS_POLICY}", _ATTEMPTS, rows)


def _attempts_text(attempts: Attempt) -> str:
    first, last = attempts.first_attempt, attempts.last_attempt
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def expired_lines(status: GroupStatus) -> list[str]:
    """What becomes of messages that expire; nothing while none has, and the group skips them."""
    buries = status.info.bury_expired
    if not status.expired and not buries:
        return []
    fate = "is a dead letter" if buries else "is skipped"
    return [f"a message that has expired {fate}: {status.expired} since the broker's start"]


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

"""A broker as an operator sees it: what is wrong with it, its rates, and where it has registered.

The rules of troubles read the broker's answers only, and no clock: an old answer makes nothing
late.  The seconds of a rate are the broker's own, so that a slow answer does not look like a slow
broker; a restart begins the counters anew: that step has no rate, and none is ever negative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rmqlite.features.redrive.requests import JobState, RedriveJob
from rmqlite.kernel.requests.broker import (
    ArchiveStatus,
    BrokerStatus,
    NameServerStatus,
    ReplicationStatus,
)
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.names import SCHEDULE_GROUP, dlq_topic
from rmqlite.kernel.words.visible import printable
from rmqlite.views.groups import GroupFigures
from rmqlite.views.levels import LATE_MS, level_text, levels_text, waiting_text
from rmqlite.views.numbers import COUNTED, counted, size_text, span_text
from rmqlite.views.tables import (
    BAD,
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

_NAME_SERVERS: Final = (
    Column("NAME SERVER"),
    Column("REGISTERED"),
    Column("FOR", right=True),
    Column("TOPICS", right=True),
)
_BROKERS: Final = (
    Column("BROKER"),
    Column("ID", right=True),
    Column("ADDRESS"),
    Column("CLUSTER"),
    Column("TOPICS", right=True),
    Column("LAST", right=True),
)
_ARCHIVE: Final = (
    Column("ARCHIVE"),
    Column("OWNER"),
    Column("TERM", right=True),
    Column("LOG END", right=True),
    Column("LAST", right=True),
    Column("BEHIND", right=True),
)
_REPLICATION: Final = (
    Column("ROLE"),
    Column("TERM", right=True),
    Column("OTHER BROKER"),
    Column("CONNECTED"),
    Column("ITS LOG END", right=True),
    Column("BEHIND", right=True),
    Column("ONE COPY FOR", right=True),
)
_AUTHORITY: Final = (
    Column("AUTHORITY"),
    Column("ANSWERS"),
    Column("MASTER"),
    Column("LEASE LEFT", right=True),
    Column("IN SYNC"),
)
JOINING_MS: Final = 30_000
"""A group without members is no trouble for so long after the broker's start: RocketMQ's clients
send a heartbeat every 30 s."""
HISTORY_MAX: Final = 240
"""The rates stored per counter: as many as a wide screen can show."""
STEP_MS_MIN: Final = 900
"""In a shorter step a few messages would look like a flood."""
LATELY_MS: Final = 60_000


def cluster_tables(status: BrokerStatus) -> list[Table]:
    """Those that have rows; a broker that stands alone has none."""
    now_ms = status.now_ms
    brokers = [
        row(
            each.address,
            each.broker_name,
            each.broker_id,
            each.address,
            each.cluster,
            each.topics,
            f"{span_text(now_ms - each.registered_at_ms)} ago",
        )
        for each in status.registered
    ]
    servers = [_name_server_row(each, now_ms) for each in status.name_servers]
    found = (
        table("name servers", _NAME_SERVERS, servers),
        table("brokers that have registered here", _BROKERS, brokers),
        replication_table(status),
        authority_table(status),
        table("archive", _ARCHIVE, [_archive_row(each, now_ms) for each in status.archives]),
    )
    return [each for each in found if each.rows]


def replication_table(status: BrokerStatus) -> Table:
    """The copy on another broker; no row if there never was one."""
    rows = [_replication_row(each, status.now_ms) for each in status.replication]
    return table("standby", _REPLICATION, rows)


def authority_table(status: BrokerStatus) -> Table:
    """What decides who is the master; no row if an operator does."""
    rows = [_authority_row(each, status.now_ms) for each in status.replication if each.authority]
    return table("authority", _AUTHORITY, rows)


def _authority_row(copy: ReplicationStatus, now_ms: int) -> TableRow:
    away_ms = copy.unheard_since_ms
    return row(
        copy.authority,
        copy.authority,
        cell(f"not for {span_text(now_ms - away_ms)}", BAD) if away_ms else "yes",
        copy.authority_master or NOTHING,
        span_text(copy.lease_left_ms) if copy.lease_left_ms else NOTHING,
        cell(", ".join(copy.in_sync), "" if len(copy.in_sync) > 1 else WARN),
    )


def _behind(copy: ReplicationStatus | ArchiveStatus, now_ms: int) -> Tone:
    """What a copy lacks, and since when."""
    behind = size_text(copy.behind_bytes)
    if copy.behind_since_ms:
        behind += f" for {span_text(now_ms - copy.behind_since_ms)}"
    return cell(behind, BAD if copy.trouble else "")


def _replication_row(copy: ReplicationStatus, now_ms: int) -> TableRow:
    alone_ms = copy.alone_since_ms
    return row(
        copy.role,
        copy.role,
        copy.term or NOTHING,
        copy.peer or NOTHING,
        cell("yes" if copy.is_connected else "no", "" if copy.is_connected else BAD),
        copy.end or NOTHING,
        _behind(copy, now_ms),
        cell(span_text(now_ms - alone_ms), WARN) if alone_ms else NOTHING,
    )


def _name_server_row(server: NameServerStatus, now_ms: int) -> TableRow:
    return row(
        server.address,
        server.address,
        cell("yes" if server.is_registered else "no", "" if server.is_registered else BAD),
        span_text(now_ms - server.since_ms) if server.since_ms else NOTHING,
        server.topics,
    )


def _archive_row(archive: ArchiveStatus, now_ms: int) -> TableRow:
    """LAST: when something was archived."""
    last_ms = archive.archived_at_ms
    return row(
        archive.url,
        archive.url,
        archive.owner or NOTHING,
        archive.term or NOTHING,
        archive.end,
        f"{span_text(now_ms - last_ms)} ago" if last_ms else NOTHING,
        _behind(archive, now_ms),
    )


def troubles(
    status: BrokerStatus,
    groups: Sequence[GroupFigures],
    jobs: Sequence[RedriveJob],
    dead_lately: int = 0,
) -> list[Tone]:
    """All troubles, each a sentence with the names of the groups, levels or jobs that have it.

    groups: every group that has settings or dead letters.  dead_lately: the messages that died in
    the last minute, if the caller has counted them.
    """
    found = [
        *_disk(status),
        *_late_levels(status),
        *_dead_letters(groups, dead_lately),
        *_unread(status, groups),
        *_silent(groups),
        *_standing(jobs),
        *_undeliverable(status, groups),
    ]
    found += [Tone(printable(sentence), WARN) for sentence in status.warnings]
    return sorted(found, key=lambda each: each.tone != BAD)


def _disk(status: BrokerStatus) -> list[Tone]:
    found = []
    if status.is_disk_full:
        used = f"{status.disk_used_ratio:.1%}"
        sentence = f"disk full ({used}): sends are refused until there is room again"
        sentence += f"; {held}" if (held := held_text(status)) else ""
        found.append(Tone(sentence, BAD, Subject.DISK))
    if status.pinned_bytes:
        due_ms = status.pinned_deliver_at_ms
        sentence = (
            f"{size_text(status.pinned_bytes)} of expired log files stay for "
            f"{waiting_text(status.pinned_by_level)}"
            f"{f', due {local_text(due_ms)}' if due_ms else ''}"
            f", at physical offset {status.pinned_physical_offset}"
        )
        found.append(Tone(sentence, WARN, Subject.DISK))
    return found


def held_text(status: BrokerStatus) -> str:
    """What holds the space of the store's disk; empty if it was not measured yet."""
    if not status.disk_bytes:
        return ""
    used = round(status.disk_used_ratio * status.disk_bytes)
    log_bytes = min(used, status.log_max_offset - status.log_min_offset)
    return (
        f"of {size_text(used)} used the log holds {size_text(log_bytes)}, everything else"
        f" {size_text(used - log_bytes)}"
    )


def _late_levels(status: BrokerStatus) -> list[Tone]:
    late = [
        (status.now_ms - level.next_due_ms, level.level)
        for level in status.levels
        if level.next_due_ms and status.now_ms - level.next_due_ms >= LATE_MS
    ]
    if not late:
        return []
    late.sort(reverse=True)
    late_ms, level = late[0]
    sentence = f"{levels_text((level,))}{_others(late)} late by {span_text(late_ms)}"
    return [Tone(sentence, BAD, Subject.LEVELS, tuple([level_text(each) for _, each in late]))]


def _dead_letters(groups: Sequence[GroupFigures], dead_lately: int) -> list[Tone]:
    with_dead = [each for each in groups if each.dead and each.group != SCHEDULE_GROUP]
    if dead_lately:
        grown = [each for each in groups if each.new_dead]
        grown.sort(key=lambda each: -(each.new_dead or 0))
        where = f", most in {printable(grown[0].group)}" if grown else ""
        return [_of_groups(f"{dead_lately:,} dead in the last minute{where}", BAD, grown)]
    if not with_dead:
        return []
    with_dead.sort(key=lambda each: -(each.dead or 0))
    count = sum([each.dead or 0 for each in with_dead])
    name = printable(with_dead[0].group)
    where = name if len(with_dead) == 1 else f"{len(with_dead):,} groups, most in {name}"
    letters = "letter" if count == 1 else "letters"
    return [_of_groups(f"{count:,} open dead {letters} in {where}", WARN, with_dead)]


def _of_groups(sentence: str, tone: str, groups: Sequence[GroupFigures]) -> Tone:
    return Tone(sentence, tone, Subject.DEAD_LETTERS, tuple([each.group for each in groups]))


def _unread(status: BrokerStatus, groups: Sequence[GroupFigures]) -> list[Tone]:
    """Groups that have messages and no member."""
    left = [each for each in groups if each.unread]
    if not left or status.now_ms - status.started_at_ms < JOINING_MS:
        return []
    left.sort(key=lambda each: -each.unread)
    sentence = f"nobody reads for {printable(left[0].group)}{_others(left)}"
    return [Tone(sentence, WARN, Subject.GROUPS, tuple([each.group for each in left]))]


def _silent(groups: Sequence[GroupFigures]) -> list[Tone]:
    """Groups whose members finish nothing."""
    silent = [each for each in groups if each.is_silent]
    if not silent:
        return []
    silent.sort(key=lambda each: -each.silent_ms)
    worst = silent[0]
    where = ""
    if worst.silent_queues < worst.busy_queues:
        where = f" in {worst.silent_queues:,} of {counted(worst.busy_queues, 'queue')}"
    sentence = (
        f"{printable(worst.group)} has {counted(worst.members or 0, 'member')} and has finished"
        f" nothing{where} for {span_text(worst.silent_ms)}{_others(silent)}"
    )
    return [Tone(sentence, BAD, Subject.GROUPS, tuple([each.group for each in silent]))]


def _standing(jobs: Sequence[RedriveJob]) -> list[Tone]:
    return [
        Tone(
            f"redrive of {printable(job.spec.group)} stands still: {printable(job.note)}",
            WARN,
            Subject.REDRIVE,
            (job.job_id,),
        )
        for job in jobs
        if job.note and job.state is JobState.RUNNING
    ]


def _undeliverable(status: BrokerStatus, groups: Sequence[GroupFigures]) -> list[Tone]:
    """The schedule's own dead letters; without an answer about letters those since the start."""
    open_ones = [each.dead for each in groups if each.group == SCHEDULE_GROUP]
    count = status.undeliverable if open_ones in ([], [None]) else open_ones[0]
    if not count:
        return []
    sentence = f"{count:,} undeliverable, see {dlq_topic(SCHEDULE_GROUP)}"
    return [Tone(sentence, WARN, Subject.UNDELIVERABLE, (SCHEDULE_GROUP,))]


def _others(found: Sequence[object]) -> str:
    return f" and {len(found) - 1:,} more" if len(found) > 1 else ""


class RateRows:
    """The last rates of each counter; None for a step without one.

    from_start: the first step begins at the broker's start, where all counters were 0.
    """

    def __init__(self, *, from_start: bool = False) -> None:
        self._from_start = from_start
        self.history: dict[str, deque[float | None]] = {
            name: deque(maxlen=HISTORY_MAX) for name in COUNTED
        }
        self.over_ms = 0
        """The length of the last step; 0 while there is none."""
        self._before: BrokerStatus | None = None
        self._dead: deque[tuple[int, int]] = deque()

    def take(self, status: BrokerStatus) -> None:
        """The next status; one that comes too soon is counted with the one after it."""
        before, self._before = self._before, status
        if before is None and self._from_start:
            zero: dict[str, Any] = dict.fromkeys(COUNTED, 0)
            before = replace(status, now_ms=status.started_at_ms, **zero)
        if before is None:
            return
        if before.started_at_ms != status.started_at_ms:
            self.gap()
            return
        passed_ms = status.now_ms - before.now_ms
        if passed_ms < STEP_MS_MIN:
            self._before = before
            return
        self.over_ms = passed_ms
        for name in COUNTED:
            grown = max(0, getattr(status, name) - getattr(before, name))
            self.history[name].append(grown * 1000 / passed_ms)
        self._count_dead(status.now_ms, status.dead - before.dead)

    def gap(self) -> None:
        """A step without an answer."""
        for name in COUNTED:
            self.history[name].append(None)

    def now(self, name: str) -> float | None:
        """The last rate, None while there is none."""
        return self.history[name][-1] if self.history[name] else None

    @property
    def dead_lately(self) -> int:
        """The messages that died in the last minute of the rounds."""
        return sum([count for _, count in self._dead])

    def _count_dead(self, now_ms: int, count: int) -> None:
        if count > 0:
            self._dead.append((now_ms, count))
        while self._dead and self._dead[0][0] <= now_ms - LATELY_MS:
            self._dead.popleft()

"""What is wrong with a broker, the worst first: `rmqlite top`, `rmqlite status` and the web page.

The rules read the broker's answers only, and no clock: an old answer makes nothing late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqlite.features.redrive.requests import JobState, RedriveJob
from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.names import SCHEDULE_GROUP, dlq_topic
from rmqlite.kernel.words.visible import printable
from rmqlite.views.counts import counted, size_text
from rmqlite.views.groups import GroupFigures
from rmqlite.views.levels import LATE_MS, level_text, levels_text, waiting_text
from rmqlite.views.tables import BAD, WARN, Subject, Tone
from rmqlite.views.times import span_text

JOINING_MS: Final = 30_000
"""A group without members is no trouble for so long after the broker's start: RocketMQ's clients
send a heartbeat every 30 s."""


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

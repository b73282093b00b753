"""The troubles of a broker for an operator, the worst first.

They are computed from the broker's last answers, never from a clock here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.cli.output.spans import span_text
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.status import disk_lines
from rmqlite.cli.top.picture import SILENT_AFTER_S, GroupFigures, Picture
from rmqlite.errors import RmqliteError
from rmqlite.names import SCHEDULE_GROUP, dlq_topic
from rmqlite.requests.redrive import JobState
from rmqlite.requests.status import BrokerStatus

LATE_MS: Final = 1_000
"""A level is late if a message is due for this long and not delivered."""
_UNKNOWN: Final = "UNIMPLEMENTED"
"""gRPC's code for a call that an older broker does not have."""
BAD: Final = "bad"
WARN: Final = "warn"


@dataclass(frozen=True, slots=True)
class Trouble:
    """tone: bad or warn."""

    sentence: str
    tone: str


def connection_trouble(picture: Picture, now_s: float, waiting_since_s: float) -> Trouble | None:
    """The trouble of a silent broker; waiting_since_s: start of the open round, 0: none."""
    age = span_text(int(picture.age_s(now_s)) * 1000)
    if picture.unreachable is not None:
        # gRPC's text has the whole path; its end is the reason.
        reason = printable(str(picture.unreachable).rsplit(": ", 1)[-1])
        return Trouble(f"no answer for {age} ({reason}), this is how it was then", BAD)
    if waiting_since_s and now_s - waiting_since_s >= SILENT_AFTER_S:
        return Trouble(f"no answer for {age}, still waiting for one", WARN)
    return None


def troubles(picture: Picture) -> list[Trouble]:
    """All troubles but those of the connection; empty if all is well."""
    status = picture.status
    if status is None:
        return []
    found = [*_late_levels(status), *_dead_letters(picture), *_groups(picture.groups())]
    found += [
        Trouble(f"redrive of {printable(job.spec.group)} stands still: {printable(job.note)}", WARN)
        for job in picture.jobs
        if job.note and job.state is JobState.RUNNING
    ]
    if status.undeliverable:
        where = dlq_topic(SCHEDULE_GROUP)
        found.append(Trouble(f"{status.undeliverable:,} undeliverable, see {where}", WARN))
    disk = [Trouble(line, BAD if status.is_disk_full else WARN) for line in disk_lines(status)]
    found += [Trouble(printable(sentence), WARN) for sentence in status.warnings]
    found += _not_told(picture)
    return sorted([*disk, *found], key=lambda each: each.tone != BAD)


def why(error: RmqliteError) -> str:
    """An error for a person; a broker older than this tool does not have all calls."""
    is_unknown = str(error).startswith(_UNKNOWN)
    return "the broker is too old for this" if is_unknown else printable(str(error))


def _not_told(picture: Picture) -> list[Trouble]:
    """The calls that the broker did not answer, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for asked, error in picture.errors.items():
        age_s = picture.part_age_s(asked)
        age = "not known" if age_s is None else f"{span_text(int(age_s) * 1000)} old"
        reasons.setdefault(why(error), []).append(f"{asked.value} {age}")
    return [Trouble(f"{', '.join(asked)}: {reason}", WARN) for reason, asked in reasons.items()]


def _late_levels(status: BrokerStatus) -> list[Trouble]:
    late = [
        (status.now_ms - level.next_due_ms, level.level)
        for level in status.levels
        if level.next_due_ms and status.now_ms - level.next_due_ms >= LATE_MS
    ]
    if not late:
        return []
    late_ms, level = max(late)
    others = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return [Trouble(f"level {level}{others} late by {span_text(late_ms)}", BAD)]


def _dead_letters(picture: Picture) -> list[Trouble]:
    groups = picture.groups()
    growing = max(groups, key=lambda each: each.new_dead or 0, default=None)
    if lately := picture.rates.dead_lately:
        where = f", most in {printable(growing.group)}" if growing and growing.new_dead else ""
        return [Trouble(f"{lately:,} dead in the last minute{where}", BAD)]
    with_dead = [each for each in groups if each.dead]
    if not with_dead:
        return []
    count = sum([each.dead or 0 for each in with_dead])
    in_groups = "1 group" if len(with_dead) == 1 else f"{len(with_dead)} groups"
    letters = "letter" if count == 1 else "letters"
    return [Trouble(f"{count:,} open dead {letters} in {in_groups}", WARN)]


def _groups(groups: tuple[GroupFigures, ...]) -> list[Trouble]:
    """Groups that have messages and no member."""
    left = [
        each for each in groups if each.members == 0 and ((each.lag or 0) > 0 or (each.due or 0))
    ]
    if not left:
        return []
    worst = max(left, key=lambda each: (each.lag or 0) + (each.due or 0))
    others = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return [Trouble(f"nobody reads for {printable(worst.group)}{others}", WARN)]

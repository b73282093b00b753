"""The parts of the overview: header, rates, and the tables of levels, groups and redrives.

Everything is computed from a Picture and a moment, so a screen and a file show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rmqlite.cli.output.terminal import printable, time_text
from rmqlite.cli.top.grid import Column, Line, Part, Row, Table, cell, cut, row, shortened, spread
from rmqlite.cli.top.picture import Picture
from rmqlite.cli.top.rates import chart, rate_text
from rmqlite.cli.top.troubles import connection_trouble, troubles
from rmqlite.requests.figures import LevelStatus
from rmqlite.requests.redrive import JobState, RedriveJob
from rmqlite.views.counts import COUNTED, counts_text
from rmqlite.views.group_figures import GroupFigures
from rmqlite.views.levels import delay_text, level_text
from rmqlite.views.spans import span_text
from rmqlite.views.troubles import BAD, LATE_MS, Trouble

_NAME_MAX: Final = 24
_LATE_MS: Final = 100
"""A p99 from here on has a colour."""
_BAR_COLUMNS: Final = 12
_JOB_SHOWN_MS: Final = 60_000
"""A redrive that has ended stays for a minute."""
_LEVELS: Final = (
    Column("LEVEL", right=True),
    Column("DELAY"),
    Column("PENDING", right=True),
    Column("NEXT DUE"),
    Column("DELIVERED", right=True),
    Column("P50 MS", right=True, rank=2),
    Column("P99 MS", right=True),
    Column("MAX MS", right=True, rank=1),
)
_GROUPS: Final = (
    Column("GROUP", is_short=True),
    Column("LAG", right=True),
    Column("DUE", right=True),
    Column("MEMBERS", right=True, rank=1),
    Column("RETRIES", right=True),
    Column("DEAD", right=True),
    Column("NEW DEAD", right=True),
)
_JOBS: Final = (
    Column("REDRIVE", is_short=True),
    Column("STATE"),
    Column("PROGRESS"),
    Column("LOOKED AT", right=True, rank=1),
    Column("SENT", right=True),
    Column("ALREADY", right=True, rank=2),
    Column("REFUSED", right=True),
    Column("NOTE", is_short=True, rank=3),
)


def header(picture: Picture, endpoint: str, now_s: float, width: int) -> Line:
    """The broker's name, its uptime and its clock."""
    name: Line = (Part("rmqlite top  ", "head"),)
    status = picture.status
    if status is None:
        return cut((*name, Part(printable(endpoint))), width)
    now_ms = picture.now_ms(now_s)
    broker = shortened(printable(status.broker_name), _NAME_MAX)
    words = [
        f"{broker} {printable(status.version)}",
        f"up {span_text((now_ms - status.started_at_ms) // 1000 * 1000)}",
        f"{printable(endpoint)}",
    ]
    disk_tone = "bad" if status.is_disk_full else ""
    disk = Part(f"  disk {status.disk_used_ratio:.0%}", disk_tone)
    return spread(
        (*name, Part("  ".join(words)), disk), (Part(time_text(now_ms)[11:19], "dim"),), width
    )


def verdict(
    picture: Picture,
    now_s: float,
    waiting_since_s: float,
    *,
    is_paused: bool,
    width: int,
    lines: int = 1,
) -> list[Line]:
    """The troubles in at most this many lines, the worst first; the last line has all the rest."""
    end: Line = ()
    if is_paused:
        end = (Part(f"PAUSED, {span_text(int(picture.age_s(now_s)) * 1000)} old", "warn"),)
    connection = connection_trouble(picture, now_s, waiting_since_s)
    found = [connection] if connection else []
    found += troubles(picture)
    said = [Part(f"{_mark(each)} {each.sentence}", each.tone) for each in found]
    if not said:
        is_known = picture.status is not None
        said = [Part("● well", "good") if is_known else Part("… asking", "dim")]
    first = [(each,) for each in said[: lines - 1]]
    rest = tuple([part for each in said[lines - 1 :] for part in (each, Part("  "))])
    shown = [*first, rest] if rest else first
    return [spread(shown[0], end, width), *[cut(line, width) for line in shown[1:]]]


def _mark(trouble: Trouble) -> str:
    return "✖" if trouble.tone == BAD else "▲"


def rate_lines(picture: Picture, width: int, height: int) -> list[Line]:
    """The rates per second, each with a chart of its last minutes."""
    size = max(12, (width - 2 * (len(COUNTED) - 1)) // len(COUNTED))
    lines: list[list[Part]] = [[] for _ in range(height + 1)]
    for name in COUNTED:
        tone = "bad" if name == "dead" and picture.rates.now(name) else ""
        label, rate = f"{name}/s ".upper(), rate_text(picture.rates.now(name))
        gap = Part("  " if lines[0] else "")
        rest = max(0, size - len(label) - len(rate))
        lines[0] += [gap, Part(label, "dim"), Part(rate + " " * rest, tone or "head")]
        for line, text in zip(
            lines[1:], chart(picture.rates.history[name], size, height), strict=True
        ):
            line += [gap, Part(text, tone or "line")]
    return [cut(tuple(line), width) for line in lines]


def totals_line(picture: Picture, width: int) -> Line:
    """The counters themselves."""
    return cut((Part(counts_text(picture.status) if picture.status else ""),), width)


def levels_table(picture: Picture, now_s: float, *, all_levels: bool) -> Table:
    """The timers and the delay levels; unused ones only with all_levels."""
    status = picture.status
    levels = status.levels if status else ()
    used = [each for each in levels if all_levels or each.is_used]
    pending = sum([each.pending for each in levels])
    hidden = f", {len(levels) - len(used)} unused" if len(used) < len(levels) else ""
    return Table(
        f"levels: {pending:,} pending{hidden}",
        _LEVELS,
        tuple([_level_row(each, picture, now_s) for each in used]),
        "no level has had a message since the broker started",
    )


def _level_row(level: LevelStatus, picture: Picture, now_s: float) -> Row:
    tone = "" if level.delivered else "dim"
    is_late = level.lateness_p99_ms >= _LATE_MS
    return row(
        str(level.level),
        level_text(level.level),
        delay_text(level.level, level.delay),
        cell(level.pending, "" if level.pending else "dim"),
        _due(level, picture, now_s),
        cell(level.delivered, tone),
        cell(level.lateness_p50_ms, tone),
        cell(level.lateness_p99_ms, "warn" if is_late else tone),
        cell(level.lateness_max_ms, tone),
    )


def _due(level: LevelStatus, picture: Picture, now_s: float) -> Part:
    """The time to the next due message; only the broker decides whether it is late."""
    if not level.next_due_ms or picture.status is None:
        return Part("-", "dim")
    late_ms = picture.status.now_ms - level.next_due_ms
    if late_ms > 0:
        return Part(f"late {span_text(late_ms)}", "bad" if late_ms >= LATE_MS else "warn")
    wait_ms = level.next_due_ms - picture.now_ms(now_s)
    # Milliseconds would change before anyone reads them.
    return Part(f"in {span_text(wait_ms)}" if wait_ms >= 1_000 else "in <1s")


SORTS: Final[dict[str, Callable[[GroupFigures], tuple[int, ...]]]] = {
    "worst": lambda g: (-(g.new_dead or 0), -g.unread, -(g.dead or 0), -(g.lag or 0)),
    "lag": lambda g: (-(g.lag or 0),),
    "retries": lambda g: (-g.retries,),
    "dead": lambda g: (-(g.dead or 0),),
    "new dead": lambda g: (-(g.new_dead or 0),),
    "name": lambda _: (),
}
"""The sort keys of groups; equal groups are sorted by name."""


def groups_table(picture: Picture, *, sort: str, wanted: str) -> Table:
    """The groups whose names contain the wanted text."""
    every = picture.groups()
    fitting = [each for each in every if wanted.lower() in each.group.lower()]
    fitting.sort(key=SORTS[sort])
    count = f"{len(fitting):,} of {len(every):,}" if wanted else f"{len(every):,}"
    about = f", with {printable(wanted)!r}" if wanted else ""
    return Table(
        f"groups: {count}{about}, by {sort}",
        _GROUPS,
        tuple([_group_row(each) for each in fitting]),
        "no group matches" if wanted else "no groups yet",
    )


def _group_row(group: GroupFigures) -> Row:
    new_dead = Part("-" if group.new_dead is None else f"+{group.new_dead:,}")
    return row(
        group.group,
        group.group,
        group.lag,
        group.due,
        cell(group.members, "warn" if group.unread else ""),
        group.waiting,
        cell(group.dead, "warn" if group.dead else ""),
        Part(new_dead.text, "bad" if group.new_dead else "dim"),
    )


def shown_jobs(picture: Picture) -> Sequence[RedriveJob]:
    """Running and paused redrives, and those that have just ended."""
    status = picture.status
    since_ms = status.now_ms - _JOB_SHOWN_MS if status else 0
    return [job for job in picture.jobs if not job.is_over or job.ended_at_ms >= since_ms]


def jobs_table(picture: Picture) -> Table:
    jobs = shown_jobs(picture)
    return Table(
        f"redrives: {sum([not job.is_over for job in jobs])} running",
        _JOBS,
        tuple([_job_row(job) for job in jobs]),
    )


def _job_row(job: RedriveJob) -> Row:
    done = job.looked_at / job.letters if job.letters else float(job.is_over)
    whole = min(_BAR_COLUMNS, int(done * _BAR_COLUMNS))
    progress = f"{'█' * whole}{'░' * (_BAR_COLUMNS - whole)} {min(done, 1.0):4.0%}"
    tones = {JobState.DONE: "good", JobState.CANCELLED: "dim", JobState.PAUSED: "warn"}
    return row(
        job.job_id,
        job.spec.group,
        cell(job.state.name.lower(), tones.get(job.state, "")),
        Part(progress),
        job.looked_at,
        job.sent,
        job.already,
        cell(job.refused, "bad" if job.refused else ""),
        job.note or "-",
    )

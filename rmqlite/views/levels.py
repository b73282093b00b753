"""Delay levels, and beside them the timers, as a person reads them.

A level of -1 stands for the timers: messages that wait for an instant of their own.  attempts_of()
lists the attempts that a retry policy gives to a message that always fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.numbers import delay_text, until_text
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

ONE_BY_ONE_MAX: Final = 32
"""So many attempts have rungs of their own, if their lengths differ; later attempts share a
rung as long as they wait at the same level."""

TIMER: Final = "timer"
LATE_MS: Final = 1_000
"""A level, or the timers, are late if a message is due for this long and not delivered."""
_WARN_MS: Final = 100
"""A p99 from here on has a colour."""
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


def level_text(level: int) -> str:
    """In a column of levels: "3", "timer"."""
    return TIMER if level < 0 else str(level)


def level_name(level: int) -> str:
    """In a sentence: "level 3", "timer"."""
    return TIMER if level < 0 else f"level {level}"


def waiting_text(level: int) -> str:
    """One that waits: "a message of level 3", "a timer"; 0: "an open half message"."""
    if level <= 0:
        return f"a {TIMER}" if level else "an open half message"
    return f"a message of level {level}"


def levels_text(levels: Sequence[int]) -> str:
    """Several in a sentence: "level 3", "levels 3 and 5", "timers", "timers and level 3"."""
    numbers = [str(level) for level in levels if level > 0]
    parts = ["timers"] * (len(numbers) < len(levels))
    if numbers:
        parts.append(f"level{'s' * (len(numbers) > 1)} {' and '.join(numbers)}")
    return " and ".join(parts)


def delay_cell(level: int, delay: str) -> str:
    """In a column of delays; delay: as the table spells it, empty if only an older table had it."""
    return "any" if level < 0 else delay or "(old)"


def levels_table(
    status: BrokerStatus | None, now_ms: int = 0, *, all_levels: bool = False
) -> Table:
    """The timers and the delay levels, delivered and lateness since the broker started.

    now_ms: the broker's time now, if the status is older.  all_levels: also the unused ones.
    """
    levels = status.levels if status else ()
    used = [each for each in levels if all_levels or each.is_used]
    pending = sum([each.pending for each in levels])
    hidden = f", {len(levels) - len(used)} unused" if len(used) < len(levels) else ""
    answered_ms = status.now_ms if status else 0
    return table(
        f"levels: {pending:,} pending{hidden}",
        _LEVELS,
        [_level_row(each, answered_ms, max(now_ms, answered_ms)) for each in used],
        "no level has had a message since the broker started",
    )


def _level_row(level: LevelStatus, answered_ms: int, now_ms: int) -> TableRow:
    tone = "" if level.delivered else DIM
    name = level_text(level.level)
    return row(
        str(level.level),
        name,
        delay_cell(level.level, level.delay),
        cell(level.pending, "", Subject.LEVELS, name) if level.pending else cell(0, DIM),
        _next_due(level.next_due_ms, answered_ms, now_ms),
        cell(level.delivered, tone),
        cell(level.lateness_p50_ms, tone),
        cell(level.lateness_p99_ms, WARN if level.lateness_p99_ms >= _WARN_MS else tone),
        cell(level.lateness_max_ms, tone),
    )


def _next_due(due_ms: int, answered_ms: int, now_ms: int) -> Tone:
    """The time to the next due message; only the broker's answer can make it late."""
    if not due_ms:
        return Tone(NOTHING, DIM)
    text = until_text(due_ms, min(now_ms, max(due_ms, answered_ms)))
    return Tone(text, BAD if answered_ms - due_ms >= LATE_MS else "")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempts, each of which comes delay_ms after the one before it has failed.

    The first delivery is attempt 1 and is on no rung.  level: 0 if the policy is exact.  asked_ms:
    the length that the policy asks for; None if it asks for a level, or for different lengths.
    since_first_failure_ms: when the last of these attempts comes, without the time that the
    attempts take.  jitter_ms: how much shorter a wait may be.
    """

    first_attempt: int
    last_attempt: int
    level: int
    delay_ms: int
    asked_ms: int | None
    since_first_failure_ms: int
    jitter_ms: int = 0


def attempts_of(
    policy: RetryPolicy, table: LevelTable, max_reconsume_times: int
) -> tuple[Attempt, ...]:
    """All attempts after the first; if the last one fails, the message is dead."""
    rungs: list[Attempt] = []
    own = min(max_reconsume_times, policy.steps(table))
    for step in range(own):
        _climb(rungs, policy, table, step, 1)
    if max_reconsume_times > own:
        _climb(rungs, policy, table, own, max_reconsume_times - own)
    return tuple(rungs)


def _climb(
    rungs: list[Attempt], policy: RetryPolicy, table: LevelTable, step: int, count: int
) -> None:
    """Add count attempts, each with the level that the policy gives after step failures."""
    level = 0 if policy.is_exact else policy.level(step, table)
    asked_ms, delay_ms = policy.delay_ms(step), policy.wait_ms(step, table)
    jitter_ms = delay_ms * (policy.jitter or 0) // 100
    last = rungs[-1] if rungs else None
    since_ms = (last.since_first_failure_ms if last else 0) + count * delay_ms
    first_attempt = step + 2
    if last and last.level == level and (last.asked_ms == asked_ms or step > ONE_BY_ONE_MAX):
        first_attempt = last.first_attempt
        if last.asked_ms != asked_ms:
            asked_ms = None
            # At one level all wait alike; exact waits have only grown.
            jitter_ms = delay_ms - min(delay_ms - jitter_ms, last.delay_ms - last.jitter_ms)
        rungs.pop()
    rungs.append(
        Attempt(first_attempt, step + 1 + count, level, delay_ms, asked_ms, since_ms, jitter_ms)
    )


def waits_text(attempts: Attempt, table: LevelTable) -> str:
    """How long they wait: "10m", or with jitter "8m to 10m"."""
    if attempts.level:
        return table.name(attempts.level)
    longest_ms, jitter_ms = attempts.delay_ms, attempts.jitter_ms
    least = f"{delay_text(longest_ms - jitter_ms)} to " if jitter_ms else ""
    return least + delay_text(longest_ms)

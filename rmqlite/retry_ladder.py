"""The attempts that a retry policy gives to a message that always fails, until it is dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.levels import LevelTable
from rmqlite.retry_policy import RetryPolicy

ONE_BY_ONE_MAX: Final = 32
"""So many attempts have rungs of their own, if their lengths differ; later attempts share a
rung as long as they wait at the same level."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Attempts, each of which comes delay_ms after the one before it has failed.

    The first delivery is attempt 1 and is on no rung.  asked_ms: the length that the policy
    asks for; None if it asks for a level, or for different lengths.  since_first_failure_ms:
    when the last of these attempts comes, without the time that the attempts take.
    """

    first_attempt: int
    last_attempt: int
    level: int
    delay_ms: int
    asked_ms: int | None
    since_first_failure_ms: int


def ladder(policy: RetryPolicy, table: LevelTable, max_reconsume_times: int) -> tuple[Rung, ...]:
    """All attempts after the first; if the last one fails, the message is dead."""
    rungs: list[Rung] = []
    own = min(max_reconsume_times, policy.steps(table))
    for step in range(own):
        _climb(rungs, policy, table, step, 1)
    if max_reconsume_times > own:
        _climb(rungs, policy, table, own, max_reconsume_times - own)
    return tuple(rungs)


def _climb(
    rungs: list[Rung], policy: RetryPolicy, table: LevelTable, step: int, count: int
) -> None:
    """Add count attempts, each with the level that the policy gives after step failures."""
    level, asked_ms = policy.level(step, table), policy.delay_ms(step)
    delay_ms = table.delay_ms(level)
    last = rungs[-1] if rungs else None
    since_ms = (last.since_first_failure_ms if last else 0) + count * delay_ms
    first_attempt = step + 2
    if last and last.level == level and (last.asked_ms == asked_ms or step > ONE_BY_ONE_MAX):
        first_attempt = last.first_attempt
        asked_ms = asked_ms if last.asked_ms == asked_ms else None
        rungs.pop()
    rungs.append(Rung(first_attempt, step + 1 + count, level, delay_ms, asked_ms, since_ms))

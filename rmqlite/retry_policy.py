"""At which delay level a group's failed messages come again: its retry policy.

A policy names levels or lengths of time, and always ends on a level, because a level is what
a message can wait at exactly.  There is no jitter: levels are fixed and stay so.  A policy by
lengths follows a change of messageDelayLevel, one by numbers means other lengths from then on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rmqlite.errors import InvalidValue
from rmqlite.levels import FIRST_RETRY_LEVEL, LEVELS_MAX, LevelTable, parse_delay

STEPS_MAX: Final = 64
"""How many steps a policy may name."""
FACTOR_MAX: Final = 1_000
_EXPONENTIAL: Final = re.compile(r"exponential\(\s*(\S+?)\s*,\s*(\S+?)\s*,\s*(\S+?)\s*\)")
_NUMBER: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4})?")
_RULE: Final = (
    "levels such as '3 5 7', lengths such as '10s 1m 10m', exponential(10s, 2, 1h), or nothing:"
    " RocketMQ's levels 3, 4, 5 and so on"
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """levels or delays_ms of the first, second … retry, one of both; the last one repeats.

    Both empty: RocketMQ's, level 3 first, then one more each time (reference §7.1).
    """

    text: str = ""
    levels: tuple[int, ...] = ()
    delays_ms: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> RetryPolicy:
        """Raises InvalidValue, for the field retry_policy."""
        text = " ".join(text.split())
        if not text:
            return cls()
        found = _EXPONENTIAL.fullmatch(text)
        if found:
            return cls(text, delays_ms=_exponential(text, *found.groups()))
        words = text.replace(",", " ").split()
        if len(words) > STEPS_MAX:
            raise InvalidValue("retry_policy", text, f"at most {STEPS_MAX} steps")
        if all(word.isascii() and word.isdigit() for word in words):
            levels = tuple([int(word[:3]) for word in words])
            if not all(1 <= level <= LEVELS_MAX for level in levels):
                raise InvalidValue("retry_policy", text, f"levels from 1 to {LEVELS_MAX}")
            return cls(text, levels=levels)
        return cls(text, delays_ms=tuple([_delay_ms(text, word) for word in words]))

    def level(self, failed_before: int, table: LevelTable) -> int:
        """The level of the retry after one more failure; failed_before: reconsume times so far.

        A length takes the level that is exactly that long, else the next longer one, and one
        above all the longest.  A level above the table's last is the last.
        """
        if self.levels:
            level = self.levels[min(failed_before, len(self.levels) - 1)]
        elif self.delays_ms:
            delay_ms = self.delays_ms[min(failed_before, len(self.delays_ms) - 1)]
            return level_reaching(table, delay_ms)
        else:
            level = FIRST_RETRY_LEVEL + failed_before
        return min(level, len(table.delays_ms))


def level_reaching(table: LevelTable, delay_ms: int) -> int:
    """The shortest level that is at least so long, or the longest one; of equals the first."""
    longer = [(ms, n) for n, ms in enumerate(table.delays_ms, 1) if ms >= delay_ms]
    if longer:
        return min(longer)[1]
    return table.delays_ms.index(max(table.delays_ms)) + 1


def _exponential(text: str, first: str, factor: str, last: str) -> tuple[int, ...]:
    first_ms, last_ms = _delay_ms(text, first), _delay_ms(text, last)
    if not _NUMBER.fullmatch(factor) or not 1 < float(factor) <= FACTOR_MAX:
        rule = f"a factor above 1, up to {FACTOR_MAX}, such as 2 or 1.5"
        raise InvalidValue("retry_policy", text, rule)
    if last_ms < first_ms:
        raise InvalidValue("retry_policy", text, "a longest delay that is not below the first")
    delays = [first_ms]
    # Each from the first, so that no rounding adds up.
    while delays[-1] < last_ms and len(delays) < STEPS_MAX:
        delays.append(min(last_ms, round(first_ms * float(factor) ** len(delays))))
    return tuple(delays)


def _delay_ms(text: str, word: str) -> int:
    try:
        return parse_delay(word)
    except InvalidValue as error:
        raise InvalidValue("retry_policy", text, f"{_RULE}; {word!r}: {error.rule}") from error

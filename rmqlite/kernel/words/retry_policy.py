"""A group's retry policy: the delay level at which each of its failed messages waits.

A policy names levels or lengths of time.  A length always becomes a level, because a message
can only wait at a level.  There is no jitter: levels are fixed.  After a change of
messageDelayLevel a policy of lengths takes the levels that now fit; a policy of level numbers
takes the same numbers, which may have other lengths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import FIRST_RETRY_LEVEL, LEVELS_MAX, LevelTable, parse_delay
from rmqlite.kernel.words.visible import shortened

TABLE_KEY: Final = "rmqliteRetryPolicy"
"""The field of a policy in config/subscriptionGroup.json; RocketMQ ignores this field, and
leaves it out when it writes the table."""
STEPS_MAX: Final = 64
"""How many steps a policy may name."""
FACTOR_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 1_000
FORMS: Final = (
    "levels such as 3 5 7, lengths such as 10s 1m 10m, exponential(10s, 2, 1h), or nothing:"
    " RocketMQ's levels 3, 4, 5 and so on"
)
_EXPONENTIAL: Final = re.compile(r"exponential ?\( ?([^ ,]+) ?, ?([^ ,]+) ?, ?([^ ,]+?) ?\)")
_EXPONENTIAL_FORM: Final = "exponential(first, factor, longest)"
_FACTOR: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class Growth:
    """The first length, the factor from each length to the next, and the longest length."""

    first_ms: int
    factor: float
    longest_ms: int

    def delay_ms(self, failed_before: int) -> int:
        # Logarithms first: a power above the longest length may be too large for a float.
        grown = failed_before * math.log(self.factor)
        if grown >= math.log(self.longest_ms / self.first_ms):
            return self.longest_ms
        # From the first length, so that no rounding adds up.
        return min(self.longest_ms, round(self.first_ms * self.factor**failed_before))

    @property
    def steps(self) -> int:
        """How many retries it takes to reach the longest length, that one included."""
        ratio = self.longest_ms / self.first_ms
        return math.ceil(math.log(ratio) / math.log(self.factor)) + 1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """levels or delays_ms of the first, second … retry, or growth; the last one repeats.

    Without any of these it is RocketMQ's policy: level 3 first, then one level more each time
    (reference §7.1).  text: the policy in one fixed spelling, which parse() reads.
    """

    text: str = ""
    levels: tuple[int, ...] = ()
    delays_ms: tuple[int, ...] = ()
    growth: Growth | None = None

    @classmethod
    def parse(cls, text: str) -> RetryPolicy:
        """Raises InvalidValue, for the field retry_policy."""
        if len(text) > TEXT_CHARS_MAX:
            raise InvalidValue("retry_policy", text, f"at most {TEXT_CHARS_MAX} characters")
        words = text.replace(",", " ").split()
        if not words:
            return cls()
        if words[0].startswith("exponential"):
            return _exponential(" ".join(text.split()))
        if len(words) > STEPS_MAX:
            raise InvalidValue("retry_policy", text, f"at most {STEPS_MAX} steps")
        if all(_is_number(word) for word in words):
            return _by_levels(words)
        joined = " ".join(words)
        delays_ms = [_delay_ms(joined, word) for word in words if not _is_number(word)]
        if len(delays_ms) < len(words):
            rule = "levels such as 3 or lengths such as 10s, not both"
            raise InvalidValue("retry_policy", joined, rule)
        return cls(joined, delays_ms=tuple(delays_ms))

    def delay_ms(self, failed_before: int) -> int | None:
        """The length that the policy asks for; None where it asks for a level.

        failed_before: how often the message had failed before this failure.
        """
        step = max(0, failed_before)
        if self.growth:
            return self.growth.delay_ms(step)
        if self.delays_ms:
            return self.delays_ms[min(step, len(self.delays_ms) - 1)]
        return None

    def level(self, failed_before: int, table: LevelTable) -> int:
        """The level of the retry that follows one more failure.

        A length takes the level that is exactly that long, else the next longer one, else the
        longest.  A level above the table's last one means the last one.
        """
        delay_ms = self.delay_ms(failed_before)
        if delay_ms is not None:
            return level_reaching(table, delay_ms)
        step = max(0, failed_before)
        if self.levels:
            return table.clamp(self.levels[min(step, len(self.levels) - 1)])
        return table.clamp(FIRST_RETRY_LEVEL + step)

    def steps(self, table: LevelTable) -> int:
        """After so many failures every further one waits at the same level."""
        if self.growth:
            return self.growth.steps
        return len(self.delays_ms) or len(self.levels) or table.max_level


ROCKETMQS: Final = RetryPolicy()


def policy_of_lengths(field: str, lengths_ms: Sequence[int], table: LevelTable) -> RetryPolicy:
    """The policy that waits exactly so long before the first, second … retry; the last repeats.

    Raises InvalidValue, for the field, for a length that is none of the levels.
    """
    if not 1 <= len(lengths_ms) <= STEPS_MAX:
        raise InvalidValue(field, f"{len(lengths_ms)} lengths", f"1 to {STEPS_MAX} lengths")
    names = {ms: table.name(level) for level, ms in enumerate(table.delays_ms, 1)}
    for length_ms in lengths_ms:
        if length_ms not in names:
            rule = f"lengths of delay levels, {' '.join(names.values())}: retries wait at a level"
            raise InvalidValue(field, f"{length_ms} ms", rule)
    return RetryPolicy.parse(" ".join([names[each] for each in lengths_ms]))


def level_reaching(table: LevelTable, delay_ms: int) -> int:
    """The shortest level that is at least this long, else the longest; of equals the first."""
    long_enough = [(ms, n) for n, ms in enumerate(table.delays_ms, 1) if ms >= delay_ms]
    if long_enough:
        return min(long_enough)[1]
    return table.delays_ms.index(max(table.delays_ms)) + 1


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _by_levels(words: list[str]) -> RetryPolicy:
    text = " ".join(words)
    # Longer words are not converted: Python refuses thousands of digits.
    levels = tuple([int(word) if len(word) <= len(str(LEVELS_MAX)) else 0 for word in words])
    for word, level in zip(words, levels, strict=True):
        if not 1 <= level <= LEVELS_MAX:
            raise InvalidValue("retry_policy", text, f"levels 1 to {LEVELS_MAX}: {word!r} is none")
    return RetryPolicy(" ".join(map(str, levels)), levels=levels)


def _exponential(text: str) -> RetryPolicy:
    found = _EXPONENTIAL.fullmatch(text)
    if not found:
        raise InvalidValue("retry_policy", text, _EXPONENTIAL_FORM)
    first, factor, longest = found.groups()
    first_ms, longest_ms = _delay_ms(text, first), _delay_ms(text, longest)
    if not _FACTOR.fullmatch(factor) or not 1 < float(factor) <= FACTOR_MAX:
        rule = f"{_EXPONENTIAL_FORM}: the factor is above 1 and at most {FACTOR_MAX}"
        raise InvalidValue("retry_policy", text, rule)
    if longest_ms < first_ms:
        rule = f"{_EXPONENTIAL_FORM}: the longest length is not below the first"
        raise InvalidValue("retry_policy", text, rule)
    return RetryPolicy(
        f"exponential({first}, {factor}, {longest})",
        growth=Growth(first_ms, float(factor), longest_ms),
    )


def _delay_ms(text: str, word: str) -> int:
    try:
        return parse_delay(word)
    except InvalidValue as error:
        rule = f"lengths: {shortened(word)!r} must be {error.rule}" if word[0].isdigit() else FORMS
        raise InvalidValue("retry_policy", text, rule) from error

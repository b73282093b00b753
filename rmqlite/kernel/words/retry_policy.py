"""A group's retry policy: how long each of its failed messages waits.

A policy names levels or lengths of time.  A length becomes the level that reaches it, unless the
policy is exact: then each retry is a timer.  After a change of messageDelayLevel a policy of
lengths takes the levels that now fit; one of level numbers takes the same numbers, which may have
other lengths.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import (
    FIRST_RETRY_LEVEL,
    LEVELS_MAX,
    LevelTable,
    parse_delay,
    wait_ms,
)
from rmqlite.kernel.words.visible import shortened

TABLE_KEY: Final = "rmqliteRetryPolicy"
"""The field of a policy in config/subscriptionGroup.json; RocketMQ ignores this field, and
leaves it out when it writes the table."""
STEPS_MAX: Final = 64
"""How many steps a policy may name."""
FACTOR_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 1_000
FORMS: Final = (
    "levels such as 3 5 7, lengths such as 10s 1m 10m or exponential(10s, 2, 1h), which become"
    " levels, list(90s, 10m) or exponential(10s, 3, 1h, jitter=20%), which are exact, or nothing:"
    " RocketMQ's levels 3, 4, 5 and so on"
)
_BRACKETS: Final = re.compile(
    r"(exponential|list) ?\( ?([^()=]+?) ?(?:, ?jitter ?= ?([0-9]{1,3}) ?% ?)?\)"
)
_EXPONENTIAL_FORM: Final = (
    "exponential(first, factor, longest) or exponential(first, factor, longest, jitter=20%)"
)
_LIST_FORM: Final = "list(first, second, …) or list(first, second, …, jitter=20%)"
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
    (reference §7.1).  jitter: how much shorter an exact wait may be, in per cent; None: the lengths
    become levels.  text: the policy in one fixed spelling, which parse() reads.
    """

    text: str = ""
    levels: tuple[int, ...] = ()
    delays_ms: tuple[int, ...] = ()
    growth: Growth | None = None
    jitter: int | None = None

    @classmethod
    def parse(cls, text: str) -> RetryPolicy:
        """Raises InvalidValue, for the field retry_policy."""
        if len(text) > TEXT_CHARS_MAX:
            raise InvalidValue("retry_policy", text, f"at most {TEXT_CHARS_MAX} characters")
        words = text.replace(",", " ").split()
        if not words:
            return cls()
        if words[0].startswith(("exponential", "list")):
            return _in_brackets(" ".join(text.split()))
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

    def wait_ms(self, failed_before: int, table: LevelTable) -> int:
        """How long a retry waits, without its jitter."""
        delay_ms = self.delay_ms(failed_before) if self.is_exact else None
        return delay_ms or table.delay_ms(self.level(failed_before, table))

    @property
    def is_exact(self) -> bool:
        return self.jitter is not None

    @property
    def longest_ms(self) -> int:
        """The longest length that it names; 0 if it names none."""
        return self.growth.longest_ms if self.growth else max(self.delays_ms, default=0)

    def level(self, failed_before: int, table: LevelTable) -> int:
        """The level of the retry that follows one more failure.

        A length takes the level that is exactly that long, else the next longer one, else the
        longest.  A level above the table's last one means the last one.
        """
        delay_ms = self.delay_ms(failed_before)
        if delay_ms is not None:
            return table.level_from(delay_ms)
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


def _in_brackets(text: str) -> RetryPolicy:
    """exponential(...) or list(...).  Both are exact, but for the first one without jitter."""
    form = _EXPONENTIAL_FORM if text[0] == "e" else _LIST_FORM
    found = _BRACKETS.fullmatch(text)
    if not found or int(found[3] or 0) > 100:
        rule = f"{form}: the jitter is 0% to 100%" if found else form
        raise InvalidValue("retry_policy", text, rule)
    kind, jitter = found[1], None if found[3] is None else int(found[3])
    parts = [each.strip() for each in found[2].split(",")]
    ending = [] if jitter is None else [f"jitter={jitter}%"]
    spelled = f"{kind}({', '.join([*parts, *ending])})"
    if kind == "list":
        if len(parts) > STEPS_MAX:
            raise InvalidValue("retry_policy", text, f"at most {STEPS_MAX} steps")
        delays_ms = tuple([_delay_ms(text, each, is_exact=True) for each in parts])
        return RetryPolicy(spelled, delays_ms=delays_ms, jitter=jitter or 0)
    if len(parts) != 3:
        raise InvalidValue("retry_policy", text, form)
    first, factor, longest = parts
    first_ms, longest_ms = [
        _delay_ms(text, each, is_exact=jitter is not None) for each in (first, longest)
    ]
    if not _FACTOR.fullmatch(factor) or not 1 < float(factor) <= FACTOR_MAX:
        rule = f"{form}: the factor is above 1 and at most {FACTOR_MAX}"
        raise InvalidValue("retry_policy", text, rule)
    if longest_ms < first_ms:
        raise InvalidValue("retry_policy", text, f"{form}: the longest is not below the first")
    growth = Growth(first_ms, float(factor), longest_ms)
    return RetryPolicy(spelled, growth=growth, jitter=jitter)


def _delay_ms(text: str, word: str, *, is_exact: bool = False) -> int:
    """is_exact: lengths such as 1m30s and 1500ms are allowed, too."""
    try:
        return wait_ms("retry_policy", word) if is_exact else parse_delay(word)
    except InvalidValue as error:
        is_length = word[:1].isdigit()
        rule = f"lengths: {shortened(word)!r} must be {error.rule}" if is_length else FORMS
        raise InvalidValue("retry_policy", text, rule) from error

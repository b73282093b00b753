"""messageDelayLevel: the delays in a level string, and the history of level tables.

A level is a position in the table, counted from 1.  A record does not carry its due time:
that is the record's store timestamp plus the delay that its level had at that moment
(kernel/records/wait_queues.py adds them up).  So every table stays in the history, and a queue that
is rebuilt from the log after an edit equals the original.

Below them the instants and lengths of time that a user gives when a message is to be delivered.
Both become whole milliseconds, rounded up, because no message may be early.  A length counts from
the moment at which the broker stores the message, so a producer's clock may be wrong.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue, must_be_type
from rmqlite.kernel.words.visible import shortened

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX: Final = 64
_TABLE_RULE: Final = "delays such as 10m, one blank between two"
DELAY_MS_MAX: Final = 10 * 365 * 86_400_000
"""Ten years; RocketMQ lets a product of number and unit wrap around instead."""
FIRST_RETRY_LEVEL: Final = 3
"""The level of the first retry; the n-th failure takes level 3 + n - 1 (reference §7.1)."""

Delay: TypeAlias = str | timedelta
"""A delay as a user gives it: "10m", or how long it is."""

Instant: TypeAlias = datetime | int
"""A datetime with a time zone, or milliseconds since 1970."""
Wait: TypeAlias = timedelta | str
"""A timedelta, or text such as "36h", "1d12h" or "1500ms"."""

INSTANT_MS_MIN: Final = 10**12
"""In the year 2001.  A smaller number is one of seconds: its message would be delivered at once."""
INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999.  A larger number is one of microseconds or nanoseconds."""
_SECONDS_MIN: Final = 10**8
"""In seconds a day of 1973; a smaller number is neither seconds nor milliseconds of our time."""
_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000, 1)
_LENGTH = re.compile(
    "".join([f"(?:([0-9]{{1,20}}){unit})?" for unit in ("d", "h", "m", "s", "ms")])
)
_BLANK = re.compile("(?<=[a-z]) (?=[0-9])")
_LENGTH_RULE: Final = (
    "whole numbers and units of d, h, m, s and ms, the largest first, such as 36h or 1d12h"
)

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TOKEN = re.compile(r"([0-9]+)([smhd])", re.ASCII)


@dataclass(frozen=True, slots=True)
class LevelTable:
    """One messageDelayLevel; delays_ms[level - 1] is a level's delay."""

    text: str
    delays_ms: tuple[int, ...]

    @property
    def max_level(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """A level above the last one means the last one (reference §6.2)."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """The delay of a level, counted from 1; a level above the last one means the last one."""
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def name(self, level: int) -> str:
        """The level as the table spells it: "10m"."""
        return self.text.split(" ")[min(level, len(self.delays_ms)) - 1]

    def own_name(self, level: int) -> str:
        """As name(); empty for a level that this table does not have."""
        return self.name(level) if 0 < level <= len(self.delays_ms) else ""

    def level_from(self, delay_ms: int) -> int:
        """The shortest level that is at least so long; the longest one if none is."""
        longer = [each for each in self.delays_ms if each >= delay_ms]
        return self.delays_ms.index(min(longer) if longer else max(self.delays_ms)) + 1

    def level_lasting(self, delay: str) -> int:
        """The first level that is exactly this long.  Raises InvalidValue, DelayUnknown."""
        wanted_ms = parse_delay(delay)
        if wanted_ms not in self.delays_ms:
            raise DelayUnknown(delay, self.text)
        return self.delays_ms.index(wanted_ms) + 1


def parse_levels(text: str) -> LevelTable:
    """Read a level string: 1 to 64 delays such as 10m, one blank between two.

    The grammar is RocketMQ's (reference §6.7), but strings that make RocketMQ crash, wrap or
    deliver at once (two blanks, 1S, 0s, -5s, an overflow) are refused.  Raises InvalidValue.
    """
    tokens = text.rstrip(" ").split(" ")
    if len(tokens) > LEVELS_MAX:
        raise InvalidValue("messageDelayLevel", text, f"at most {LEVELS_MAX} levels")
    delays_ms = []
    for level, token in enumerate(tokens, 1):
        if not token:
            where = "at the start" if level == 1 else f"after {tokens[level - 2]!r}"
            fault = "no levels given" if not text.strip() else f"one blank too many {where}"
            raise InvalidValue("messageDelayLevel", text, f"{_TABLE_RULE}: {fault}")
        try:
            delays_ms.append(parse_delay(token))
        except InvalidValue as error:
            rule = f"{_TABLE_RULE}: level {level} is {shortened(token)!r}, must be {error.rule}"
            raise InvalidValue("messageDelayLevel", text, rule) from None
    return LevelTable(" ".join(tokens), tuple(delays_ms))


def delay_text(delay: Delay) -> str:
    """A delay as levels are written, such as "90s".  Raises InvalidValue."""
    if isinstance(delay, timedelta):
        seconds, rest = divmod(delay, timedelta(seconds=1))
        if rest:
            raise InvalidValue("delay", str(delay), "whole seconds")
        delay = f"{seconds}s"
    elif not isinstance(delay, str):
        # No number: people mean seconds or milliseconds by it, and wait a thousandth, or for ever.
        raise must_be_type("delay", "text such as '30s' or '10m', or a datetime.timedelta", delay)
    parse_delay(delay)
    return delay


def parse_delay(token: str) -> int:
    """The milliseconds of "30s", "10m", "2h" or "1d".  Raises InvalidValue."""
    matched = _TOKEN.fullmatch(token)
    if not matched:
        rule = "a whole number and a unit of s, m, h or d, in lower case, such as 10m"
        raise InvalidValue("delay", token, rule)
    # Python refuses to convert thousands of digits; no delay needs more than twenty.
    digits = matched[1].lstrip("0")
    delay_ms = int(digits[:20] or "0") * _UNIT_MS[matched[2]]
    if not 0 < delay_ms <= DELAY_MS_MAX:
        raise InvalidValue("delay", token, "more than zero and at most 3650d")
    return delay_ms


@dataclass(frozen=True, slots=True)
class LevelHistory:
    """Every table with the time from which it was in force, oldest first; never empty.

    configured: the table of broker.conf at its last reading; if the current table is another
    one, somebody has set it since.
    """

    entries: tuple[tuple[int, LevelTable], ...]
    configured: LevelTable

    @classmethod
    def starting_with(cls, table: LevelTable, in_force_from_ms: int = 0) -> LevelHistory:
        """The history of a store that has none: this table counts as the only one so far."""
        return cls(((in_force_from_ms, table),), table)

    @property
    def begins_at_ms(self) -> int:
        """The start of the first table; before it another table may have been in force."""
        return self.entries[0][0]

    @property
    def current(self) -> LevelTable:
        return self.entries[-1][1]

    @property
    def in_force_from_ms(self) -> int:
        """The start of the current table; a broker's clock must not be before it."""
        return self.entries[-1][0]

    def changed_to(self, table: LevelTable, in_force_from_ms: int) -> LevelHistory:
        """The history after an edit; unchanged if the delays are the same as before.

        in_force_from_ms must be later than every record stored so far: a record stored from
        then on takes its delay from the new table.
        """
        if table.delays_ms == self.current.delays_ms:
            return self
        # Reading sorts the list: an earlier time would make another table the last one.
        since_ms = max(in_force_from_ms, self.in_force_from_ms)
        return replace(self, entries=(*self.entries, (since_ms, table)))

    def configured_as(self, table: LevelTable, in_force_from_ms: int) -> LevelHistory:
        """The history after broker.conf was read; unchanged if its delays are the same as before.

        So a table that was set since stays in force until somebody edits broker.conf.
        """
        if table.delays_ms == self.configured.delays_ms:
            return self
        return replace(self.changed_to(table, in_force_from_ms), configured=table)

    def delay_ms(self, level: int, at_ms: int) -> int:
        """How long a level of 1 or more was at that moment."""
        for since_ms, table in reversed(self.entries):
            if since_ms <= at_ms:
                return table.delay_ms(level)
        return self.entries[0][1].delay_ms(level)

    def to_json(self) -> dict[str, Any]:
        """The content of config/delayLevels.json; table_shapes.LevelsTable reads it."""
        tables = [{"inForceFrom": at, "messageDelayLevel": t.text} for at, t in self.entries]
        return {"configured": self.configured.text, "tables": tables}


def instant_ms(field: str, instant: Instant) -> int:
    """An instant as milliseconds since 1970.  Raises InvalidValue."""
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            rule = "a datetime with a time zone, such as datetime.now(UTC)"
            raise InvalidValue(field, instant, rule)
        at_ms = _rounded_up(instant - _EPOCH)
    elif isinstance(instant, bool) or not hasattr(instant, "__index__"):
        rule = "a datetime with a time zone, or milliseconds since 1970"
        raise must_be_type(field, rule, instant)
    else:
        at_ms = operator.index(instant)
    if not INSTANT_MS_MIN <= at_ms <= INSTANT_MS_MAX:
        raise InvalidValue(field, instant, _instant_rule(at_ms))
    return at_ms


def check_not_long_ago(field: str, at_ms: int | None) -> None:
    """Raises InvalidValue for an instant before 2001: a number of seconds, or -1 for "none".

    It would mean 1970: from there on is everything.  None, and 0 where it has a meaning of its own
    ("no limit", "the earliest"), pass.
    """
    if at_ms and at_ms < INSTANT_MS_MIN:
        raise InvalidValue(field, at_ms, _instant_rule(at_ms))


def wait_ms(field: str, wait: Wait) -> int:
    """A length of time in milliseconds.  Raises InvalidValue."""
    if isinstance(wait, timedelta):
        length_ms = _rounded_up(wait)
    elif isinstance(wait, str):
        found = _LENGTH.fullmatch(_BLANK.sub("", wait))
        if not found or not any(found.groups()):
            raise InvalidValue(field, wait, _LENGTH_RULE)
        numbers = [int(number or 0) for number in found.groups()]
        length_ms = sum(map(operator.mul, numbers, _UNITS_MS))
    else:
        # No number: people mean seconds or milliseconds by it.
        raise must_be_type(field, "text such as '36h', or a datetime.timedelta", wait)
    if not 0 < length_ms <= DELAY_MS_MAX:
        raise InvalidValue(field, wait, "more than zero and at most 3650d")
    return length_ms


def whole_wait(field: str, wait: Wait) -> timedelta:
    """A length of time as a timedelta of whole milliseconds.  Raises InvalidValue."""
    return timedelta(milliseconds=wait_ms(field, wait))


def _instant_rule(at_ms: int) -> str:
    rule = f"milliseconds since 1970, {INSTANT_MS_MIN} to {INSTANT_MS_MAX}"
    if at_ms > INSTANT_MS_MAX:
        return f"{rule}: that looks like microseconds or nanoseconds"
    return f"{rule}: that looks like seconds" if at_ms >= _SECONDS_MIN else rule


def _rounded_up(length: timedelta) -> int:
    whole, rest = divmod(length, _MS)
    return whole + bool(rest)

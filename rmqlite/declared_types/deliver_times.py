"""Instants and lengths of time as a user says them: mostly when a message is to be delivered.

Both become whole milliseconds, rounded up, because no message may be early.  A length counts from
the moment at which the broker stores the message, so a producer's clock may be wrong.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from rmqlite.declared_types.checks import must_be_type
from rmqlite.errors import InvalidValue
from rmqlite.levels import DELAY_MS_MAX

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

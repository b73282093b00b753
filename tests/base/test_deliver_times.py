"""When a message is to be delivered: every form that a user may give it in, and every mistake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import (
    DELAY_MS_MAX,
    INSTANT_MS_MAX,
    INSTANT_MS_MIN,
    instant_ms,
    wait_ms,
)
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.batch import message_properties

LEAP_DAY_MS = 1_835_420_400_000
CHINA = timezone(timedelta(hours=8))


def message(**given: Any) -> Message:
    return Message("orders", b"x", **given)


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        (LEAP_DAY_MS, LEAP_DAY_MS),
        (datetime(2028, 2, 29, 7, tzinfo=UTC), LEAP_DAY_MS),
        (datetime(2028, 2, 29, 15, tzinfo=CHINA), LEAP_DAY_MS),
        (datetime(2028, 2, 29, 7, 0, 0, 1, tzinfo=UTC), LEAP_DAY_MS + 1),
        (datetime(2028, 2, 29, 7, 0, 0, 1_000, tzinfo=UTC), LEAP_DAY_MS + 1),
        (INSTANT_MS_MIN, INSTANT_MS_MIN),
        (INSTANT_MS_MAX, INSTANT_MS_MAX),
    ],
)
def test_an_instant_is_a_datetime_with_a_zone_or_milliseconds(
    instant: datetime | int, expected: int
) -> None:
    """A part of a millisecond is rounded up: one microsecond early is too early."""
    sent = message(deliver_at=instant)
    assert sent.deliver_at == sent.deliver_at_ms == expected
    assert message_properties(sent) == {"TIMER_DELIVER_MS": str(expected)}


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        ("36h", 129_600_000),
        ("1d12h", 129_600_000),
        ("1d 12h", 129_600_000),
        ("90m", 5_400_000),
        ("1500ms", 1_500),
        ("5m5ms", 300_005),
        ("1d 2h 3m 4s 5ms", 93_784_005),
        ("3650d", DELAY_MS_MAX),
        (timedelta(hours=36), 129_600_000),
        (timedelta(microseconds=1), 1),
        (timedelta(seconds=1, microseconds=1), 1_001),
    ],
)
def test_a_wait_is_text_or_a_timedelta(wait: str | timedelta, expected: int) -> None:
    """As a person writes it, and in whole milliseconds, rounded up."""
    sent = message(deliver_after=wait)
    assert sent.deliver_after == timedelta(milliseconds=expected)
    assert sent.deliver_after_ms == expected
    assert message_properties(sent) == {"TIMER_DELAY_MS": str(expected)}


@pytest.mark.parametrize(
    ("instant", "sentence"),
    [
        (
            datetime(2028, 2, 29, 7),
            "must be a datetime with a time zone, such as datetime.now(UTC)",
        ),
        ("2028-02-29", "must be a datetime with a time zone, or milliseconds since 1970, not str"),
        (True, "must be a datetime with a time zone, or milliseconds since 1970, not bool"),
        (
            float("nan"),
            "must be a datetime with a time zone, or milliseconds since 1970, not float",
        ),
        (1.8e12, "must be a datetime with a time zone, or milliseconds since 1970, not float"),
        (-1, "must be milliseconds since 1970, 1000000000000 to 253402300799999, not '-1'"),
        (0, "must be milliseconds since 1970, "),
        (LEAP_DAY_MS // 1000, "must be milliseconds since 1970, "),
        (LEAP_DAY_MS * 1000, "must be milliseconds since 1970, "),
        (2**63, "must be milliseconds since 1970, "),
        (2**200, "must be milliseconds since 1970, "),
        (datetime(1969, 1, 1, tzinfo=UTC), "must be milliseconds since 1970, "),
        (datetime.min.replace(tzinfo=CHINA), "must be milliseconds since 1970, "),
    ],
)
def test_what_is_no_instant_is_refused(instant: Any, sentence: str) -> None:
    """A number of seconds too: its message would be delivered at once."""
    for refused in (lambda: instant_ms("deliver_at", instant), lambda: message(deliver_at=instant)):
        with pytest.raises(InvalidValue) as error:
            refused()
        assert str(error.value).startswith(f"deliver_at {sentence}")
        assert error.value.field == "deliver_at"


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        ("", "must be whole numbers and units of d, h, m, s and ms, the largest first, such as"),
        (" ", "must be whole numbers and units"),
        ("36", "must be whole numbers and units"),
        ("1.5h", "must be whole numbers and units"),
        ("-5m", "must be whole numbers and units"),
        ("12h1d", "must be whole numbers and units"),
        ("1h 1h", "must be whole numbers and units"),
        ("1h  2m", "must be whole numbers and units"),
        ("1H", "must be whole numbers and units"),
        ("\u0661h", "must be whole numbers and units"),
        ("9" * 21 + "s", "must be whole numbers and units"),
        ("1d ", "must be whole numbers and units"),
        ("0s", "must be more than zero and at most 3650d"),
        ("3651d", "must be more than zero and at most 3650d"),
        (f"{2**63}ms", "must be more than zero and at most 3650d"),
        (timedelta(0), "must be more than zero and at most 3650d, not '0:00:00'"),
        (timedelta(seconds=-1), "must be more than zero and at most 3650d"),
        (timedelta.max, "must be more than zero and at most 3650d"),
        (timedelta.min, "must be more than zero and at most 3650d"),
        (90, "must be text such as '36h', or a datetime.timedelta, not int"),
        (True, "must be text such as '36h', or a datetime.timedelta, not bool"),
        (float("nan"), "must be text such as '36h', or a datetime.timedelta, not float"),
    ],
)
def test_what_is_no_wait_is_refused(wait: Any, sentence: str) -> None:
    """A bare number too: some mean seconds by it, some milliseconds."""
    for refused in (lambda: wait_ms("deliver_after", wait), lambda: message(deliver_after=wait)):
        with pytest.raises(InvalidValue) as error:
            refused()
        assert str(error.value).startswith(f"deliver_after {sentence}")
        assert error.value.field == "deliver_after"


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"deliver_at": LEAP_DAY_MS, "deliver_after": "1h"}, "deliver_after"),
        ({"deliver_at": LEAP_DAY_MS, "delay_level": 3}, "deliver_at"),
        ({"deliver_after": "1h", "delay_level": -1}, "deliver_after"),
        ({"deliver_after": "1h", "delay": "1h"}, "deliver_after"),
    ],
)
def test_a_message_waits_in_one_way_only(given: dict[str, Any], other: str) -> None:
    """Whichever the broker took, the other would be a broken promise."""
    with pytest.raises(InvalidValue) as error:
        message(**given)
    assert error.value.rule == f"left out if {other} is given"


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_EXACT"])
def test_the_names_of_timers_are_reserved(name: str) -> None:
    """Some of them only brokers write; the others have fields of their own."""
    with pytest.raises(InvalidValue) as error:
        message(properties={name: "1835420400000"})
    assert (error.value.field, error.value.value) == ("properties", name)

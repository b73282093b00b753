"""How lengths of time and moments are written, on every screen and page."""

from __future__ import annotations

import pytest

from rmqlite.views.numbers import age_text, delay_text, span_text, until_text


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (0, "0ms"),
        (850, "850ms"),
        (1_000, "1.0s"),
        (59_940, "59.9s"),
        (60_000, "1m 0s"),
        (3_723_000, "1h 2m"),
        (86_460_000, "1d 0h"),
        (90_000_000, "1d 1h"),
        (-5_000, "-5.0s"),
    ],
)
def test_a_length_is_written_in_its_two_largest_units(length_ms: int, text: str) -> None:
    """Nobody reads the seconds of a day."""
    assert span_text(length_ms) == text


@pytest.mark.parametrize(
    ("delay_ms", "text"),
    [
        (0, "0s"),
        (1, "0.001s"),
        (1_500, "1.5s"),
        (60_000, "1m"),
        (90_000, "1m 30s"),
        (93_600_000, "1d 2h"),
        (-5_000, "-5s"),
    ],
)
def test_a_delay_is_written_in_full(delay_ms: int, text: str) -> None:
    """So that two that differ are told apart."""
    assert delay_text(delay_ms) == text


def test_a_wait_is_seen_from_now() -> None:
    """Readers want to know how long a message still waits; one due this second is not late."""
    assert (until_text(0, 5), until_text(65_000, 0), until_text(5, 0)) == (
        "-",
        "in 1m 5s",
        "in 5ms",
    )
    assert [until_text(10_000, 10_000 + each) for each in (0, 999, 1_000, 3_000)] == [
        *("now", "now"),
        *("1.0s late", "3.0s late"),
    ]


def test_an_age_is_seen_from_now() -> None:
    """What happened within the last second has just happened."""
    ages = [age_text(at_ms, now_ms) for at_ms, now_ms in ((0, 5), (1_000, 1_500), (1_000, 62_000))]
    assert ages == ["-", "just now", "1m 1s ago"]

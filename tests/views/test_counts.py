"""How counts, rates, shares and sizes are written, on every screen and page."""

from __future__ import annotations

import pytest

from rmqlite.views.numbers import counted, rate_text, share_text, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1_023, "1,023 bytes"), (1_024, "1.0 KiB"), (1 << 50, "1,024.0 TiB")],
)
def test_a_size_is_shown_in_its_largest_unit(size: int, text: str) -> None:
    """Nobody counts the digits of a number of bytes."""
    assert size_text(size) == text


def test_a_count_has_its_noun() -> None:
    """ "1 messages" reads like a mistake."""
    assert [counted(count, "retry") for count in (0, 1, 2_000)] == [
        *("0 retries", "1 retry", "2,000 retries")
    ]


def test_a_share_is_not_whole_before_the_whole_is_there() -> None:
    """100.0% of a redrive that has a dead letter left would be a lie."""
    assert share_text(99_999, 100_000) == "99.9%"
    assert share_text(1, 1) == "100.0%"
    assert share_text(0.5) == "50.0%"
    assert share_text(0, 0) == "-"


def test_a_small_rate_keeps_a_decimal() -> None:
    """A reader must be able to tell 0.4 per second from 0."""
    rates = [rate_text(each) for each in (None, 0, 0.42, 9.96, 12_345.6)]
    assert rates == ["-", "0", "0.4", "10.0", "12,346"]

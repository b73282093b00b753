"""Retry policies and tables of levels that hypothesis draws."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LEVELS_MAX, parse_levels
from rmqlite.kernel.words.retry_policy import STEPS_MAX, RetryPolicy

LENGTHS = st.builds(lambda n, unit: f"{n}{unit}", st.integers(1, 5_000), st.sampled_from("smh"))
TABLES = st.lists(LENGTHS, min_size=1, max_size=LEVELS_MAX).map(" ".join).map(parse_levels)
FACTORS = st.decimals("1.0001", "1000", places=4).map(str)
EXPONENTIALS = st.builds(
    lambda first, factor, longest: f"exponential({first}, {factor}, {longest})",
    LENGTHS,
    FACTORS,
    LENGTHS,
)
POLICIES = st.one_of(
    st.just(""),
    st.lists(st.integers(1, LEVELS_MAX), min_size=1, max_size=STEPS_MAX).map(
        lambda levels: " ".join(map(str, levels))
    ),
    st.lists(LENGTHS, min_size=1, max_size=STEPS_MAX).map(" ".join),
    EXPONENTIALS,
)


def parsed(text: str) -> RetryPolicy:
    """The policy; an example that draws a longest length below the first is left out."""
    try:
        return RetryPolicy.parse(text)
    except InvalidValue:
        assume(False)
        raise

"""The one rule by which reasons of failures are grouped, and filtered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.features.failure_kinds import NO_REASON, REASON_CHARS_MAX, failure_kind

KINDS = {
    "": NO_REASON,
    " \n later": "later",
    "no stock": "no stock",
    "no stock\nTraceback 12": "no stock",
    "no answer within 30 s": "no answer within # s",
    "no answer within 1.5 s": "no answer within #.# s",
    "order 4711 of f3b0c442-98fc-1c14-9afb-f4c8996fb924": "order # of #",
    "row 0xDEADBEEF1, e3b0c44298fc": "row #, #",
    "item17 is gone": "item# is gone",
    "added to cafe": "added to cafe",
    "HTTP 404 for order 17": "HTTP 404 for order #",
    "HTTP/1.1 503": "HTTP/1.1 503",
    "status=500, error code: 429": "status=500, error code: 429",
    "code 12345": "code #",
    "x" * 201: "x" * 199 + "…",
}


@pytest.mark.parametrize("reason", KINDS)
def test_reasons_that_differ_in_numbers_and_ids_are_of_one_kind(reason: str) -> None:
    """Otherwise the biggest reason is spread over as many lines as it has letters."""
    assert failure_kind(reason) == KINDS[reason]


@given(st.text(alphabet=st.sampled_from("aeHTP codestausrx0123456789-:=/. …#\n"), max_size=260))
def test_a_kind_is_its_own_kind(reason: str) -> None:
    """So a kind that somebody copies as a reason still means the same letters."""
    kind = failure_kind(reason)
    assert failure_kind(kind) == kind
    assert 0 < len(kind) <= max(REASON_CHARS_MAX, len(NO_REASON))

"""What travels between a bulk sender and the broker, and what a job's record holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.features.bulk.requests import BulkJob, Refusal, check_property_text, property_text
from rmqlite.features.rows import check_job_id
from rmqlite.kernel.config.table_shapes import validated
from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue
from rmqlite.kernel.words.message import RESERVED_PROPERTIES, decode_properties

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
NAMES = TEXT.filter(lambda name: name not in RESERVED_PROPERTIES)


@given(st.dictionaries(NAMES, TEXT, min_size=1, max_size=4))
def test_properties_are_a_property_string(properties: dict[str, str]) -> None:
    """What the broker stores is what was given."""
    text = property_text(properties)
    check_property_text(text)
    assert decode_properties(text.encode()) == properties


@given(st.text(alphabet="ab\x01\x02", max_size=8))
def test_a_property_string_is_pairs_or_is_refused(text: str) -> None:
    """Nothing else may slip into a record: what is taken reads back as it is written."""
    try:
        check_property_text(text)
    except InvalidValue:
        return
    pairs = decode_properties(text.encode())
    assert property_text(pairs) == text


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_a_reserved_property_is_refused(name: str) -> None:
    """They decide where a message goes."""
    with pytest.raises(InvalidValue, match=name):
        property_text({"a": "b", name: "x"})


def test_a_refusal_is_the_error_again() -> None:
    """Class, sentence, field, value and rule."""
    error = DelayUnknown("11m", "10m 20m")
    again = Refusal.of("id", error).error()
    assert type(again) is DelayUnknown
    assert str(again) == str(error)
    assert (again.field, again.value, again.rule) == (error.field, error.value, error.rule)


def test_a_job_is_what_its_record_says() -> None:
    """Through JSON, samples included."""
    job = BulkJob("import", 1, 2, 3, 4, 5, 6, (Refusal("a", "b", "c", "d", "e", "f"),))
    assert validated(BulkJob, json.loads(json.dumps(job.to_json()))) == job


@pytest.mark.parametrize("job_id", ["a", "x" * 127, "night/2026-11-21:7", "%"])
def test_a_job_may_be_called_so(job_id: str) -> None:
    """Dates, paths and ids of other systems."""
    check_job_id(job_id)


@pytest.mark.parametrize("job_id", ["", "a b", "é", "x" * 128, "a\n"])
def test_a_job_may_not_be_called_so(job_id: str) -> None:
    """It is a part of message ids, and stands in tables."""
    with pytest.raises(InvalidValue, match="job_id"):
        check_job_id(job_id)

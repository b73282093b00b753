"""SQL92 expressions: 4.9.8's own answers, where the errors point, and bounds.

sql92-4.9.8.json has RocketMQ's answers, which its SqlFilter gave for each expression and each of
`rows` (the properties of a message), one letter a row: True, False, Null, or Error where the
evaluation failed.  `refused`: expressions that it does not parse.  `dropped`: it answers for the
beginning of these and ignores the rest; we refuse them, at the place that stands behind.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.features.sql.sql import Sql, compiled
from rmqlite.features.sql.sql_evaluation import Incomparable
from rmqlite.features.sql.sql_parser import NESTING_MAX
from rmqlite.features.sql.sql_tree import CHARS_MAX
from rmqlite.kernel.words.errors import ExpressionInvalid, InvalidValue
from rmqlite.kernel.words.limits import SQL_BYTES_MAX
from rmqlite.kernel.words.message import KEY_END, PAIR_END

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "sql92-4.9.8.json").read_text("utf-8"))
WORDS = ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "NULL", "IS", "(", ")", ",", "+", "-", "="]
WORDS += ["<>", ">", "<=", "a", "b", "3", "3.5", "'x'", "'3'", "--", "/*", "*/", "\n", "'", "0"]


def encoded(properties: dict[str, str]) -> bytes:
    return "".join(
        [f"{name}{KEY_END}{value}{PAIR_END}" for name, value in properties.items()]
    ).encode()


def letter(sql: Sql, properties: dict[str, str]) -> str:
    try:
        answer = sql.answer(encoded(properties))
    except Incomparable:
        return "E"
    assert answer is None or isinstance(answer, bool)
    return {None: "N", True: "T", False: "F"}[answer]


def refusal(text: str) -> ExpressionInvalid:
    with pytest.raises(ExpressionInvalid) as caught:
        Sql(text)
    return caught.value


@pytest.mark.parametrize("text", TABLE["answers"])
def test_each_answer_is_rocketmqs(text: str) -> None:
    """Whoever moves a consumer here gets the messages that it got before."""
    sql = Sql(text)
    rows = TABLE["rows"]
    found = "".join([letter(sql, row) for row in rows])
    expected = TABLE["answers"][text]
    differing = [
        at for at, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other
    ]
    assert [(rows[at], found[at], expected[at]) for at in differing] == []


@pytest.mark.parametrize("text", TABLE["refused"])
def test_what_rocketmq_refuses_is_refused(text: str) -> None:
    """With a place inside of the text, or right behind it."""
    assert 0 <= refusal(text).at <= len(text)


@pytest.mark.parametrize("text", TABLE["dropped"])
def test_what_rocketmq_ignores_without_a_word_is_refused(text: str) -> None:
    """Half of a filter is a wrong filter: `a LIKE 'x%'` would match no message, for ever."""
    _, at = TABLE["dropped"][text]
    assert refusal(text).at == at


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a >", "at character 4, at the end: expected a property, a number"),
        ("a = 3 OR b == 4", "at character 13, before '= 4': expected a property"),
        ("a != 3", "at character 3, before '!= 3': write <> for unequal"),
        ("a = 1 AND b > 'x'", "at character 15, before \"'x'\": > >= < <= and BETWEEN compare"),
        ("a = 3 AND (b = 4", "at character 17, at the end: expected ) or another part"),
        ("a BETWEEN 4 AND 3", "at character 11, before '4 AND 3': a range begins with its lower"),
        ("a IN (3)", "at character 7, before '3)': expected a text in single quotes"),
        ("a = NULL", "at character 5, before 'NULL': nothing is equal to NULL; write IS NULL"),
        ("a = 0.0", "at character 5, before '0.0': a number with a point or an exponent is"),
        ("a = 'x", 'at character 5, before "\'x": the text has no end'),
        ('a = "x"', "at character 5, before '\"x\"': a text stands in single quotes"),
        ("a = 1 /* c", "at character 7, before '/* c': the comment has no end"),
        ("a = 'é' AND ß = 1", "at character 13, before 'ß = 1': the character has no meaning"),
    ],
)
def test_an_error_names_the_place_and_the_rule(text: str, sentence: str) -> None:
    """A person repairs the expression with nothing else at hand."""
    error = refusal(text)
    assert sentence in str(error)
    assert (error.field, error.value, error.response_code) == ("sql", text, 23)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    """With one error, and never with another."""
    _is_tried(text)


@given(st.lists(st.sampled_from(WORDS), max_size=16).map(" ".join))
def test_any_words_are_an_expression_or_refused(text: str) -> None:
    """Random characters hardly ever get past the first rule; these do."""
    _is_tried(text)


def _is_tried(text: str) -> None:
    if not _is_accepted(text):
        assert 0 <= refusal(text).at <= len(text)
        return
    sql = Sql(text)
    for row in TABLE["rows"]:
        assert letter(sql, row) in "TFNE"


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=PAIR_END), min_size=1),
    st.text(string.ascii_letters + string.digits + "_$", max_size=8),
)
def test_any_text_in_quotes_is_compared_as_it_is(value: str, name: str) -> None:
    """Quotes inside are doubled; nothing else has a meaning there."""
    quoted = value.replace("'", "''")
    for text in (
        f"_{name} = '{quoted}'",
        f"_{name} IN ('no', '{quoted}')",
        f"'{quoted}' = _{name}",
    ):
        assert letter(Sql(text), {f"_{name}": value}) == "T"
        assert letter(Sql(text), {f"_{name}": value + "x"}) == "F"


def test_keywords_have_no_case_but_names_have() -> None:
    """As in RocketMQ: the properties a and A are two."""
    sql = Sql("nOt (a iS nUlL) aNd A In ('x')")
    assert letter(sql, {"a": "1", "A": "x"}) == "T"
    assert letter(sql, {"a": "x"}) == "N"


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "(" * depth + "a = 1" + ")" * depth,
        lambda depth: "NOT " * depth + "TRUE",
        lambda depth: "-" * depth + "3 < a",
        lambda depth: "a" + " IS NULL" * depth,
        lambda depth: "(NOT " * depth + "TRUE" + ")" * depth,
    ],
)
def test_an_expression_is_not_too_deep(nested: Any) -> None:
    """Neither the parser nor the evaluation may run out of stack, in a broker's deep calls."""
    levels = next(n for n in range(1, 200) if not _is_accepted(nested(n))) - 1
    assert NESTING_MAX // 2 - 1 <= levels <= NESTING_MAX
    letter(Sql(nested(levels)), {"a": "1"})
    assert "levels deep" in str(refusal(nested(levels + 1)))
    assert "levels deep" in str(refusal(nested(400)))


def _is_accepted(text: str) -> bool:
    try:
        Sql(text)
    except ExpressionInvalid:
        return False
    return True


def test_many_parts_beside_each_other_are_one_level() -> None:
    """Long lists of conditions are usual."""
    text = " OR ".join([f"a = {number}" for number in range(200)])
    assert letter(Sql(text), {"a": "199"}) == "T"
    assert letter(Sql(text), {"a": "200"}) == "F"


def test_an_expression_has_a_length_limit() -> None:
    """Each pull carries it, and the broker reads each of its characters."""
    text = "a = '" + "x" * (SQL_BYTES_MAX - 6) + "'"
    Sql(text)
    with pytest.raises(
        InvalidValue, match=f"at most {SQL_BYTES_MAX} bytes, not '{SQL_BYTES_MAX + 1} b"
    ):
        Sql(text + " ")


def test_a_very_long_number_in_a_property_is_none() -> None:
    """Java reads it; here it would make one message cost as much as thousands."""
    zeros = "0" * (CHARS_MAX - 1)
    assert letter(Sql("a = 3"), {"a": zeros + "3"}) == "T"
    assert letter(Sql("a = 3"), {"a": "0" + zeros + "3"}) == "E"
    assert letter(Sql("a = 3.0"), {"a": zeros + "3"}) == "T"
    assert letter(Sql("a = 3.0"), {"a": "0" + zeros + "3"}) == "E"


def test_only_a_true_answer_matches() -> None:
    """Null and a failed comparison do not; the last of several pairs of a name counts."""
    sql = Sql("a > 3")
    assert sql.matches(b"a\x014\x02")
    assert sql.matches(b"a\x011\x02a\x014\x02a\x01\x02")
    for properties in (b"", b"a\x013\x02", b"a\x01x\x02", b"b\x014\x02", b"a\x01\xff\x02"):
        assert not sql.matches(properties)


def test_a_value_that_is_not_utf8_equals_no_text() -> None:
    """It is still there, and still unequal."""
    raw = b"a\x01caf\xe9\x02"
    assert not Sql("a = 'café'").matches(raw)
    assert Sql("a <> 'café'").matches(raw)
    assert Sql("a IS NOT NULL").matches(raw)


def test_an_expression_is_compiled_once() -> None:
    """A consumer sends it with each pull."""
    assert compiled("a > 3") is compiled("a > 3")
    with pytest.raises(ExpressionInvalid):
        compiled("a >")

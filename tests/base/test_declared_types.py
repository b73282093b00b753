"""A wrong type is named with the field, the rule and the type, wherever a user hands it over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from rmqlite.client import BulkMessage, Message
from rmqlite.declared_types.checks import check_arguments, check_type
from rmqlite.errors import InvalidValue


@dataclass
class Inner:
    levels: tuple[int, ...] = ()


@check_arguments
def called(first: int, *rest: str, inner: Inner | None = None, is_set: bool = False) -> Any:
    return first, rest, inner, is_set


WRONG_EVERYWHERE: list[tuple[dict[str, Any], str]] = [
    ({"body": "text"}, "body must be bytes, not str"),
    ({"body": None}, "body must be bytes, not NoneType"),
    ({"body": bytearray(b"x")}, "body must be bytes, not bytearray"),
    ({"topic": 5}, "topic must be str, not int"),
    ({"topic": b"t"}, "topic must be str, not bytes"),
    ({"tags": ["a"]}, "tags must be str, not list of str"),
    ({"tags": None}, "tags must be str, not NoneType"),
    ({"keys": 5}, "keys must be str or a sequence of str, not int"),
    ({"keys": ["a", 5]}, "keys must be str or a sequence of str, not "),
    ({"properties": 5}, "properties must be a mapping of str to str, not int"),
    ({"properties": None}, "properties must be a mapping of str to str, not NoneType"),
    ({"properties": {"amount": 5}}, "properties['amount'] must be str, not int"),
    (
        {"properties": {5: "a"}},
        "properties must be a mapping of str to str, not dict of int",
    ),
    ({"delay_level": "3"}, "delay_level must be int, not str"),
    ({"delay_level": True}, "delay_level must be int, not bool"),
    ({"message_id": 5}, "message_id must be str, not int"),
    ({"delay": 30}, "delay must be text such as '30s' or '10m', or a datetime.timedelta, not int"),
    ({"delay": timedelta(milliseconds=1_500)}, "delay must be whole seconds, not '0:00:01.500000'"),
    ({"delay": "10 minutes"}, "delay must be a whole number and a unit"),
]
WRONG_IN_ONE: list[tuple[dict[str, Any], str]] = [
    ({"flag": "1"}, "flag must be int, not str"),
    ({"max_reconsume_times": "3"}, "max_reconsume_times must be int or None, not str"),
]


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [(Message, *each) for each in WRONG_EVERYWHERE + WRONG_IN_ONE]
    + [(BulkMessage, *each) for each in WRONG_EVERYWHERE],
)
def test_a_message_names_the_field_the_rule_and_the_type(
    kind: type, fields: dict[str, Any], sentence: str
) -> None:
    """In the line that makes the message, not where it is sent, perhaps by another thread."""
    with pytest.raises(InvalidValue) as error:
        kind(**{"topic": "orders", "body": b"x"} | fields)
    assert str(error.value).startswith(sentence)
    assert error.value.field == next(iter(fields))


@pytest.mark.parametrize("kind", [Message, BulkMessage])
def test_a_delay_may_be_a_timedelta(kind: Any) -> None:
    """Python's own word for a length of time; a bare number has no unit, and is refused."""
    made = [kind("orders", b"x", delay=each) for each in (timedelta(minutes=10), "600s")]
    assert made[0].delay == made[1].delay == "600s"


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int | None, None),
        (float, 5),
        (str | Sequence[str], ["a"]),
        (tuple[int, ...], (1, 2)),
        (Mapping[str, str], {}),
        (Iterable[int], iter("abc")),
        (Callable[[int], None] | None, print),
        (Any, object()),
    ],
)
def test_a_right_value_is_let_through(declared: Any, value: object) -> None:
    """An iterator is not used up by a look at it."""
    check_type("it", value, declared)


@pytest.mark.parametrize(
    ("declared", "value", "sentence"),
    [
        (int, 1.5, "it must be int, not float"),
        (float, "1", "it must be float, not str"),
        (Sequence[str], "abc", "it must be a sequence of str, not str"),
        (frozenset[int], {"a"}, "it must be a sequence of int, not set of str"),
        (Callable[[int], None], 5, "it must be a function, not int"),
        (Inner, Inner(("3",)), "levels must be a sequence of int, not tuple of str"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_named(declared: Any, value: object, sentence: str) -> None:
    """The type of the value, and the types that are in it: its content may be a secret."""
    with pytest.raises(InvalidValue) as error:
        check_type("it", value, declared)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        (("1",), {}, "first must be int, not str"),
        ((1, "a", 2), {}, "rest must be str, not int"),
        ((1,), {"inner": 5}, "inner must be Inner or None, not int"),
        ((1,), {"is_set": 1}, "is_set must be bool, not int"),
        ((1,), {"inner": Inner((1.5,))}, "levels must be a sequence of int, not tuple of float"),  # type: ignore[arg-type]
    ],
)
def test_the_arguments_of_a_call_are_checked(
    args: tuple[Any, ...], kwargs: dict[str, Any], sentence: str
) -> None:
    """Those of every kind: by position, by name, any number of them, inside of others."""
    with pytest.raises(InvalidValue) as error:
        called(*args, **kwargs)
    assert str(error.value) == sentence


def test_a_right_call_is_as_it_was() -> None:
    """What is missing or unknown stays Python's own error."""
    assert called(1, "a", inner=Inner((2,))) == (1, ("a",), Inner((2,)), False)
    wrong: Any = called
    with pytest.raises(TypeError, match="missing"):
        wrong()
    with pytest.raises(TypeError, match="unexpected"):
        wrong(1, nothing=2)

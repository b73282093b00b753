"""A wrong type is named with the field, the rule and the type, in the line that makes a message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rmqlite.client import BulkMessage, Message, Producer
from rmqlite.kernel.words.errors import InvalidValue

WRONG_EVERYWHERE: list[tuple[dict[str, Any], str]] = [
    ({"body": "text"}, "body must be bytes, not str"),
    ({"body": None}, "body must be bytes, not NoneType"),
    ({"body": bytearray(b"x")}, "body must be bytes, not bytearray"),
    ({"topic": 5}, "topic must be str, not int"),
    ({"topic": b"t"}, "topic must be str, not bytes"),
    ({"tags": ["a"]}, "tags must be str, not list"),
    ({"tags": None}, "tags must be str, not NoneType"),
    ({"keys": 5}, "keys must be str or a sequence of str, not int"),
    ({"keys": ["a", 5]}, "keys must be str or a sequence of str, not "),
    ({"properties": 5}, "properties must be a mapping of str to str, not int"),
    ({"properties": None}, "properties must be a mapping of str to str, not NoneType"),
    ({"properties": {"amount": 5}}, "properties['amount'] must be str, not int"),
    ({"properties": {5: "a"}}, "properties must be a mapping of str to str, not dict"),
    ({"delay_level": "3"}, "delay_level must be int, not str"),
    ({"delay_level": True}, "delay_level must be int, not bool"),
    ({"message_id": 5}, "message_id must be str, not int"),
    ({"delay": 30}, "delay must be text such as '30s' or '10m', or a datetime.timedelta, not int"),
    ({"delay": timedelta(milliseconds=1_500)}, "delay must be whole seconds, not '0:00:01.500000'"),
    ({"delay": "10 minutes"}, "delay must be a whole number and a unit"),
]
WRONG_IN_ONE: list[tuple[dict[str, Any], str]] = [
    ({"flag": "1"}, "flag must be int, not str"),
    ({"max_reconsume_times": "3"}, "max_reconsume_times must be int, not str"),
]


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [(Message, *each) for each in WRONG_EVERYWHERE + WRONG_IN_ONE]
    + [(BulkMessage, *each) for each in WRONG_EVERYWHERE],
)
def test_a_message_names_the_field_the_rule_and_the_type(
    kind: type, fields: dict[str, Any], sentence: str
) -> None:
    """Not where it is sent, perhaps by another thread."""
    with pytest.raises(InvalidValue) as error:
        kind(**{"topic": "orders", "body": b"x"} | fields)
    assert str(error.value).startswith(sentence)
    assert error.value.field == next(iter(fields))


@pytest.mark.parametrize("kind", [Message, BulkMessage])
def test_a_delay_may_be_a_timedelta(kind: Any) -> None:
    """Python's own word for a length of time; a bare number has no unit, and is refused."""
    made = [kind("orders", b"x", delay=each) for each in (timedelta(minutes=10), "600s")]
    assert made[0].delay == made[1].delay == "600s"


def test_an_endpoint_is_text() -> None:
    """Whoever gives a port alone is told so."""
    wrong: Any = 8081
    with pytest.raises(InvalidValue, match="endpoint must be str, not int"):
        Producer(wrong, "shop")

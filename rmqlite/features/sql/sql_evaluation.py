"""The answer of an SQL92 expression for one message, as RocketMQ 4.9 gives it.

A tree becomes one function of the message's property string.  Its answer is true, false or null
(None).  A comparison that has no answer, such as of the text x with the number 3, raises
Incomparable, and so does the whole expression, also under NOT and OR, unless an operand to the
left has decided.

RocketMQ's `=` is not symmetric: `a = 3` is null without a property a, `3 = a` is false, and
`a = b` is true if both are missing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from rmqlite.features.sql.sql_tree import (
    And,
    Compared,
    In,
    IsNull,
    IsTrue,
    Literal,
    Negated,
    Node,
    Not,
    Or,
    Property,
    Value,
    double,
    order,
    whole,
)
from rmqlite.kernel.words.message import find_property, property_marker

Evaluate: TypeAlias = Callable[[bytes], Value]
"""Answers for a property string.  It searches the properties that the expression names: to take
the whole string apart costs several times as much."""
Holds: TypeAlias = Callable[[float, float], bool]

_EQUAL: Final = "="
_HOLDS: Final[Mapping[str, Holds]] = {
    _EQUAL: operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Incomparable(Exception):
    """Two values have no order and no equality; the message does not match."""


def evaluation(node: Node) -> Evaluate:
    """The function that answers for a message; see the module."""
    return _MAKERS[type(node)](node)


def _literal(node: Literal) -> Evaluate:
    value = node.value
    return lambda _: value


def _property(node: Property) -> Evaluate:
    marker = property_marker(node.name)

    def text(properties: bytes) -> Value:
        raw = find_property(properties, marker)
        return None if raw is None else raw.decode("utf-8", "replace")

    return text


def _negated(node: Negated) -> Evaluate:
    operand = evaluation(node.operand)

    def negated(properties: bytes) -> Value:
        value = operand(properties)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
        return None

    return negated


def _is_true(node: IsTrue) -> Evaluate:
    marker = property_marker(node.operand.name)
    return lambda properties: None if find_property(properties, marker) is None else False


def _not(node: Not) -> Evaluate:
    operand = evaluation(node.operand)

    def opposite(properties: bytes) -> Value:
        answer = operand(properties)
        return None if answer is None else not answer

    return opposite


def _joined(node: And | Or) -> Evaluate:
    """The first operand that decides ends it; if none does, null wins."""
    operands = [evaluation(each) for each in node.operands]
    decides = isinstance(node, Or)

    def joined(properties: bytes) -> Value:
        answer: Value = not decides
        for operand in operands:
            each = operand(properties)
            if each is decides:
                return decides
            if each is None:
                answer = None
        return answer

    return joined


def _is_null(node: IsNull) -> Evaluate:
    operand = evaluation(node.operand)
    return lambda properties: operand(properties) is None


def _in(node: In) -> Evaluate:
    marker = property_marker(node.operand.name)
    texts = frozenset([text.encode() for text in node.texts])

    def is_in(properties: bytes) -> Value:
        raw = find_property(properties, marker)
        return None if raw is None else raw in texts

    return is_in


def _compared(node: Compared) -> Evaluate:
    is_equality = node.sign == _EQUAL
    if isinstance(node.left, Property) and isinstance(node.right, Literal):
        marker, value = property_marker(node.left.name), node.right.value
        if type(value) is int:
            return _compared_with_whole(_HOLDS[node.sign], marker, value)
        if isinstance(value, str) and is_equality:
            return _is_text(marker, value.encode())
    left, right = evaluation(node.left), evaluation(node.right)
    return _equal(left, right) if is_equality else _ordered(_HOLDS[node.sign], left, right)


def _is_text(marker: bytes, text: bytes) -> Evaluate:
    def is_text(properties: bytes) -> Value:
        raw = find_property(properties, marker)
        return None if raw is None else raw == text

    return is_text


def _compared_with_whole(holds: Holds, marker: bytes, number: int) -> Evaluate:
    """The most frequent comparison; the general form takes three times as long."""

    def compared(properties: bytes) -> Value:
        raw = find_property(properties, marker)
        if raw is None:
            return None
        if len(raw) < 10 and raw.isdigit():
            return holds(int(raw), number)
        other = whole(raw.decode("utf-8", "replace"), like=number)
        if other is None:
            raise Incomparable
        return holds(other, number)

    return compared


def _equal(left: Evaluate, right: Evaluate) -> Evaluate:
    def equal(properties: bytes) -> Value:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return _is_equal(one, other)

    return equal


def _is_equal(one: str | float | bool, other: str | float | bool) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        if isinstance(one, str):
            return (one.lower() == "true") is other
        if isinstance(other, str):
            # RocketMQ fails here: it converts the wrong side.
            raise Incomparable
        return isinstance(one, bool) and one is other
    return _order(one, other) == 0


def _ordered(holds: Holds, left: Evaluate, right: Evaluate) -> Evaluate:
    def ordered(properties: bytes) -> Value:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        if other is None:
            return None
        # A boolean cannot come here: the parser refuses it.
        return holds(_order(one, other), 0)

    return ordered


def _order(one: str | float, other: str | float) -> int:
    """Below 0, 0 or above 0; texts are converted to numbers.  Raises Incomparable."""
    if isinstance(one, str):
        one = _number(one, like=0.0 if isinstance(other, str) else other)
    if isinstance(other, str):
        other = _number(other, like=one)
    if isinstance(one, int) and isinstance(other, int):
        return (one > other) - (one < other)
    return order(float(one), float(other))


def _number(text: str, like: float) -> float:
    number = whole(text, like) if isinstance(like, int) else double(text)
    if number is None:
        raise Incomparable
    return number


_MAKERS: Final[Mapping[type[Node], Callable[[Any], Evaluate]]] = {
    Literal: _literal,
    Property: _property,
    Negated: _negated,
    IsTrue: _is_true,
    Not: _not,
    And: _joined,
    Or: _joined,
    Compared: _compared,
    IsNull: _is_null,
    In: _in,
}

"""The parts of an SQL92 expression, and the numbers that it compares.

A part's answer is a text, a number, a boolean or null.  `<>`, IS NOT NULL and NOT IN are a Not over
another part, BETWEEN is two comparisons: RocketMQ answers them so, also where null is involved.

Texts of properties are numbers as Java's Integer, Long and Double read them.  RocketMQ compares a
property with a whole number only if its text is a whole number of the same type: "3.5" and
"3000000000" cannot be compared with 3, but with 3.0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool | None
CHARS_MAX: Final = 512
"""A longer text is no number.  Java has no such limit; here it bounds the work."""
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
_WHOLE = re.compile(rf"[+-]?\d{{1,{CHARS_MAX}}}")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(33)))
_BEYOND_JAVA_CHAR: Final = "\uffff"


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """A message's property: a text, or null if the message has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """A minus sign; the answer is null unless the operand is a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property alone where a condition is needed: false, because no property is a boolean."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND over two or more operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR over two or more operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """sign: = > >= < or <=."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Node


@dataclass(frozen=True, slots=True)
class In:
    operand: Property
    texts: frozenset[str]


Condition: TypeAlias = IsTrue | Not | And | Or | Compared | IsNull | In
Node: TypeAlias = Literal | Property | Negated | Condition


def is_condition(node: Node) -> bool:
    """Can the part stand beside AND, OR and NOT?  TRUE, FALSE and NULL can."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negated)


def is_int(number: int) -> bool:
    """Does a literal of this value have Java's type Integer, not Long?

    The lowest Integer is none: a minus sign before 2147483648 negates a Long.
    """
    return -INT_MAX <= number <= INT_MAX


def whole(text: str, like: int) -> int | None:
    """The whole number that a text is, of the type of `like`; None if it is none."""
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)
    if not _WHOLE.fullmatch(text) or max(text) > _BEYOND_JAVA_CHAR:
        return None
    number = int(text)
    most = INT_MAX if is_int(like) else LONG_MAX
    return number if -most - 1 <= number <= most else None


def double(text: str) -> float | None:
    """The number that a text is, whole or not; None if it is none."""
    if len(text) > CHARS_MAX:
        return None
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    hexadecimal = _HEX.fullmatch(text)
    if hexadecimal is None:
        return None
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def order(left: float, right: float) -> int:
    """Below 0, 0 or above 0, as Java orders doubles: -0.0 < 0.0, and NaN is above all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    """Of two numbers that are neither below nor above each other."""
    if math.isnan(number):
        return 2
    return 0 if math.copysign(1, number) < 0 else 1

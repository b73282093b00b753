"""The parts of an SQL92 expression.  A part's answer is a text, a number, a boolean or null.

`<>`, IS NOT NULL and NOT IN are a Not over another part, BETWEEN is two comparisons: RocketMQ
answers them so, also where null is involved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None


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

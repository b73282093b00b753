"""What an error says about a value of a wrong type."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rmqlite.errors import InvalidValue

TEXTS: Final = (str, bytes, bytearray)
"""Sequences for Python, but one value for a user."""


def must_be_type(field: str, rule: str, value: object) -> InvalidValue:
    """The error for a value of a wrong type; it names the type, the value may be anything.

    field: also a part of one, such as "properties['amount']"; the error's field is "properties".
    """
    kind, whole = _kind_of(value), field.partition("[")[0]
    return InvalidValue(whole, kind, rule, f"{field} must be {rule}, not {kind}")


def _kind_of(value: object) -> str:
    """The type of a value, and the types that are in it: "list of int"."""
    kind = type(value).__name__
    if isinstance(value, Mapping) and value:
        return f"{kind} of {_kinds(value.keys())} to {_kinds(value.values())}"
    if isinstance(value, TEXTS) or not isinstance(value, Sequence | set | frozenset) or not value:
        return kind
    return f"{kind} of {_kinds(value)}"


def _kinds(values: Iterable[object]) -> str:
    return " and ".join(sorted({type(each).__name__ for each in values}))


def described(declared: Any) -> str:
    """A type as a sentence names it: "str, timedelta or None"."""
    origin, inside = typing.get_origin(declared), typing.get_args(declared)
    if origin in (typing.Union, types.UnionType):
        *others, last = [described(each) for each in inside]
        return f"{', '.join(others)} or {last}"
    if origin is Callable:
        return "a function"
    if issubclass(origin or object, Mapping):
        return f"a mapping of {described(inside[0])} to {described(inside[1])}"
    if origin is not None:
        return f"a sequence of {described(inside[0])}"
    return "None" if declared is types.NoneType else str(getattr(declared, "__name__", declared))

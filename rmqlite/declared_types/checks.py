"""The values that a user hands over, against the types that the code declares for them.

A type checker would find these mistakes, but few users run one: without a check a wrong type is
an error far from its cause, or, like text from a number, none at all.  The declarations themselves
are the rules: of a function's parameters, and of the fields of dataclasses, also inside of others.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, wraps
from itertools import chain, repeat
from typing import Any, Final, TypeVar

from rmqlite.errors import InvalidValue
from rmqlite.visible import shortened

C = TypeVar("C")
TEXTS: Final = (str, bytes, bytearray)
"""Sequences for Python, but one value for a user."""


def check_type(field: str, value: object, declared: Any) -> None:
    """Raises InvalidValue, for a field inside of the value, too."""
    if not _fits(value, declared):
        if isinstance(value, Mapping) and typing.get_origin(declared) is Mapping:
            keys, values = typing.get_args(declared)
            for key, each in value.items():
                if _fits(key, keys):
                    check_type(f"{field}[{shortened(key)!r}]", each, values)
        raise must_be_type(field, described(declared), value)
    if is_dataclass(value) and not isinstance(value, type):
        check_fields(value)


def check_fields(value: Any, *names: str) -> None:
    """Raises InvalidValue for a field of a dataclass that has another type than it declares."""
    for name, declared in _hints(value.__class__).items():
        if not names or name in names:
            check_type(name, getattr(value, name), declared)


def check_arguments(function: C) -> C:
    """A decorator: raises InvalidValue for an argument of another type than declared.

    It costs 1 us.  A missing or an unknown argument is Python's own TypeError.
    """
    wrapped: Any = function
    names = _names_of(wrapped)

    @wraps(wrapped)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints, exact = _hints(wrapped), _exact_types(wrapped)
        for name, value in chain(zip(names(), args, strict=False), kwargs.items()):
            # Nearly all are of a plain type: one look is enough.
            if name in hints and value.__class__ not in exact[name]:
                check_type(name, value, hints[name])
        return wrapped(*args, **kwargs)

    return typing.cast(C, checked)


def check_public_arguments(*, besides: Iterable[str] = ()) -> Callable[[type[C]], type[C]]:
    """A class decorator: check_arguments() for __init__ and every public method.

    besides: methods that are called too often for it, and check what they get in another way.
    """

    def decorated(cls: type[C]) -> type[C]:
        for name, each in list(vars(cls).items()):
            is_public = name == "__init__" or not name.startswith("_")
            if is_public and inspect.isfunction(each) and name not in besides:
                setattr(cls, name, check_arguments(each))
        return cls

    return decorated


def _names_of(function: Any) -> Callable[[], Iterable[str]]:
    """Names for the positional arguments of a call, however many it has."""
    parameters = inspect.signature(function).parameters.values()
    many = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [each.name for each in parameters if each.kind is plain]
    return lambda: chain(names, repeat(many[0])) if many else names


@cache
def _exact_types(function: Any) -> dict[str, frozenset[type]]:
    """For each argument the types whose values need no other check."""
    return {name: frozenset(_exact(declared)) for name, declared in _hints(function).items()}


def _exact(declared: Any) -> Iterator[type]:
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        for each in typing.get_args(declared):
            yield from _exact(each)
    elif declared in (str, bytes, int, float, bool, types.NoneType):
        yield from (int, float) if declared is float else (declared,)


@cache
def _hints(of: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(of)
    hints.pop("return", None)
    return hints


def _fits(value: object, declared: Any) -> bool:
    origin, inside = typing.get_origin(declared), typing.get_args(declared)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in inside)
    if origin is not None:
        return _fits_generic(value, origin, inside)
    if declared is None or declared is types.NoneType:
        return value is None
    if declared is Any or not isinstance(declared, type):
        return True
    if declared in (int, float):
        # Also numpy's numbers; but True is no count.
        is_number = hasattr(value, "__index__") or (declared is float and isinstance(value, float))
        return is_number and not isinstance(value, bool)
    return isinstance(value, declared)


def _fits_generic(value: object, origin: Any, inside: tuple[Any, ...]) -> bool:
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if isinstance(value, TEXTS) or not isinstance(value, origin):
        return False
    if isinstance(value, Mapping):
        keys, values = inside
        return all(_fits(k, keys) and _fits(v, values) for k, v in value.items())
    if isinstance(value, Sequence | set | frozenset):
        return all(each.__class__ is inside[0] or _fits(each, inside[0]) for each in value)
    return True


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

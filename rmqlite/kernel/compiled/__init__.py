"""The hottest loops twice: in plain Python, and in C if this installation has it.

pip compiles the C beside this file where it finds a compiler, and does without elsewhere.  in_c()
is the one place that chooses.  It stands before a plain function: the function of the same name in
C takes the same arguments, and makes the same values of them.  C answers None for all that is
unusual, and has changed nothing then; the plain function takes that, and refuses what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from struct import Struct
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

INTERFACE: Final = 23
"""Counts the changes of the functions in C; a library that was built before the last is not used.
"""
SPAN: Final = Struct("=5i")
"""A message of a batch: its flag; where its body begins and ends, and its property string."""
ROW: Final = Struct("=IIq")
"""A packed record: its length, the number of its queue, and its tags code or a timer's due time."""
KEY: Final = Struct("=II")
"""A key of a packed record: the hash under which the index has it, and the record's number."""

loops: Any = None
with suppress(ImportError):
    loops = import_module("rmqlite.kernel.compiled._loops")
is_on = loops is not None and loops.INTERFACE == INTERFACE


def in_c(plain: F) -> F:
    """The function of the same name in C; for what that leaves, and without it, the plain one.

    The plain one is its __wrapped__.
    """
    quick = getattr(loops, plain.__name__.lstrip("_"), None)
    if quick is None:
        return plain

    @wraps(plain)
    def chosen(*args: Any) -> Any:
        found = quick(*args) if is_on else None
        return plain(*args) if found is None else found

    return cast(F, chosen)


def only_in_c(name: str) -> Callable[..., Any]:
    """A function in C whose plain form is work of its caller, in steps; None leaves it to that."""
    quick = getattr(loops, name, None)
    if quick is None:
        return lambda *_: None
    return lambda *args: quick(*args) if is_on else None


def form() -> str:
    """Which form runs: compiled or plain."""
    return "compiled" if is_on else "plain"

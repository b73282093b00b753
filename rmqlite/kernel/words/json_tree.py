"""Reads JSON that somebody else may have written, without trusting it.

Python's reader accepts values that break a broker later: numbers without a bound, infinity,
half a character, and nesting so deep that code which walks the tree ends in a RecursionError.
Here such a text is a WrongValue with the path to the value; position_of() finds that path in
the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from rmqlite.kernel.words.limits import INT64_MAX

DEPTH_MAX: Final = 64
"""The tables of rmqlite and of RocketMQ are nested at most 8 deep."""
NESTED_VALUES_MAX: Final = 2_000_000
"""An empty list takes 2 bytes in a text, and 300 in memory while it is checked.  A store with
100,000 topics of 8 queues each has half as many values as this."""
_DEPTH_RULE: Final = f"values nested at most {DEPTH_MAX} deep"
_FOUND_CHARS_MAX: Final = 60
_PATH_NAMES_MAX: Final = 8
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)

Path = tuple[str, ...]
"""Keys, and numbers of list items, from the outermost value on."""


class WrongValue(ValueError):
    """A value of a tree breaks a rule.

    rule: begins with the value's path, unless that is longer than every path of a table.
    found: the value in words.
    """

    def __init__(self, path: Path, rule: str, found: str) -> None:
        self.path = path
        self.rule = f"{'.'.join(path)}: {rule}" if 0 < len(path) <= _PATH_NAMES_MAX else rule
        self.found = found
        super().__init__(f"expected {self.rule}, found {found}")


def read_json(text: str) -> Any:
    """The tree.  Raises WrongValue, json.JSONDecodeError; ValueError for too long a number."""
    count = text.count("[") + text.count("{")
    if count > NESTED_VALUES_MAX:
        raise WrongValue((), f"at most {NESTED_VALUES_MAX} objects and lists", str(count))
    try:
        tree = json.loads(text)
    except RecursionError:
        raise WrongValue(_deep_path(text), _DEPTH_RULE, "deeper ones") from None
    _check(tree)
    return tree


def shown(value: object) -> str:
    """A value in words, at most 60 characters."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value[:_FOUND_CHARS_MAX] if isinstance(value, str) else value)
    return text if len(text) <= _FOUND_CHARS_MAX else text[: _FOUND_CHARS_MAX - 1] + "…"


def _check(tree: Any) -> None:
    """Raises WrongValue for the first value that breaks a rule of this module."""
    level: list[tuple[Path, Any]] = [((), [tree])]
    for _ in range(DEPTH_MAX + 1):
        below: list[tuple[Path, Any]] = []
        for path, each in level:
            pairs = each.items() if isinstance(each, dict) else enumerate(each)
            for key, value in pairs:
                kind = type(value)
                if kind is dict or kind is list:
                    below.append(((*path, str(key)), value))
                elif kind is int and not -INT64_MAX - 1 <= value <= INT64_MAX:
                    rule = f"a number from {-INT64_MAX - 1} to {INT64_MAX}"
                    raise WrongValue((*path, str(key))[1:], rule, shown(value))
                elif kind is float and not math.isfinite(value):
                    raise WrongValue((*path, str(key))[1:], "a number", shown(value))
                elif not (_is_text(value) and _is_text(key)):
                    raise WrongValue((*path, str(key))[1:], "whole characters", shown(value))
        if not below:
            return
        level = below
    raise WrongValue(level[0][0][1:], _DEPTH_RULE, "deeper ones")


def position_of(text: str, path: Path) -> int:
    """Where the value with this path begins, or the innermost value around it: a character."""
    position, depth = 0, -1
    for at, here in _values(text):
        if len(here) > depth and here == path[: len(here)]:
            position, depth = at, len(here)
            if depth == len(path):
                break
    return position


def _deep_path(text: str) -> Path:
    """The path of the first value that is nested too deeply."""
    return next((here for _, here in _values(text) if len(here) > DEPTH_MAX), ())


def _values(text: str) -> Iterator[tuple[int, Path]]:
    """Where each value begins, and its path."""
    path: list[str | int | None] = []
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ("}", "]"):
            del path[-1:]
        elif token == ",":
            inner = path[-1] if path else None
            path[-1:] = [inner + 1 if isinstance(inner, int) else None] if path else []
        elif token == ":":
            continue
        elif path and path[-1] is None:
            path[-1] = token.strip('"')
        else:
            yield found.start(), tuple(map(str, path))
            if token in ("{", "["):
                path.append(None if token == "{" else 0)


def _is_text(value: Any) -> bool:
    """True unless the value is a text without a UTF-8 form."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

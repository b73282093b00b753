"""JSON that somebody else may have written: read without trusting it.

Python's reader takes what breaks a broker later: numbers without a bound, infinity, half a
character, and nesting that ends in a RecursionError where the tree is used.  Here such a text
is a WrongValue, with the path to the value, and position_of() finds that in the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

DEPTH_MAX: Final = 64
"""No table of ours or of RocketMQ's is nested more than 8 deep."""
NESTED_VALUES_MAX: Final = 2_000_000
"""An empty list has 2 bytes in a text and 300 in memory until it was looked at.  A store with
100,000 topics of 8 queues each has half as many."""
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
_DEPTH_RULE: Final = f"values nested at most {DEPTH_MAX} deep"
_FOUND_CHARS_MAX: Final = 60
_PATH_NAMES_MAX: Final = 8
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)

Path = tuple[str, ...]
"""Keys, and numbers of list items, from the outermost value on."""


class WrongValue(ValueError):
    """A value of a tree breaks a rule.

    rule: with the value's path in front, unless that is longer than any of a table's.  found:
    the value in words.
    """

    def __init__(self, path: Path, rule: str, found: str) -> None:
        self.path = path
        self.rule = f"{'.'.join(path)}: {rule}" if 0 < len(path) <= _PATH_NAMES_MAX else rule
        self.found = found
        super().__init__(f"expected {self.rule}, found {found}")


def read_json(text: str) -> Any:
    """A tree.  Raises WrongValue, json.JSONDecodeError, and ValueError for a number too long."""
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
    """A value in words, of a limited length."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value[:_FOUND_CHARS_MAX] if isinstance(value, str) else value)
    return text if len(text) <= _FOUND_CHARS_MAX else text[: _FOUND_CHARS_MAX - 1] + "…"


def _check(tree: Any) -> None:
    """Raises WrongValue for what no tree of ours holds."""
    level: list[tuple[Path, Any]] = [((), [tree])]
    for _ in range(DEPTH_MAX + 1):
        below: list[tuple[Path, Any]] = []
        for path, each in level:
            pairs = each.items() if isinstance(each, dict) else enumerate(each)
            for key, value in pairs:
                kind = type(value)
                if kind is dict or kind is list:
                    below.append(((*path, str(key)), value))
                elif kind is int and not INTEGER_MIN <= value <= INTEGER_MAX:
                    rule = f"a number from {INTEGER_MIN} to {INTEGER_MAX}"
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
    """The character at which the value with this path begins, or the nearest one around it."""
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
    """Is it no text, or one that has a UTF-8 form?"""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

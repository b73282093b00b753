"""YAML without its traps: texts, lists and mappings, each with its line.

No anchors and aliases (a file of a few lines could stand for gigabytes), no tags, no key twice,
one document, bounded depth.  A value stays the text that was written: 012345678 is a fine secret,
and not a number.  The rules are checked on YAML's events, one after the other, so that no depth
of nesting reaches Python's or libyaml's stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml
from yaml.reader import Reader

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 8
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_UNQUOTED: Final = re.compile(r"""(?:[^'"]|'[^\w\s'"]')*""")
_NO_ALIAS: Final = "no anchors and aliases (& and *): write a * in quotes"
LOADERS: Final[list[Any]] = [yaml.SafeLoader]
if yaml.__with_libyaml__:
    # A file of 1 MiB takes 0.2 s with libyaml, and 3 s without.
    LOADERS.insert(0, yaml.CSafeLoader)


class Node(NamedTuple):
    """A value, and its line; in a mapping the line of its key.  None: nothing is written."""

    value: str | list[Node] | dict[str, Node] | None
    line: int


class YamlWrong(Exception):
    """The file cannot be understood.

    The rule repeats nothing of what the file says.  key: whose value is wrong; it may be any text.
    """

    def __init__(self, line: int, key: str, rule: str) -> None:
        super().__init__(rule)
        self.line = line
        self.key = key
        self.rule = rule


def read_yaml(text: str, loader: Any = None) -> Node | None:
    """The one document of a text; None if there is none.  Raises YamlWrong."""
    control = Reader.NON_PRINTABLE.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise YamlWrong(line, "file", "text without control characters")
    try:
        return _document(yaml.parse(text, Loader=loader or LOADERS[0]))
    except yaml.YAMLError as error:
        wrong = _wrong(error)
    # Here, not above: so it has no context, which would quote the file.
    raise wrong


def _wrong(error: yaml.YAMLError) -> YamlWrong:
    mark = problem = None
    if isinstance(error, yaml.MarkedYAMLError):
        mark, problem = error.problem_mark or error.context_mark, error.problem
    # What it quotes may be a piece of a secret, unless it is punctuation as in: expected ':'.
    words = _UNQUOTED.match(problem or "")
    quoted = f": {words[0].strip(' ,')}" if words and words[0] else ""
    return YamlWrong(mark.line + 1 if mark else 0, "file", f"YAML that can be read{quoted}")


def _document(events: Iterator[Any]) -> Node | None:
    root: Node | None = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            if root is not None:
                rule = "one document: there is a second one after ---"
                raise YamlWrong(_line(event), "file", rule)
            root = _node(next(events), events, "file", 1)
    return root if root is None or root.value is not None else None


def _node(event: Any, events: Iterator[Any], key: str, depth: int) -> Node:
    line = _line(event)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise YamlWrong(line, key, _NO_ALIAS)
    if event.tag is not None:
        raise YamlWrong(line, key, "no tags: write a ! in quotes")
    if isinstance(event, yaml.ScalarEvent):
        is_null = event.implicit[0] and event.value in _NULLS
        return Node(None if is_null else event.value, line)
    if depth > DEPTH_MAX:
        raise YamlWrong(line, key, f"at most {DEPTH_MAX} values inside each other")
    if isinstance(event, yaml.SequenceStartEvent):
        return Node([_node(each, events, key, depth + 1) for each in _until_end(events)], line)
    return Node(_mapping(events, depth), line)


def _mapping(events: Iterator[Any], depth: int) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for event in _until_end(events):
        line = _line(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise YamlWrong(line, "file", "a key is one word; a * or { needs quotes")
        name = _node(event, events, "file", depth).value
        if not isinstance(name, str):
            raise YamlWrong(line, "file", "a key is one word")
        if name in found:
            rule = f"line {found[name].line} has this key already"
            raise YamlWrong(line, name, rule)
        found[name] = _node(next(events), events, name, depth + 1)._replace(line=line)
    return found


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _until_end(events: Iterator[Any]) -> Iterator[Any]:
    """The events that begin the values of a list or mapping; who gets one reads it to its end."""
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            return
        yield event

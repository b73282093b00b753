"""JSON bodies <-> the dataclasses of requests/, by their declarations.

Reading is as lenient as RocketMQ's reader where clients need it: numbers as texts and texts as
numbers, enumerations by name or by number, absent and null fields, unknown keys.  Each text,
list and map has a limit, and the whole body one that is checked before it is parsed.  Writing is
what RocketMQ writes: keys in order, no blanks (Go reads some bodies as text), nothing for None.

RocketMQ's odd JSON has maps whose keys are bare numbers or objects:

    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:7}}      {"brokerAddrs":{0:"…"}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from json.encoder import encode_basestring as quoted
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, cast, get_args, get_origin

from rmqlite.kernel.words.json_tree import WrongValue, read_json
from rmqlite.kernel.words.visible import printable, shortened
from rmqlite.protocols.remoting.bytes.fields import (
    ENTRIES_MAX,
    JSON_BYTES_MAX,
    JSON_COMMAS_MAX,
    JSON_NESTED_MAX,
    ODD_TOKENS_MAX,
    TEXT_BYTES_MAX,
    Bits,
    Bytes,
    Count,
    FieldError,
    declared,
    notes_of,
)

T = TypeVar("T")
Path = tuple[str, ...]
_KEY_BYTES_MAX: Final = Bytes(TEXT_BYTES_MAX)
_DIGITS_MAX: Final = 20
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|-?[0-9]++|[^\s{}\[\],:"]++|"', re.DOTALL
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_KEY_PARTS_MAX: Final = 64
"""Tokens in an object that is a key; a message queue has 13."""


def read_body(cls: type[T], body: bytes) -> T:
    """The value.  Raises FieldError with the path of what is wrong."""
    shape, tree = _tree_in(cls, body)
    return cast(T, shape.read(tree, ()))


def read_change(cls: type[T], body: bytes, usual: Mapping[str, Any] = MappingProxyType({})) -> T:
    """read_body() for a request that changes a setting: every field must be in force.

    A setting that is dropped in silence would be a lie.  An unknown field asks for nothing if it
    is absent, null, false, 0 or empty, or has its usual value.  Raises FieldError.
    """
    shape, tree = _tree_in(cls, body)
    value = shape.read(tree, ())
    _check_known(shape, tree, (), usual)
    return cast(T, value)


def _check_known(shape: _Shape, tree: Any, path: Path, usual: Mapping[str, Any]) -> None:
    if not isinstance(shape, _Object) or not isinstance(tree, dict):
        return
    known = shape.shapes
    for name, value in tree.items():
        if name in known:
            _check_known(known[name], value, (*path, name), usual)
        elif value and value not in ("0", "false", usual.get(name), str(usual.get(name))):
            rule = f"left out{f', or {usual[name]}' if name in usual else ''}: this broker has"
            raise _wrong((*path, name), value, f"{rule} no such setting")


def _tree_in(cls: type, body: bytes) -> tuple[_Shape, Any]:
    """The shape of a class, and the JSON of a body."""
    if not body:
        raise FieldError("body", None, "a JSON object")
    check_size(body)
    shape = _shape_of(cls)
    try:
        text = body.decode()
        tree = read_json(strict(text) if shape.is_odd else text)
    except WrongValue as error:
        raise FieldError("body", error.found, printable(shortened(error.rule))) from None
    except ValueError as error:
        raise FieldError("body", "a text", f"JSON ({error})") from None
    return shape, tree


def check_size(body: bytes) -> None:
    """Raises FieldError for a body that read_body() refuses before it parses it.

    The counts are too high by the signs that stand inside texts.
    """
    rule = ""
    if len(body) > JSON_BYTES_MAX:
        rule = f"at most {JSON_BYTES_MAX} bytes"
    elif body.count(b"{") + body.count(b"[") > JSON_NESTED_MAX:
        rule = f"at most {JSON_NESTED_MAX} objects and lists"
    elif body.count(b",") > JSON_COMMAS_MAX:
        rule = f"at most {JSON_COMMAS_MAX} commas"
    if rule:
        raise FieldError("body", f"{len(body)} bytes", rule)


def write_body(value: object, *, is_strict: bool = False) -> bytes:
    """JSON as RocketMQ writes it; is_strict: each key of a map is a text, as JSON wants it."""
    return _shape_of(type(value)).write(value, is_strict).encode("utf-8", "replace")


class _Shape(Protocol):
    is_odd: bool
    """A map in it may have keys that are no texts."""

    def read(self, tree: Any, path: Path) -> Any: ...

    def write(self, value: Any, is_strict: bool) -> str: ...


def _wrong(path: Path, value: object, rule: str) -> FieldError:
    return FieldError(".".join(path) or "body", value, rule)


class _Text:
    is_odd = False

    def __init__(self, size: Bytes) -> None:
        self._size = size

    def read(self, tree: Any, path: Path) -> str:
        if isinstance(tree, int) and not isinstance(tree, bool):
            tree = str(tree)
        if not isinstance(tree, str) or not self._size.holds(tree):
            raise _wrong(path, tree, self._size.rule)
        return tree

    def write(self, value: str, _: bool) -> str:
        return quoted(value)


class _Whole:
    is_odd = False

    def __init__(self, bits: Bits) -> None:
        self._end = 1 << (bits.count - 1)
        self._rule = f"a whole {bits.count}-bit number"

    def read(self, tree: Any, path: Path) -> int:
        number = tree
        if isinstance(tree, str) and len(tree) <= _DIGITS_MAX:
            number = int(tree) if tree.removeprefix("-").isdecimal() else None
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if not is_whole or not -self._end <= number < self._end:
            raise _wrong(path, tree, self._rule)
        return cast(int, number)

    def write(self, value: int, _: bool) -> str:
        return str(value)


class _Real:
    is_odd = False

    def read(self, tree: Any, path: Path) -> float:
        if isinstance(tree, bool) or not isinstance(tree, int | float):
            raise _wrong(path, tree, "a number")
        return float(tree)

    def write(self, value: float, _: bool) -> str:
        return repr(float(value))


class _Flag:
    is_odd = False

    def read(self, tree: Any, path: Path) -> bool:
        if isinstance(tree, str):
            tree = {"true": True, "false": False, "1": True, "0": False}.get(tree.lower())
        if tree not in (True, False):
            raise _wrong(path, tree, "true or false")
        return bool(tree)

    def write(self, value: bool, _: bool) -> str:
        return "true" if value else "false"


class _Choice:
    is_odd = False

    def __init__(self, choices: type[StrEnum]) -> None:
        self._by_name = {str(each): each for each in choices}
        self._by_number = dict(enumerate(choices))

    def read(self, tree: Any, path: Path) -> StrEnum:
        choice = None
        if isinstance(tree, str):
            choice = self._by_name.get(tree)
        elif isinstance(tree, int):
            choice = self._by_number.get(tree)
        if choice is None:
            raise _wrong(path, tree, f"one of {', '.join(self._by_name)}")
        return choice

    def write(self, value: StrEnum, _: bool) -> str:
        return quoted(value)


class _Many:
    def __init__(self, item: _Shape, count_max: int) -> None:
        self._item = item
        self._count_max = count_max
        self.is_odd = item.is_odd

    def read(self, tree: Any, path: Path) -> tuple[Any, ...]:
        if not isinstance(tree, list):
            raise _wrong(path, tree, "a list")
        if len(tree) > self._count_max:
            raise _wrong(path, f"{len(tree)} items", f"at most {self._count_max} items")
        read = self._item.read
        return tuple([read(each, (*path, str(place))) for place, each in enumerate(tree)])

    def write(self, value: tuple[Any, ...], is_strict: bool) -> str:
        write = self._item.write
        return f"[{','.join([write(each, is_strict) for each in value])}]"


class _Table:
    """A map.  Keys are texts, numbers, or objects: the last two stand in it without quotes."""

    def __init__(self, key: _Shape, value: _Shape, count_max: int) -> None:
        self._key = key
        self._value = value
        self._count_max = count_max
        self._has_odd_keys = not isinstance(key, _Text)
        self._has_objects = isinstance(key, _Object)
        self.is_odd = self._has_odd_keys or value.is_odd

    def read(self, tree: Any, path: Path) -> dict[Any, Any]:
        if not isinstance(tree, dict):
            raise _wrong(path, tree, "an object")
        if len(tree) > self._count_max:
            raise _wrong(path, f"{len(tree)} entries", f"at most {self._count_max} entries")
        found = {}
        for name, value in tree.items():
            at = (*path, name)
            found[self._read_key(name, at)] = self._value.read(value, at)
        return found

    def _read_key(self, name: str, path: Path) -> Any:
        if not _KEY_BYTES_MAX.holds(name):
            raise _wrong(path[:-1], "a key", _KEY_BYTES_MAX.rule)
        if not self._has_objects:
            return self._key.read(name, path)
        try:
            return self._key.read(json.loads(name), path)
        except (RecursionError, json.JSONDecodeError):
            raise _wrong(path[:-1], name, "an object as a key") from None

    def write(self, value: dict[Any, Any], is_strict: bool) -> str:
        key, item = self._key.write, self._value.write
        if is_strict and self._has_odd_keys:
            pairs = [f"{quoted(key(k, True))}:{item(v, True)}" for k, v in value.items()]
        else:
            pairs = [f"{key(k, is_strict)}:{item(v, is_strict)}" for k, v in value.items()]
        return f"{{{','.join(pairs)}}}"


class _Object:
    def __init__(self, cls: type) -> None:
        self._cls = cls
        plain = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
        self._fields = tuple(
            (each.name, each.wire, _shape_of(each.annotation), each.is_required, each.default)
            for each in declared(cls, plain)
        )
        self._written = [
            (wire, name, shape)
            for name, wire, shape, _, _ in sorted(self._fields, key=lambda each: each[1])
        ]
        self.shapes = {wire: shape for _, wire, shape, _, _ in self._fields}
        self.is_odd = any(shape.is_odd for _, _, shape, _, _ in self._fields)

    def read(self, tree: Any, path: Path) -> Any:
        if not isinstance(tree, dict):
            raise _wrong(path, tree, "an object")
        found = {}
        for name, wire, shape, is_required, default in self._fields:
            item = tree.get(wire)
            if item is not None:
                found[name] = shape.read(item, (*path, wire))
            elif is_required:
                raise _wrong((*path, wire), None, f"a field of {self._cls.__name__}")
            else:
                found[name] = default
        return self._cls(**found)

    def write(self, value: Any, is_strict: bool) -> str:
        pairs = [
            f'"{wire}":{shape.write(item, is_strict)}'
            for wire, name, shape in self._written
            if (item := getattr(value, name)) is not None
        ]
        return f"{{{','.join(pairs)}}}"


def _made(annotation: Any) -> _Shape:
    """The shape of a declared type, with the limits that stand beside it."""
    notes = notes_of(annotation)
    kind = annotation
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    count_max = next((note.most for note in notes if isinstance(note, Count)), ENTRIES_MAX)
    if is_dataclass(kind):
        return _Object(cast(type, kind))
    if get_origin(kind) is tuple:
        return _Many(_shape_of(get_args(kind)[0]), count_max)
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return _Table(_shape_of(key), _shape_of(value), count_max)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Choice(kind)
    if kind is str:
        return _Text(next((n for n in notes if isinstance(n, Bytes)), Bytes(TEXT_BYTES_MAX)))
    if kind is int:
        return _Whole(next((n for n in notes if isinstance(n, Bits)), Bits(32)))
    plain: dict[Any, Callable[[], _Shape]] = {float: _Real, bool: _Flag}
    return plain[kind]()


_shape_of: Final[Callable[[Any], _Shape]] = cache(_made)


class OddKey(ValueError):
    """An object that is a key is too long, or holds another object; or all of it is too long."""


def strict(text: str) -> str:
    """RocketMQ's odd JSON as JSON, without blanks; what else is wrong with it stays wrong.

    A bare number becomes a text, and so does an object that is a key, as one text.  Java reads
    that form as well.
    """
    parts: list[str] = []
    inside: list[str] = []
    before = ""
    key_from: int | None = None
    for found in _TOKEN.finditer(text):
        token = found[0]
        if len(parts) >= ODD_TOKENS_MAX:
            raise OddKey(f"more than {ODD_TOKENS_MAX} texts, numbers and signs")
        is_key = bool(inside) and inside[-1] == "{" and before in ("{", ",")
        if key_from is not None and token in ("{", "["):
            raise OddKey("an object or a list in an object that is a key")
        if token in ("{", "["):
            if is_key and token == "{":
                key_from = len(parts)
            inside.append(token)
        elif is_key and _NUMBER.fullmatch(token):
            token = f'"{token}"'
        parts.append(token)
        before = token
        if token in ("}", "]") and inside:
            inside.pop()
            if key_from is not None:
                parts[key_from:] = [_as_text("".join(parts[key_from:]))]
                key_from = None
        elif key_from is not None and len(parts) - key_from > _KEY_PARTS_MAX:
            raise OddKey(f"an object with more than {_KEY_PARTS_MAX} parts that is a key")
    return "".join(parts)


def _as_text(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""The small tables under config/: JSON in the shape that RocketMQ writes and reads.

RocketMQ's serializer writes integer keys without quotes, on the line of their brace
(reference §3.1); reading accepts both.  A table is replaced atomically and its previous
content stays as `.bak`, which is read when the table itself is missing or unreadable.  With the
check point they are, beside the log, the state of a store (small_files).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from rmqlite.kernel.config.table_shapes import validated
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.json_tree import WrongValue, position_of, read_json, shown

BACKUP: Final = ".bak"
_TEMPORARY: Final = ".tmp"
Tree = dict[str, Any]
Snapshot = Callable[[], Tree]
"""Makes a table from immutable values; it may be called in any thread."""
_T = TypeVar("_T")
_scalar_text = json.JSONEncoder(ensure_ascii=False).encode
# An unclosed text matches up to the end: retried at each quote it would take quadratic time.
_TEXT_OR_BARE_KEY = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*"?)|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)


class NoTable(ValueError):
    """The bytes are no valid table; position: the first wrong byte."""

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.position = position
        self.expected = expected
        self.found = found

    def damage(self, path: Path) -> StoreDamaged:
        """The error for the file at path."""
        return StoreDamaged(str(path), self.position, self.expected, self.found)


class Torn(NoTable):
    """The bytes are no JSON, for example because a crash interrupted their writing."""


def encode(tree: Tree) -> bytes:
    """A table as RocketMQ would write it."""
    return _text(tree, 0).encode()


def decode(data: bytes) -> Tree:
    """The inverse of encode.  Raises NoTable."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Torn(error.start, "text in UTF-8", str(error)) from error
    try:
        tree = _tree(text)
    except WrongValue as error:
        raise _no_table(text, error) from error
    except json.JSONDecodeError as error:
        position = len(text[: error.pos].encode())
        raise Torn(position, "JSON", f"{error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise NoTable(0, "JSON", str(error)) from error
    if not isinstance(tree, dict):
        raise NoTable(0, "a JSON object", shown(tree))
    return tree


def shaped(tree: Tree, data: bytes, shape: type[_T]) -> _T:
    """The tree that decode() made of data, as a value of a shape.  Raises NoTable."""
    try:
        return validated(shape, tree)
    except WrongValue as error:
        raise _no_table(data.decode(), error) from error


def load(files: Files, path: Path) -> Tree | None:
    """A table, or its previous generation if the table is no JSON; None without both.

    Raises StoreDamaged if there are files but none can be read.
    """
    return load_as(files, path, Tree)


def load_as(files: Files, path: Path, shape: type[_T]) -> _T | None:
    """load(), as a value of a shape.

    Raises StoreDamaged also for an invalid value: such a table was not torn but edited, and
    the previous generation would hide the edit.
    """
    problem: StoreDamaged | None = None
    for candidate in (path, path.with_name(path.name + BACKUP)):
        data = files.read_all(candidate)
        if not data or not data.strip():
            continue
        try:
            return shaped(decode(data), data, shape)
        except Torn as error:
            problem = problem or error.damage(candidate)
        except NoTable as error:
            raise error.damage(candidate) from error
    if problem:
        raise problem
    return None


def _tree(text: str) -> Any:
    try:
        return read_json(text)
    except json.JSONDecodeError:
        quoted = _TEXT_OR_BARE_KEY.sub(_quoted, text)
    try:
        return read_json(quoted)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(error.msg, text, _unquoted(text, error.pos)) from error


def _unquoted(text: str, position: int) -> int:
    """Convert a position in the text with quoted keys to one in the original text."""
    quotes = 0
    for found in _TEXT_OR_BARE_KEY.finditer(text):
        if found.start() + quotes >= position:
            break
        quotes += 2 if found[3] else 0
    return max(0, position - quotes)


def _no_table(text: str, error: WrongValue) -> NoTable:
    position = len(text[: position_of(text, error.path)].encode())
    return NoTable(position, error.rule, error.found)


def _quoted(found: re.Match[str]) -> str:
    # Quoted text is matched only to skip it: a bare key inside it is none.
    text, before, key = found.groups()
    return text or f'{before}"{key}"'


def _text(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return _object(value, depth)
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(each, depth) for each in value) + "]"
    return _scalar_text(value)


def _object(value: dict[Any, Any], depth: int) -> str:
    if not value:
        return "{}"
    close = "\n" + "\t" * depth + "}"
    if all(isinstance(key, int) for key in value):
        pairs = [f"{key}:{_text(each, depth + 1)}" for key, each in value.items()]
        return "{" + ",".join(pairs) + close
    inner = "\n" + "\t" * (depth + 1)
    pairs = [f"{_scalar_text(key)}:{_text(each, depth + 1)}" for key, each in value.items()]
    return "{" + inner + ("," + inner).join(pairs) + close


def small_files(files: Files, root: Path) -> dict[str, bytes]:
    """Tables, check point, and the lock's content, which says whose the store was, by name."""
    names = [f"config/{each}" for each in files.names(root / "config")]
    found = {}
    for name in (*names, "checkpoint", "lock"):
        is_file = files.kind(root / name) == REGULAR
        data = files.read_all(root / name) if is_file else None
        if data is not None and not name.endswith(_TEMPORARY):
            found[name] = data
    return found

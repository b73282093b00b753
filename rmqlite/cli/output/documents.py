"""What commands print with --json: each document is written and described by one declaration.

A document has the fields of a dataclass, and others; or it is a type that needs no more.
prints() gives a command its document, and `rmqlite schema` makes the JSON Schema of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias, MappingProxyType
from typing import Any, Final, TypeVar

from rmqlite.cli.output.terminal import to_tree

DOCUMENT: Final = "document"
"""The attribute of a command's function with what it prints."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
C = TypeVar("C", bound=Callable[..., Any])


class Document:
    """A JSON object: the fields of a dataclass or a document, and others with their types.

    about: a sentence.  without: fields of the dataclass that it lacks.  optional: fields that may
    be missing.  A type may be a Document.  The dataclass may be "module:name": a command loads some
    modules only when it runs.
    """

    def __init__(
        self,
        name: str,
        about: str,
        of: Any = None,
        /,
        *,
        without: Sequence[str] = (),
        optional: Mapping[str, Any] = _NOTHING,
        **fields: Any,
    ) -> None:
        self.name = name
        self.about = about
        self.of = of
        self.without = without
        self.optional = optional
        self.fields = fields

    def tree(self, value: Any = None, /, **given: Any) -> dict[str, Any]:
        """The object for JSON; given: a value for each field of its own, which goes first."""
        assert set(self.fields) <= set(given) <= {*self.fields, *self.optional}, sorted(given)
        tree = to_tree(value) if value is not None else {}
        kept = {name: each for name, each in tree.items() if name not in self.without}
        return kept | {name: to_tree(each) for name, each in given.items()}


class Either:
    """One of several documents."""

    def __init__(self, *kinds: Any) -> None:
        self.kinds = kinds


def fields_of(kind: Any, names: str) -> dict[str, Any]:
    """Fields of one type, by their names with blanks between."""
    return dict.fromkeys(names.split(), kind)


def many(kind: Any) -> Any:
    """The type of a list of them."""
    return GenericAlias(list, (kind,))


def maybe(kind: Any) -> Any:
    """The type of one of them, or null."""
    return Either(kind, type(None))


class Printed:
    """What a command prints.  is_line: a document on each line, instead of one."""

    def __init__(self, find: Callable[[], Any], *, is_line: bool) -> None:
        self.find = find
        self.is_line = is_line


def prints(find: Callable[[], Any], *, is_line: bool = False) -> Callable[[C], C]:
    """Declare what a command prints with --json.

    find: returns the type or Document; a function, because some are in modules that a command
    loads only when it runs.
    """

    def declared(command: C) -> C:
        setattr(command, DOCUMENT, Printed(find, is_line=is_line))
        return command

    return declared

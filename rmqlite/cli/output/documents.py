"""What commands print with --json: each document is written and described by one declaration.

A document has the fields of a dataclass, and others; or it is a type that needs no more.
prints() gives a command its document, and `rmqlite schema` makes the JSON Schema of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from inspect import getdoc
from operator import or_
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

import typer

from rmqlite.cli.output.terminal import print_json, print_lines, to_tree

DOCUMENT: Final = "document"
"""The attribute of a command's function with what it prints."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
C = TypeVar("C", bound=Callable[..., Any])
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


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


def schema(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A command such as topic list; none: list them."),
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json.

    Fields may be added later; those that are there keep their meaning.
    """
    known = dict(_documents(context.find_root().command, ""))
    name = " ".join(words or ())
    if not name:
        print_lines(sorted(known))
    elif name not in known:
        raise typer.BadParameter(f"COMMAND must be one that rmqlite schema lists, not {name!r}")
    else:
        print_json(schema_of(name, known[name]))


def schema_of(name: str, printed: Printed) -> dict[str, Any]:
    """The schema of the document that a command prints."""
    # A quarter of a second: only this command needs it.
    from pydantic import TypeAdapter, json_schema

    class SchemaWritten(json_schema.GenerateJsonSchema):
        """A schema of what is written: fields with defaults are there, too."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
            """A title would only repeat the name."""
            return False

        def default_schema(self, schema: Any) -> Any:
            return self.generate_inner(schema["schema"])

        def field_is_required(self, field: Any, total: bool) -> bool:
            # Of a Document only what may be missing has a default.
            return field["type"] != "model-field" or bool(super().field_is_required(field, total))

    model = _Models().type_of(printed.find())
    tree = TypeAdapter(model).json_schema(mode="serialization", schema_generator=SchemaWritten)
    which = "each line of " if printed.is_line else ""
    return {"$schema": DIALECT, "$comment": f"{which}rmqlite {name} --json", **tree}


def _documents(command: Any, path: str) -> Iterator[tuple[str, Printed]]:
    """The commands that have a document, by their words."""
    for name, each in getattr(command, "commands", {}).items():
        yield from _documents(each, f"{path} {name}".strip())
    printed = getattr(command.callback, DOCUMENT, None)
    if printed is not None:
        yield path, printed


class _Models:
    """Types for pydantic; a Document becomes a model, one for all its uses."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def type_of(self, kind: Any) -> Any:
        """kind with a model in place of each Document in it."""
        if isinstance(kind, Document):
            if id(kind) not in self._known:
                self._known[id(kind)] = self._model(kind)
            return self._known[id(kind)]
        if isinstance(kind, Either):
            return reduce(or_, map(self.type_of, kind.kinds))
        if get_origin(kind) in (list, dict):
            return GenericAlias(get_origin(kind), tuple(map(self.type_of, get_args(kind))))
        return kind

    def _model(self, document: Document) -> Any:
        from pydantic import create_model

        return create_model(document.name, __doc__=_about(document), **self._fields(document))

    def _fields(self, document: Document) -> dict[str, Any]:
        """Each field's type, and ... or, if it may be missing, a default."""
        of = _loaded(document.of)
        if isinstance(of, Document):
            found = self._fields(of)
        else:
            found = {name: (kind, ...) for name, kind in get_type_hints(of or object).items()}
        kept = {name: each for name, each in found.items() if name not in document.without}
        own = {name: (self.type_of(kind), ...) for name, kind in document.fields.items()}
        missing = {name: (self.type_of(kind), None) for name, kind in document.optional.items()}
        return kept | own | missing


def _about(document: Document) -> str:
    """Its sentence, and what the dataclass says of its fields."""
    of = _loaded(document.of)
    more = _about(of) if isinstance(of, Document) else getdoc(of) if of else ""
    return f"{document.about}\n\n{more}" if more else document.about


def _loaded(of: Any) -> Any:
    module, _, name = of.partition(":") if isinstance(of, str) else ("", "", "")
    return getattr(import_module(module), name) if name else of

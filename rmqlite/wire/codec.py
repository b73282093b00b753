"""Builds codecs: each writes one kind of value as one kind of protobuf message, and reads it."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from rmqlite.errors import InvalidValue

V = TypeVar("V")


ROWS_AT_ONCE: Final = 200
"""How many rows of a long answer are written in one step, which takes 1 to 3 ms."""


class Codec(NamedTuple):
    """A pair: to_pb and from_pb.

    parts: for long answers; yields messages whose bytes, one behind the other, are the answer.
    """

    pb_class: type[ProtoMessage]
    to_pb: Callable[[Any], Any]
    from_pb: Callable[[Any], Any]
    parts: Callable[[Any], Iterator[Any]] | None = None


def in_parts(whole: Codec, at_once: int = ROWS_AT_ONCE, **rows: Codec) -> Codec:
    """The same codec for long answers: first a message without some fields, then their rows.

    rows: field -> codec of one row.  protobuf joins such parts: it appends the rows of a repeated
    field.
    """

    def parts(value: Any) -> Iterator[Any]:
        yield whole.to_pb(replace(value, **dict.fromkeys(rows, ())))
        for field, row in rows.items():
            yield from _in_rows(whole.pb_class, field, getattr(value, field), row, at_once)

    return whole._replace(parts=parts)


def _in_rows(
    pb_class: type[ProtoMessage], field: str, rows: Sequence[Any], row: Codec, at_once: int
) -> Iterator[Any]:
    for begin in range(0, len(rows), at_once):
        yield pb_class(**{field: [row.to_pb(each) for each in rows[begin : begin + at_once]]})


def parsed(pb_class: Any, data: bytes) -> Any:
    """The message in these bytes.  Raises InvalidValue if they are no such message."""
    try:
        return pb_class.FromString(data)
    except DecodeError as error:
        raise not_a(pb_class, data) from error


def read(codec: Codec, data: bytes) -> Any:
    """The value in these bytes.  Raises InvalidValue if they hold no such value."""
    message = parsed(codec.pb_class, data)
    try:
        return codec.from_pb(message)
    except ValueError as error:
        raise not_a(codec.pb_class, data) from error


def not_a(pb_class: type[ProtoMessage], data: bytes) -> InvalidValue:
    """The error for bytes that are no such message."""
    rule = f"a protobuf message {pb_class.DESCRIPTOR.full_name}"
    return InvalidValue("request", f"{len(data)} bytes", rule)


def flat(value_class: type[V], pb_class: type[ProtoMessage]) -> Codec:
    """For a message whose fields are all scalars and have the names of the value's fields.

    An absent optional field is None.
    """
    return nested(value_class, pb_class)


def nested(value_class: type[V], pb_class: type[ProtoMessage], **inner: Codec | type) -> Codec:
    """For a message whose fields have the names of the value's fields, and any content.

    inner: field -> codec if it holds one or several messages, or the class of an enumeration.  If
    the message has no such field: the class of a value whose own fields are in the message.
    A repeated field is a tuple; an absent optional field is None.
    """
    by_name = pb_class.DESCRIPTOR.fields_by_name
    paths: list[str] = []
    packed: dict[int, tuple[type, int]] = {}
    for at, name in enumerate(inspect.signature(value_class).parameters):
        if name in by_name:
            paths.append(name)
        else:
            kind = inner[name]
            assert isinstance(kind, type), f"{pb_class.DESCRIPTOR.full_name} has no {name}"
            parts = tuple(inspect.signature(kind).parameters)
            paths += [f"{name}.{part}" for part in parts]
            packed[at] = (kind, len(parts))
    names = tuple([path.rpartition(".")[2] for path in paths])
    fields = [by_name[name] for name in names]
    given_of, values_of = _values_of(paths), _values_of(names)
    writers = {
        field.name: _each(of.to_pb, list) if field.is_repeated else of.to_pb
        for field in fields
        if isinstance(of := inner.get(field.name), Codec)
    }
    readers = {
        at: read
        for at, field in enumerate(fields)
        if (read := _reader_of(field, inner.get(field.name)))
    }
    optional = {
        at: field.name
        for at, field in enumerate(fields)
        if field.has_presence and field.message_type is None
    }

    def to_pb(value: V) -> ProtoMessage:
        given = dict(zip(names, given_of(value), strict=True))
        for name, write in writers.items():
            given[name] = write(given[name])
        return pb_class(**given)

    def from_pb(message: ProtoMessage) -> V:
        # Get all fields at once, then convert only those that need it: for a page of letters
        # this takes a third of the time of getting field by field.
        values = values_of(message)
        for at, read in readers.items():
            values[at] = read(values[at])
        for at, name in optional.items():
            if not message.HasField(name):
                values[at] = None
        for at, (kind, count) in packed.items():
            values[at : at + count] = [kind(*values[at : at + count])]
        return value_class(*values)

    return Codec(pb_class, to_pb, from_pb)


def _values_of(names: Sequence[str]) -> Callable[[Any], list[Any]]:
    """Reads these fields of a message or of a value, all at once."""
    get = operator.attrgetter(*names)
    return (lambda source: [*get(source)]) if len(names) > 1 else lambda source: [get(source)]


def _reader_of(field: Any, of: Codec | type | None) -> Callable[[Any], Any] | None:
    """The conversion from a field's content to the value's; None if it needs none."""
    read = of.from_pb if isinstance(of, Codec) else of
    if not field.is_repeated:
        return read
    return _each(read, tuple) if read else tuple


def _each(convert: Callable[[Any], Any], kind: type) -> Callable[[Any], Any]:
    """Converts each item of a repeated field."""
    return lambda values: kind([convert(value) for value in values])


def sequence(pb_class: type[ProtoMessage], field: str, item: Codec) -> Codec:
    """For a message with one repeated field and nothing else: tuple <-> that field."""

    def to_pb(values: Iterable[Any]) -> ProtoMessage:
        return pb_class(**{field: [item.to_pb(value) for value in values]})

    def from_pb(message: ProtoMessage) -> tuple[Any, ...]:
        return tuple([item.from_pb(each) for each in getattr(message, field)])

    def parts(values: Sequence[Any]) -> Iterator[Any]:
        return _in_rows(pb_class, field, values, item, ROWS_AT_ONCE)

    return Codec(pb_class, to_pb, from_pb, parts)


def wrapped(pb_class: type[ProtoMessage], field: str, item: Codec | None = None) -> Codec:
    """For a message with one field and nothing else, a scalar or another message."""

    def to_pb(value: Any) -> ProtoMessage:
        return pb_class(**{field: item.to_pb(value) if item else value})

    def from_pb(message: ProtoMessage) -> Any:
        inner = getattr(message, field)
        return item.from_pb(inner) if item else inner

    return Codec(pb_class, to_pb, from_pb)


def nothing(pb_class: type[ProtoMessage]) -> Codec:
    """For a message without fields; its value is None."""
    return Codec(pb_class, lambda _: pb_class(), lambda _: None)

"""Makes a codec from the types of a value's fields and the fields of a protobuf message.

A field of the value goes into the message's field of the same name, so a new field stands in two
places only: in requests/ and in the proto.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.message_factory import GetMessageClass

from rmqlite.kernel.words.errors import InvalidValue

Convert = Callable[[Any], Any]

ROWS_AT_ONCE: Final = 200
"""How many rows of a long answer are written in one step, which takes 1 to 3 ms."""


class Codec(NamedTuple):
    """A pair: to_pb and from_pb.

    parts: for long answers; yields messages whose bytes, one behind the other, are the answer.
    """

    pb_class: type[ProtoMessage]
    to_pb: Convert
    from_pb: Convert
    parts: Callable[[Any], Iterator[Any]] | None = None


class _Field(NamedTuple):
    """A field of a message that is used, and the field of the value.

    path: of the value's field, such as "queue.topic".  write, read: from the value's content to
    the message's, and back; None if it stays as it is.  row, at_once: if it holds several
    messages, what writes one, and how many are written in one step.
    """

    path: str
    name: str
    write: Convert | None = None
    read: Convert | None = None
    is_optional: bool = False
    row: Convert | None = None
    at_once: int = ROWS_AT_ONCE


class Codecs:
    """Makes codecs.

    by_hand: for values that no rule of this module covers; the codec of a dict converts a whole
    repeated field.  at_once: class of a row -> how many are written in one step, if it is not
    ROWS_AT_ONCE.
    """

    def __init__(
        self,
        by_hand: Mapping[Any, Codec],
        at_once: Mapping[Any, int],
    ) -> None:
        self._by_hand = by_hand
        self._at_once = at_once
        self._made: dict[tuple[Any, type[ProtoMessage]], Codec] = {}

    def of(self, kind: Any, pb_class: type[ProtoMessage]) -> Codec:
        """The codec for values of this type in such messages.

        A message without fields is None.  The only field of a message holds the whole value if
        that has no fields of its own, or if the field is one message.
        """
        by_hand = self._by_hand.get(kind)
        if by_hand is not None and by_hand.pb_class is pb_class:
            return by_hand
        codec = self._made.get((kind, pb_class))
        if codec is None:
            codec = self._made[kind, pb_class] = self._make(kind, pb_class)
        return codec

    def _make(self, kind: Any, pb_class: type[ProtoMessage]) -> Codec:
        if kind is NoneType:
            assert not pb_class.DESCRIPTOR.fields, f"{pb_class.DESCRIPTOR.full_name} has fields"
            return Codec(pb_class, lambda _: pb_class(), lambda _: None)
        hints = _hints(kind)
        first, *others = pb_class.DESCRIPTOR.fields
        if not others and (not hints or (first.message_type and not first.is_repeated)):
            return _wrapped(pb_class, self._field(first.name, kind, first))
        return self._by_fields(kind, hints, pb_class)

    def _by_fields(self, kind: Any, hints: dict[str, Any], pb_class: type[ProtoMessage]) -> Codec:
        """For a message with the value's fields.

        Where the message has no such field, it has the fields of the field's value.  A repeated
        field is a tuple; an absent optional field is None.
        """
        by_name = pb_class.DESCRIPTOR.fields_by_name
        fields: list[_Field] = []
        packed: dict[int, tuple[Any, int]] = {}
        for at, (path, hint) in enumerate(hints.items()):
            if path in by_name:
                fields.append(self._field(path, hint, by_name[path]))
                continue
            inner = _hints(hint)
            assert inner, f"{pb_class.DESCRIPTOR.full_name} has no {path}"
            packed[at] = (hint, len(inner))
            fields += [self._field(f"{path}.{each}", inner[each], by_name[each]) for each in inner]
        to_pb = _writer(pb_class, fields)
        rows = [field for field in fields if field.row]
        parts = _parts_writer(pb_class, to_pb, rows) if rows else None
        return Codec(pb_class, to_pb, _reader(kind, fields, packed), parts)

    def _field(self, path: str, hint: Any, field: Any) -> _Field:
        """hint: the type of the value's field.  field: the descriptor of the message's field."""
        by_hand = self._by_hand.get(hint)
        if by_hand is not None:
            return _Field(path, field.name, by_hand.to_pb, by_hand.from_pb)
        # Of X | None and of tuple[X, ...] the X.
        item = next((each for each in get_args(hint) if each is not NoneType), hint)
        write = read = None
        if field.message_type is not None:
            _, write, read, _ = self.of(item, GetMessageClass(field.message_type))
        elif field.enum_type is not None:
            read = item
        if not field.is_repeated:
            is_optional = field.has_presence and field.message_type is None
            return _Field(path, field.name, write, read, is_optional)
        return _Field(
            path,
            field.name,
            _each(write, list) if write else None,
            _each(read, tuple) if read else tuple,
            row=write,
            at_once=self._at_once.get(item, ROWS_AT_ONCE),
        )


def _wrapped(pb_class: type[ProtoMessage], field: _Field) -> Codec:
    """For a message with one field, which holds the whole value."""
    name, write, read = field.name, field.write, field.read

    def to_pb(value: Any) -> ProtoMessage:
        return pb_class(**{name: write(value) if write else value})

    def from_pb(message: ProtoMessage) -> Any:
        inner = getattr(message, name)
        return read(inner) if read else inner

    def parts(values: Sequence[Any]) -> Iterator[Any]:
        return _in_rows(pb_class, field, values)

    return Codec(pb_class, to_pb, from_pb, parts if field.row else None)


def _writer(pb_class: type[ProtoMessage], fields: Sequence[_Field]) -> Convert:
    names = [field.name for field in fields]
    given_of = _values_of([field.path for field in fields])
    writers = {field.name: field.write for field in fields if field.write}

    def to_pb(value: Any) -> ProtoMessage:
        given = dict(zip(names, given_of(value), strict=True))
        for name, write in writers.items():
            given[name] = write(given[name])
        return pb_class(**given)

    return to_pb


def _reader(kind: Any, fields: Sequence[_Field], packed: dict[int, tuple[Any, int]]) -> Convert:
    """packed: place of a value -> its class, and how many of the fields it has."""
    values_of = _values_of([field.name for field in fields])
    readers = {at: field.read for at, field in enumerate(fields) if field.read}
    optional = {at: field.name for at, field in enumerate(fields) if field.is_optional}

    def from_pb(message: ProtoMessage) -> Any:
        # Get all fields at once, then convert only those that need it: for a page of letters
        # this takes a third of the time of getting field by field.
        values = values_of(message)
        for at, read in readers.items():
            values[at] = read(values[at])
        for at, name in optional.items():
            if not message.HasField(name):
                values[at] = None
        for at, (inner, count) in packed.items():
            values[at : at + count] = [inner(*values[at : at + count])]
        return kind(*values)

    return from_pb


def _parts_writer(
    pb_class: type[ProtoMessage], to_pb: Convert, rows: Sequence[_Field]
) -> Callable[[Any], Iterator[Any]]:
    """First a message without the rows, then these: protobuf joins them when it reads."""
    no_rows: dict[str, Any] = {field.path: () for field in rows}

    def parts(value: Any) -> Iterator[Any]:
        yield to_pb(replace(value, **no_rows))
        for field in rows:
            yield from _in_rows(pb_class, field, getattr(value, field.path))

    return parts


def _in_rows(pb_class: type[ProtoMessage], field: _Field, values: Sequence[Any]) -> Iterator[Any]:
    assert field.row is not None
    for begin in range(0, len(values), field.at_once):
        some = values[begin : begin + field.at_once]
        yield pb_class(**{field.name: [field.row(each) for each in some]})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The fields of a class and their types; none for a plain type such as str or tuple[X, ...]."""
    return get_type_hints(kind) if get_origin(kind) is None else {}


def _values_of(names: Sequence[str]) -> Callable[[Any], list[Any]]:
    """Reads these fields of a message or of a value, all at once."""
    get = operator.attrgetter(*names)
    return (lambda source: [*get(source)]) if len(names) > 1 else lambda source: [get(source)]


def _each(convert: Convert, kind: type) -> Convert:
    """Converts each item of a repeated field."""
    return lambda values: kind([convert(value) for value in values])


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

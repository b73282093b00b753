"""How one kind of value is written as one kind of protobuf message, and read back."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message as ProtoMessage

V = TypeVar("V")


class Codec(NamedTuple):
    """A pair: to_pb and from_pb."""

    pb_class: type[ProtoMessage]
    to_pb: Callable[[Any], Any]
    from_pb: Callable[[Any], Any]


def flat(value_class: type[V], pb_class: type[ProtoMessage]) -> Codec:
    """For a message whose fields are all scalars and called like the value's.

    An optional field that is absent is None.
    """
    names = tuple(inspect.signature(value_class).parameters)
    by_name = pb_class.DESCRIPTOR.fields_by_name
    optional = {at: name for at, name in enumerate(names) if by_name[name].has_presence}
    values_of = operator.attrgetter(*names) if len(names) > 1 else None

    def to_pb(value: V) -> ProtoMessage:
        return pb_class(**{name: getattr(value, name) for name in names})

    def from_pb(message: ProtoMessage) -> V:
        values = list(values_of(message)) if values_of else [getattr(message, names[0])]
        for at, name in optional.items():
            if not message.HasField(name):
                values[at] = None
        return value_class(*values)

    return Codec(pb_class, to_pb, from_pb)


def nested(value_class: type[V], pb_class: type[ProtoMessage], **inner: Codec | type) -> Codec:
    """For a message whose fields are called like the value's, whatever they hold.

    inner: for a field that is a message, or several, its codec; for an enumeration its class.
    What is repeated is a tuple, an optional field that is absent None.
    """
    names = tuple(inspect.signature(value_class).parameters)
    fields = [pb_class.DESCRIPTOR.fields_by_name[name] for name in names]

    def encoded(name: str, value: Any) -> Any:
        codec = inner.get(name)
        if not isinstance(codec, Codec):
            return value
        return [codec.to_pb(each) for each in value] if type(value) is tuple else codec.to_pb(value)

    def decoded(field: Any, message: ProtoMessage) -> Any:
        value, of = getattr(message, field.name), inner.get(field.name)
        read = of.from_pb if isinstance(of, Codec) else of
        if field.is_repeated:
            return tuple([read(each) for each in value] if read else value)
        if field.has_presence and field.message_type is None and not message.HasField(field.name):
            return None
        return read(value) if read else value

    def to_pb(value: V) -> ProtoMessage:
        return pb_class(**{name: encoded(name, getattr(value, name)) for name in names})

    def from_pb(message: ProtoMessage) -> V:
        return value_class(*[decoded(field, message) for field in fields])

    return Codec(pb_class, to_pb, from_pb)


def sequence(pb_class: type[ProtoMessage], field: str, item: Codec) -> Codec:
    """For a message that is nothing but a list: tuple <-> its one repeated field."""

    def to_pb(values: Iterable[Any]) -> ProtoMessage:
        return pb_class(**{field: [item.to_pb(value) for value in values]})

    def from_pb(message: ProtoMessage) -> tuple[Any, ...]:
        return tuple([item.from_pb(each) for each in getattr(message, field)])

    return Codec(pb_class, to_pb, from_pb)


def wrapped(pb_class: type[ProtoMessage], field: str, item: Codec | None = None) -> Codec:
    """For a message that is nothing but one field, a scalar or another message."""

    def to_pb(value: Any) -> ProtoMessage:
        return pb_class(**{field: item.to_pb(value) if item else value})

    def from_pb(message: ProtoMessage) -> Any:
        inner = getattr(message, field)
        return item.from_pb(inner) if item else inner

    return Codec(pb_class, to_pb, from_pb)


def nothing(pb_class: type[ProtoMessage]) -> Codec:
    """For a message without fields: None."""
    return Codec(pb_class, lambda _: pb_class(), lambda _: None)

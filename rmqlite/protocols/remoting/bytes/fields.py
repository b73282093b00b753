"""Values that declare how they look on the wire: names, kinds, limits; ext fields made of them.

A value class declares its fields once, with a Python name and one of these kinds; a field with a
default may be absent.  Bodies are made of such declarations, too (shapes.py).

    class PullAnswer(NamedTuple):
        next_begin_offset: I64                      on the wire nextBeginOffset
        client_id: Annotated[ClientId, Wire("clientID")]

    Fields(PullAnswer).read({"nextBeginOffset": "17", ...}).next_begin_offset == 17

Reading is the common path.  The texts of most fields recur (topics, groups, queue ids, flags),
so each field keeps the values of the last ones by their texts, and a field is one look-up.  If a
conversion fails, reading begins again, field by field, and says which one broke which rule.

The limits bound the work and the memory of one frame.  Where kernel/words/limits.py has a number
for the same thing, it is that number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from rmqlite.kernel.words.json_tree import shown
from rmqlite.kernel.words.limits import CLIENT_ID_BYTES_MAX, EXPRESSION_BYTES_MAX, SEARCH_BYTES_MAX
from rmqlite.kernel.words.names import STORED_NAME_BYTES_MAX
from rmqlite.kernel.words.visible import printable, shortened

FRAME_BYTES_MAX: Final = 16 << 20
"""The protocol's own limit, for the bytes after the length."""
HEADER_BYTES_MAX: Final = 512 << 10
"""A property string of 32,767 control characters takes 196,602 bytes in JSON."""
EXT_FIELDS_MAX: Final = 256
TEXT_BYTES_MAX: Final = 4_096
"""The length of a text that has no limit of its own."""
VALUE_BYTES_MAX: Final = 64 << 10
"""The length of a value of the name server's key-value table."""
JSON_BYTES_MAX: Final = 2 << 20
"""The length of a JSON body."""
JSON_NESTED_MAX: Final = 10_000
"""Objects and lists in a JSON body: each one takes up to 300 bytes while it is read."""
JSON_COMMAS_MAX: Final = 40_000
"""There is one before each further value, which takes up to 200 bytes while it is read."""
ODD_TOKENS_MAX: Final = 160_000
"""Texts, numbers and signs in odd JSON: one queue and its offset are 16."""
GROUPS_MAX: Final = 1_024
"""Producer groups, and consumer groups, of one client."""
TAGS_MAX: Final = 2_048
"""Tags of one subscription."""
LOCK_QUEUES_MAX: Final = 8_192
"""Queues that a client locks, or whose offsets it sends, in one call."""
BATCH_ACKS_MAX: Final = 1_024
"""Entries of one batch of acks; each is about some messages of one queue."""
BATCH_ACK_BYTES_MAX: Final = 1_024
"""The length in base64 of the bits of an entry: 6,144 offsets."""
BATCH_ACK_MESSAGES_MAX: Final = 4_096
"""Messages of all entries of a batch of acks."""
ENTRIES_MAX: Final = 1_000_000
"""Items of a list that only servers send; a client of this protocol reads them."""
BATCH_MESSAGES_MAX: Final = 65_536
"""Messages in one batch body, which are one append.  Those of RocketMQ's Java client have ids: no
more of them fit into its own limit, 4 MiB."""
SETTINGS_MAX: Final = 1_024
"""Lines of key=value in one body."""
SETTINGS_BYTES_MAX: Final = 256 << 10
T = TypeVar("T", bound=tuple[Any, ...])
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
KNOWN_MAX: Final = 256
"""How many texts a field keeps; with one more it begins again."""
KNOWN_TEXT_MAX: Final = 128
"""The length of a text that is kept."""
_TRUE: Final = frozenset({"true", "1"})


class FieldError(ValueError):
    """A field of a request or a body breaks a rule; its text is the remark of the answer, code 1.

    field: the wire name, of a body the path of the value.  value: None if there is none.
    """

    def __init__(self, field: str, value: object, rule: str) -> None:
        self.field = printable(shortened(field))
        found = " is missing" if value is None else f"={shown(value)}"
        super().__init__(f"{self.field}{found}: expected {rule}")
        self.value = value
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire name that is not the Python name in camel case."""

    name: str


@dataclass(frozen=True, slots=True)
class Bits:
    """A whole number with a sign has this many bits."""

    count: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """A text has at most so many bytes in UTF-8."""

    most: int

    @property
    def rule(self) -> str:
        return f"a text of at most {self.most} bytes"

    def holds(self, text: str) -> bool:
        length = len(text)
        return length * 4 <= self.most or (
            length <= self.most and len(text.encode("utf-8", "replace")) <= self.most
        )


@dataclass(frozen=True, slots=True)
class Count:
    """A list or a map has at most so many items."""

    most: int


I32 = Annotated[int, Bits(32)]
I64 = Annotated[int, Bits(64)]
# As long as a name on disk may be: whether a topic or a group may have it, the broker says.
Topic = Annotated[str, Bytes(STORED_NAME_BYTES_MAX)]
Group = Annotated[str, Bytes(STORED_NAME_BYTES_MAX)]
Name = Annotated[str, Bytes(STORED_NAME_BYTES_MAX)]
ClientId = Annotated[str, Bytes(CLIENT_ID_BYTES_MAX)]
# Of a message that is stored: a producer's id, or a key, may fill its whole property string.
MessageId = Annotated[str, Bytes(SEARCH_BYTES_MAX)]
Key = Annotated[str, Bytes(SEARCH_BYTES_MAX)]
Expression = Annotated[str, Bytes(EXPRESSION_BYTES_MAX)]
Value = Annotated[str, Bytes(VALUE_BYTES_MAX)]
# Of a recall: base64 of names, an instant and an id of any length.
Handle = Annotated[str, Bytes(2 * SEARCH_BYTES_MAX)]
# Whether a property string is too long, the broker says: that is answered with another code.
Properties = Annotated[str, Bytes(HEADER_BYTES_MAX)]
NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Declared:
    """One field of a value class.  default: NO_DEFAULT if the field must be there."""

    name: str
    wire: str
    annotation: Any
    notes: tuple[object, ...]
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


def declared(cls: type, defaults: dict[str, Any]) -> Iterator[Declared]:
    """The fields of a NamedTuple or a dataclass, as they are declared."""
    for name, annotation in get_type_hints(cls, include_extras=True).items():
        notes = notes_of(annotation)
        wire = next((note.name for note in notes if isinstance(note, Wire)), camel_case(name))
        yield Declared(name, wire, annotation, notes, defaults.get(name, NO_DEFAULT))


def notes_of(annotation: Any) -> tuple[object, ...]:
    """What stands beside a type: Annotated's extras, also those of a type that may be None."""
    found: tuple[object, ...] = getattr(annotation, "__metadata__", ())
    if get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            found += notes_of(part)
    return found


def camel_case(name: str) -> str:
    """queue_offset -> queueOffset."""
    first, *rest = name.split("_")
    return first + "".join([word.capitalize() for word in rest])


@dataclass(frozen=True, slots=True)
class Field:
    """One ext field.  kind: i32, i64, bool or str.  default: None also means absent."""

    name: str
    wire: str
    kind: str
    is_required: bool
    default: Any
    rule: str
    convert: Callable[[Any], Any]
    recurs: bool
    """Are there few different texts?  There are many time stamps, offsets and property strings."""


class Nothing(NamedTuple):
    """No ext fields."""


class Fields(Generic[T]):
    """Reads and writes one class in one spelling; wires: wire names by Python name."""

    def __init__(self, shape: type[T], wires: Mapping[str, str] | None = None) -> None:
        self.shape = shape
        defaults = getattr(shape, "_field_defaults", {})
        self.columns = tuple(
            _field(each, each.wire if wires is None else wires[each.name])
            for each in declared(shape, defaults)
        )
        self._read = _reader(shape, self.columns)

    def read(self, ext: Mapping[str, str]) -> T:
        """Raises FieldError."""
        get = ext.get
        try:
            return self._read(get)
        except (ValueError, TypeError, AttributeError):
            return tuple.__new__(
                self.shape, [_read(field, get(field.wire)) for field in self.columns]
            )

    def write(self, value: T) -> dict[str, str]:
        """The ext fields; a value of None is left out."""
        return {
            column.wire: item if item.__class__ is str else _written(item)
            for column, item in zip(self.columns, value, strict=True)
            if item is not None
        }


class _Known(dict[str | None, Any]):
    """The values of a field by their texts; None, if the field may be absent, has the default."""

    __slots__ = ("_convert", "_default")

    def __init__(self, field: Field) -> None:
        self._convert = field.convert
        self._default: dict[str | None, Any] = {} if field.is_required else {None: field.default}
        super().__init__(self._default)

    def __missing__(self, text: str) -> Any:
        value = self._convert(text)
        if len(text) <= KNOWN_TEXT_MAX:
            if len(self) > KNOWN_MAX:
                self.clear()
                self.update(self._default)
            self[text] = value
        return value


def _reader(shape: type[T], fields: Sequence[Field]) -> Callable[[Callable[[str], Any]], T]:
    """read(ext.get), with all fields written out as one expression.

    A loop over the 13 fields of a send takes 3.2 microseconds, this 2.0.  No text of a client
    gets into the expression.  A field that must be there and is not is None, which no converter
    takes.
    """
    names: dict[str, Any] = {"new": tuple.__new__, "shape": shape}
    parts = []
    for at, field in enumerate(fields):
        if field.recurs:
            names[f"known{at}"] = _Known(field)
            parts.append(f"known{at}[get({field.wire!r})]")
            continue
        names[f"convert{at}"], names[f"default{at}"] = field.convert, field.default
        part = f"convert{at}(get({field.wire!r}))"
        if not field.is_required:
            absent = f"(text := get({field.wire!r})) is None"
            part = f"default{at} if {absent} else convert{at}(text)"
        parts.append(part)
    read: Callable[[Callable[[str], Any]], T] = eval(
        f"lambda get: new(shape, ({''.join([f'{part},' for part in parts])}))", names
    )
    return read


def _read(field: Field, text: str | None) -> Any:
    """The careful way.  An empty text where a number is expected is as good as none."""
    if not text and (field.kind != "str" or text is None or field.is_required):
        if field.is_required:
            raise FieldError(field.wire, None, field.rule)
        return field.default
    assert text is not None
    try:
        return field.convert(text)
    except ValueError:
        raise FieldError(field.wire, text, field.rule) from None


def _written(item: object) -> str:
    return ("true" if item else "false") if isinstance(item, bool) else str(item)


def _field(each: Declared, wire: str) -> Field:
    convert: Callable[[str], Any]
    recurs = True
    kinds = get_args(each.annotation) or (each.annotation,)
    bits = next((note for note in each.notes if isinstance(note, Bits)), None)
    size = next((note for note in each.notes if isinstance(note, Bytes)), Bytes(TEXT_BYTES_MAX))
    if bits is not None:
        kind, rule = f"i{bits.count}", f"a whole {bits.count}-bit number"
        convert = _whole(bits)
        recurs = bits.count == 32
    elif bool in kinds or each.annotation is bool:
        kind, rule = "bool", "true or false"
        convert = _flag
    else:
        kind, rule = "str", size.rule
        convert = _filled(size) if each.is_required else _text(size)
        recurs = size.most <= STORED_NAME_BYTES_MAX
    default = each.default
    return Field(each.name, wire, kind, each.is_required, default, rule, convert, recurs)


def _whole(bits: Bits) -> Callable[[str], int]:
    end = 1 << (bits.count - 1)

    def convert(text: str) -> int:
        # Python's numbers may also have underscores, blanks and other scripts' digits.
        if not _WHOLE(text):
            raise ValueError
        number = int(text)
        if not -end <= number < end:
            raise ValueError
        return number

    return convert


def _flag(text: str) -> bool:
    """C++ writes 1 and 0.  As for RocketMQ, everything else that is not true is false."""
    return text != "false" and text.lower() in _TRUE


def _text(size: Bytes) -> Callable[[str], str]:
    sure = size.most // 4
    holds = size.holds

    def convert(text: str) -> str:
        if len(text) > sure and not holds(text):
            raise ValueError
        return text

    return convert


def _filled(size: Bytes) -> Callable[[str], str]:
    """The text of a field that must be there: an empty one is none."""
    convert_any = _text(size)

    def convert(text: str) -> str:
        if not text:
            raise ValueError
        return convert_any(text)

    return convert

"""Wire names, the kinds of values that requests and bodies of this protocol have, and their limits.

A value class declares its fields once, with a Python name and one of these kinds:

    queue_offset: I64                               on the wire queueOffset
    client_id: Annotated[ClientId, Wire("clientID")]

fields.py and shapes.py read these declarations; a field with a default may be absent.  The limits
bound the work and the memory of one frame.  Where kernel/words/limits.py has a number for the same
thing, it is that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

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

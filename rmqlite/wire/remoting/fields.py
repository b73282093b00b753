"""The ext fields of a request or an answer <-> a NamedTuple that declares them.

    class PullAnswer(NamedTuple):
        next_begin_offset: I64
        ...

    Fields(PullAnswer).read({"nextBeginOffset": "17", ...}).next_begin_offset == 17

Reading is the common path: it converts without looking at what may be wrong, and only if that
fails goes field by field and says which one broke which rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

from rmqlite.wire.remoting.limits import TEXT_BYTES_MAX
from rmqlite.wire.remoting.names import (
    NO_DEFAULT,
    Bits,
    Bytes,
    Declared,
    FieldError,
    declared,
)

T = TypeVar("T", bound=tuple[Any, ...])
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_SMALL: Final = {str(number): number for number in range(1_024)}
"""Nearly all numbers of a send are queue ids, flags and the like: looking them up here costs half
of converting them with all checks."""
_TRUE: Final = frozenset({"true", "1"})


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
        self._plan = tuple((each.wire, each.convert, each.default) for each in self.columns)

    def read(self, ext: Mapping[str, str]) -> T:
        """Raises FieldError."""
        get = ext.get
        try:
            # A field that must be there and is not gives None, which no converter takes.
            values = [
                default
                if (text := get(wire)) is None and default is not NO_DEFAULT
                else convert(text)
                for wire, convert, default in self._plan
            ]
        except (ValueError, TypeError, AttributeError):
            values = [_read(field, get(field.wire)) for field in self.columns]
        return tuple.__new__(self.shape, values)

    def write(self, value: T) -> dict[str, str]:
        """The ext fields; a value of None is left out."""
        return {
            column.wire: item if item.__class__ is str else _written(item)
            for column, item in zip(self.columns, value, strict=True)
            if item is not None
        }


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
    kinds = get_args(each.annotation) or (each.annotation,)
    bits = next((note for note in each.notes if isinstance(note, Bits)), None)
    size = next((note for note in each.notes if isinstance(note, Bytes)), Bytes(TEXT_BYTES_MAX))
    if bits is not None:
        kind, rule = f"i{bits.count}", f"a whole {bits.count}-bit number"
        convert = _whole(bits)
    elif bool in kinds or each.annotation is bool:
        kind, rule = "bool", "true or false"
        convert = _flag
    else:
        kind, rule = "str", size.rule
        convert = _filled(size) if each.is_required else _text(size)
    return Field(each.name, wire, kind, each.is_required, each.default, rule, convert)


def _whole(bits: Bits) -> Callable[[str], int]:
    end = 1 << (bits.count - 1)
    small = _SMALL.get

    def convert(text: str) -> int:
        number = small(text)
        if number is not None:
            return number
        number = int(text)
        if not -end <= number < end:
            raise ValueError
        # Python's numbers may also have underscores, blanks and other scripts' digits.
        if str(number) != text and not _WHOLE.fullmatch(text):
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

"""Checks the bytes of a request before they are parsed, and refuses a request over its limits.

A list of 2-byte items takes fifty times its bytes as objects, and the broker reads each text
character by character.  So this module counts items and measures texts in the wire format, in
which a length stands before each content.  It steps over contents, and ends at the first broken
limit.  It leaves bytes that are no message to the parser, which refuses them.

The format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rmqlite.features.rows import Limit
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge
from rmqlite.kernel.words.limits import TEXTS_BYTES_MAX

K = TypeVar("K", bound=Hashable)
_VARINT: Final = 0
_LENGTH: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""Wire type -> bytes; the two above are wire types, too."""
_PLAIN_TAG: Final = 0b1000_0101
"""A tag without these bits has one byte, and belongs to a varint or to a field with a length."""
_VARINT_BYTES_MAX: Final = 10
SMALL_BYTES_MAX: Final = 256
"""A request of at most this length, or such a message inside of one, is not checked: its work is
short, and a check costs as much as parsing.  The broker checks the same limits once more."""
_OTHER_FIELDS_MAX: Final = 100
"""How many fields of a request may be unknown (from a newer proto), or given twice."""
_UNLIMITED: Final = 1 << 62
_UNCOUNTED: Final = -1
_CONTINUED: Final = bytes(range(128, 256))
"""The bytes of a varint except its last one."""

_NO_LIMIT: Final = Limit()
_VARINTS: Final = (
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_ENUM,
    FieldDescriptor.TYPE_BOOL,
)


class _Rule(NamedTuple):
    """The compiled limits of a field.

    number: the number of its counter.  inner: the rules for the fields of its message.
    """

    size_max: int
    number: int
    count_max: int
    total_max: int
    is_packed: bool
    inner: Rules | None
    field: str
    limit: Limit


Rules: TypeAlias = dict[int, _Rule]
"""Tag (field number and wire type) -> rule."""
_OTHER: Final = _Rule(
    _UNLIMITED,
    _UNCOUNTED,
    _UNLIMITED,
    _UNLIMITED,
    is_packed=False,
    inner=None,
    field="",
    limit=_NO_LIMIT,
)
"""The rule for unknown fields and for single numbers."""


class _Broken(Exception):
    """These bytes are no message."""


class Bounds:
    """The limits of one kind of request.

    limits: "Message.field", or "field" of any message -> limit of each field that is repeated or
    has no fixed size.  size: the limit of the whole request.  beside: the limit of all but its
    fields of type bytes.
    """

    def __init__(
        self,
        request: Descriptor,
        limits: Mapping[str, Limit],
        *,
        size: Limit,
        beside: Limit = _NO_LIMIT,
    ) -> None:
        self._limits = limits
        self._size = size
        self._beside = beside
        self._sized: list[int] = []
        """The counters of bodies."""
        self._counters = 0
        self._fields_max = _OTHER_FIELDS_MAX
        self._rules = self._compiled(request, "", 1)

    def check(self, data: bytes) -> int:
        """How many bytes stand beside the bodies.

        Raises InvalidValue, or the error class of the broken limit.
        """
        if self._size.size is not None and len(data) > self._size.size:
            raise _too_long("request", len(data), self._size)
        if len(data) <= SMALL_BYTES_MAX:
            return len(data)
        look = _Look(data, self._fields_max, self._counters)
        with suppress(_Broken, IndexError):
            look.at(0, len(data), self._rules)
        beside = len(data) - sum([look.totals[number] for number in self._sized])
        if self._beside.size is not None and beside > self._beside.size:
            raise _too_long("request without bodies", beside, self._beside)
        return beside

    def _compiled(self, message: Descriptor, path: str, messages_max: int) -> Rules:
        """The rules of one kind of message; a request may have messages_max of them."""
        rules: Rules = {}
        self._fields_max += messages_max
        for field in message.fields:
            by_name = self._limits.get(field.name, _NO_LIMIT)
            limit = self._limits.get(f"{message.name}.{field.name}", by_name)
            name = f"{path}{field.name}"
            most = (limit.count or 1) if field.is_repeated else messages_max
            self._fields_max += most
            number = _UNCOUNTED
            if limit.count is not None or limit.total is not None:
                number = self._counters
                self._counters += 1
            if field.type == FieldDescriptor.TYPE_BYTES and limit.total is not None:
                self._sized.append(number)
            is_packed = field.is_repeated and field.is_packed
            inner = None
            if field.message_type is not None:
                inner = self._compiled(field.message_type, f"{name}.", most)
            rule = _Rule(
                _UNLIMITED if limit.size is None else limit.size,
                number,
                _UNLIMITED if limit.count is None else limit.count,
                _UNLIMITED if limit.total is None else limit.total,
                is_packed,
                inner,
                name,
                limit,
            )
            rules[field.number << 3 | _LENGTH] = rule
            if is_packed:
                assert field.type in _VARINTS, f"{name} is no varint"
                # Repeated numbers may come packed or one by one.
                rules[field.number << 3 | _VARINT] = rule._replace(is_packed=False)
        return rules


class RequestLimits(Generic[K]):
    """The limits of one broker, for the requests of all calls of a protocol.

    calls: of each the message of its requests, and the most bytes of one; None: it has bodies, and
    may be as large as a send.  refuse: makes the protocol's own error of one.
    """

    def __init__(
        self,
        config: BrokerConfig,
        fields: Mapping[str, Limit],
        calls: Mapping[K, tuple[Descriptor, int | None]],
        refuse: Callable[[InvalidValue], Exception] = lambda error: error,
    ) -> None:
        send = Limit(size=config.send_bytes_max + TEXTS_BYTES_MAX, error=MessageTooLarge)
        beside = Limit(size=TEXTS_BYTES_MAX, error=MessageTooLarge)
        self._refuse = refuse
        self._bounds: dict[K, Bounds] = {}
        for call, (request, bytes_max) in calls.items():
            if bytes_max is None:
                self._bounds[call] = Bounds(request, fields, size=send, beside=beside)
            else:
                size = Limit(size=bytes_max, error=MessageTooLarge)
                self._bounds[call] = Bounds(request, fields, size=size)

    def check(self, call: K, data: bytes) -> int:
        """Check a request's bytes before they are parsed; how many stand beside the bodies.

        Raises InvalidValue, InvalidName or MessageTooLarge, with the field, its length or count,
        and the rule; or the protocol's own error.
        """
        try:
            return self._bounds[call].check(data)
        except InvalidValue as error:
            raise self._refuse(error) from None


class _Look:
    """The check of one request."""

    __slots__ = ("_counts", "_data", "_fields_left", "_fields_max", "totals")

    def __init__(self, data: bytes, fields_max: int, counters: int) -> None:
        self._data = data
        self._fields_left = self._fields_max = fields_max
        self._counts = [0] * counters
        self.totals = [0] * counters

    def at(self, at: int, end: int, rules: Rules) -> None:
        """Check the message between two positions.  Hot: half a µs for each field."""
        data, counts, totals = self._data, self._counts, self.totals
        left = self._fields_left
        while at < end:
            left -= 1
            if left < 0:
                allowed = f"at most {self._fields_max}, which is enough for every allowed request"
                raise InvalidValue("request", "more fields", allowed)
            tag, size = data[at], data[at + 1]
            if tag & _PLAIN_TAG == 0 and size < 128:
                at += 2
            else:
                tag, size, at = _header(data, at)
            rule = rules.get(tag, _OTHER)
            size_max, number, count_max, total_max, is_packed, inner, _, _ = rule
            if size > size_max:
                raise _too_long(rule.field, size, rule.limit)
            if number >= 0:
                counts[number] += self._packed(rule, at, size) if is_packed else 1
                totals[number] += size
                if counts[number] > count_max or totals[number] > total_max:
                    raise _too_much(rule, totals[number])
            if inner is not None and SMALL_BYTES_MAX < size <= end - at:
                self._fields_left = left
                self.at(at, at + size, inner)
                left = self._fields_left
            if tag & _LENGTH:
                at += size
        if at > end:
            raise _Broken
        self._fields_left = left

    def _packed(self, rule: _Rule, at: int, size: int) -> int:
        """How many numbers a packed field holds."""
        if size > rule.count_max * _VARINT_BYTES_MAX:
            return rule.count_max + 1
        # Each number has one byte that ends it.
        return len(self._data[at : at + size].translate(None, _CONTINUED))


def _header(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag at a position, the length of the content, and where the content begins.

    A number counts as length 0: the position is then the one behind the number.  Group marks
    have no content.
    """
    tag = data[at]
    if tag & _PLAIN_TAG == 0 and tag & _LENGTH and data[at + 2] < 128:
        return tag, data[at + 1] & 127 | data[at + 2] << 7, at + 3
    tag, at = _varint(data, at)
    wire_type = tag & 7
    if wire_type == _LENGTH:
        return tag, *_varint(data, at)
    if wire_type == _VARINT:
        return tag, 0, _varint(data, at)[1]
    return tag, 0, at + _FIXED_BYTES.get(wire_type, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and where it ends."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _Broken


def _too_long(field: str, size: int, limit: Limit) -> InvalidValue:
    rule = f"at most {limit.size} bytes{_named(limit.size_key)}"
    return limit.error(field, f"{size} bytes", rule)


def _too_much(rule: _Rule, total: int) -> InvalidValue:
    limit = rule.limit
    if total > rule.total_max:
        allowed = f"at most {limit.total} bytes in one call{_named(limit.total_key)}"
        return limit.error(rule.field, f"{total} bytes", allowed)
    allowed = f"at most {limit.count} in one call{_named(limit.count_key)}"
    return limit.error(rule.field, f"more than {limit.count}", allowed)


def _named(key: str) -> str:
    return f" ({key})" if key else ""

"""Any value of requests/, made from its field types: what the round trips are fed with."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from typing import Any

from hypothesis import strategies as st

from rmqlite.kernel.words.levels import DELAY_MS_MAX, INSTANT_MS_MAX, INSTANT_MS_MIN
from rmqlite.kernel.words.message import RESERVED_PROPERTIES, Message
from rmqlite.protocols.native.bytes.messages import SendResult

TEXT = st.text(max_size=12)
TOKEN = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]),
    min_size=1,
    max_size=12,
)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PROPERTIES = st.dictionaries(
    TOKEN.filter(lambda key: key not in RESERVED_PROPERTIES), TOKEN, max_size=3
)
DELAYS = st.one_of(
    st.fixed_dictionaries({"delay_level": INT32}),
    st.fixed_dictionaries(
        {"delay": st.builds("{}{}".format, st.integers(1, 3_650), st.sampled_from("smhd"))}
    ),
    st.fixed_dictionaries({"deliver_at": st.integers(INSTANT_MS_MIN, INSTANT_MS_MAX)}),
    st.fixed_dictionaries(
        {"deliver_after": st.builds("{}ms".format, st.integers(1, DELAY_MS_MAX))}
    ),
)
MESSAGES = st.builds(
    lambda delay, **fields: Message(**fields, **delay),
    delay=DELAYS,
    topic=TEXT,
    body=st.binary(min_size=1, max_size=40),
    tags=st.one_of(st.just(""), TOKEN),
    keys=st.lists(TOKEN, max_size=3).map(tuple),
    properties=PROPERTIES,
    flag=INT32,
    message_id=st.one_of(st.just(""), TOKEN),
    max_reconsume_times=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Message: MESSAGES,
    type(None): st.none(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    str: TEXT,
    bytes: st.binary(max_size=40),
}
_WIDE = ("_ms", "offset", "offsets", "epoch", "_bytes")
_COUNTS_OF_STATUS = ("sent", "delivered", "retried", "dead", "parked_polls", "pending")


def any_value(kind: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values of a type; integers are as wide as the proto says that a field so called is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is int:
        return INT64 if _is_wide(name) else INT32
    if origin in (typing.Union, types.UnionType):
        return st.one_of([any_value(each, name) for each in arguments])
    if origin is tuple and arguments:
        return st.lists(any_value(arguments[0], name), max_size=3).map(tuple)
    if isinstance(origin, type) and issubclass(origin, typing.Mapping):
        return st.dictionaries(
            any_value(arguments[0]), any_value(arguments[1], name), max_size=3
        ).map(dict)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    hints = typing.get_type_hints(kind)
    fields = {name: any_value(hints[name], name) for name in inspect.signature(kind).parameters}
    if kind is SendResult:
        # All messages of one answer were stored by the broker that answers.
        fields["store_host"] = st.just("10.0.0.2:10911")
    return st.builds(kind, **fields)


def _is_wide(name: str) -> bool:
    # max_bytes of a pull is the one size that travels in 32 bits.
    return name != "max_bytes" and (name.endswith(_WIDE) or name in _COUNTS_OF_STATUS)

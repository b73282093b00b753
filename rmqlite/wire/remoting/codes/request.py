"""A row of the table: one request, with its fields, its answer's fields, and both bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from rmqlite.wire.remoting.fields import Fields

Q = TypeVar("Q", bound=tuple[Any, ...])
A = TypeVar("A", bound=tuple[Any, ...])

EXTRAS: Final = frozenset(
    {"bname", "ReqT", "AccessKey", "Signature", "SecurityToken", "OnsChannel"}
)
"""Ext fields that clients add to any request and that no request declares: the broker name that
the client means, the mark of stream clients, and access control."""


class Party(Enum):
    """Who is asked.  The first two are one process here, on two ports."""

    BROKER = "broker"
    NAME_SERVER = "name server"
    CLIENT = "client"


class Body(Enum):
    """A body that is not the JSON of a dataclass."""

    NONE = "none"
    MESSAGE = "a message's body, or a batch of messages"
    RECORD = "one record, as it is stored"
    RECORDS = "records, as they are stored, one after the other"
    SETTINGS = "lines of key=value"
    LONGS = "numbers of 64 bits"
    REGISTRATION = "a broker's table of topics, see registration.py"


@dataclass(frozen=True, slots=True)
class Request(Generic[Q, A]):
    """fields, answer: the ext fields.  body, answer_body: a Body, or dataclasses of bodies/, the
    usual one first; the answer's are those of code 0."""

    code: int
    name: str
    asked: tuple[Party, ...]
    fields: Fields[Q]
    answer: Fields[A]
    body: Body | tuple[type, ...] = Body.NONE
    answer_body: Body | tuple[type, ...] = Body.NONE


@dataclass(frozen=True, slots=True)
class Refused:
    """A request of RocketMQ that is answered with code 3."""

    code: int
    name: str
    reason: str


def request(
    code: int,
    name: str,
    fields: type[Q],
    answer: type[A],
    *,
    asked: tuple[Party, ...] = (Party.BROKER,),
    wires: Mapping[str, str] | None = None,
    body: Body | type | tuple[type, ...] = Body.NONE,
    answer_body: Body | type = Body.NONE,
) -> Request[Q, A]:
    """wires: short names of the fields."""
    return Request(
        code,
        name,
        asked,
        Fields(fields, wires),
        Fields(answer),
        (body,) if isinstance(body, type) else body,
        (answer_body,) if isinstance(answer_body, type) else answer_body,
    )

"""A row of the table: one request, with its fields, its answer's fields, and both bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from rmqlite.protocols.remoting.bytes.fields import Fields, Nothing

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


NAME_SERVER: Final = (Party.NAME_SERVER,)
CLIENT: Final = (Party.CLIENT,)
RELAYED: Final = (Party.BROKER, Party.CLIENT)


class Body(Enum):
    """A body that is not the JSON of a dataclass."""

    NONE = "none"
    MESSAGE = "a message's body, or a batch of messages"
    RECORD = "one record, as it is stored"
    RECORDS = "records, as they are stored, one after the other"
    SETTINGS = "lines of key=value"
    LONGS = "numbers of 64 bits"
    RELAYED = "JSON that is passed on as it came"
    REGISTRATION = "a broker's table of topics, see registration.py"


@dataclass(frozen=True, slots=True)
class RemotingRequest(Generic[Q, A]):
    """fields, answer: the ext fields.  body, answer_body: a Body, or dataclasses, the
    usual one first; the answer's are those of code 0."""

    code: int
    asked: tuple[Party, ...]
    fields: Fields[Q]
    answer: Fields[A]
    body: Body | tuple[type, ...] = Body.NONE
    answer_body: Body | tuple[type, ...] = Body.NONE


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request of RocketMQ that is answered with code 3."""

    code: int
    name: str
    reason: str


class _More(TypedDict, total=False):
    """asked: the broker, unless it says more.  wires: short names of the fields."""

    asked: tuple[Party, ...]
    wires: Mapping[str, str]
    body: Body | type | tuple[type, ...]
    answer_body: Body | type


@overload
def request(code: int, **more: Unpack[_More]) -> RemotingRequest[Nothing, Nothing]: ...


@overload
def request(code: int, fields: type[Q], **more: Unpack[_More]) -> RemotingRequest[Q, Nothing]: ...


@overload
def request(
    code: int, fields: type[Q], answer: type[A], **more: Unpack[_More]
) -> RemotingRequest[Q, A]: ...


def request(
    code: int, fields: type[Any] = Nothing, answer: type[Any] = Nothing, **more: Unpack[_More]
) -> RemotingRequest[Any, Any]:
    body, answer_body = more.get("body", Body.NONE), more.get("answer_body", Body.NONE)
    return RemotingRequest(
        code,
        more.get("asked", (Party.BROKER,)),
        Fields(fields, more.get("wires")),
        Fields(answer),
        (body,) if isinstance(body, type) else body,
        (answer_body,) if isinstance(answer_body, type) else answer_body,
    )

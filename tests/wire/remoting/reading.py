"""Reads whole commands by the table, as the broker's protocol does."""

from __future__ import annotations

from typing import Any

from rmqlite.kernel.compiled import SPAN
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.requests.broker import read_settings
from rmqlite.protocols.remoting.bytes.requests.request import Body, RemotingRequest
from rmqlite.protocols.remoting.bytes.requests.sends import SendMessage
from rmqlite.protocols.remoting.bytes.shapes import read_body


def items_of(body: bytes) -> list[BatchItem]:
    """The messages of a batch."""
    return [
        BatchItem(flag, body[begin:end], body[own_begin:own_end])
        for flag, begin, end, own_begin, own_end in SPAN.iter_unpack(read_batch(body))
    ]


def read_request(row: RemotingRequest[Any, Any], command: Command) -> tuple[Any, Any]:
    """The fields, and the body.  Raises FieldError."""
    fields = row.fields.read(command.ext)
    if isinstance(fields, SendMessage) and fields.is_batch:
        return fields, items_of(command.body)
    return fields, read_any(row.body, command.body)


def read_any(kind: Body | tuple[type, ...], body: bytes) -> Any:
    """A body of this kind.  Raises FieldError."""
    if kind is Body.SETTINGS:
        return read_settings(body)
    if isinstance(kind, Body):
        return body
    *others, last = kind
    for each in others:
        try:
            return read_body(each, body)
        except FieldError:
            continue
    return read_body(last, body)

"""JSON bodies that are too long to be read or made at once.

The entries of a table or a list are made and written some at a time, and other calls get their
turns in between.  A long body of a request is read in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from rmqlite.kernel import Steps
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.protocols.remoting.bytes.command import ResponseCode
from rmqlite.protocols.remoting.bytes.limits import FRAME_BYTES_MAX
from rmqlite.protocols.remoting.bytes.names import camel_case
from rmqlite.protocols.remoting.bytes.shapes import check_size, read_body, write_body
from rmqlite.protocols.remoting.calls import CodeRefusal

T = TypeVar("T")
READ_BYTES_MAX: Final = 32 << 10
"""So many bytes of a body are read at once, within a millisecond; the longest takes 20 ms."""
ENTRIES_A_STEP: Final = 200
"""An entry takes up to 25 µs, and each item of a table in it up to 1 µs."""
ITEMS_AN_ENTRY: Final = 25
"""So many items of tables in entries count as one more entry."""
COPIED_BYTES: Final = 1 << 20
"""After a copy of so many bytes, 0.5 ms, other calls get their turns."""
BYTES_MAX: Final = FRAME_BYTES_MAX - (64 << 10)
"""A longer body would not fit into a frame."""


async def read_large(cls: type[T], body: bytes) -> T:
    """read_body(); another thread reads a long body, whose limits are checked before.

    Raises FieldError.
    """
    if len(body) <= READ_BYTES_MAX:
        return read_body(cls, body)
    check_size(body)
    return await asyncio.to_thread(read_body, cls, body)


async def large_body(empty: Any, name: str, entries: Iterable[Any]) -> bytes:
    """The body that empty would be with these entries in the field of that name.

    empty: a value of a body's class; its field is an empty table or list.  entries: pairs of
    key and value for a table.  Raises Refusal for a body that no frame can hold.
    """
    return await done_in_turns(_written(empty, name, entries))


def _written(empty: Any, name: str, entries: Iterable[Any]) -> Steps[bytes]:
    make = type(getattr(empty, name))
    brackets = b"{}" if make is dict else b"[]"
    marker = f'"{camel_case(name)}":'.encode() + brackets
    head, found, tail = write_body(empty).partition(marker)
    assert found, "the field is empty, and its wire name is its own in camel case"
    head, tail = head + marker[:-1], brackets[1:] + tail
    items = iter(entries)
    parts: list[bytes] = []
    size = 0
    while some := make(_of_a_step(items)):
        if parts:
            yield
        parts.append(write_body(replace(empty, **{name: some}))[len(head) : -len(tail)])
        size += len(parts[-1])
        if size > BYTES_MAX:
            raise CodeRefusal(
                ResponseCode.SYSTEM_ERROR, f"the answer has more than {BYTES_MAX} bytes"
            )
    if size > COPIED_BYTES:
        yield
    body = b"".join([head, b",".join(parts), tail])
    if size > COPIED_BYTES:
        yield
    return body


def _of_a_step(items: Iterator[Any]) -> Iterator[Any]:
    """The entries that are made and written without a turn for other calls."""
    left = ENTRIES_A_STEP
    for item in items:
        yield item
        left -= 1
        if isinstance(item, tuple) and isinstance(item[-1], dict):
            left -= len(item[-1]) // ITEMS_AN_ENTRY
        if left <= 0:
            return

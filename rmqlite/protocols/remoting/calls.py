"""Finds the handler of each request, who has sent it, and the response code of each error.

Accounts are those of RocketMQ 4.x's ACL (remoting reference §6.1).  Unlike in RocketMQ, a batch and
a reply need the right to publish, as a single send does, a failed message needs the right to read
it, and what only tools ask for needs a right, too.  Everybody gets a route: clients ask for it
first, and not all of them sign it.

A JSON body may be too long to be read or made at once: the entries of a table or a list are made
and written some at a time, and other calls get their turns in between.  A long body of a request is
read in another thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rmqlite.kernel import Steps
from rmqlite.kernel.service.access import (
    BROKER,
    CALLER,
    Access,
    Caller,
    CountedRequest,
    Limits,
    Need,
    Right,
)
from rmqlite.kernel.service.turns import Gate, done_in_turns
from rmqlite.kernel.words.errors import AccessDenied, Overloaded, RmqliteError
from rmqlite.protocols.remoting.bytes.command import ACCESS_KEY, Command, ResponseCode, is_signed
from rmqlite.protocols.remoting.bytes.fields import FRAME_BYTES_MAX, FieldError, camel_case
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests import REFUSED
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.bytes.requests.sends import REFUSED_SEND_EXT
from rmqlite.protocols.remoting.bytes.shapes import check_size, read_body, write_body
from rmqlite.protocols.remoting.connection import ClientConnection, NotAnswered

PROTOCOL: Final = "remoting"
"""This protocol's name in the audit log."""
_OPEN: Final = frozenset({105})
_OF_CLIENTS: Final = frozenset(
    {10, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 41, 42, 46}
    | {310, 320, 324, 325, 361, 370, 400}
    | {200050, 200051, 200052, 200053, 200054, 200055, 200151}
)
"""What producers and consumers ask for: the service knows the topic and the group."""
_OF_BROKERS: Final = frozenset({103, 104, 106, 322})
"""What other brokers ask for: brokersAllowed says which account may register; who else has the name
and which addresses there are, every account may know."""
_LATER: Final = _OF_CLIENTS | _OF_BROKERS
_LOOKING: Final = frozenset(
    {21, 26, 28, 43, 45, 60, 61, 101, 201, 202, 203, 204, 206, 208, 219, 223, 224}
    | {300, 303, 304, 305, 307, 315, 317, 319, 321, 328, 351, 352, 402}
)
"""What tools ask for and changes nothing.  Every other code needs an admin."""
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
Q = TypeVar("Q", bound=tuple[Any, ...])
S = TypeVar("S")
_ROWS: Final = "answered_rows"


class RemotingGuard:
    """Lets requests in that an account has signed."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def caller_of(self, connection: ClientConnection, command: Command) -> Caller | None:
        """Whose request this is; None without accounts.

        Raises AccessDenied.  Only a wrong signature makes the connection wait: a right one may
        also lack a right.
        """
        if self._access.accounts is None:
            connection.trust.right()
            return None
        if command.code in _OPEN:
            return BROKER
        key = command.ext.get(ACCESS_KEY, "")
        try:
            caller = self._access.caller(
                connection.address,
                key,
                partial(is_signed, command),
                protocol=PROTOCOL,
                call=command.code,
            )
        except AccessDenied:
            connection.trust.wrong(connection.go_on)
            raise
        connection.trust.right()
        if command.code not in _LATER:
            right = Right.VIEW if command.code in _LOOKING else Right.ADMIN
            need = Need(right, "", f"request code={command.code}")
            self._access.check(caller, (need,), command.code)
        return caller


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


class Call(NamedTuple, Generic[Q]):
    """A request, the connection that it came on, and its row of the table."""

    connection: ClientConnection
    command: Command
    row: RemotingRequest[Q, Any]

    def asked(self) -> Q:
        """Its fields.  Raises FieldError."""
        return self.row.fields.read(self.command.ext)

    def done(self, fields: tuple[Any, ...] | None = None, body: object = b"") -> Command:
        """The answer of code 0.  body: the value of a JSON body, or the bytes of another one."""
        return self.command.answer(
            ResponseCode.SUCCESS,
            None if fields is None else self.row.answer.write(fields),
            body if isinstance(body, bytes) else write_body(body),
        )


Method = Callable[[S, Call[Q]], Awaitable[Command | None]]
AtOnce = Callable[[Call[Any]], Command | None]
"""Answers a request that has to wait for nothing; None: its handler answers it."""


def answers(*rows: RemotingRequest[Q, Any]) -> Callable[[Method[S, Q]], Method[S, Q]]:
    """Mark the method that answers these requests; its answer is None if they get none."""

    def marked(method: Method[S, Q]) -> Method[S, Q]:
        setattr(method, _ROWS, rows)
        return method

    return marked


class Handler(NamedTuple):
    """What answers the requests of a row."""

    row: RemotingRequest[Any, Any]
    answer: Callable[[Call[Any]], Awaitable[Command | None]]


def handlers_of(*parts: object) -> dict[int, Handler]:
    """The handler of each code: the marked methods of these objects."""
    return {
        row.code: Handler(row, getattr(part, name))
        for part in parts
        for name, method in vars(type(part)).items()
        for row in getattr(method, _ROWS, ())
    }


KEEPING: Final = frozenset({14, 15, 34, 35, 38, 41, 42, 400, 200051, 200151})
"""What keeps a consumer in its group, and does not fall under the limit of other requests: its
offsets, acks, heartbeats and locks, the list of its group's members.  A client that is refused its
offset takes any error for "there is none", and begins elsewhere."""
PARKING: Final = frozenset({11, 361, 200050, 200054})
"""What may wait for long: pulls, pops, and notifications.  None of them has a body."""
BEGUN_AT_ONCE: Final = 2
"""Requests that begin in one pass of the loop, of all connections: a read may bring hundreds, and
the first step of each takes up to some milliseconds."""
AT_ONCE_S: Final = 0.01
"""For so long requests are answered at once in one pass of the loop; then they take turns."""
log = logging.getLogger(__name__)


class Gathered(Protocol):
    """Handles requests that are gathered, and answers them itself."""

    def add(
        self, connection: ClientConnection, command: Command, size: int, caller: Caller | None
    ) -> None: ...


class CodeRefusal(Exception):
    """Ends a request with a code that no error of the broker has."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


class Calls:
    """All requests of all connections."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        gathered: Mapping[int, Gathered],
        at_once: Mapping[int, AtOnce],
        guard: RemotingGuard,
        limits: Limits | None,
        gone: Sequence[Callable[[ClientConnection], None]],
    ) -> None:
        """gone: called with each connection that has ended."""
        self._handlers = handlers
        self._gathered = gathered
        self._at_once = at_once
        self._guard = guard
        self._limits = limits
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(BEGUN_AT_ONCE)
        self._at_once_until_s = 0.0
        """In this pass of the loop; 0 if it has answered none at once."""
        self.running: set[asyncio.Task[None]] = set()

    def begin(self, connection: ClientConnection, command: Command, size: int) -> None:
        gathering = self._gathered.get(command.code)
        try:
            if self._limits is None:
                caller = self._guard.caller_of(connection, command)
            else:
                caller = self._limited(self._limits, connection, command, size)
        except (AccessDenied, Overloaded) as error:
            ext = None if gathering is None else REFUSED_SEND_EXT
            connection.answer(command, size, encode(refused(command, error, ext)))
            return
        if gathering is not None:
            gathering.add(connection, command, size, caller)
            return
        handler = self._handlers.get(command.code)
        if handler is None:
            row = REFUSED.get(command.code)
            known = "" if row is None else f": {row.name}: {row.reason}"
            remark = f" request type {command.code} not supported{known}"
            unknown = command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            connection.answer(command, size, encode(unknown))
            return
        # The task inherits it.
        CALLER.set(caller)
        if command.code in self._at_once and connection.answers_at_once and self._has_time():
            frame = self._frame_at_once(Call(connection, command, handler.row))
            if frame is not None:
                connection.answer(command, size, frame)
                return
        if command.code in PARKING:
            size -= len(command.body)
            command = connection.without_body(command)
        task = self._loop.create_task(self._run(handler, connection, command, size))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    def gone(self, connection: ClientConnection) -> None:
        if self._limits is not None:
            self._limits.ended(connection)
        for each in self._gone:
            each(connection)

    def _limited(
        self, limits: Limits, connection: ClientConnection, command: Command, size: int
    ) -> Caller | None:
        """Whose request this is.  Raises AccessDenied, Overloaded."""
        request = CountedRequest(1, size, command.code in KEEPING)
        # Before the signature, so that a wrong one counts, too.
        limits.of_connection(connection.address, request)
        caller = self._guard.caller_of(connection, command)
        if caller is not None:
            limits.of_account(caller.access_key, request)
            limits.own(connection, caller.access_key)
        return caller

    def _has_time(self) -> bool:
        """May one more request be answered at once in this pass of the loop?"""
        now_s = self._loop.time()
        if not self._at_once_until_s:
            self._at_once_until_s = now_s + AT_ONCE_S
            self._loop.call_soon(self._pass_ended)
        return now_s < self._at_once_until_s

    def _pass_ended(self) -> None:
        self._at_once_until_s = 0.0

    def _frame_at_once(self, call: Call[Any]) -> bytes | None:
        """The answer to a request that has to wait for nothing."""
        try:
            answer = self._at_once[call.command.code](call)
            return None if answer is None else _framed(answer)
        except Exception as error:
            return encode(refused(call.command, error))

    async def _run(
        self, handler: Handler, connection: ClientConnection, command: Command, size: int
    ) -> None:
        frame: bytes | None = None
        try:
            await self._gate.turn()
            answer = await handler.answer(Call(connection, command, handler.row))
            if answer is not None:
                frame = _framed(answer)
        except Exception as error:
            frame = encode(refused(command, error))
        finally:
            connection.answer(command, size, frame)


def _framed(answer: Command) -> bytes:
    """An answer's frame.  Raises Refusal for one at which a client would close the connection."""
    frame = encode(answer)
    if len(frame) > _LONGEST:
        size = len(answer.body)
        remark = f"the answer has {size} bytes, more than a frame of this protocol"
        raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
    return frame


_LONGEST: Final = FRAME_BYTES_MAX + 4
_OF_A_SEND: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL})
_STORED: Final = frozenset({ResponseCode.FLUSH_DISK_TIMEOUT})
"""A client that reads it in the answer to a send takes the message id out of the answer, too;
without one Java's client throws a NullPointerException, and C++'s crashes."""


def refused(command: Command, error: Exception, ext: dict[str, str] | None = None) -> Command:
    """The answer to a request that failed."""
    if isinstance(error, CodeRefusal):
        return command.answer(error.code, ext, remark=str(error))
    if isinstance(error, NotAnswered):
        return command.answer(ResponseCode.CONSUME_MSG_TIMEOUT, ext, remark=str(error))
    if isinstance(error, RmqliteError):
        code = error.response_code
        if ext is None and code in _OF_A_SEND:
            # Only an answer to a send may say so.
            code = ResponseCode.SYSTEM_ERROR
        elif ext is not None and code in _STORED:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        return command.answer(code, ext, remark=str(error))
    if not isinstance(error, FieldError):
        log.error("a request failed code=%d", command.code, exc_info=error)
        return command.answer(ResponseCode.SYSTEM_ERROR, ext, remark="internal error, see the log")
    return command.answer(ResponseCode.SYSTEM_ERROR, ext, remark=str(error))

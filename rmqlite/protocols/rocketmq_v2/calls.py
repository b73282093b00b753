"""A request of apache.rocketmq.v2 as a message to its method, and the outcome as a status.

Each call ends well for gRPC: a refusal is a status in its answer, because that is where clients
look.  A bug of ours is logged with its stack, and the caller gets one sentence.

A client is known by its id, the account that makes a call by two entries of its gRPC metadata:

    x-mq-date-time  when the client made the call, such as 20240229T235959Z
    authorization   MQv2-HMAC-SHA1 Credential=NAME, SignedHeaders=x-mq-date-time, Signature=HEX

HEX is HMAC-SHA1(secret, date and time).  So a signature is good for every call, request and broker
with the same account, and whoever reads one can use it: only TLS hides it.  The client for Python
signs the local time and says that it is UTC, so that a signature is refused only when it is older
than a new one from any time zone can seem.  It also signs without an account: then the call counts
as not signed.
"""

from __future__ import annotations

import hmac
import re
from asyncio import to_thread
from calendar import monthrange, timegm
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, NamedTuple

from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.access import CALLER, Access, Caller, Limits
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import AccessDenied, RmqliteError
from rmqlite.kernel.words.message import unpack_host
from rmqlite.protocols.grpc.calls import (
    Context,
    Decoding,
    Enter,
    GrpcGuard,
    Handler,
    Read,
    Refuse,
    failed,
    many_answers,
    one_answer,
    peer_host,
)
from rmqlite.protocols.grpc.in_flight import InFlight, making, working
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal, refusal_of
from rmqlite.protocols.rocketmq_v2.bytes.messages import takes_long_to_read, write_message
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition
from rmqlite.protocols.rocketmq_v2.bytes.rules import client_id_of
from rmqlite.protocols.shared.signing import ACCESS_KEY_CHARS_MAX

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
ZONES_S_MAX: Final = 14 * 3_600
"""How far local time may be from UTC."""
SKEW_S_MAX: Final = 900
"""How wrong the clock of a client may be."""
_ALGORITHM: Final = "MQv2-HMAC-SHA1"
_HEADER_CHARS_MAX: Final = 1_024
_PARTS: Final = re.compile(r"([A-Za-z]{1,32})=([^,\s]*)")
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_HEX: Final = re.compile("[0-9A-Fa-f]{40}")
_FORM: Final = (
    f"{AUTHORIZATION} must be '{_ALGORITHM} Credential=NAME, SignedHeaders={DATE_TIME},"
    " Signature=HEX'"
)
PROTOCOL: Final = "rocketmq5"
"""This protocol's name in the audit log."""
CLIENT_ID: Final = "x-mq-client-id"
CLIENT_VERSION: Final = "x-mq-client-version"
KEEPING: Final = frozenset(
    rpc.path
    for rpc in (
        rpcs.HEARTBEAT,
        rpcs.TELEMETRY,
        rpcs.NOTIFY_TERMINATION,
        rpcs.ACK_MESSAGE,
        rpcs.CHANGE_INVISIBLE,
        rpcs.UPDATE_OFFSET,
        rpcs.GET_OFFSET,
    )
)
"""What keeps a consumer in its group.  Acks are among them: each one that is refused would bring
its message once more."""


class SignedMetadata(NamedTuple):
    """Who says to have made a call, and when.  Nothing is proved before is_right()."""

    access_key: str
    date_time: str
    signature: bytes

    def is_fresh(self, now_ms: int) -> bool:
        """May it be of now, with the clock of any time zone?"""
        year, month, day = map(int, (self.date_time[:4], self.date_time[4:6], self.date_time[6:8]))
        hour, minute, second = map(int, re.findall("..", self.date_time[9:15]))
        if not (year and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
            return False
        if hour > 23 or minute > 59 or second > 60:
            return False
        made_at_s = timegm((year, month, day, hour, minute, second))
        return abs(now_ms // 1_000 - made_at_s) <= ZONES_S_MAX + SKEW_S_MAX

    def __repr__(self) -> str:
        """Without the signature, because logs may get this text."""
        return f"Signed({self.access_key!r}, {self.date_time!r})"


def read_signed(metadata: Iterable[tuple[str, str | bytes]]) -> SignedMetadata | None:
    """The signature in a call's metadata; None if it is not signed.

    Raises Refusal, without the value, for an entry that is missing, damaged or given twice.
    """
    found: dict[str, str] = {}
    for key, value in metadata:
        if key in (AUTHORIZATION, DATE_TIME):
            if key in found:
                raise RocketmqRefusal(Code.UNAUTHORIZED, f"{key} must be given once, not twice")
            found[key] = value if isinstance(value, str) else ""
    if AUTHORIZATION not in found:
        return None
    access_key, signature = _read(found[AUTHORIZATION])
    if not access_key:
        return None
    date_time = found.get(DATE_TIME, "")
    # The length first: no work for a text of any length.
    if len(date_time) > 16 or not _DATE.fullmatch(date_time):
        raise RocketmqRefusal(
            Code.UNAUTHORIZED, f"{DATE_TIME} must be a time such as 20240229T235959Z"
        )
    if not _HEX.fullmatch(signature):
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    return SignedMetadata(access_key, date_time, bytes.fromhex(signature))


def is_right(signed: SignedMetadata, secret: str) -> bool:
    """Was a call signed with this secret?  Takes the same time for every answer."""
    return hmac.compare_digest(_signature(secret, signed.date_time), signed.signature)


def _signature(secret: str, date_time: str) -> bytes:
    return hmac.digest(secret.encode(), date_time.encode(), "sha1")


def _read(header: str) -> tuple[str, str]:
    """Access key and signature.  Raises Refusal."""
    algorithm, _, rest = header.partition(" ")
    if len(header) > _HEADER_CHARS_MAX or algorithm != _ALGORITHM:
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    parts: dict[str, str] = {}
    for part in rest.split(","):
        match = _PARTS.fullmatch(part.strip())
        if match is None or match[1] in parts:
            raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
        parts[match[1]] = match[2]
    # Some clients put a region behind a slash.
    access_key = parts.get("Credential", "").partition("/")[0]
    if parts.get("SignedHeaders", "").lower() != DATE_TIME:
        raise RocketmqRefusal(Code.UNAUTHORIZED, _FORM)
    if len(access_key) > ACCESS_KEY_CHARS_MAX or not access_key.isprintable():
        rule = (
            f"the Credential of {AUTHORIZATION} must be at most {ACCESS_KEY_CHARS_MAX} characters"
        )
        raise RocketmqRefusal(Code.UNAUTHORIZED, rule)
    return access_key, parts.get("Signature", "")


class ClientKey(NamedTuple):
    """Names a client: two accounts may use the same client id."""

    access_key: str
    client_id: str


class Asker(NamedTuple):
    """Who asks.

    host: packed, as records keep it.  left_ms: until the client gives up; None: it does not.
    """

    key: ClientKey
    host: bytes
    version: str
    left_ms: int | None

    @property
    def client_id(self) -> str:
        return self.key.client_id


def guard_of(access: Access, limits: Limits | None) -> GrpcGuard:
    """Lets calls in that an account has signed, within the limits."""

    def caller_of(path: str, context: Context) -> Caller:
        try:
            return _caller_of(access, path, context)
        except AccessDenied as error:
            raise RocketmqRefusal(Code.UNAUTHORIZED, str(error)) from None

    return GrpcGuard(access, limits, caller_of, KEEPING)


def asker_of(context: Context) -> Asker:
    """Raises Refusal for a client without an id."""
    found = dict(context.invocation_metadata() or ())
    client_id, version = found.get(CLIENT_ID), found.get(CLIENT_VERSION)
    caller, left_s = CALLER.get(), context.time_remaining()
    return Asker(
        ClientKey(
            caller.access_key if caller else "",
            client_id_of(client_id if isinstance(client_id, str) else None),
        ),
        peer_host(context.peer()),
        version if isinstance(version, str) else "",
        None if left_s is None else max(0, int(1_000 * left_s)),
    )


def _caller_of(access: Access, path: str, context: Context) -> Caller:
    """Raises AccessDenied."""
    address = unpack_host(peer_host(context.peer()))
    try:
        signed = read_signed(context.invocation_metadata() or ())
    except RocketmqRefusal as error:
        trusted = Caller(None, address, PROTOCOL)
        if access.is_trusted(address):
            return trusted
        raise access.denied(trusted, str(error), path) from None
    caller = access.caller(
        address,
        signed.access_key if signed else "",
        lambda secret: signed is not None and is_right(signed, secret),
        protocol=PROTOCOL,
        call=path,
    )
    # The wall clock counts: the broker's own follows no step.
    if signed is not None and caller.account is not None and not signed.is_fresh(wall_ms()):
        rule = f"{DATE_TIME} is the time of the call, in some time zone: compare the clocks"
        raise access.denied(caller, rule, path)
    return caller


One = Callable[[Any, Asker], Awaitable[Any]]
"""Turns a request into its answer.  Raises RmqliteError, Refusal."""
Many = Callable[[Any, Asker], AsyncGenerator[Any, None]]
"""Turns a request into its answers.  It is closed when a call ends before all are written."""
Reading = Decoding[RocketmqRpc[Any, Any]]
_LONG: Final = (rpcs.QUERY_ROUTE, rpcs.QUERY_ASSIGNMENT)
"""Calls whose answers are much longer than their requests."""


def one_handler(
    rpc: RocketmqRpc[Any, Any], method: One, decoding: Reading, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one answer."""

    async def answer(data: bytes, context: Context) -> bytes:
        asker, reading = asker_of(context), decoding.read(rpc, rpc.decode, data)
        del data
        if rpc in _LONG:
            request = await reading
            async with making():
                return rpc.encode(await method(request, asker))
        return rpc.encode(await method(await reading, asker))

    return one_answer(rpc.path, answer, in_flight, enter, refusing(rpc))


def many_handler(
    rpc: RocketmqRpc[Any, Any], method: Many, decoding: Reading, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one request and many answers."""

    async def talk(read: Read, context: Context) -> None:
        asker = asker_of(context)
        # In no variable: the method drops the request before it waits.
        coming = method(await decoding.read(rpc, rpc.decode, await read() or b""), asker)
        async with aclosing(coming) as answers:
            # The first one may come after a long wait.
            answer = await anext(answers, None)
            while answer is not None:
                await context.write(rpc.encode(answer))
                async with working():
                    answer = await anext(answers, None)

    return many_answers(rpc.path, talk, in_flight, enter, refusing(rpc))


async def written(into: definition.Message, record: Record, topic: str, **more: Any) -> None:
    """write_message(); a thread inflates a long body, and the loop goes on meanwhile."""
    write = partial(write_message, into, record, topic, **more)
    await to_thread(write) if takes_long_to_read(record) else write()


def refusing(rpc: RocketmqRpc[Any, Any]) -> Refuse:
    """Shows errors as answers of a call."""

    def refuse(path: str, error: Exception, _: Context) -> Sequence[bytes]:
        return (rpc.encode(rpc.answer(status=refused(path, error).status)),)

    return refuse


def no_lite_topics() -> RocketmqRefusal:
    """The refusal of whatever asks for lite topics."""
    return RocketmqRefusal(
        Code.UNSUPPORTED, "lite topics are not supported: use a topic for each of them"
    )


def refused(path: str, error: Exception) -> RocketmqRefusal:
    """How a call ends that has failed; a bug is logged."""
    if isinstance(error, RocketmqRefusal):
        return error
    return refusal_of(error if isinstance(error, RmqliteError) else failed(path, error))

"""A request of apache.rocketmq.v2 as a message to its method, and the outcome as a status.

Each call ends well for gRPC: a refusal is a status in its answer, because that is where clients
look.  A bug of ours is logged with its stack, and the caller gets one sentence.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.grpc.calls import (
    Context,
    Enter,
    Handler,
    Read,
    Refuse,
    failed,
    many_answers,
    one_answer,
)
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.grpc.unread import making, working
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal, refusal_of
from rmqlite.protocols.rocketmq_v2.bytes.limits import RocketmqLimits
from rmqlite.protocols.rocketmq_v2.bytes.messages import takes_long_to_read, write_message
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition
from rmqlite.protocols.rocketmq_v2.guard import Asker, asker_of

One = Callable[[Any, Asker], Awaitable[Any]]
"""Turns a request into its answer.  Raises RmqliteError, Refusal."""
Many = Callable[[Any, Asker], AsyncGenerator[Any, None]]
"""Turns a request into its answers.  It is closed when a call ends before all are written."""
SHORT_BYTES_MAX: Final = 16 << 10
"""Up to this length, beside bodies, a request is checked and decoded in 1 ms."""


_LONG: Final = (rpcs.QUERY_ROUTE, rpcs.QUERY_ASSIGNMENT)
"""Calls whose answers are much longer than their requests."""


class Decoding:
    """Checks the limits of requests, then decodes them."""

    def __init__(self, config: BrokerConfig) -> None:
        self._limits = RocketmqLimits(config)

    async def read(self, rpc: RocketmqRpc[Any, Any], data: bytes) -> Any:
        """Raises RmqliteError, Refusal."""
        if self._limits.check(rpc, data) <= SHORT_BYTES_MAX:
            return rpc.decode(data)
        await let_others()
        request = rpc.decode(data)
        await let_others()
        return request


def one_handler(
    rpc: RocketmqRpc[Any, Any], method: One, decoding: Decoding, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one answer."""

    async def answer(data: bytes, context: Context) -> bytes:
        asker, reading = asker_of(context), decoding.read(rpc, data)
        del data
        if rpc in _LONG:
            request = await reading
            async with making():
                return rpc.encode(await method(request, asker))
        return rpc.encode(await method(await reading, asker))

    return one_answer(rpc.path, answer, in_flight, enter, refusing(rpc))


def many_handler(
    rpc: RocketmqRpc[Any, Any], method: Many, decoding: Decoding, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one request and many answers."""

    async def talk(read: Read, context: Context) -> None:
        asker = asker_of(context)
        # In no variable: the method drops the request before it waits.
        coming = method(await decoding.read(rpc, await read() or b""), asker)
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

"""What the broker has asked a client or a name server, until that answers or is gone."""

from __future__ import annotations

import asyncio
from typing import Final

from rmqlite.wire.remoting.command import Command, server_request

ASKED_MAX: Final = 1_024
"""How many requests of the broker a client may leave without an answer."""


class NotAnswered(Exception):
    """A client or a name server did not answer a request of the broker, or is gone."""


class Asked:
    """The requests of the broker on one connection."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        """By the number of the request."""
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def request(self, code: int, ext: dict[str, str], body: bytes, *, is_one_way: bool) -> Command:
        """The next request."""
        self._opaque += 1
        return server_request(code, self._opaque, ext, body, is_one_way=is_one_way)

    async def answer_to(self, request: Command, peer: str, seconds: float) -> Command:
        """The answer to a request that is being sent.  Raises NotAnswered.

        peer: who was asked, for errors, such as "the client 10.0.0.7:4711".
        """
        waiting: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[request.opaque] = waiting
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            sentence = f"{peer} did not answer within {seconds:g} s"
            raise NotAnswered(sentence) from None
        finally:
            self._waiting.pop(request.opaque, None)
            # The error that it may hold leads back to this frame, and so to the connection.
            del waiting

    def answered(self, answer: Command) -> None:
        """An answer has come, perhaps one that nobody waits for."""
        waiting = self._waiting.pop(answer.opaque, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self, peer: str) -> None:
        """Whoever was asked is gone."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotAnswered(f"{peer} is gone"))
        self._waiting.clear()

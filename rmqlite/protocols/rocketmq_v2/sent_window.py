"""The results of recent sends: a client that has missed an answer sends its message again.

RocketMQ's clients send a message up to three times, each time with the same id, at once after an
error or when their time is over.  Here the first result answers the later ones; one that comes
while the first is still being stored waits for it.  What was refused is not remembered, so that
it can be tried again.

The window lives in memory: a message that is sent again over a restart of the broker is stored
again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.protocols.rocketmq_v2.guard import ClientKey

WINDOW_S: Final = 60.0
"""How long a result is remembered: three attempts of an ordinary client take ten seconds."""
RESULTS_MAX: Final = 65_536
"""How many of them, with about 300 bytes each; beyond it the oldest is forgotten."""
FORGOTTEN_MAX: Final = 16
"""How many old results one send forgets."""

Store = Callable[[], Coroutine[Any, Any, bytes]]
"""Stores a message, and returns its result as bytes.  Raises RmqliteError, Refusal."""


class _Result(NamedTuple):
    at_s: float
    data: bytes


class SentWindow:
    """The sends of all clients of this protocol."""

    def __init__(self, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._elapsed = elapsed
        self._results: OrderedDict[bytes, _Result] = OrderedDict()
        self._storing: dict[bytes, asyncio.Task[bytes]] = {}

    async def once(self, key: bytes, store: Store) -> bytes:
        """The result of a message with this key, which is stored unless it has been before."""
        result = self._results.get(key)
        if result is not None and self._elapsed() - result.at_s <= WINDOW_S:
            return result.data
        storing = self._storing.get(key)
        if storing is None:
            storing = self._storing[key] = asyncio.create_task(store())
            storing.add_done_callback(lambda done: self._stored(key, done))
        # The client may leave, but what becomes of its message must be known when it comes back.
        return await asyncio.shield(storing)

    def __len__(self) -> int:
        return len(self._results) + len(self._storing)

    def _stored(self, key: bytes, storing: asyncio.Task[bytes]) -> None:
        del self._storing[key]
        # Asked for, so that nothing is logged of an error for which nobody waits any more.
        if storing.cancelled() or storing.exception() is not None:
            return
        now_s = self._elapsed()
        self._results[key] = _Result(now_s, storing.result())
        self._results.move_to_end(key)
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        """Forget old results.  One send adds one, so this keeps up."""
        results = self._results
        if len(results) > RESULTS_MAX:
            results.popitem(last=False)
        for _ in range(min(FORGOTTEN_MAX, len(results))):
            if now_s - next(iter(results.values())).at_s <= WINDOW_S:
                return
            results.popitem(last=False)


def key_of(client: ClientKey, topic: str, message_id: str) -> bytes:
    """Names a message of a client.

    A message id alone is not enough: two machines can make the same one.
    """
    parts = (*client, topic, message_id)
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4) + data)
    return digest.digest()

"""What the broker still has to write on the Telemetry call of one client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rmqlite.protocols.grpc.calls import Context
from rmqlite.protocols.grpc.unread import ANSWERING

FRAMES_MAX: Final = 64
FRAMES_BYTES_MAX: Final = 8 << 20
"""How much waits for a client that does not read: a question about a transaction has its message
in it.  A single frame may be longer."""
AGAIN_S: Final = 1.0
AGAIN_MAX: Final = 30
"""How often, and how many times, a frame is written again."""


class Stream:
    """Frames in the order in which they came; many may put them, one task writes them."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._answering = ANSWERING.get()
        self._woken = asyncio.Event()
        self._again: asyncio.TimerHandle | None = None
        """The next repetition of a frame."""
        self.is_open = True

    def put(self, frame: bytes) -> bool:
        """Write a frame later; False if it never will be: the call is over, or nobody reads."""
        is_full = len(self._frames) >= FRAMES_MAX or self._bytes + len(frame) > FRAMES_BYTES_MAX
        if not self.is_open or (self._bytes and is_full) or not self._has_room(len(frame)):
            return False
        self._frames.append(frame)
        self._count(len(frame))
        self._woken.set()
        return True

    def repeat(self, frame: bytes, is_needed: Callable[[], bool]) -> None:
        """Write a frame again and again while it is needed, instead of the one until now."""
        self._repeat_later(frame, is_needed, AGAIN_MAX)

    def close(self) -> None:
        """Take no more frames; write_to() returns when it has written those that wait."""
        self.is_open = False
        self._end_repetition()
        self._woken.set()

    async def write_to(self, context: Context) -> None:
        """Write frames until close()."""
        while True:
            while self._frames:
                await self._write_next(context)
            if not self.is_open:
                return
            self._woken.clear()
            await self._woken.wait()

    # ---- inside

    async def _write_next(self, context: Context) -> None:
        size = len(self._frames[0])
        await context.write(self._frames.popleft())
        self._count(-size)

    def _has_room(self, size: int) -> bool:
        return self._answering is None or self._answering.has_room(size)

    def _count(self, more: int) -> None:
        """More bytes wait for the client, or less."""
        self._bytes += more
        if self._answering is not None:
            self._answering.hold(self._bytes)

    def _repeat_later(self, frame: bytes, is_needed: Callable[[], bool], left: int) -> None:
        self._end_repetition()
        if left and self.is_open and is_needed():
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_S, self._repeat, frame, is_needed, left)

    def _repeat(self, frame: bytes, is_needed: Callable[[], bool], left: int) -> None:
        if is_needed():
            self.put(frame)
        self._repeat_later(frame, is_needed, left - 1)

    def _end_repetition(self) -> None:
        """The loop forgets the frame at once."""
        if self._again is not None:
            self._again.cancel()
            self._again = None

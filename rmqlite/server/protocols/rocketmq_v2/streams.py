"""What the broker still has to write on the Telemetry call of one client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from rmqlite.server.protocols.grpc.calls import Context

FRAMES_MAX: Final = 64
FRAMES_BYTES_MAX: Final = 8 << 20
"""How much waits for a client that does not read: a question about a transaction has its message
in it.  A single frame may be longer."""


class Stream:
    """Frames in the order in which they came; many may put them, one task writes them."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        self.is_open = True

    def put(self, frame: bytes) -> bool:
        """Write a frame later; False if it never will be: the call is over, or nobody reads."""
        is_full = len(self._frames) >= FRAMES_MAX or self._bytes + len(frame) > FRAMES_BYTES_MAX
        if not self.is_open or (self._frames and is_full):
            return False
        self._frames.append(frame)
        self._bytes += len(frame)
        self._woken.set()
        return True

    def close(self) -> None:
        """Take no more frames; write_to() returns when it has written those that wait."""
        self.is_open = False
        self._woken.set()

    async def write_to(self, context: Context) -> None:
        """Write frames until close()."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                self._bytes -= len(frame)
                await context.write(frame)
            if not self.is_open:
                return
            self._woken.clear()
            await self._woken.wait()

"""What waits for a client that does not read is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

from rmqlite.protocols.rocketmq_v2.clients import FRAMES_BYTES_MAX, FRAMES_MAX, Stream


class Written:
    """Takes what is written."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    async def write(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        self.frames.append(frame)


def test_frames_are_written_in_their_order() -> None:
    """Also those that came before the end."""

    async def main() -> None:
        stream, written = Stream(), Written()
        context: Any = written
        writing = asyncio.create_task(stream.write_to(context))
        for number in range(10):
            assert stream.put(b"%d" % number)
            await asyncio.sleep(0)
        stream.close()
        assert not stream.put(b"late")
        await writing
        assert written.frames == [b"%d" % number for number in range(10)]

    asyncio.run(main())


def test_only_so_many_frames_wait() -> None:
    """The next one is refused, until some are written."""

    async def main() -> None:
        stream, context = Stream(), Written()
        taken = [stream.put(b"x") for _ in range(FRAMES_MAX + 1)]
        assert taken == [True] * FRAMES_MAX + [False]
        stream.close()
        taking: Any = context
        await stream.write_to(taking)
        assert len(context.frames) == FRAMES_MAX

    asyncio.run(main())


def test_only_so_many_bytes_wait() -> None:
    """A single frame may be longer: nobody could be asked about its message otherwise."""

    async def main() -> None:
        stream = Stream()
        assert stream.put(bytes(FRAMES_BYTES_MAX + 1))
        assert not stream.put(b"x")
        other = Stream()
        assert other.put(bytes(FRAMES_BYTES_MAX - 1))
        assert other.put(b"x")
        assert not other.put(b"x")

    asyncio.run(main())

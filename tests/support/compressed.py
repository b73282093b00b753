"""Bodies as the codecs of RocketMQ's clients make them, and an installation without the extra."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Final

import pytest
from lz4 import frame

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from rmqlite.kernel.words.compression import COMPRESSED

LZ4: Final = COMPRESSED | 0x100
ZSTD: Final = COMPRESSED | 0x200
ZLIB: Final = COMPRESSED | 0x300
OLD_ZLIB: Final = COMPRESSED
"""Clients before 4.9.4 name no codec."""
UNKNOWN: Final = COMPRESSED | 0x700


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, 1)


def _lz4(body: bytes) -> bytes:
    # As Java's LZ4FrameOutputStream: blocks of 4 MiB, and no length of the whole.
    made: bytes = frame.compress(body, block_size=frame.BLOCKSIZE_MAX4MB, store_size=False)
    return made


def _zstd(body: bytes) -> bytes:
    # As Java's ZstdOutputStream: the length of the whole is not known when it begins.
    stream = zstd.ZstdCompressor(level=3)
    return stream.compress(body[:1]) + stream.compress(body[1:]) + stream.flush()


COMPRESS: Final[dict[int, Callable[[bytes], bytes]]] = {
    OLD_ZLIB: _zlib,
    ZLIB: _zlib,
    LZ4: _lz4,
    ZSTD: _zstd,
}
"""For each sys flag: compresses a body for it."""
PACKAGES: Final = {LZ4: "lz4", ZSTD: "backports.zstd"}


def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, the packages of the extra cannot be imported."""
    for name in ("lz4.frame", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)

"""Stores that RocketMQ wrote, and earlier versions of rmqlite.

The archive of 4.9.8 holds `clean` (shut down), `killed` (copied while running) and
`expected.jsonl`: every queue entry of `clean` with its record, as RocketMQ decoded it.  That of
5.3.2 has timers: `clean`, `killed`, and for each a table of all its timers, with what became of
each.  Its wheels, of 38 MB of zeros, are left out.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.words.names import HALF_TOPIC

_GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
ARCHIVE: Final = _GOLDEN / "rocketmq-4.9.8.tar.xz"
TIMERS_ARCHIVE: Final = _GOLDEN / "rocketmq-5.3.2-timers.tar.xz"
GROUP: Final = "order-closer"
"""Whose retries and dead letters it holds."""
INDEX: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_hash_slots": 1_000,
    "max_index_entries": 8_000,
}
"""The settings of a broker that opens its files."""
Row = dict[str, Any]


def unpack_golden(folder: Path) -> Path:
    """Unpack the archive into a folder; where `clean`, `killed` and `expected.jsonl` are."""
    return _unpack(ARCHIVE, folder)


def unpack_timers(folder: Path, which: str) -> tuple[Path, list[Row]]:
    """Unpack the store `clean` or `killed` with timers; its folder, and its timers."""
    golden = _unpack(TIMERS_ARCHIVE, folder)
    name = "expected.jsonl" if which == "clean" else "expected-killed.jsonl"
    return golden / which, _rows_of(golden / name)


def unpack_own(folder: Path, version: str, which: str) -> Path:
    """Unpack the store `clean` or `killed` of an earlier rmqlite (golden/old_store.py made it)."""
    return _unpack(_GOLDEN / f"rmqlite-{version}.tar.xz", folder) / which


def pending_timers(rows: list[Row]) -> Iterator[tuple[Row, int]]:
    """Each timer that RocketMQ would still deliver, and when it is due at the latest.

    That is the instant that the producer named, or else the end of the slot.  Half messages,
    which RocketMQ takes for timers, are not among them.
    """
    for row in rows:
        if row["fate"] == "pending" and row["realTopic"] != HALF_TOPIC:
            asked = row["asked"]
            is_named = "TIMER_DELIVER_MS" in asked and len(asked) == 1
            named = int(asked["TIMER_DELIVER_MS"]) if is_named else 0
            yield row, named or row["timerOutMs"] + 1_000


@cache
def _decompressed(archive: Path) -> bytes:
    """Kept: two hundred tests unpack it, and most of that is this."""
    return lzma.decompress(archive.read_bytes())


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(_decompressed(archive))) as opened:
        # Python 3.11.0 to 3.11.3 know no filters; where there are some, a warning asks for one.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)
    return folder / archive.name.removesuffix(".tar.xz")


def rows(golden: Path) -> list[Row]:
    return _rows_of(golden / "expected.jsonl")


def _rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

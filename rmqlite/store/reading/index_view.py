"""The key index for readers in other processes, up to the point that its writer vouches for.

storeProgress.json has the state of the index at some physical offset of the log.  If the
files can have grown from that state, they have the keys of every record before that offset,
and a search walks only over later records.  Otherwise, for example in a store that only
RocketMQ wrote, the index may lack keys and is not used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rmqlite.errors import StoreDamaged, StoreUnavailable
from rmqlite.store.disk.files import Files
from rmqlite.store.index.index_file import Header
from rmqlite.store.index.key_index import KeyIndex


def vouched_index(
    files: Files, folder: Path, state: Mapping[str, Any] | None, log_begin: int
) -> KeyIndex | None:
    """The index, if it has every record from the log's beginning up to where it was persisted."""
    if state is None:
        return None
    try:
        slots, entries = int(state["slots"]), int(state["entries"])
        index = KeyIndex.reading(files, folder, slots=slots, entries=entries)
        there = index.headers()
        for name, *numbers in state["files"]:
            header = Header(*map(int, numbers))
            grown = there.get(folder / str(name))
            if grown is None and header.end_offset < log_begin:
                # Retention removed it, together with its records.
                continue
            if grown is None or not header.can_become(grown):
                return None
    except (StoreDamaged, StoreUnavailable, KeyError, TypeError, ValueError, struct.error):
        return None
    return index


def places_of(index: KeyIndex, topics: Iterable[str], key: str, most: int) -> list[int] | None:
    """Physical offsets of records that may have a key, ascending; None if more than `most`."""
    found: set[int] = set()
    try:
        for topic in topics:
            found.update(islice(index.find(topic, key), most + 1 - len(found)))
            if len(found) > most:
                return None
    except (StoreUnavailable, struct.error):
        # A file was removed while we read it.
        return None
    return sorted(found)

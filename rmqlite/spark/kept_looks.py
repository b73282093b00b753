"""Looks at stores whose log had to be walked, kept for the next plan.

Spark plans each load in a process of its own.  If the tables of a store do not say where its log
ends, each plan would walk the same log again.  A kept look counts only while every file of the
store has the same length and time, and the same bytes follow the log's end: RocketMQ writes through
memory, and the system may set a file's time later.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from rmqlite import __version__
from rmqlite.arrow.partitions import Place, QueueStretch
from rmqlite.arrow.planning import Look, look_at_store
from rmqlite.levels import LevelHistory, parse_levels

WALKED_BYTES_MIN: Final = 16 << 20
"""A look that walked less of the log is not kept: it takes a moment."""
_BEHIND_BYTES: Final = 16
_PLACE: Final = tuple(field.name for field in fields(Place) if field.name != "levels")


def cache_folder() -> Path:
    """Where files are that only save time."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path.home() / ".cache") / "rmqlite"


def kept_look(path: str, *, allow_loss: bool = False) -> Look:
    """As look_at_store(), which walks a log once as long as the store does not change."""
    # Import it here, as in planning.
    from rmqlite.store.reader import has_progress

    root = Path(path).absolute()
    if has_progress(root):
        # To look is faster than to ask for the time of every file.
        return look_at_store(path, allow_loss=allow_loss)
    file = cache_folder() / f"look-{hashlib.sha256(str(root).encode()).hexdigest()[:32]}.json"
    kept: object = None
    with suppress(OSError, ValueError):
        kept = json.loads(file.read_bytes())
    before = _state(root)
    if isinstance(kept, dict) and kept.get("state") == before:
        found = _look_of(kept)
        if kept["behind"] == _behind(found.place):
            return found
    found = look_at_store(path, allow_loss=allow_loss)
    is_slow = found.place.end - found.place.known_end >= WALKED_BYTES_MIN
    # What lacks something is told at each look.
    if is_slow and not found.warnings and _state(root) == before:
        with suppress(OSError):
            _keep(file, before, found)
    return found


def _state(root: Path) -> str:
    """A hash of the names, lengths and times of all files of a store, and of our version."""
    sum_ = hashlib.sha256(__version__.encode())
    for each in sorted(root.rglob("*")):
        with suppress(OSError):
            found = each.stat()
            row = (str(each), found.st_ino, found.st_size, found.st_mtime_ns)
            sum_.update(repr(row).encode())
    return sum_.hexdigest()


def _behind(place: Place) -> str:
    """The bytes that follow the log's end, where the next record would begin."""
    start = place.end - place.end % place.log_file_bytes
    try:
        with open(Path(place.root) / "commitlog" / f"{start:020d}", "rb") as log:
            log.seek(place.end - start)
            return log.read(_BEHIND_BYTES).hex()
    except FileNotFoundError:
        return ""


def _keep(file: Path, state: str, found: Look) -> None:
    place, levels = found.place, found.place.levels
    tree = {
        "state": state,
        "behind": _behind(place),
        "place": {each: getattr(place, each) for each in _PLACE},
        "levels": [(since_ms, table.text) for since_ms, table in levels.entries],
        "configured": levels.configured.text,
        "newest": found.newest_timestamp_ms,
        "files": found.files,
        "queues": found.queues,
        "topics": sorted(found.topics),
        "deleted": found.deleted_topics,
    }
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(tree))
    written.replace(file)


def _look_of(kept: dict[str, Any]) -> Look:
    entries = tuple((since_ms, parse_levels(text)) for since_ms, text in kept["levels"])
    levels = LevelHistory(entries, parse_levels(kept["configured"]))
    return Look(
        Place(**kept["place"], levels=levels),
        kept["newest"],
        tuple((start, first_ms) for start, first_ms in kept["files"]),
        tuple(QueueStretch(*queue) for queue in kept["queues"]),
        frozenset(kept["topics"]),
        tuple(kept["deleted"]),
    )

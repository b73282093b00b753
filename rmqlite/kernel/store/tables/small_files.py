"""The files that, beside the log, are the state of a store: small, and replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR

_TEMPORARY: Final = ".tmp"


def small_files(files: Files, root: Path) -> dict[str, bytes]:
    """Tables, check point, and the lock's content, which says whose the store was, by name."""
    names = [f"config/{each}" for each in files.names(root / "config")]
    found = {}
    for name in (*names, "checkpoint", "lock"):
        is_file = files.kind(root / name) == REGULAR
        data = files.read_all(root / name) if is_file else None
        if data is not None and not name.endswith(_TEMPORARY):
            found[name] = data
    return found

"""What a real master and slave of RocketMQ 4.9 sent to each other at haListenPort.

ha-stream: two connections of one slave, frame by frame.  ha-probes: what real ones answer to
frames made by hand.  slave-tables: what the slave asks for its tables, and the answers.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final

from rmqlite.features.ha.frames import HEADER

ARCHIVE: Final = Path(__file__).resolve().parents[1] / "golden" / "ha-4.9.8.tar.xz"
Row = dict[str, Any]


@cache
def captured() -> dict[str, list[Row]]:
    """Rows by the name of the capture."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            lines = file.read().decode().splitlines()
            found[PurePath(member.name).stem] = [json.loads(line) for line in lines]
    return found


def reports_of() -> list[list[int]]:
    """The reports of each connection of the slave."""
    found: dict[str, list[int]] = {}
    for row in captured()["ha-stream"]:
        if row.get("kind") == "report":
            found.setdefault(row["conn"], []).append(row["offset"])
    return [*found.values()]


def frames_of() -> list[list[bytes]]:
    """The frames that the master sent on each connection."""
    found: dict[str, list[bytes]] = {}
    for row in captured()["ha-stream"]:
        if row.get("dir") == "master->slave":
            found.setdefault(row["conn"], []).append(bytes.fromhex(row["hex"]))
    return [*found.values()]


def sent_log() -> bytes:
    """The log that the slave had in the end."""
    return b"".join([frame[HEADER.size :] for frames in frames_of() for frame in frames])

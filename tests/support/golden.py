"""Stores that RocketMQ 4.9.8 wrote.

The archive holds `clean` (shut down), `killed` (copied while running) and `expected.jsonl`:
every queue entry of `clean` with its record, as RocketMQ decoded it.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

ARCHIVE: Final = Path(__file__).resolve().parents[1] / "golden" / "rocketmq-4.9.8.tar.xz"
GROUP: Final = "order-closer"
"""Whose retries and dead letters it holds."""
INDEX: Final[dict[str, Any]] = {"max_hash_slots": 1_000, "max_index_entries": 8_000}
"""The settings of a broker that opens its index files."""
Row = dict[str, Any]


def unpack_golden(folder: Path) -> Path:
    """Unpack the archive into a folder; where `clean`, `killed` and `expected.jsonl` are."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "rocketmq-4.9.8"


def rows(golden: Path) -> list[Row]:
    lines = (golden / "expected.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]

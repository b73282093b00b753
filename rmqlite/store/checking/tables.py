"""The tables under config/: is each of them JSON, and of the shape that its reader needs?

Only what would keep a broker from starting, or mislead it, is a finding; what a table says
is compared with the log where the log knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rmqlite.bulk_requests import BulkJob
from rmqlite.errors import InvalidValue
from rmqlite.levels import LevelHistory
from rmqlite.redrive_requests import RedriveJob
from rmqlite.retry_policy import TABLE_KEY, RetryPolicy
from rmqlite.store import tables
from rmqlite.store.checking.finding import Finding
from rmqlite.store.clock_table import CLOCK_TABLE, saved_clock
from rmqlite.store.files import Files
from rmqlite.store.progress import CompletedOffsets, ScheduleProgress
from rmqlite.store.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE

UNREADABLE: Final = "unreadable-table"
_BACKUP: Final = ".bak"


def _topics(tree: tables.Tree) -> None:
    int(tree.get("dataVersion", {}).get("counter", 0))
    for row in tree.get("topicConfigTable", {}).values():
        _check_name(row["topicName"])
        _check_numbers(row["readQueueNums"], row["writeQueueNums"], row["perm"])


def _groups(tree: tables.Tree) -> None:
    int(tree.get("dataVersion", {}).get("counter", 0))
    for row in tree.get("subscriptionGroupTable", {}).values():
        _check_name(row["groupName"])
        int(row.get("retryMaxTimes", 16))
        int(row.get("retryQueueNums", 1))
        try:
            RetryPolicy.parse(row.get(TABLE_KEY, ""))
        except (InvalidValue, TypeError) as error:
            raise ValueError(f"group {row['groupName']!r}: {error}") from error


def _consumer_offsets(tree: tables.Tree) -> None:
    for offsets in tree.get("offsetTable", {}).values():
        _check_numbers(*offsets.keys(), *offsets.values())


def _delay_offsets(tree: tables.Tree) -> None:
    offsets = tree.get("offsetTable", {})
    _check_numbers(*offsets.keys(), *offsets.values())


def _progress(tree: tables.Tree) -> None:
    _check_numbers(tree["physicalOffset"], tree["newestTimestamp"], tree.get("checksum", 0))
    for queues in tree["queues"].values():
        for queue_id, (low, high) in queues.items():
            _check_numbers(queue_id, low, high)
    ScheduleProgress.from_json(tree["completed"], tree.get("pending"))


def _bulk_jobs(tree: tables.Tree) -> None:
    _check_numbers(tree.get("queueOffset", 0))
    for text in tree.get("jobs", ()):
        BulkJob.from_json(json.loads(text))


def _redrive_jobs(tree: tables.Tree) -> None:
    _check_numbers(tree.get("queueOffset", 0))
    told = [json.loads(text) for text in tree.get("jobs", ())]
    for each in told:
        RedriveJob.from_json(each["job"])
        _check_numbers(*each["at"], *each["records"], *[n for part in each["parts"] for n in part])
    sent = [each["sent"] for each in told] + list(tree.get("earlier", {}).values())
    for by_queue in sent:
        for queue_id, offsets in by_queue.items():
            _check_numbers(queue_id)
            CompletedOffsets.from_json(offsets)


def _check_name(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")


def _check_numbers(*values: Any) -> None:
    for value in values:
        if int(value) < 0:
            raise ValueError(f"{value} is negative")


_SHAPES: Final[dict[str, tuple[str, Callable[[tables.Tree], object]]]] = {
    "topics.json": ("topics", _topics),
    "subscriptionGroup.json": ("consumer groups", _groups),
    "consumerOffset.json": ("consumer offsets", _consumer_offsets),
    "deadLetterMarkers.json": ("purge markers", _consumer_offsets),
    "bulkJobs.json": ("bulk jobs", _bulk_jobs),
    "redriveJobs.json": ("redrive jobs", _redrive_jobs),
    CLOCK_TABLE: ("the clock", saved_clock),
    DELAY_OFFSET_TABLE: ("delay offsets", _delay_offsets),
    LEVELS_TABLE: ("delay levels", LevelHistory.from_json),
    PROGRESS_TABLE: ("progress", _progress),
}


def check_tables(files: Files, root: Path) -> Iterator[Finding]:
    """Every table that cannot be used; a previous generation only when there is no better."""
    folder = root / "config"
    names = files.names(folder)
    for table in sorted({name.removesuffix(_BACKUP) for name in names}):
        if table.endswith(".json"):
            is_sound = False
            for name in (table, table + _BACKUP):
                data = files.read_all(folder / name)
                if not is_sound and data and data.strip():
                    found = _problem(data, table)
                    is_sound = found is None
                    if found is not None:
                        kind = f"a table of {_SHAPES[table][0]}" if table in _SHAPES else "JSON"
                        said = f"not {kind}: {found[1]}"
                        # Opening goes on with the wall clock, and writes down that it does.
                        is_mended = table == CLOCK_TABLE
                        yield Finding(
                            *(folder / name, found[0], UNREADABLE, said), opening_mends=is_mended
                        )


def load_sound(files: Files, path: Path) -> tables.Tree | None:
    """A table, or its previous generation; None if neither can be used."""
    for candidate in (path, path.with_name(path.name + _BACKUP)):
        if is_sound(files, candidate):
            return tables.decode(files.read_all(candidate) or b"")
    return None


def is_sound(files: Files, path: Path) -> bool:
    """Is there a generation of a table, and can it be used?"""
    data = files.read_all(path)
    table = path.name.removesuffix(_BACKUP)
    return bool(data and data.strip() and _problem(data, table) is None)


def _problem(data: bytes, table: str) -> tuple[int, str] | None:
    """Where the data is no such table, and why; None when it is one."""
    try:
        tree = tables.decode(data)
        if table in _SHAPES:
            _SHAPES[table][1](tree)
    except UnicodeDecodeError as error:
        return error.start, str(error)
    except json.JSONDecodeError as error:
        return error.pos, error.msg
    except KeyError as error:
        return 0, f"{error} is missing"
    except (InvalidValue, TypeError, ValueError, AttributeError) as error:
        return 0, str(error)
    return None

"""Repairs of unusable files and tables, and of wrong queue entries.

None of them is part of the log: they are rebuilt from it, or they held settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.config.values import QUEUES_MAX
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES, PRE_BLANK
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import queue_keys
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.clock_table import CLOCK_TABLE
from rmqlite.kernel.words.names import TABLES_TOPIC
from rmqlite.store_tools.checking.file_layer import FOREIGN, LENGTH, FileLayer
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.tables import is_sound
from rmqlite.store_tools.repairing.plan import (
    ENTRIES,
    MADE,
    MOVED,
    RESIZED,
    Action,
    Change,
    Overwrite,
    Remove,
    Resize,
)

TOPICS_TABLE: Final = "topics.json"
_BACKUP: Final = ".bak"
_REMEDIES: Final = {
    "subscriptionGroup.json": "groups are made again when they are used, with default settings",
    "consumerOffset.json": "groups begin again where their consumers start, and may read"
    " messages a second time",
    CLOCK_TABLE: "the next broker goes on with the wall clock",
    DELAY_OFFSET_TABLE: "deliveries are found in the log; messages that RocketMQ delivered"
    " are delivered again",
    LEVELS_TABLE: "deliver times come from the queues, and the levels are the given ones",
    PROGRESS_TABLE: "nothing is lost: it is made again from the log",
}
_OWN: Final = "RocketMQ's own; rmqlite does not need it"


def mend_file(finding: Finding, file_bytes: int) -> Action:
    """Repair a file that keeps its folder, of the log or of a queue, from being opened."""
    path = finding.path
    place = (path, finding.position, finding.sentence)
    if finding.what == FOREIGN:
        return Action(MOVED, *place, "moved aside", (Remove(path),))
    change = (Resize(path, file_bytes),)
    if finding.what == LENGTH:
        remedy = f"{file_bytes} bytes long again; missing bytes read as zeros"
        return Action(RESIZED, *place, remedy, change)
    return Action(MADE, *place, "an empty file in its place; its content is lost", change)


def mend_table(files: Files, root: Path, finding: Finding, *, is_logged: bool = False) -> Action:
    """Replace an unusable generation of a table by the other one, if it is sound.

    is_logged: the log has all of its changes.
    """
    name = finding.path.name.removesuffix(_BACKUP)
    current = finding.path.with_name(name)
    # A finding about a table means the generation that would be read.
    is_there = finding.path.name in files.names(finding.path.parent)
    path = finding.path if is_there else current.with_name(name + _BACKUP)
    changes: list[Change] = [Remove(path)]
    other = current if path != current else current.with_name(name + _BACKUP)
    if is_sound(files, other):
        remedy = "moved aside; the previous generation takes its place"
    elif is_logged:
        remedy = "moved aside, and made again from the log"
    elif name == TOPICS_TABLE:
        tree = _topics_of(files, root)
        data = tables.encode(tree)
        changes += [Remove(current), Resize(current, len(data)), Overwrite(current, 0, data)]
        names = ", ".join(tree["topicConfigTable"]) or "none"
        remedy = f"moved aside, and made again from the existing queues: {names}"
    else:
        remedy = f"moved aside: {_REMEDIES.get(name, _OWN)}"
    return Action(MOVED, path, finding.position, finding.sentence, remedy, tuple(changes))


def clear_entries(files: FileLayer, finding: Finding, file_bytes: int) -> Action:
    """Clear queue entries that opening the store would not overwrite."""
    path = finding.path
    count = finding.size // ENTRY_BYTES
    changes: list[Change] = [Overwrite(path, finding.position, PRE_BLANK * count)]
    if not files.size_below(path):
        changes.insert(0, Resize(path, file_bytes))
    remedy = "made again from the log" if count == 1 else f"{count} entries made again from the log"
    return Action(ENTRIES, path, finding.position, finding.sentence, remedy, tuple(changes))


def forget_index(files: Files, finding: Finding) -> Action:
    """Remove the key index; opening rebuilds it from the log."""
    folder = finding.path.parent
    names = [name for name in files.names(folder) if name.isascii() and name.isdigit()]
    remedy = "the key index is moved aside, and made again from the log"
    changes = tuple(Remove(folder / name) for name in names)
    return Action(MOVED, finding.path, finding.position, finding.sentence, remedy, changes)


def forget_progress(files: Files, root: Path, wrong: str) -> Iterator[Action]:
    """Remove the progress table, so that opening begins at the log's first record.

    Yields nothing if there is no table.
    """
    folder = root / "config"
    there = [
        name for name in (PROGRESS_TABLE, PROGRESS_TABLE + _BACKUP) if name in files.names(folder)
    ]
    if there:
        changes = tuple(Remove(folder / name) for name in there)
        remedy = f"moved aside: {_REMEDIES[PROGRESS_TABLE]}"
        yield Action(MOVED, folder / there[0], 0, wrong, remedy, changes)


def _topics_of(files: Files, root: Path) -> dict[str, Any]:
    """A topics table with every topic that has queues, and their number."""
    queues: dict[str, int] = {}
    for topic, queue_id in queue_keys(files, root):
        queues[topic] = min(QUEUES_MAX, max(queues.get(topic, 0), queue_id + 1))
    for topic in (*WAIT_TOPICS, TABLES_TOPIC):
        queues.pop(topic, None)
    rows = {
        topic: {
            "order": False,
            "perm": 6,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
        for topic, count in queues.items()
    }
    return {"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": rows}

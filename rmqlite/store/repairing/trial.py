"""Counts the result of a repair on a layer that shows the store as it would be.

It refuses a plan that takes away sound records which no action names: then the plan rests on
a mistake about the store, which may be ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmqlite.errors import RepairRefused, StoreDamaged
from rmqlite.records.record import MAGIC_BYTES
from rmqlite.store.check import StoreCheck
from rmqlite.store.checking.finding import Finding
from rmqlite.store.checking.folders import FOREIGN, LENGTH
from rmqlite.store.checking.tables import UNREADABLE
from rmqlite.store.disk.files import Files, ReadOnlyFiles
from rmqlite.store.disk.regular_file import REGULAR
from rmqlite.store.disk.segments import is_numbered
from rmqlite.store.reading.snapshot import Snapshot
from rmqlite.store.reading.topic_counts import TopicCounts, count_topics, total
from rmqlite.store.repairing.plan import Action

_READ_BYTES: Final = 1 << 20
_PLACE_AT: Final = 24
"""Distance of a record's physical offset from its magic number."""
_PLACE_END: Final = _PLACE_AT + 8


def counted_before(checking: StoreCheck, root: Path, found: Sequence[Finding]) -> TopicCounts:
    """The messages that can be read of a store as it is; damage is skipped.

    found: the check's findings; unreadable tables among them are hidden in its layer.
    """
    for each in found:
        if each.what == UNREADABLE:
            checking.files.hide(each.path)
    return count_topics(_snapshot(checking, root))


def counted_after(checking: StoreCheck, root: Path) -> TopicCounts:
    """The messages that can be read after the repair.

    Raises RepairRefused if the store would not open.
    """
    try:
        snapshot = _snapshot(checking, root)
        if snapshot.damage is not None:
            raise snapshot.damage
        return count_topics(snapshot)
    except StoreDamaged as error:
        raise _refused(root, f"it would not open afterwards: {error}") from error


def check_explained(
    root: Path, actions: Sequence[Action], before: TopicCounts, after: TopicCounts
) -> None:
    """Raises RepairRefused if more messages would be gone than the actions name."""
    is_open = any(action.lost and not action.lost_messages for action in actions)
    gone = total(before.values()).messages - total(after.values()).messages
    named = sum(action.lost_messages for action in actions)
    if actions and gone > named and not is_open:
        why = f"{gone} messages would no longer be readable, but the plan names only {named}"
        raise _refused(root, why)


def check_holds_nothing(finding: Finding, file_bytes: int) -> None:
    """Raises RepairRefused if an action would remove sound records from a log file.

    This concerns findings about a foreign file, or one that is too long.
    """
    path = finding.path
    if not is_numbered(path.name) or finding.what not in (FOREIGN, LENGTH):
        return
    files = ReadOnlyFiles()
    begin = file_bytes if finding.what == LENGTH else 0
    at = _record_in(files, path, begin) if files.kind(path) == REGULAR else None
    files.close()
    if at is not None:
        why = f"a record lies where it belongs at byte {at}, and yet {finding.sentence}"
        raise _refused(path, why)


def _refused(path: Path, why: str) -> RepairRefused:
    sentence = f"{path} cannot be repaired: {why}; nothing was changed"
    return RepairRefused(sentence, field="store", value=path, rule=why)


def _snapshot(checking: StoreCheck, root: Path) -> Snapshot:
    return Snapshot(
        checking.files,
        root,
        checking.sizes,
        checking.levels.current,
        is_crashed=checking.files.read_all(root / "abort") is not None,
        skip_damaged=True,
    )


def _record_in(files: Files, path: Path, begin: int) -> int | None:
    """The first position from `begin` on in a log file where a record has its own offset."""
    size, start = files.size(path), int(path.name)
    while begin < size:
        begin = files.next_data(path, begin)
        data = files.read(path, begin, min(_READ_BYTES, size - begin))
        at = data.find(MAGIC_BYTES)
        while 4 <= at <= len(data) - _PLACE_END:
            place = int.from_bytes(data[at + _PLACE_AT : at + _PLACE_END])
            if place == start + begin + at - 4:
                return begin + at - 4
            at = data.find(MAGIC_BYTES, at + 1)
        # The next piece repeats the end of this one, for a record across the seam.
        begin += len(data) if begin + len(data) >= size else max(1, len(data) - _PLACE_END - 4)
    return None

"""Mends a damaged store: plans the repair, and carries the plan out.

A plan is made and tried out on a layer over the files: the checker looks at the store as it
would be.  Nothing changes until the plan is carried out.  Then everything that will be
overwritten or removed is first copied to a side folder, and at the end the store is opened,
which rebuilds from the log whatever follows from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import Files, ReadOnlyFiles, SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import Clock, SystemClock, local_text, wall_ms
from rmqlite.kernel.words.errors import StoreLocked, Unavailable
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.store_tools.repairing.plan import Action, Keeper, Plan, TopicCount, make, total
from rmqlite.store_tools.repairing.planning import Planning, Progress

__all__ = ["Action", "Plan", "TopicCount", "plan_repair", "repair", "total"]

SIDE_FOLDER: Final = "repaired"
REPORT: Final = "report.json"


def plan_repair(
    root: Path,
    *,
    config: BrokerConfig | None = None,
    levels: LevelTable | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The findings and the planned actions for the store at root; changes nothing.

    The arguments are StoreCheck's.  Raises StoreLocked while a broker holds the store,
    InvalidValue if levels are needed and missing, ConfigInvalid if config contradicts the
    files, RepairRefused if the plan would lose more than it names, and StoreDamaged.
    """
    files = ReadOnlyFiles()
    if files.is_locked(root / "lock"):
        raise StoreLocked(str(root))
    return Planning(root, config=config, levels=levels, progress=progress).run()


def repair(
    plan: Plan,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Path:
    """Carry out a plan and open the store once; returns the folder with the copies.

    Nobody may have written to the store since the plan was made.  Raises StoreLocked;
    StoreUnavailable and FlushFailed: make a new plan then; StoreDamaged if the store does not
    open, which would be a mistake of ours.
    """
    disk = files or SystemFiles()
    lock = disk.lock(plan.root / "lock")
    try:
        side = _side_folder(disk, plan.root)
        keeper = Keeper(disk, plan.root, side)
        kept = [
            [path for change in action.changes for path in keeper.keep(change)]
            for action in plan.actions
        ]
        disk.replace(side / REPORT, _report(plan, kept))
        for action in plan.actions:
            for change in action.changes:
                make(change, disk)
    finally:
        disk.close()
        lock.release()
    store = MessageStore(plan.config, disk, clock or SystemClock(), is_marked=False)
    try:
        # It may have places of records that are lost; the next broker makes it anew.
        store.timers.remove()
        store.close({})
    except Unavailable:
        store.release()
        raise
    return side


def _side_folder(files: Files, root: Path) -> Path:
    moment = "".join(each for each in local_text(wall_ms())[:19] if each not in "-:")
    base = f"{SIDE_FOLDER}-{moment.replace(' ', '-')}"
    there = files.names(root)
    name = next(
        name
        for name in (base, *(f"{base}-{number}" for number in range(2, len(there) + 3)))
        if name not in there
    )
    files.make_folder(root / name)
    return root / name


def _report(plan: Plan, kept: list[list[Path]]) -> bytes:
    tree: dict[str, Any] = {
        "store": str(plan.root),
        "repairedAt": local_text(wall_ms()),
        "actions": [
            action.tree(plan.root, paths) for action, paths in zip(plan.actions, kept, strict=True)
        ],
        "findings": [str(finding) for finding in plan.findings],
        "remaining": [str(finding) for finding in plan.remaining if not finding.opening_mends],
    }
    return (json.dumps(tree, indent=2) + "\n").encode()

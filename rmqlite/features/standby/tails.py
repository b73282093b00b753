"""The end of a log that the new master does not have: laid aside, and cut off.

A master that is lost may have appended what its standby never got.  When it comes back as a
standby, its log must end where both are the same.  What is behind goes into a file of its own,
below tails/ of the store, with the message ids: none of it was acknowledged, but somebody may
want to know.
"""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqlite.features.standby.role import role_of, save_role
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.pulling import Records
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.opening.file_sizes import sizes_of
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import StoreDamaged

FOLDER: Final = "tails"
KEPT: Final = ("clock.json", "consumerOffset.json", "replication.json", "archive.json")
"""What of config/ is not made of the log."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tail:
    """What was cut off: whole records from the physical offset begin up to end.

    message_ids: of messages, in the order of the log, also of those that waited.
    """

    path: Path
    begin: int
    end: int
    records: int
    cut_at_ms: int
    message_ids: tuple[str, ...]


def cut_tail(config: BrokerConfig) -> None:
    """End the log where the master's differs, if that was found out before this start.

    The opening that follows makes everything else of the log.  A crash in between does no harm:
    the next start does the rest.  Raises StoreLocked, StoreUnavailable, StoreDamaged.
    """
    role = role_of(config)
    if role.cut_at < 0:
        return
    files, root = SystemFiles(), config.store_path
    with ExitStack() as ending:
        ending.callback(files.close)
        ending.callback(files.lock(root / "lock").release)
        begin, size = role.cut_at, sizes_of(files, root, config).log_file_bytes
        commit_log = CommitLog(files, root / "commitlog", size)
        _lay_aside(files, root, commit_log, begin)
        _forget_all_but_the_log(files, root)
        commit_log.sums.begin_at(commit_log.sums.known_before(begin), begin)
        commit_log.synced_end = begin
        commit_log.cut(begin)
        for path in commit_log.paths_between(begin, begin):
            files.sync(path)
        files.sync_folder(root / "commitlog")
        save_role(config, replace(role, cut_at=-1))


def tails_of(root: Path) -> tuple[Tail, ...]:
    """What was cut off a store's log, the oldest first.  Raises StoreDamaged."""
    files, found = SystemFiles(), []
    for name in sorted(files.names(root / FOLDER)):
        path = root / FOLDER / name
        if path.suffix != ".json":
            continue
        try:
            known = json.loads(files.read_all(path) or b"")
            known["message_ids"] = tuple(known["message_ids"])
            found.append(Tail(path.with_suffix(".log"), **known))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamaged(str(path), 0, "what was cut off", str(error)) from None
    return tuple(found)


def records_in(tail: Tail) -> Records:
    """The records of a tail, which its file has one behind the other.  Raises StoreDamaged."""
    data = SystemFiles().read_all(tail.path)
    if data is None:
        raise StoreDamaged(str(tail.path), 0, f"{tail.records} records", "no file")
    return Records.whole(tail.records, data)


def _lay_aside(files: Files, root: Path, commit_log: CommitLog, begin: int) -> None:
    """Copy the records from there on, up to the last one that is sound."""
    walk = LogWalk(commit_log.segments, begin, commit_log.segments.end_position, check_bodies=True)
    found = [Record(head, window.data) for window in walk for head in window.heads]
    if not found:
        return
    folder, now_ms = root / FOLDER, wall_ms()
    files.make_folder(folder)
    path = folder / f"{begin:020d}-{now_ms}.log"
    files.replace(path, Records(found).encoded)
    ids = [each.to_message().message_id for each in found]
    about = {
        "begin": begin,
        "end": found[-1].end,
        "records": len(found),
        "cut_at_ms": now_ms,
        "message_ids": ids,
    }
    files.replace(path.with_suffix(".json"), json.dumps(about).encode())
    log.error(
        "records that the master does not have are laid aside file=%s records=%d bytes=%d",
        path,
        len(found),
        found[-1].end - begin,
    )


def _forget_all_but_the_log(files: Files, root: Path) -> None:
    for folder, kept in ((root / "config", KEPT), (root / "timers", ())):
        for name in files.names(folder):
            if not name.startswith(kept):
                files.remove(folder / name)
        if files.is_folder(folder):
            files.sync_folder(folder)

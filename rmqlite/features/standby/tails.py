"""The end of a log that the new master does not have: laid aside, and cut off.

A master that is lost may have appended what its standby never got.  When it comes back as a
standby, its log must end where both are the same.  What is behind goes into a file of its own,
below tails/ of the store, with the message ids: none of it was acknowledged, but somebody may
want to know.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqlite.features.standby.role import role_of, save_role
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.pulling import Records
from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.disk.regular_file import SMALL_FILE_BYTES_MAX
from rmqlite.kernel.store.log.log_walk import WINDOW_BYTES, LogWalk
from rmqlite.kernel.store.opening.file_sizes import sizes_of
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.tables.logged_tables import LOG_END, LOG_LACKS
from rmqlite.kernel.store.tables.tables import BACKUP, load
from rmqlite.kernel.store.timer_index import IndexDamaged, TimerIndex
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import Refused, RmqliteError, StoreDamaged
from rmqlite.kernel.words.limits import INT64_MAX

FOLDER: Final = "tails"
KEPT: Final = ("clock.json", "consumerOffset.json", "replication.json", "archive.json")
"""What of config/ is not made of the log."""
IDS_BYTES_MAX: Final = SMALL_FILE_BYTES_MAX // 2
"""Of a tail's list: a million messages and more.  Waiting for its standby, a master appends no more
than a few megabytes that the other one lacks."""
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

    The opening that follows makes everything else fit the log.  A crash in between does no harm:
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
        _forget_what_knows_it(files, root, begin)
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


def records_in(tail: Tail) -> Iterator[Record]:
    """The records of a tail, which its file has one behind the other.  Raises StoreDamaged."""
    files, begin = SystemFiles(), 0
    with ExitStack() as ending:
        ending.callback(files.close)
        size = files.size(tail.path)
        while begin < size:
            data = files.read(tail.path, begin, WINDOW_BYTES)
            length, _ = record.BLANK.unpack_from(data.ljust(BLANK_BYTES, b"\0"))
            if len(data) < length <= size - begin:
                data = files.read(tail.path, begin, length)
            at = 0
            while head := record.read_head(data, at):
                yield Record(head, data)
                at += head.size
            if not at:
                raise StoreDamaged(str(tail.path), begin, "a record", "other bytes")
            begin += at


def _lay_aside(files: Files, root: Path, commit_log: CommitLog, begin: int) -> None:
    """Copy the records from there on, up to the last one that is sound, a window at a time.

    The copy, and its list, are on disk before anything is cut.  Raises StoreUnavailable, and
    Refused for a tail whose list is too long: then nothing has changed.
    """
    now_ms = wall_ms()
    path = root / FOLDER / f"{begin:020d}-{now_ms}.log"
    walk = LogWalk(commit_log.segments, begin, commit_log.segments.end_position, check_bodies=True)
    try:
        end, ids = _copied(files, path, walk)
        if not ids:
            return
        about = {"begin": begin, "end": end, "records": len(ids), "cut_at_ms": now_ms}
        files.replace(path.with_suffix(".json"), json.dumps(about | {"message_ids": ids}).encode())
    except RmqliteError:
        files.remove(path)
        raise
    log.error(
        "records that the master does not have are laid aside file=%s records=%d bytes=%d",
        path,
        len(ids),
        end - begin,
    )


def _copied(files: Files, path: Path, walk: LogWalk) -> tuple[int, list[str]]:
    """Where the copied records end in the log, and their message ids."""
    ids, at, end, ids_bytes = list[str](), 0, walk.position, 0
    for window in walk:
        if not at:
            files.make_folder(path.parent)
            files.replace(path, b"")
        found = [Record(head, window.data) for head in window.heads]
        data = Records(found).encoded
        files.write(path, at, data)
        at, end = at + len(data), found[-1].end
        ids += [each.to_message().message_id for each in found]
        ids_bytes += sum(len(each) + 4 for each in ids[-len(found) :])
        if ids_bytes > IDS_BYTES_MAX:
            rule = f"at most {IDS_BYTES_MAX} bytes of message ids: keep the store, and begin anew"
            raise Refused(f"too much would be cut off {path.name}: {rule}", rule=rule)
    if ids:
        files.sync(path)
    return end, ids


def _forget_what_knows_it(files: Files, root: Path, begin: int) -> None:
    """Forget what was made of records from `begin` on; the opening goes on with all else.

    Every table says up to where in the log it is true.  If one knows the tail, because a persist
    had begun after it, or does not say it, because an older rmqlite wrote it, or has what the log
    lacks, all is made of the log again: that takes minutes for ten million records.
    """
    folder = root / "config"
    names = [each for each in files.names(folder) if not each.startswith(KEPT)]
    present = {each.removesuffix(BACKUP) for each in names} - {DELAY_OFFSET_TABLE}
    present.add(PROGRESS_TABLE)
    late = [each for each in sorted(present) if _true_up_to(files, folder / each) > begin]
    if late:
        log.warning("all is made of the log again, which takes long tables=%s", ",".join(late))
    # RocketMQ's file has no room for such a number, and who has storeProgress.json needs it not.
    for name in names:
        if late or name.startswith(DELAY_OFFSET_TABLE):
            files.remove(folder / name)
    # Their table is made of their queue, which will be the same up to there.
    timers = TimerIndex(files, root / "timers")
    try:
        mark = timers.open()
        knows_it = mark is not None and mark.log_end > begin
    except IndexDamaged:
        knows_it = True
    if knows_it:
        timers.remove()
    timers.close()
    for each in (folder, root / "timers"):
        if files.is_folder(each):
            files.sync_folder(each)


def _true_up_to(files: Files, path: Path) -> int:
    """The physical offset up to which a table is true; the highest one if it does not say it."""
    key = "physicalOffset" if path.name == PROGRESS_TABLE else LOG_END
    try:
        tree = load(files, path) or {}
    except StoreDamaged:
        return INT64_MAX
    end = tree.get(key)
    return end if isinstance(end, int) and LOG_LACKS not in tree else INT64_MAX

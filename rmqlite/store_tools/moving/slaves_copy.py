"""A store that a slave of RocketMQ has copied from a broker of ours: only its log counts.

The slave has made all else by itself.  It computes due times with its own messageDelayLevel, it
knows nothing that our records complete, and it copies tables apart from the log, so that they may
say that something was delivered which its log does not have.  So the log, in which every promise
is, is kept with the committed offsets, and an opening makes the rest of it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import ConsumerOffsetsTable
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import FOLDER
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.adoption import is_foreign_store
from rmqlite.kernel.store.opening.file_sizes import index_shape, sizes_of
from rmqlite.kernel.store.opening.recovery import LEVELS_TABLE, PROGRESS_TABLE, load_levels
from rmqlite.kernel.store.tables.logged_tables import LoggedTables, changes_in
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.names import TABLES_TOPIC

OFFSETS: Final = "consumerOffset.json"


def is_slaves_copy(files: Files, root: Path) -> bool:
    """Has RocketMQ made this store of our log?  Until we have opened it once."""
    return (
        is_foreign_store(files, root)
        and not files.kind(root / "config" / PROGRESS_TABLE)
        and files.is_folder(root / "consumequeue" / TABLES_TOPIC)
    )


def keep_the_log(files: Files, root: Path, given: BrokerConfig | None) -> BrokerConfig:
    """Remove what a slave has made of the log; the configuration to open it with.

    After a crash, call it again.  Raises StoreLocked, StoreUnavailable, StoreDamaged.
    """
    config = given or BrokerConfig()
    sizes, shape = sizes_of(files, root, config), index_shape(files, root, config)
    lock = files.lock(root / "lock")
    try:
        folder = root / "config"
        for name in files.names(folder):
            if not name.startswith(OFFSETS):
                remove_tree(files, folder / name)
        if not given:
            log = CommitLog(files, root / "commitlog", sizes.log_file_bytes)
            config = BrokerConfig(message_delay_level=_levels_in(files, folder, log).text)
        for queues in ("index", "timers", "consumequeue"):
            for name in files.names(root / queues):
                # It stays until the store was opened: is_slaves_copy() looks for it.
                if name != TABLES_TOPIC:
                    remove_tree(files, root / queues / name)
        files.replace(root / "abort", b"")
    finally:
        lock.release()
    lengths = {
        "store_path": root,
        "mapped_file_size_commit_log": sizes.log_file_bytes,
        "mapped_file_size_consume_queue": sizes.queue_file_bytes,
        "max_hash_slots": shape.slots,
        "max_index_entries": shape.entries,
    }
    return config.with_values(lengths) if given is None else config.model_copy(update=lengths)


def clamped_offsets(store: MessageStore) -> Tree:
    """consumerOffset.json with no offset behind the end of its queue.

    A slave copies it apart from the log: RocketMQ would skip what is sent up to such an offset.
    """
    table = store.load_table(OFFSETS, ConsumerOffsetsTable) or ConsumerOffsetsTable()
    found: dict[str, dict[int, int]] = {}
    for name, offsets in table.offset_table.items():
        topic = name.partition("@")[0]
        for queue_id, offset in offsets.items():
            queue = store.queue(topic, queue_id)
            end = queue.max_offset if queue is not None else 0
            found.setdefault(name, {})[queue_id] = min(offset, end)
    return {"offsetTable": found}


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a folder with everything in it."""
    if files.kind(path) == FOLDER:
        for name in files.names(path):
            remove_tree(files, path / name)
    files.remove(path)


def _levels_in(files: Files, folder: Path, log: CommitLog) -> LevelTable:
    """broker.conf's levels, as the log has them."""
    begin, end = log.segments.first_position, log.segments.end_position
    tables = LoggedTables(files, folder)
    for _, change in changes_in(log.segments, begin, end):
        if change is not None and change.table == LEVELS_TABLE:
            tables.put_rows(LEVELS_TABLE, change.rows)
    return load_levels(tables, BrokerConfig().levels).configured

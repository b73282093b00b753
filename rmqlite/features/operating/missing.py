"""What a store has lost if a table under config/ is not there, in sentences for the log.

A store opens without its tables.  The log has those of this version; but the offsets of groups, and
what RocketMQ or an older version had written, are gone in silence: topics of the log do not exist,
groups begin anew.  Somebody who has lost a file can still restore it now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, LEVELS_TABLE, PROGRESS_TABLE
from rmqlite.kernel.store.tables.tables import BACKUP
from rmqlite.kernel.tables import groups, offsets, topics
from rmqlite.kernel.words.names import group_of, is_retry, is_system, is_system_group

NAMED_MAX: Final = 20


def missing_tables(parts: BrokerParts) -> Iterator[str]:
    """A sentence for each loss that the opening of the store has met."""
    store = parts.store
    names = store.files_found
    for table in (topics.TABLE, groups.TABLE, offsets.TABLE, LEVELS_TABLE):
        if table not in names and table + BACKUP in names:
            yield f"config/{table} is missing, the one before it is used: config/{table}{BACKUP}"
    yield from _topics(store, parts.topics)
    yield from _groups(parts)
    waits = any(wait_queue_of(*key) > 0 for key in store.queue_keys())
    if waits and not {DELAY_OFFSET_TABLE, PROGRESS_TABLE} & names:
        yield (
            f"config/{DELAY_OFFSET_TABLE} and {PROGRESS_TABLE} are missing: what RocketMQ has"
            " delivered from delay levels is delivered again"
        )
    is_opened = PROGRESS_TABLE in names
    if is_opened and not (_has(store, LEVELS_TABLE) or store.tables.is_logged(LEVELS_TABLE)):
        yield (
            f"config/{LEVELS_TABLE} is missing: the delay levels of broker.conf are in force,"
            " also if others were set since"
        )


def _topics(store: MessageStore, table: topics.TopicTable) -> Iterator[str]:
    last: dict[str, int] = {}
    for topic, queue_id in store.queue_keys():
        queue = store.queue(topic, queue_id)
        # A deleted topic has a queue without entries; a retry topic comes with its group.
        has_messages = queue is not None and queue.min_offset < queue.max_offset
        if has_messages and not (table.get(topic) or is_system(topic) or is_retry(topic)):
            last[topic] = max(last.get(topic, 0), queue_id)
    if last:
        how = "lacks topics of the log" if _has(store, topics.TABLE) else "is missing"
        named = [f"{topic} ({highest + 1})" for topic, highest in sorted(last.items())]
        yield (
            f"config/{topics.TABLE} {how}, so that nobody can read their messages: restore it,"
            f" or create them again, each with the queues that have messages: {_list(named)}"
        )


def _groups(parts: BrokerParts) -> Iterator[str]:
    store = parts.store
    of_queues = {group_of(topic) for topic, _ in store.queue_keys()} - {None}
    known = {info.group for info in parts.groups.all()}
    lost = sorted(
        each
        for each in {*parts.offsets.groups(), *of_queues} - known
        if each and not is_system_group(each)
    )
    if lost and not _has(store, groups.TABLE):
        yield (
            f"config/{groups.TABLE} is missing, so that groups have lost their retry limits,"
            f" policies and order: {_list(lost)}"
        )
    began = sorted(each for each in known if not is_system_group(each))
    if began and PROGRESS_TABLE in store.files_found and not _has(store, offsets.TABLE):
        yield (
            f"config/{offsets.TABLE} is missing, so that groups begin anew where their consumers"
            f" say, and may get messages again or miss some: {_list(began)}"
        )


def _has(store: MessageStore, table: str) -> bool:
    return not {table, table + BACKUP}.isdisjoint(store.files_found)


def _list(named: list[str]) -> str:
    more = len(named) - NAMED_MAX
    return ", ".join(named[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")

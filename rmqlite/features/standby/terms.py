"""Terms: each start of a broker as the master, so that two histories are never taken for one.

A master that lost power may append other bytes at offsets that its standby has already.  So each
of its starts is a row of a table of the log: a number, where the log ended then, and an id that no
other start has.  Two logs with the same newest term are the same until one of them has a next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from rmqlite.features.standby.table_shapes import TERMS_TABLE, TermsTable
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.protocols.native.replication import TERMS_MAX, LogTerm

_SECTION: Final = "terms"


def terms_of(store: MessageStore) -> tuple[LogTerm, ...]:
    """All terms of a store's log, the oldest first.  Raises StoreDamaged."""
    table = store.tables.load(TERMS_TABLE, TermsTable)
    rows = sorted(table.terms.items()) if table else []
    return tuple(LogTerm(number, row.start, row.id) for number, row in rows)


def begin_term(store: MessageStore) -> None:
    """Begin a term here: durable with the next sync.  Raises what append() does."""
    known = terms_of(store)
    number = known[-1].number + 1 if known else 1
    # The first one names the log.
    gone = known[1:][: max(0, len(known) + 1 - TERMS_MAX)]
    rows = [((_SECTION, str(each.number)), None) for each in gone]
    own = {"start": store.end, "id": uuid4().hex}
    store.change_table(TERMS_TABLE, [*rows, ((_SECTION, str(number)), own)])


def common_end(
    one: Sequence[LogTerm], one_end: int, other: Sequence[LogTerm], other_end: int
) -> int:
    """The physical offset up to which two logs are the same, with these terms and ends.

    -1: nothing says that any of it is the same.
    """
    shared = {*one} & {*other}
    if not shared:
        return -1
    last = max(shared)
    next_starts = [each.start for each in (*one, *other) if each.number > last.number]
    return min([one_end, other_end, *next_starts])

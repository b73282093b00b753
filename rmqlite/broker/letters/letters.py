"""The queries about failed messages: dead letters, retries, and whole lives.

A query in steps is done when its generator returns; other calls may run at every yield.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqlite.broker.letters.dead_letters import DeadLetters
from rmqlite.broker.letters.life import Lives
from rmqlite.broker.letters.purging import Purging
from rmqlite.broker.letters.retries import Retries
from rmqlite.broker.letters.shown import Shown
from rmqlite.broker.redrive.redriven import Redriven
from rmqlite.broker.schedule.pending import Pending
from rmqlite.broker.tables.groups import GroupTable
from rmqlite.broker.tables.offsets import ConsumerOffsets
from rmqlite.broker.tables.purge_markers import PurgeMarkers
from rmqlite.store.message_store import MessageStore


class Letters:
    """The failed messages of one broker.

    redriven: the letters that jobs have sent again.  readable_end: records that end behind
    this physical offset are not shown yet.
    """

    def __init__(
        self,
        store: MessageStore,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        pending: Pending,
        markers: PurgeMarkers,
        redriven: Redriven,
        readable_end: Callable[[], int],
    ) -> None:
        shown = Shown(markers, redriven)
        self.dead = DeadLetters(store, groups, shown, redriven, readable_end)
        self.purging = Purging(store, self.dead, markers, shown, redriven)
        self.retries = Retries(store, groups, offsets, pending, readable_end)
        self.lives = Lives(store, offsets, redriven, readable_end)

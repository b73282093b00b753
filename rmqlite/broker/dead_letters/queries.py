"""The queries about failed messages: dead letters, retries, and whole histories.

A query in steps is done when its generator returns; other calls may run at every yield.
"""

from __future__ import annotations

from rmqlite.broker.dead_letters.history import Histories
from rmqlite.broker.dead_letters.listing import DeadLetters, Shown
from rmqlite.broker.dead_letters.purging import Purging
from rmqlite.broker.dead_letters.retries import Retries
from rmqlite.broker.parts import BrokerParts
from rmqlite.broker.redrive.redriven import Redriven
from rmqlite.broker.schedule.pending import Pending


class DeadLetterQueries:
    """The failed messages of one broker.

    redriven: the dead letters that jobs have sent again.
    """

    def __init__(self, broker: BrokerParts, pending: Pending, redriven: Redriven) -> None:
        store, offsets, readable_end = broker.store, broker.offsets, broker.readable_end
        shown = Shown(broker.markers, redriven)
        self.dead = DeadLetters(store, broker.groups, shown, redriven, readable_end)
        self.purging = Purging(store, self.dead, broker.markers, shown, redriven)
        self.retries = Retries(store, broker.groups, offsets, pending, readable_end)
        self.histories = Histories(store, offsets, redriven, readable_end)

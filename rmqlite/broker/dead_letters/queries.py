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

    def __init__(self, parts: BrokerParts, pending: Pending, redriven: Redriven) -> None:
        shown = Shown(parts.markers, redriven)
        self.dead = DeadLetters(parts, shown, redriven)
        self.purging = Purging(parts, self.dead, shown, redriven)
        self.retries = Retries(parts, pending)
        self.histories = Histories(parts, redriven)

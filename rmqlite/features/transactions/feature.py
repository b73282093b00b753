"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rmqlite.features.transactions.checking_back import CheckingBack
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service
from rmqlite.kernel.store.tables.tables import Tree


def _make(broker: Broker) -> Iterable[object]:
    made = Transactions(broker.parts)
    broker.drafts.plain.half_of = made.half_of
    broker.retention.oldest_half = made.halves.oldest_open

    def committed() -> Mapping[str, Tree]:
        # RocketMQ keeps the progress of transactions among the offsets of groups.
        made.halves.note_progress()
        return {}

    broker.tables_of_features.append(committed)
    yield made


def _loops(parts: ServiceParts, service: Service) -> Loops:
    return {
        "transactions": CheckingBack(
            parts.config, parts.broker, parts.commit, service[TransactionCalls]
        ).run()
    }


FEATURE: Final = Feature(make=_make, calls=(TransactionCalls,), loops=_loops)

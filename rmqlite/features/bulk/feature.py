"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.service import BulkCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    made = Bulk(broker)
    broker.tables_of_features.append(made.jobs.tree)
    yield made


FEATURE: Final = Feature(make=_make, calls=(BulkCalls,))

"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import GET_BULK_JOB, LIST_BULK_JOBS, SCHEDULE_BULK
from rmqlite.features.bulk.service import BulkCalls
from rmqlite.features.native import Limits, NativeFeature, bodies_limit
from rmqlite.features.rows import Limit
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.limits import KEYS_BYTES_MAX, PROPERTIES_BYTES_MAX

_TEXT: Final = Limit(size=PROPERTIES_BYTES_MAX, error=MessageTooLarge)


def _make(broker: Broker) -> Iterable[object]:
    made = Bulk(broker)
    broker.tables_of_features.append(made.jobs.tree)
    yield made


def _limits(config: BrokerConfig) -> Limits:
    several = Limit(
        count=config.bulk_messages_max, count_key="maxBulkMessages", error=MessageTooLarge
    )
    # MessageTooLarge makes a client split its call in two, and again, until the message that is
    # too large is alone and only it is refused.
    column = replace(several, size=PROPERTIES_BYTES_MAX)
    bodies = bodies_limit(config)
    columns = {
        "bodies": replace(bodies, count=several.count, count_key=several.count_key),
        "message_ids": column,
        "topics": column,
        "tags": column,
        "keys": replace(column, total=KEYS_BYTES_MAX),
        "properties": column,
        "delay_levels": several,
        "delays": column,
        "deliver_at_ms": several,
        "already_refused": several,
    }
    refused = ("message_id", "code", "sentence", "field", "value", "rule")
    return {
        **{f"ScheduleBulkRequest.{name}": limit for name, limit in columns.items()},
        **{f"Refusal.{name}": _TEXT for name in refused},
    }


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(BulkCalls,),
    answers={
        SCHEDULE_BULK: lambda service: service[BulkCalls].schedule,
        GET_BULK_JOB: lambda service: service[BulkCalls].job,
        LIST_BULK_JOBS: lambda service: service[BulkCalls].jobs,
    },
    limits=_limits,
)

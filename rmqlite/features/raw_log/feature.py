"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rmqlite.features.native import NativeFeature
from rmqlite.features.raw_log.raw_reading import RawReading
from rmqlite.features.raw_log.requests import GET_LOG_SNAPSHOT, READ_LOG, READ_QUEUE, TOPICS_MAX
from rmqlite.features.raw_log.service import LogCalls
from rmqlite.features.rows import TOPIC
from rmqlite.kernel.broker import Broker


def _make(broker: Broker) -> Iterable[object]:
    yield RawReading(broker.parts, broker.levels)


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(LogCalls,),
    answers={
        GET_LOG_SNAPSHOT: lambda service: service[LogCalls].snapshot,
        READ_LOG: lambda service: service[LogCalls].read,
        READ_QUEUE: lambda service: service[LogCalls].read_queue,
    },
    limits=lambda _: {"GetLogSnapshotRequest.topics": replace(TOPIC, count=TOPICS_MAX)},
)

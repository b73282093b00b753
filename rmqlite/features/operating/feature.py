"""What the feature adds to a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from rmqlite.features.figures.traffic import Traffic
from rmqlite.features.leases.leases import Leases
from rmqlite.features.native import NativeFeature
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.missing import missing_tables
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import (
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    PREVIEW_OFFSET_RESET,
    PREVIEW_TOPIC_DELETION,
    RESET_OFFSETS,
    GroupDeletion,
)
from rmqlite.features.operating.resetting import Resetting
from rmqlite.features.operating.service import DeletionCalls, ProgressCalls, SettingCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.tables import GroupCalls

log = logging.getLogger(__name__)


def _make(broker: Broker) -> Iterable[object]:
    for sentence in missing_tables(broker.parts):
        log.warning("%s", sentence)
    progress = Progress(broker.parts, broker[Traffic], broker[Leases].table)
    deleting = Deleting(broker.parts, progress)
    broker.retention.on_clean.append(deleting.forget_old)
    yield progress
    yield deleting
    yield Resetting(broker.parts, progress)


async def _group_deleted(groups: GroupCalls, request: GroupDeletion) -> None:
    await groups.delete(request.group, with_offsets=True, force=request.force)


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(DeletionCalls, ProgressCalls, SettingCalls),
    answers={
        PREVIEW_TOPIC_DELETION: lambda service: service[DeletionCalls].loss,
        DELETE_TOPIC: lambda service: service[DeletionCalls].delete,
        DELETE_GROUP: lambda service: partial(_group_deleted, service.groups),
        DESCRIBE_GROUP: lambda service: service[ProgressCalls].status,
        PREVIEW_OFFSET_RESET: lambda service: service[ProgressCalls].preview_reset,
        RESET_OFFSETS: lambda service: service[ProgressCalls].reset_offsets,
    },
)

"""The shapes of leases.json and of the records of leases."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, Field

from rmqlite.kernel.config.table_shapes import (
    Completed,
    Offset,
    QueueId,
    QueueOffset,
    StoredName,
    TableShape,
)

LEASES_TABLE: Final = "leases.json"

LeaseKind = Literal["leased", "done", "visible", "begins", "skips"]
LEASED_SPAN_MAX: Final = 1 << 16
"""How many messages one range of an event may cover."""


def _check_runs(
    runs: tuple[tuple[int, int], ...],
) -> tuple[tuple[int, int], ...]:
    if any(not begin < end <= begin + LEASED_SPAN_MAX for begin, end in runs):
        raise ValueError(f"ranges of 1 to {LEASED_SPAN_MAX} queue offsets")
    return runs


class LeaseEvent(BaseModel):
    """The body of a record of LEASES_TOPIC.  places: topic, queue id, ranges of queue offsets."""

    kind: LeaseKind
    group: StoredName
    places: tuple[
        tuple[
            StoredName,
            QueueId,
            Annotated[tuple[tuple[Offset, Offset], ...], AfterValidator(_check_runs)],
        ],
        ...,
    ]
    lease: Offset = 0
    key: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""
    topic: str = ""
    client: str = ""
    until: Offset = 0
    renewed: bool = False
    attempt: str = ""
    message_groups: Annotated[tuple[str, ...], Field(alias="messageGroups")] = ()
    counts: bool = False


class LeasedQueueRow(TableShape):
    group: StoredName
    topic: StoredName
    queue_id: QueueId
    done: Completed
    failed: dict[QueueOffset, Offset] = Field(default_factory=dict)


class LeasesTable(TableShape):
    """leases.json.  queue_offset: from which event on they are read; end: of the table's events."""

    queue_offset: Offset = 0
    end: Offset = 0
    queues: tuple[LeasedQueueRow, ...] = ()


SHAPES: Final = {
    LEASES_TABLE: ("leases", LeasesTable),
}

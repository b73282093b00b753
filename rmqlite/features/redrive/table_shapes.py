"""The shapes of redriveJobs.json and of the records of redrive jobs."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from rmqlite.features.redrive.requests import RedriveJob, RedriveOutcome, job_tree
from rmqlite.kernel.config.table_shapes import (
    Completed,
    Offset,
    QueueId,
    StoredName,
    TableShape,
    json_text,
)

TABLE: Final = "redriveJobs.json"

RUN_LETTERS_MAX: Final = 1 << 16
"""How many dead letters one run of a redrive job's step may cover."""


class RedriveProgress(BaseModel):
    """A redrive job.  parts: queue id, begin and end of each.  at: a part and a queue offset."""

    job: Annotated[RedriveJob, BeforeValidator(job_tree)]
    parts: tuple[tuple[QueueId, Offset, Offset], ...]
    at: tuple[QueueId, Offset]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.at[0] > len(self.parts):
            raise ValueError(f"the number of a part, at most {len(self.parts)}")
        return self


class RedriveEntry(RedriveProgress):
    """A job in redriveJobs.json."""

    records: tuple[Offset, Offset]
    sent: dict[QueueId, Completed]


class RedriveStep(RedriveProgress):
    """The body of a job's record.

    A run: queue offset, number of dead letters, outcome, and the numbers of two texts, topic and
    why.
    """

    begin: tuple[QueueId, Offset]
    texts: tuple[str, ...]
    runs: tuple[
        tuple[
            Offset,
            Annotated[int, Field(ge=0, le=RUN_LETTERS_MAX)],
            RedriveOutcome,
            QueueId,
            QueueId,
        ],
        ...,
    ]

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        if self.runs and self.begin[0] >= len(self.parts):
            raise ValueError(f"the number of a part to begin in, below {len(self.parts)}")
        if any(max(topic, why) >= len(self.texts) for *_, topic, why in self.runs):
            raise ValueError(f"numbers of texts, each below {len(self.texts)}")
        return self


class RedriveImported(BaseModel):
    """The body of an import's record: the dead letters of a topic that it has sent, by queue id."""

    imported: StoredName
    queues: dict[QueueId, Completed]


class RedriveJobsTable(TableShape):
    """redriveJobs.json; an older rmqlite did not write imported."""

    queue_offset: Offset = 0
    jobs: tuple[Annotated[RedriveEntry, BeforeValidator(json_text)], ...] = ()
    earlier: dict[StoredName, dict[QueueId, Completed]] = Field(default_factory=dict)
    imported: dict[StoredName, dict[QueueId, Completed]] = Field(default_factory=dict)


SHAPES: Final = {
    TABLE: ("redrive jobs", RedriveJobsTable),
}

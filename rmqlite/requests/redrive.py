"""What is asked of redrive jobs and what they answer: plain values.

A redrive sends a group's dead letters again, as new messages.  It is a job of the broker's
own: it goes on when whoever started it is gone, and after a restart.  Times are milliseconds
since 1970, on the broker's clock.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any, Final

from rmqlite.requests.letters import EVERY_LETTER, LetterFilter

OUTCOMES_MAX: Final = 1_000
"""How many outcomes one call lists at most."""
OUTCOMES_DEFAULT: Final = 100
SAMPLES_MAX: Final = 20
"""Of so many letters that were refused a job keeps place and reason, the first ones."""


@dataclass(frozen=True, slots=True)
class RedriveSpec:
    """What to send again.

    filter: which of the group's letters, of those that are there when the job starts.
    to_topic: another topic than the one they were sent to first.  delay_level: 0 is now.
    max_per_second: 0 is no limit.  again: also those that were redriven before, knowingly.
    """

    group: str
    filter: LetterFilter = EVERY_LETTER
    to_topic: str = ""
    delay_level: int = 0
    max_per_second: int = 0
    again: bool = False


class RedriveOutcome(enum.IntEnum):
    """What became of a letter that fits."""

    SENT = 0
    ALREADY = 1
    """It was redriven before, and again was not asked for."""
    REFUSED = 2
    """It cannot be sent: why says what is wrong."""


@dataclass(frozen=True, slots=True)
class RedrivenLetter:
    """One letter's outcome.

    queue_id, queue_offset: in %DLQ%group.  topic, message_id: of the message it has become,
    or would; empty where it is refused.  why: of a refusal, or which job had sent it.
    """

    queue_id: int
    queue_offset: int
    outcome: RedriveOutcome
    topic: str = ""
    message_id: str = ""
    why: str = ""


class JobState(enum.IntEnum):
    RUNNING = 0
    PAUSED = 1
    DONE = 2
    CANCELLED = 3


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """Start a job.  job_id: empty lets the broker make one; a job of that id that is there
    with the same spec is answered as it is, with another one the request is refused."""

    spec: RedriveSpec
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class RedriveJob:
    """A job and what it has come to.

    letters: how many there are to look at; looked_at: how many were.  sent, already,
    refused: outcomes.  note: why it stands still, such as a full disk; else empty.
    samples: the first letters that were refused.
    """

    job_id: str
    spec: RedriveSpec
    state: JobState
    letters: int
    looked_at: int = 0
    sent: int = 0
    already: int = 0
    refused: int = 0
    created_at_ms: int = 0
    changed_at_ms: int = 0
    ended_at_ms: int = 0
    note: str = ""
    samples: tuple[RedrivenLetter, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.state in (JobState.DONE, JobState.CANCELLED)

    def to_json(self) -> dict[str, Any]:
        """A tree for json, without the note."""
        tree = {name: getattr(self, name) for name in _PLAIN}
        tree |= {"spec": asdict(self.spec), "state": self.state.name}
        tree["samples"] = [[each.queue_id, each.queue_offset, each.why] for each in self.samples]
        return tree


_PLAIN: Final = (
    *("job_id", "letters", "looked_at", "sent", "already", "refused"),
    *("created_at_ms", "changed_at_ms", "ended_at_ms"),
)


class JobAction(enum.IntEnum):
    PAUSE = 0
    RESUME = 1
    CANCEL = 2
    """What was sent stays sent."""
    SET_RATE = 3


@dataclass(frozen=True, slots=True)
class JobChange:
    """max_per_second: of SET_RATE; 0 is no limit."""

    job_id: str
    action: JobAction
    max_per_second: int = 0


@dataclass(frozen=True, slots=True)
class RedrivePreviewRequest:
    """What a job with this spec would do, page by page; nothing is changed.

    cursor: empty for the first page, then what the page before said.
    """

    spec: RedriveSpec
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class TopicCount:
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """Counts of this page; letters: how many there are in all.  topics: where to, how many.

    samples: the first outcomes of the page, refused ones preferred, at most SAMPLES_MAX.
    """

    letters: int
    looked_at: int
    sent: int
    already: int
    refused: int
    topics: tuple[TopicCount, ...] = ()
    samples: tuple[RedrivenLetter, ...] = ()
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class OutcomesQuery:
    """What became of a job's letters, one by one, in the order in which they were looked at.

    outcomes: only these; none is all.  max_letters: 1 to 1,000; 0 means 100.
    """

    job_id: str
    outcomes: tuple[RedriveOutcome, ...] = ()
    cursor: str = ""
    max_letters: int = 0


@dataclass(frozen=True, slots=True)
class OutcomesPage:
    """cursor: where the next page goes on; empty at the end of what was done so far."""

    letters: tuple[RedrivenLetter, ...]
    cursor: str = ""

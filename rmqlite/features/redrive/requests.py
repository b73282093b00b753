"""Requests about redrive jobs and their answers: plain values.

A redrive sends a group's dead letters again, as new messages.  It is a job of the broker
itself: it continues when its client is gone, and after a restart.  Times are milliseconds
since 1970, on the broker's clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any, Final

from rmqlite.features.dead_letters.requests import EVERY_DEAD_LETTER, DeadLetterFilter
from rmqlite.features.rows import Row

OUTCOMES_MAX: Final = 1_000
"""The most outcomes that one call lists."""
OUTCOMES_DEFAULT: Final = 100
GROUPS_NAMED_MAX: Final = 1_000
"""The most names of groups on one page of a preview."""
IMPORTED_DEAD_LETTERS_MAX: Final = 100
"""The most dead letters that one call imports, 5 ms."""
NOTES_MAX: Final = 10
"""How many notes of operators a job holds, the newest ones."""
SAMPLES_MAX: Final = 20
"""How many refused dead letters, the first ones, a job holds with place and reason."""


@dataclass(frozen=True, slots=True)
class RedriveSpec:
    """Which dead letters to send again, and how.

    filter: selects from the group's dead letters that exist when the job starts.  delay_level: 0
    is now.  max_per_second: 0 means no limit.  again: send also dead letters redriven before.

    to_topic: publish to this topic, for every group that reads it.  to_group: send back to the
    group that failed, through its retry topic, with fresh attempts; False with a to_topic.
    With neither, as older clients ask for it, a dead letter is published to its original topic.  A
    dead letter of the schedule, which no group has failed, always is, unless there is a to_topic.
    """

    group: str
    filter: DeadLetterFilter = EVERY_DEAD_LETTER
    to_topic: str = ""
    delay_level: int = 0
    max_per_second: int = 0
    again: bool = False
    to_group: bool = True

    def __post_init__(self) -> None:
        if self.to_topic:
            object.__setattr__(self, "to_group", False)


class RedriveOutcome(enum.IntEnum):
    """The outcome of a dead letter that matches the filter."""

    SENT = 0
    ALREADY = 1
    """It was redriven before, and the spec does not say again."""
    REFUSED = 2
    """It cannot be sent; why is the reason."""


@dataclass(frozen=True, slots=True)
class DeadLetterOutcome:
    """One dead letter's outcome.

    queue_id, queue_offset: its place in %DLQ%group.  topic, message_id: those of the new
    message, in a preview too; empty if refused.  why: the reason of a refusal, or the job that
    had sent the dead letter already.
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
    """Start a job.  job_id: empty lets the broker make one.  If a job with this id exists, the
    broker answers with that job if its spec is the same, and refuses the request otherwise."""

    spec: RedriveSpec
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class RedriveResults:
    """What became of a job's messages, in the group that failed; counted from the log.

    consumed: the group has had them, and not failed them.  waiting: not consumed yet, or waiting
    for a retry.  dead: dead letters again, whatever was done to these since.  Together they are
    the sent ones.  is_counted: False if nobody asked, or the messages were not for that group.
    why: why they are not counted; or why they are incomplete: then waiting and dead are the
    least, and consumed is the most.
    """

    is_counted: bool = False
    consumed: int = 0
    waiting: int = 0
    dead: int = 0
    why: str = ""


NOT_ASKED: Final = RedriveResults()


@dataclass(frozen=True, slots=True)
class RedriveJobQuery:
    """Asks for a job.  with_results: also what became of its messages; that reads the log."""

    job_id: str
    with_results: bool = False


@dataclass(frozen=True, slots=True)
class RedriveJob:
    """A job and its progress.

    letters: how many dead letters it has to read; looked_at: how many it has read.  sent, already,
    refused: how many have this outcome.  note: why it stands still, such as a full disk; else
    empty.  samples: the first refused dead letters.  results: only in the answer to a
    RedriveJobQuery.  operator_notes: why it was started, paused or changed, in the words of those
    who did it.
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
    samples: tuple[DeadLetterOutcome, ...] = ()
    results: RedriveResults = NOT_ASKED
    operator_notes: tuple[str, ...] = ()

    def noted(self, note: str) -> RedriveJob:
        """The job with one more note of an operator; "" is none."""
        notes = [*self.operator_notes, note] if note else self.operator_notes
        return replace(self, operator_notes=tuple(notes[-NOTES_MAX:]))

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
    *("created_at_ms", "changed_at_ms", "ended_at_ms", "operator_notes"),
)


def job_tree(tree: object) -> Any:
    """A tree of RedriveJob.to_json(), also of an older rmqlite's, with this class's fields."""
    if not isinstance(tree, Mapping) or not isinstance(tree.get("samples"), list):
        return tree
    names = ("queue_id", "queue_offset", "why")
    samples = [
        {**dict(zip(names, each, strict=False)), "outcome": RedriveOutcome.REFUSED}
        for each in tree["samples"]
        if isinstance(each, list)
    ]
    state = JobState.__members__.get(str(tree.get("state")), tree.get("state"))
    return {**tree, "samples": samples, "state": state, "spec": _spec_tree(tree.get("spec"))}


def _spec_tree(spec: object) -> object:
    wanted = spec.get("filter") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(wanted, Mapping):
        return spec
    # Up to 0.6 a filter had at most one id.
    one = wanted.get("message_id")
    wanted = {"ids": [one] if one else [], **wanted}
    # And its jobs sent each dead letter to its original topic.
    return {"to_group": False, **spec, "filter": wanted}


class JobAction(enum.IntEnum):
    PAUSE = 0
    RESUME = 1
    CANCEL = 2
    """Messages that the job has sent stay."""
    SET_RATE = 3


@dataclass(frozen=True, slots=True)
class JobChange:
    """max_per_second: only for SET_RATE; 0 means no limit."""

    job_id: str
    action: JobAction
    max_per_second: int = 0


@dataclass(frozen=True, slots=True)
class RedrivePreviewRequest:
    """Asks what a job with this spec would do, page by page; changes nothing.

    cursor: empty for the first page, then the cursor of the page before.
    """

    spec: RedriveSpec
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class ReadersOfTopic:
    """groups: those that will get the messages: they read the topic, or have read it.

    more_groups: how many others there are, if the answer has no room for their names.  None is
    named for a spec with neither to_topic nor to_group.
    """

    topic: str
    count: int
    groups: tuple[str, ...] = ()
    more_groups: int = 0

    @classmethod
    def summed(cls, counts: Iterable[ReadersOfTopic]) -> tuple[ReadersOfTopic, ...]:
        """The counts of several pages as one for each topic, the most first."""
        by_topic: dict[str, ReadersOfTopic] = {}
        for each in counts:
            known = by_topic.get(each.topic)
            by_topic[each.topic] = replace(each, count=each.count + known.count) if known else each
        return tuple(sorted(by_topic.values(), key=lambda each: -each.count))


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """The counts of one page.  letters: how many dead letters all pages together read.

    topics: how many messages would go to which topic, and which groups get them.  samples:
    outcomes of the page, refused ones first, at most SAMPLES_MAX.
    """

    letters: int
    looked_at: int
    sent: int
    already: int
    refused: int
    topics: tuple[ReadersOfTopic, ...] = ()
    samples: tuple[DeadLetterOutcome, ...] = ()
    cursor: str = ""

    def then(self, page: RedrivePreview) -> RedrivePreview:
        """The counts of the pages so far and of the next page together, with its cursor."""
        # The refused ones first: the others are all alike.
        samples = sorted(
            [*self.samples, *page.samples],
            key=lambda each: each.outcome is not RedriveOutcome.REFUSED,
        )
        return RedrivePreview(
            page.letters,
            self.looked_at + page.looked_at,
            self.sent + page.sent,
            self.already + page.already,
            self.refused + page.refused,
            ReadersOfTopic.summed([*self.topics, *page.topics]),
            tuple(samples[:SAMPLES_MAX]),
            page.cursor,
        )


NOTHING_SEEN: Final = RedrivePreview(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ImportedDeadLetter:
    """A dead letter from a file of dlq export, perhaps with another body.

    queue_id, queue_offset: its place in %DLQ%group.  offset_message_id, store_timestamp_ms: of
    its record; they tell whether this broker has the dead letter, or another one had it.
    properties: all of the dead letter, as a property string.
    """

    queue_id: int
    queue_offset: int
    offset_message_id: str
    store_timestamp_ms: int
    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Send dead letters from a file, at once, each once; see RedriveSpec for to_topic and to_group.

    letters: of this group, 1 to IMPORTED_DEAD_LETTERS_MAX.  dry_run: only say what
    would become of them.
    """

    group: str
    letters: tuple[ImportedDeadLetter, ...]
    to_topic: str = ""
    to_group: bool = True
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ImportAnswer:
    """letters: the outcome of each, by queue.  topics: where the sent ones go."""

    letters: tuple[DeadLetterOutcome, ...]
    topics: tuple[ReadersOfTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class OutcomesQuery:
    """Asks for the outcomes of a job's dead letters, in the order in which the job read them.

    outcomes: only dead letters with one of these; empty means all.  max_letters: 1 to 1,000; 0
    means 100.
    """

    job_id: str
    outcomes: tuple[RedriveOutcome, ...] = ()
    cursor: str = ""
    max_letters: int = 0


@dataclass(frozen=True, slots=True)
class OutcomesPage:
    """cursor: where the next page begins; empty if the job has no more outcomes so far."""

    letters: tuple[DeadLetterOutcome, ...]
    cursor: str = ""


PREVIEW_REDRIVE: Final = Row("Admin", "PreviewRedrive", RedrivePreviewRequest, RedrivePreview)
START_REDRIVE: Final = Row("Admin", "StartRedrive", RedriveRequest, RedriveJob)
GET_REDRIVE_JOB: Final = Row("Admin", "GetRedriveJob", RedriveJobQuery, RedriveJob)
LIST_REDRIVE_JOBS: Final = Row("Admin", "ListRedriveJobs", NoneType, tuple[RedriveJob, ...])
CHANGE_REDRIVE_JOB: Final = Row("Admin", "ChangeRedriveJob", JobChange, RedriveJob)
IMPORT_DEAD_LETTERS: Final = Row(
    "Admin", "ImportLetters", ImportRequest, ImportAnswer, bytes_max=None, is_short=True
)
LIST_REDRIVE_OUTCOMES: Final = Row("Admin", "ListRedriveOutcomes", OutcomesQuery, OutcomesPage)

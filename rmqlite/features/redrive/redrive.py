"""The broker's jobs that send dead letters again: start, preview, step, change, show.

A job reads its group's dead letters in their order, up to those that existed when it started.
Each step is one append, a record of the job and the messages behind it; so after a crash the
job has counted every dead letter that was sent.  The caller of step() decides when.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rmqlite.features.dead_letters.purge_markers import PurgeMarkers, dead_letter_queues
from rmqlite.features.dead_letters.reading import whole_slices
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.redrive.imports import Imports
from rmqlite.features.redrive.jobs import At, JobProgress, JobStep, QueuePart, RedriveJobs, counted
from rmqlite.features.redrive.judge import Judge, Judged, RedrivenMessages, check_rate, runs_of
from rmqlite.features.redrive.pages import Results, page_of, preview, read_preview_cursor
from rmqlite.features.redrive.requests import (
    SAMPLES_MAX,
    JobAction,
    JobChange,
    JobState,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.features.rows import check_job_id
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import InvalidValue, JobExists, JobOver, Overloaded
from rmqlite.kernel.words.names import REDRIVE_JOBS_TOPIC

STEP_DEAD_LETTERS_MAX: Final = 100
"""The most dead letters that a step reads, 3 to 5 ms; it also ends after 4 MiB, or one dead letter.
"""
STEP_DEAD_LETTERS_MIN: Final = 20
"""A step reads this many dead letters even if it may send fewer: some may not match."""
JOBS_NOT_OVER_MAX: Final = 20
_SOME_ID: Final = "r-yyyymmdd-hhmmss-xxxx"
"""The job id of a preview, as long as one that the broker makes."""
_STATES: Final = {
    JobAction.PAUSE: JobState.PAUSED,
    JobAction.RESUME: JobState.RUNNING,
    JobAction.CANCEL: JobState.CANCELLED,
}

log = logging.getLogger(__name__)


class Stepped(NamedTuple):
    """The numbers of dead letters that a step has read and sent."""

    looked_at: int
    sent: int


class Redrive:
    """All jobs of a broker; an answer may be sent when the log is durable up to its end."""

    def __init__(
        self, broker: BrokerParts, retention: Retention, markers: PurgeMarkers, redriven: Redriven
    ) -> None:
        self.jobs = jobs = RedriveJobs(broker.config, broker.store, redriven)
        self._markers = markers
        self.sent = 0
        """Dead letters sent since the start."""
        self.on_change: list[Callable[[], None]] = []
        """Called when another job may run, or a job's settings have changed."""
        self.results = Results(broker, jobs)
        self._broker = broker
        self._retention = retention
        self._judge = Judge(broker, jobs.redriven)
        self._messages = RedrivenMessages(broker)
        self.imports = Imports(broker, retention, jobs, self._judge, self._messages)
        self._notes: dict[str, str] = {}

    # ---- called for users

    def start(self, request: RedriveRequest, note: str = "") -> RedriveJob:
        """Begin a job, or return the existing one with this id and the same spec.

        The rate is not compared: it may have been changed since.  Raises InvalidValue,
        InvalidName, GroupUnknown, TopicUnknown, PermissionMissing, JobExists, Overloaded,
        DiskFull, StoreUnavailable.
        """
        spec = request.spec
        if request.job_id:
            check_job_id(request.job_id)
            known = self.jobs.find(request.job_id)
            if known is not None:
                if replace(known.job.spec, max_per_second=spec.max_per_second) != spec:
                    raise JobExists(request.job_id)
                return self._with_note(known)
        parts = self._parts(spec)
        most = min(JOBS_NOT_OVER_MAX, self._broker.config.redrive_jobs_max)
        if len(self.jobs.not_over()) >= most:
            raise Overloaded("redrive jobs that are running or paused", most)
        self._retention.check_room(is_send=False)
        now_ms = self._broker.clock.now_ms()
        job_id = request.job_id or self._new_id(now_ms)
        progress = JobProgress.begun(job_id, spec, parts, now_ms)
        progress = replace(progress, job=progress.job.noted(note))
        self._put(JobStep(progress.at, progress))
        log.info(
            "redrive started job=%s group=%s letters=%d", job_id, spec.group, progress.job.letters
        )
        return self._with_note(progress)

    def preview(self, request: RedrivePreviewRequest) -> Steps[RedrivePreview]:
        """The preview of a job, page by page, in steps.  Raises start()'s errors about the spec."""
        parts = self._parts(request.spec)
        at = At(0, parts[0].begin if parts else 0)
        if request.cursor:
            at, parts = read_preview_cursor(request.cursor)
        progress = JobProgress.begun(_SOME_ID, request.spec, parts, 0).moved(at)
        is_named = request.spec.to_topic or request.spec.to_group
        return preview(progress, self._look, self._broker.readers_of if is_named else lambda _: ())

    def get(self, job_id: str) -> RedriveJob:
        """Raises JobUnknown."""
        return self._with_note(self.jobs.get(job_id))

    def all(self) -> tuple[RedriveJob, ...]:
        """All jobs without samples, the last changed one first."""
        return tuple(
            [replace(job, note=self._notes.get(job.job_id, "")) for job in self.jobs.all()]
        )

    def change(self, change: JobChange, note: str = "") -> RedriveJob:
        """Pause, resume or cancel a job, or set its rate; no change is no error.

        Raises JobUnknown, JobOver, InvalidValue, StoreUnavailable.
        """
        progress = self.jobs.get(change.job_id)
        job = progress.job
        if job.is_over:
            raise JobOver(job.job_id, job.state.name.lower())
        changes: dict[str, Any]
        if change.action is JobAction.SET_RATE:
            check_rate(change.max_per_second)
            changes = {"spec": replace(job.spec, max_per_second=change.max_per_second)}
        elif change.max_per_second:
            rule = f"left out: {change.action.name} takes no rate"
            raise InvalidValue("max_per_second", change.max_per_second, rule)
        else:
            changes = {"state": _STATES[change.action]}
        if replace(job, **changes) != job:
            now_ms = self._broker.clock.now_ms()
            if change.action is JobAction.CANCEL:
                changes["ended_at_ms"] = now_ms
            progress = progress.moved(progress.at, changed_at_ms=now_ms, **changes)
            progress = replace(progress, job=progress.job.noted(note))
            self.note(job.job_id, "")
            self._put(JobStep(progress.at, progress))
            log.info(
                "redrive changed job=%s state=%s max_per_second=%d",
                job.job_id,
                progress.job.state.name,
                progress.job.spec.max_per_second,
            )
        return self._with_note(progress)

    def outcomes(self, query: OutcomesQuery) -> Steps[OutcomesPage]:
        """The outcomes of a job's dead letters, page by page, in steps.

        Raises JobUnknown, InvalidValue, StoreUnavailable.
        """
        return page_of(self._broker.store, self.jobs, query)

    # ---- called by the runner of jobs

    def running(self) -> list[RedriveJob]:
        return [
            progress.job
            for progress in self.jobs.not_over()
            if progress.job.state is JobState.RUNNING
        ]

    def note(self, job_id: str, text: str) -> None:
        """Note why a job stands still; empty when it goes on."""
        if text:
            self._notes[job_id] = text
        else:
            self._notes.pop(job_id, None)

    def step(self, job_id: str, sent_max: int = STEP_DEAD_LETTERS_MAX) -> Stepped:
        """Let a running job read its next dead letters, and send at most sent_max of them.

        Raises DiskFull, StoreUnavailable, MessageTooLarge: then the job has not moved.
        """
        progress = self.jobs.find(job_id)
        if progress is None or progress.job.state is not JobState.RUNNING:
            return Stepped(0, 0)
        self._retention.check_room(is_send=False)
        at, dead_letters = self._look(
            progress, min(max(sent_max, STEP_DEAD_LETTERS_MIN), STEP_DEAD_LETTERS_MAX)
        )
        sent = [each for each in dead_letters if each.outcome is RedriveOutcome.SENT]
        if len(sent) > sent_max:
            at = At(progress.at.part, sent[sent_max].queue_offset)
            dead_letters = [each for each in dead_letters if each.queue_offset < at.queue_offset]
            sent = sent[:sent_max]
        step = self._step(progress, at, dead_letters)
        done = Stepped(step.progress.job.looked_at - progress.job.looked_at, len(sent))
        if dead_letters or step.progress.job.is_over:
            now_ms = step.progress.job.changed_at_ms
            self._put(step, self._messages.records(sent, progress.job.spec.delay_level, now_ms))
            self.sent += len(sent)
        else:
            # Skipped dead letters need no record: after a crash they are skipped again.
            self.jobs.move(step.progress)
        return done

    # ---- inside

    def _parts(self, spec: RedriveSpec) -> tuple[QueuePart, ...]:
        """The ranges of dead letters of a job.  Raises start()'s errors about the spec."""
        self._judge.check(spec)
        queues = dead_letter_queues(self._broker.store).get(spec.group)
        if queues is None:
            self._broker.groups.existing(spec.group)
            return ()
        parts = [
            QueuePart(queue_id, self._markers.begin(spec.group, queue_id), queue.max_offset)
            for queue_id, queue in sorted(queues.items())
        ]
        return tuple([part for part in parts if part.begin < part.end])

    def _look(
        self, progress: JobProgress, count_max: int = STEP_DEAD_LETTERS_MAX
    ) -> tuple[At, list[Judged]]:
        """The next letters: the position behind them, and the judgement of those that match."""
        number, begin = progress.at
        part = progress.parts[number]
        queue = self._broker.store.queue(progress.topic, part.queue_id)
        begin = max(begin, self._markers.begin(progress.job.spec.group, part.queue_id))
        dead_letters: list[Judged] = []
        end = part.end
        if queue is not None:
            upto = min(part.end, begin + count_max)
            slice_ = next(whole_slices(self._broker.store, queue, begin, upto), [])
            hidden = self._markers.hidden(progress.job.spec.group, part.queue_id)
            shown = [each for each in slice_ if hidden.next_open(each[0]) == each[0]]
            dead_letters = self._judge.judged(progress, part.queue_id, shown)
            end = slice_[-1].queue_offset + 1 if slice_ else max(begin, queue.min_offset)
        if end < part.end:
            return At(number, end), dead_letters
        number += 1
        return At(
            number, progress.parts[number].begin if number < len(progress.parts) else 0
        ), dead_letters

    def _step(self, progress: JobProgress, at: At, dead_letters: list[Judged]) -> JobStep:
        """The job behind some dead letters."""
        runs = runs_of(dead_letters)
        counts = counted(runs)
        job, now_ms = progress.job, self._broker.clock.now_ms()
        changes: dict[str, Any] = {"changed_at_ms": now_ms}
        if at.part == len(progress.parts):
            changes |= {"state": JobState.DONE, "ended_at_ms": now_ms}
        if counts[RedriveOutcome.REFUSED] and len(job.samples) < SAMPLES_MAX:
            queue_id = progress.parts[progress.at.part].queue_id
            refused = [
                each.shown(queue_id)
                for each in dead_letters
                if each.outcome is RedriveOutcome.REFUSED
            ]
            changes["samples"] = (*job.samples, *refused)[:SAMPLES_MAX]
        moved = progress.moved(
            at,
            sent=job.sent + counts[RedriveOutcome.SENT],
            already=job.already + counts[RedriveOutcome.ALREADY],
            refused=job.refused + counts[RedriveOutcome.REFUSED],
            **changes,
        )
        return JobStep(progress.at, moved, runs)

    def _put(self, step: JobStep, messages: list[NewRecord] | None = None) -> None:
        """Append a step, then count it."""
        self._broker.topics.ensure(REDRIVE_JOBS_TOPIC, 1)
        # The job's record first: then it survives a crash that tears the append.
        record = step.record(step.progress.job.changed_at_ms)
        written = self._broker.appending.append([record, *(messages or ())])
        self.jobs.keep(step, written[0].queue_offset)
        if not messages:
            for changed in self.on_change:
                changed()
        job = step.progress.job
        if job.is_over:
            log.info(
                "redrive over job=%s state=%s sent=%d already=%d refused=%d",
                job.job_id,
                job.state.name,
                job.sent,
                job.already,
                job.refused,
            )

    def _with_note(self, progress: JobProgress) -> RedriveJob:
        return replace(progress.job, note=self._notes.get(progress.job.job_id, ""))

    def _new_id(self, now_ms: int) -> str:
        """A new job id, short and readable."""
        digits = "".join(each for each in local_text(now_ms) if each.isdigit())
        while True:
            job_id = f"r-{digits[:8]}-{digits[8:14]}-{uuid.uuid4().hex[:4]}"
            if self.jobs.find(job_id) is None:
                return job_id

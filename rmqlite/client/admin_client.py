"""The calls of administrators and tools: topics, groups, dead letters and redrives; no state.

Looking never consumes.  A long list comes page by page, each page when it is needed.  A redrive is
a job inside the broker and runs without its client: start it, look at it at any time, pause or
cancel it.  A preview shows what a job would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from rmqlite.client.channel import Closing, Connection
from rmqlite.client.credentials import Credentials
from rmqlite.client.schedule_admin import AdminCalls, ScheduleAdmin
from rmqlite.features.bulk.requests import GET_BULK_JOB, LIST_BULK_JOBS, BulkJob
from rmqlite.features.cursors import pages
from rmqlite.features.dead_letters.requests import (
    EVERY_DEAD_LETTER,
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_REASONS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    History,
    HistoryQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.finding.requests import (
    GET_MESSAGE,
    QUERY_MESSAGES,
    FoundMessage,
    FoundMessages,
    MessageQuery,
)
from rmqlite.features.operating.requests import (
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    PREVIEW_OFFSET_RESET,
    PREVIEW_TOPIC_DELETION,
    RESET_OFFSETS,
    GroupDeletion,
    GroupStatus,
    OffsetReset,
    QueueReset,
    TopicLoss,
)
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    GET_REDRIVE_JOB,
    IMPORT_DEAD_LETTERS,
    LIST_REDRIVE_JOBS,
    LIST_REDRIVE_OUTCOMES,
    NOTHING_SEEN,
    PREVIEW_REDRIVE,
    START_REDRIVE,
    DeadLetterOutcome,
    ImportAnswer,
    ImportRequest,
    JobAction,
    JobChange,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveJobQuery,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.features.rows import Row
from rmqlite.features.standby.requests import PROMOTE, SWITCH, PromoteRequest
from rmqlite.kernel.requests.broker import BrokerStatus, LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.requests.topics import QueueRange, Route, RouteRequest, TopicInfo
from rmqlite.protocols.native.bytes import rpcs

BEFORE_ALL_MS: Final = 1
"""No letter died before."""


class RedriveAdmin(AdminCalls):
    """Asks the broker behind a connection about its redrive jobs.

    Every method raises RmqliteError: InvalidValue for a value that breaks a rule, JobUnknown,
    Unavailable if the call may work later.
    """

    def preview(
        self, spec: RedriveSpec, *, progress: Callable[[int, int], None] | None = None
    ) -> RedrivePreview:
        """Everything that a job would do; changes nothing.

        progress: called after every call with the letters looked at and the number of all.
        """
        request = RedrivePreviewRequest(spec)
        whole = NOTHING_SEEN
        for page in pages(partial(self._ask, PREVIEW_REDRIVE), request):
            whole = whole.then(page)
            if progress:
                progress(whole.looked_at, whole.letters)
        return whole

    def start(self, spec: RedriveSpec, *, job_id: str = "") -> RedriveJob:
        """Start a job; returns when it is on disk.

        job_id: with your own id you may repeat the call, and it starts one job.
        """
        return self._ask(START_REDRIVE, RedriveRequest(spec, job_id))

    def job(self, job_id: str, *, with_results: bool = False) -> RedriveJob:
        """The state of a job.  Raises JobUnknown.

        with_results: also count what became of its messages; that takes up to some seconds.
        """
        return self._ask(GET_REDRIVE_JOB, RedriveJobQuery(job_id, with_results))

    def jobs(self) -> tuple[RedriveJob, ...]:
        """Every job that the broker remembers, without samples, the most recently changed first."""
        return self._ask(LIST_REDRIVE_JOBS, None)

    def pause(self, job_id: str) -> RedriveJob:
        """Stop sending until resume().  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.PAUSE))

    def resume(self, job_id: str) -> RedriveJob:
        """Continue a paused job.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.RESUME))

    def cancel(self, job_id: str) -> RedriveJob:
        """End the job; letters already sent stay sent.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.CANCEL))

    def set_rate(self, job_id: str, max_per_second: int) -> RedriveJob:
        """Limit the letters per second; 0 means no limit.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.SET_RATE, max_per_second))

    def import_letters(self, request: ImportRequest) -> ImportAnswer:
        """Send letters from a file of `rmqlite dlq export`, each once; returns when it is on disk.

        Those that the broker still has count as redriven.
        """
        return self._ask(IMPORT_DEAD_LETTERS, request)

    def list_outcomes(self, query: OutcomesQuery) -> OutcomesPage:
        """One page of the outcomes of a job's letters.  Raises JobUnknown."""
        return self._ask(LIST_REDRIVE_OUTCOMES, query)

    def outcomes(self, job_id: str, *only: RedriveOutcome) -> Iterator[DeadLetterOutcome]:
        """The outcome of every letter so far, page by page as it is needed."""
        for page in pages(self.list_outcomes, OutcomesQuery(job_id, only)):
            yield from page.letters

    def _change(self, change: JobChange) -> RedriveJob:
        return self._ask(CHANGE_REDRIVE_JOB, change)


class DeadLetterAdmin(AdminCalls):
    """Asks the broker behind a connection about retries and dead letters.

    Every method raises RmqliteError: InvalidValue for a value beyond a limit, Unavailable if the
    call may work later.
    """

    def groups(self) -> tuple[DeadLetterGroup, ...]:
        """Every group that has dead letters, purged ones included; sorted by name."""
        return self._ask(LIST_DEAD_LETTER_GROUPS, None)

    def reasons(self, group: str) -> DeadLetterGroup:
        """One group, with every kind of reasons instead of the five most frequent ones.

        Raises GroupUnknown for an unknown group without dead letters.
        """
        return self._ask(LIST_REASONS, group)

    def list_dead(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of dead letters in the order in which they died; it may be empty.

        While a page has a cursor there are more, even if the page is empty.  Raises GroupUnknown
        for an unknown group without dead letters.
        """
        return self._ask(LIST_DEAD_LETTERS, query)

    def dead(
        self,
        group: str,
        filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        *,
        newest_first: bool = False,
        is_open: bool = False,
    ) -> Iterator[DeadLetter]:
        """All dead letters of a group that match the filter, page by page as they are needed."""
        query = DeadLettersQuery(group, filter, newest_first=newest_first, is_open=is_open)
        return self._all(LIST_DEAD_LETTERS, query)

    def list_retries(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of a group's retries.  Raises GroupUnknown.

        First the due retries that are not consumed yet, then the waiting ones, in due order.
        """
        return self._ask(LIST_RETRIES, query)

    def retries(
        self, group: str, filter: DeadLetterFilter = EVERY_DEAD_LETTER
    ) -> Iterator[DeadLetter]:
        """All of list_retries(), page by page as they are needed."""
        return self._all(LIST_RETRIES, DeadLettersQuery(group, filter))

    def history(self, message_id: str) -> History:
        """The whole history of a message, by its message id or an offset message id."""
        return self._ask(GET_HISTORY, HistoryQuery(message_id))

    def purge(self, request: PurgeRequest) -> Purged:
        """Hide dead letters, or show them again; returns when that is on disk.

        Only retention deletes them.  Raises GroupUnknown.
        """
        if request.filter != EVERY_DEAD_LETTER:
            # An older broker knows no filter: to it the request is about no letter, not about all.
            request = replace(request, until_ms=BEFORE_ALL_MS)
        return self._ask(PURGE_DEAD_LETTERS, request)

    def _all(
        self, rpc: Row[DeadLettersQuery, DeadLetterPage], query: DeadLettersQuery
    ) -> Iterator[DeadLetter]:
        for page in pages(partial(self._ask, rpc), query):
            yield from page.letters


class AdminClient(AdminCalls, Closing):
    """Asks the broker at endpoint ("host:port") about its topics, groups and messages.

    schedule: lists and changes waiting messages.  dead_letters: retries, dead letters, the history
    of a message; `letters` is its former name.  redrives: jobs that send dead letters again.

    Every method waits up to timeout_ms and raises RmqliteError; if the broker cannot be reached,
    it raises Unavailable at once.  credentials: what they lack
    comes from the environment.  note: why this client makes its changes, such as the number of a
    ticket; the broker writes it to its audit log, and into the redrive jobs that it starts.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_ms: float = 5_000,
        credentials: Credentials | None = None,
        note: str = "",
    ) -> None:
        connection = Connection(endpoint, credentials=credentials, note=note)
        super().__init__(connection, timeout_ms / 1000)
        self.schedule: Final = ScheduleAdmin(self._connection, self._timeout_s)
        self.letters: Final = DeadLetterAdmin(self._connection, self._timeout_s)
        self.dead_letters: Final = self.letters
        self.redrives: Final = RedriveAdmin(self._connection, self._timeout_s)

    def list_topics(self) -> tuple[TopicInfo, ...]:
        """Every topic, system topics included, sorted by name."""
        return self._ask(rpcs.LIST_TOPICS, None)

    def create_topic(self, topic: str, queues: int = 4, perm: int = 6) -> TopicInfo:
        """Create a topic; perm bits: 4 read, 2 write, 1 inherit.

        Raises InvalidValue, and TopicExists if the topic exists with other settings.
        """
        return self._ask(rpcs.CREATE_TOPIC, TopicInfo(topic, queues, queues, perm))

    def preview_topic_deletion(self, topic: str) -> TopicLoss:
        """What would be lost with a topic: unread and waiting messages, and who reads it.

        Raises TopicUnknown, InvalidName.
        """
        return self._ask(PREVIEW_TOPIC_DELETION, topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all offsets in it; messages that wait for it become dead letters.

        A topic that does not exist is no error.  Raises InvalidName for a topic of the broker.
        """
        self._ask(DELETE_TOPIC, topic)

    def route(self, topic: str, *, create: bool = False) -> Route:
        """A topic's settings, the level table and the body limit.  Raises TopicUnknown.

        create: make a new one, as a send would, where the broker's autoCreateTopicEnable is on.
        """
        return self._ask(rpcs.GET_ROUTE, RouteRequest(topic, create=create))

    def ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The minimum and maximum queue offset of every queue.  Raises TopicUnknown."""
        return self._ask(rpcs.GET_QUEUE_RANGES, topic)

    def list_groups(self) -> tuple[GroupInfo, ...]:
        """Every consumer group, sorted by name."""
        return self._ask(rpcs.LIST_GROUPS, None)

    def group(self, group: str) -> GroupStatus:
        """A group's settings, members, and progress per queue.  Raises GroupUnknown."""
        return self._ask(DESCRIBE_GROUP, group)

    def set_group(
        self,
        group: str,
        *,
        max_reconsume_times: int | None = None,
        retry_queues: int | None = None,
        can_consume: bool | None = None,
        retry_policy: str | None = None,
        orderly: bool | None = None,
        max_per_second: float | None = None,
        burst: int | None = None,
        bury_expired: bool | None = None,
    ) -> GroupInfo:
        """Change a group's settings at once and durably, or create it; None changes nothing.

        retry_policy: "3 5 7", "10s 1m 10m" or "exponential(10s, 2, 1h)", which become levels,
        "list(90s, 10m)" or "exponential(10s, 3, 1h, jitter=20%)", which are exact, or "" for
        RocketMQ's.
        orderly: clients of RocketMQ 5 consume the messages of a message group in order.
        max_per_second: so many messages are handed out, to all members together; 0: no limit.
        burst: so many at once; 0: the messages of one second, at least one.
        bury_expired: what expires for the group is a dead letter, and not only skipped.
        Waiting retries keep their time.  Raises InvalidName, InvalidValue.
        """
        return self._ask(
            rpcs.SET_GROUP,
            GroupChange(
                group,
                max_reconsume_times=max_reconsume_times,
                retry_queues=retry_queues,
                can_consume=can_consume,
                retry_policy=retry_policy,
                orderly=orderly,
                max_per_second=max_per_second,
                burst=burst,
                bury_expired=bury_expired,
            ),
        )

    def delete_group(self, group: str, *, force: bool = False) -> None:
        """Delete a group's settings and offsets; its retries and dead letters stay.

        An unknown group is no error.  force: although it has members, which make it again.
        Raises GroupInUse.
        """
        self._ask(DELETE_GROUP, GroupDeletion(group, force))

    def preview_offset_reset(self, reset: OffsetReset) -> tuple[QueueReset, ...]:
        """What reset_offsets() would do to each queue; changes nothing.

        Raises GroupUnknown, TopicUnknown, QueueUnknown, InvalidValue.
        """
        return self._ask(PREVIEW_OFFSET_RESET, reset)

    def reset_offsets(self, reset: OffsetReset) -> tuple[QueueReset, ...]:
        """Let a group go on from another place; returns what was done to each queue.

        Raises GroupInUse too, unless by force: then the next commits of the members undo it.
        The offsets are on disk within flushConsumerOffsetInterval.
        """
        return self._ask(RESET_OFFSETS, reset)

    def broker_status(self) -> BrokerStatus:
        """Counts since the broker started, and the waiting messages of each delay level."""
        return self._ask(rpcs.GET_BROKER_STATUS, None)

    def find_messages(self, query: MessageQuery) -> FoundMessages:
        """Messages by key or by message id, in the order of the log; possibly none.

        Raises TopicUnknown, InvalidValue.
        """
        return self._ask(QUERY_MESSAGES, query)

    def message_at(self, offset_message_id: str) -> FoundMessage:
        """The message whose record the id names.  Raises MessageNotFound, InvalidValue."""
        return self._ask(GET_MESSAGE, offset_message_id)

    def levels(self) -> LevelsInForce:
        """The table of delay levels in force, its source, and all earlier tables."""
        return self._ask(rpcs.GET_LEVELS, None)

    def change_levels(self, message_delay_level: str, *, dry_run: bool = False) -> LevelsChanged:
        """Put another table in force, at once and durably; returns the effect on every level.

        Waiting messages keep their times.  dry_run: change nothing.  Raises InvalidValue.
        """
        change = LevelsChange(message_delay_level, dry_run)
        return self._ask(rpcs.CHANGE_LEVELS, change)

    def promote(self, *, force: bool = False) -> int:
        """Make this standby the master; how many bytes of the master's log it lacks.

        force: also if there is a living master.  Raises Refused.
        """
        return self._ask(PROMOTE, PromoteRequest(force))

    def switch(self) -> str:
        """Hand over from this master to its standby; its address.  Raises Refused."""
        return self._ask(SWITCH, None)

    def job(self, job_id: str) -> BulkJob:
        """The counts and samples of a bulk job, over all its calls.  Raises JobUnknown."""
        return self._ask(GET_BULK_JOB, job_id)

    def jobs(self) -> tuple[BulkJob, ...]:
        """Every bulk job that the broker remembers, without samples, the latest used first."""
        return self._ask(LIST_BULK_JOBS, None)

    def close(self) -> None:
        self._connection.close()

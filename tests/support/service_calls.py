"""Every method of the service with a request for it, and a broker that has what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from rmqlite.features.dead_letters.requests import DeadLettersQuery, HistoryQuery, PurgeRequest
from rmqlite.features.leases.leased_queue import Lease
from rmqlite.features.leases.requests import (
    AckRequest,
    DeadRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.features.raw_log.requests import LogReadRequest, LogSnapshotRequest, QueueReadRequest
from rmqlite.features.redrive.requests import (
    ImportedDeadLetter,
    ImportRequest,
    JobAction,
    JobChange,
    OutcomesQuery,
    RedriveJobQuery,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.groups import (
    AssignmentQuery,
    GroupChange,
    HeartbeatRequest,
    LeaveRequest,
    OffsetReset,
    OffsetsCommit,
    OffsetsQuery,
    RequestMode,
    RequestModeChange,
    Subscription,
)
from rmqlite.kernel.requests.messages import (
    MessageQuery,
    PullRequest,
    SendBackRequest,
    TransactionEnd,
)
from rmqlite.kernel.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    LevelsChange,
    PendingFilter,
    PendingQuery,
    RecallHandle,
    ScheduleAction,
    TimelineRequest,
)
from rmqlite.kernel.requests.topics import Queue, RouteRequest, TimeQuery, TopicExtras, TopicInfo
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.bulk import request as bulk_request
from tests.support.clock import START_MS
from tests.support.redrives import GROUP, bury_many, start
from tests.support.sends import BORN_HOST, call_of
from tests.support.timers import send_timer
from tests.support.transactions import GROUP as PRODUCERS
from tests.support.transactions import send_half

WAITING = "waiting-1"
TIMER = "timer-1"
TIMER_MS = START_MS + 86_400_000
JOB = "nightly"
LETTER = ImportedDeadLetter(0, 7, "", 0, b"RETRY_TOPIC\x01orders", b"x")
NEW = "not-there-yet"
HALF_AT = 192
"""Where the half message of a transaction begins."""
HOLDERS = "holders"
HELD = Handle(Handle.lease_of(START_MS, 1), False, 0, 0)
"""Of the first message, which a client of HOLDERS has received."""
FILTER = PendingFilter(topic="orders")
SEND = call_of([Message("orders", b"x")])
WRITING: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("messages.send", (SEND,)),
    ("messages.send_drafts", ((DraftCall((Draft("orders", 0, b"", b"x", 0, BORN_HOST),)),), print)),
    ("messages.schedule_bulk", (bulk_request(["a"]), BORN_HOST)),
    ("messages.send_back", (SendBackRequest(GROUP, 0),)),
    ("messages.pull", (PullRequest(NEW, "orders", 0, 0),)),
    ("topics.route", (RouteRequest(NEW, create=True),)),
    ("topics.create", (TopicInfo(NEW, 1, 1),)),
    ("topics.change", (TopicInfo(NEW, 1, 1), TopicExtras())),
    ("topics.delete", ("orders",)),
    ("topics.delete_unused", ()),
    ("groups.commit", (OffsetsCommit(NEW, {}),)),
    ("groups.heartbeat", (HeartbeatRequest(NEW, "client", (Subscription("orders"),)),)),
    ("groups.change", (GroupChange(GROUP, max_reconsume_times=3),)),
    ("groups.copy_offsets", (NEW, GROUP)),
    ("groups.delete", (GROUP,)),
    ("settings.change", ({"messageDelayLevel": DEFAULT_LEVELS + " 3h"},)),
    ("key_values.put", ("space", "key", "value")),
    ("key_values.delete", ("space", "known")),
    ("key_values.set_order", (True,)),
    ("schedule.recall", ("orders", RecallHandle("orders", "broker-a", TIMER_MS, TIMER).text())),
    ("schedule.change_levels", (LevelsChange("7s 1h"),)),
    ("schedule.change_by_ids", (ChangeByIds(ScheduleAction.CANCEL, (WAITING,)),)),
    ("schedule.change_by_ids", (ChangeByIds(ScheduleAction.FIRE, (WAITING,)),)),
    (
        "schedule.change_by_ids",
        (ChangeByIds(ScheduleAction.RESCHEDULE, (WAITING,), delay_level=2),),
    ),
    ("schedule.change_by_filter", (ChangeByFilter(ScheduleAction.CANCEL, FILTER),)),
    ("schedule.change_by_filter", (ChangeByFilter(ScheduleAction.FIRE, FILTER),)),
    (
        "schedule.change_by_filter",
        (ChangeByFilter(ScheduleAction.RESCHEDULE, FILTER, delay_level=2),),
    ),
    ("leases.receive", (ReceiveRequest(NEW, "orders", "client", invisible_ms=1_000),)),
    ("groups.change_mode", (RequestModeChange(NEW, "orders", RequestMode.POP),)),
    ("leases.ack", (AckRequest(HOLDERS, "orders", (HELD,)),)),
    ("leases.change", (InvisibleChange(HOLDERS, "orders", HELD, 2_000),)),
    ("leases.forward", (DeadRequest(HOLDERS, "orders", HELD),)),
    ("leases.release", (HOLDERS, "holder")),
    ("dead_letters.purge", (PurgeRequest(GROUP),)),
    ("redrives.start", (RedriveRequest(RedriveSpec(GROUP), "another"),)),
    ("redrives.change", (JobChange(JOB, JobAction.PAUSE),)),
    ("redrives.import_letters", (ImportRequest(GROUP, (LETTER,)),)),
    ("transactions.end", (TransactionEnd(PRODUCERS, 0, HALF_AT, is_commit=True),)),
)
"""Every method that can change what is on disk, with a request that does."""
READING: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("status", ()),
    ("messages.find", (MessageQuery("orders", "key"),)),
    ("messages.at", ("",)),
    ("messages.hand_out", ("",)),
    ("messages.record", (0,)),
    ("messages.bulk_job", (JOB,)),
    ("messages.bulk_jobs", ()),
    ("topics.all", ()),
    ("topics.probed", ("broker-a",)),
    ("topics.settings", ()),
    ("topics.settings_of", ("orders",)),
    ("topics.extras", ("orders",)),
    ("topics.version", ()),
    ("topics.entries", (Queue("orders", 0), 0, 1)),
    ("topics.written_ranges", ("orders",)),
    ("topics.clean", ()),
    ("figures.traffic", ()),
    ("figures.of_topic", ("orders",)),
    ("figures.of_timers", ()),
    ("figures.of_group", ("orders", GROUP)),
    ("figures.appends", ()),
    ("figures.refused_sends", ()),
    ("figures.unsynced_bytes", ()),
    ("figures.disk", ()),
    ("figures.first_stored_ms", ()),
    ("settings.all", ()),
    ("key_values.of", ("space",)),
    ("key_values.has_order", ()),
    ("key_values.order_of", ("orders",)),
    ("key_values.orders", ()),
    ("topics.info", ("orders",)),
    ("topics.loss", ("orders",)),
    ("topics.first_offset", (Queue("orders", 0),)),
    ("topics.end_offset", (Queue("orders", 0),)),
    ("topics.earliest_ms", (Queue("orders", 0),)),
    ("topics.search_offset", (TimeQuery(Queue("orders", 0), 0),)),
    ("topics.queue_ranges", ("orders",)),
    ("groups.all", ()),
    ("groups.settings", ()),
    ("groups.settings_of", (GROUP,)),
    ("groups.version", ()),
    ("groups.readers", ("orders",)),
    ("groups.taken", (GROUP,)),
    ("groups.times", (GROUP, "orders")),
    ("groups.reset", (GROUP, "orders", None)),
    ("groups.preview_reset", (OffsetReset(GROUP, "orders", 0),)),
    ("groups.reset_offsets", (OffsetReset(GROUP, "orders", 0),)),
    ("groups.committed_by_topic", (GROUP,)),
    ("groups.committing", ()),
    ("groups.status", (GROUP,)),
    ("groups.info", (GROUP,)),
    ("groups.offsets", (OffsetsQuery(GROUP, (Queue("orders", 0),)),)),
    ("groups.check", (HeartbeatRequest(GROUP, "client", (Subscription("orders"),)),)),
    ("groups.assigned", (AssignmentQuery(GROUP, "orders", "client"),)),
    ("topics.elsewhere", ("orders",)),
    ("leases.peek", (ReceiveRequest(GROUP, "orders", "client"),)),
    ("leases.waiting", (ReceiveRequest(GROUP, "orders", "client"),)),
    ("groups.lock", (GROUP, "client", (Queue("orders", 0),))),
    ("groups.unlock", (GROUP, "client", (Queue("orders", 0),))),
    ("groups.leave", (LeaveRequest(GROUP, "client"),)),
    ("groups.members", (GROUP,)),
    ("schedule.pending", (PendingQuery(),)),
    ("schedule.counts", ()),
    ("schedule.delivered", ()),
    ("schedule.positions", ()),
    ("schedule.timeline", (TimelineRequest((1_000,)),)),
    ("schedule.levels", ()),
    ("dead_letters.dead_groups", ()),
    ("dead_letters.reasons", (GROUP,)),
    ("dead_letters.dead", (DeadLettersQuery(GROUP),)),
    ("dead_letters.retries", (DeadLettersQuery(GROUP),)),
    ("dead_letters.history", (HistoryQuery(WAITING),)),
    ("redrives.preview", (RedrivePreviewRequest(RedriveSpec(GROUP)),)),
    ("redrives.get", (RedriveJobQuery(JOB, with_results=True),)),
    ("redrives.all", ()),
    ("redrives.outcomes", (OutcomesQuery(JOB),)),
    ("log.snapshot", (LogSnapshotRequest(("orders",)),)),
    ("log.read", (LogReadRequest(0),)),
    ("log.read_queue", (QueueReadRequest(dlq_topic(GROUP), 0, 0),)),
)
"""Every method that only reads."""


async def ask(service: Service, method: str, arguments: tuple[Any, ...]) -> Any:
    return await attrgetter(method)(service)(*arguments)


@contextmanager
def filled(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A pending message, dead letters, a redrive job that has not begun, and so on."""
    under_test = BrokerUnderTest(tmp_path)
    under_test.send(Message("orders", b"the record at physical offset 0"))
    assert send_half(under_test, "half").physical_offset == HALF_AT
    under_test.send(Message("orders", b"x", delay_level=5, message_id=WAITING))
    send_timer(under_test, TIMER, TIMER_DELIVER_MS=TIMER_MS)
    bury_many(under_test, 3)
    start(under_test, JOB)
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue("orders", 0): 1}))
    under_test.send(Message("unused", b"x"))
    under_test.broker.topics.delete("unused")
    table = under_test.broker.leases.table
    lease = Lease(
        HELD.lease,
        bytes(16),
        group=HOLDERS,
        topic="orders",
        client_id="holder",
        until_ms=START_MS + 86_400_000,
        is_renewed=False,
    )
    under_test.broker.groups.for_use(HOLDERS)
    queue = table.queue(HOLDERS, Queue("orders", 0))
    assert queue is not None
    queue.lease(0, lease)
    table.begin(lease, ((queue, (0,)),))
    KeyValues(under_test.store).put("space", "known", "value")
    yield under_test
    under_test.store.release()

"""Every method of the service with a request for it, and a broker that has what they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    PendingFilter,
    PendingQuery,
    RecallHandle,
    TimelineRequest,
)
from rmqlite.features.dead_letters.requests import DeadLettersQuery, HistoryQuery, PurgeRequest
from rmqlite.features.every import features
from rmqlite.features.finding.requests import MessageQuery
from rmqlite.features.leases.leased_queue import Lease
from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.requests import (
    AckRequest,
    FailRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.features.operating.requests import OffsetReset
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
from rmqlite.features.request_modes.requests import AssignmentQuery, RequestMode, RequestModeChange
from rmqlite.features.transactions.requests import TransactionEnd
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.requests.broker import LevelsChange, ScheduleAction
from rmqlite.kernel.requests.groups import (
    GroupChange,
    GroupInfo,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.requests.topics import Queue, RouteRequest, TimeQuery, TopicExtras, TopicInfo
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import HALF_ENDS_TOPIC, HALF_TOPIC, dlq_topic
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
    ("BulkCalls.schedule", (bulk_request(["a"]), BORN_HOST)),
    ("messages.send_back", (SendBackRequest(GROUP, 0),)),
    ("messages.pull", (PullRequest(NEW, "orders", 0, 0),)),
    ("topics.route", (RouteRequest(NEW, create=True),)),
    ("topics.create", (TopicInfo(NEW, 1, 1),)),
    ("topics.change", (TopicInfo(NEW, 1, 1), TopicExtras())),
    ("DeletionCalls.delete", ("orders",)),
    ("DeletionCalls.delete_unused", ()),
    ("groups.commit", (OffsetsCommit(NEW, {}),)),
    ("groups.heartbeat", (HeartbeatRequest(NEW, "client", (Subscription("orders"),)),)),
    ("groups.change", (GroupChange(GROUP, max_reconsume_times=3),)),
    ("groups.copy_offsets", (NEW, GROUP)),
    ("groups.delete", (GROUP,)),
    ("SettingCalls.change", ({"messageDelayLevel": DEFAULT_LEVELS + " 3h"},)),
    ("KeyValueCalls.put", ("space", "key", "value")),
    ("KeyValueCalls.delete", ("space", "known")),
    ("KeyValueCalls.set_order", (True,)),
    ("ChangeCalls.recall", ("orders", RecallHandle("orders", "broker-a", TIMER_MS, TIMER).text())),
    ("schedule.change_levels", (LevelsChange("7s 1h"),)),
    ("ChangeCalls.change_by_ids", (ChangeByIds(ScheduleAction.CANCEL, (WAITING,)),)),
    ("ChangeCalls.change_by_ids", (ChangeByIds(ScheduleAction.FIRE, (WAITING,)),)),
    (
        "ChangeCalls.change_by_ids",
        (ChangeByIds(ScheduleAction.RESCHEDULE, (WAITING,), delay_level=2),),
    ),
    ("ChangeCalls.change_by_filter", (ChangeByFilter(ScheduleAction.CANCEL, FILTER),)),
    ("ChangeCalls.change_by_filter", (ChangeByFilter(ScheduleAction.FIRE, FILTER),)),
    (
        "ChangeCalls.change_by_filter",
        (ChangeByFilter(ScheduleAction.RESCHEDULE, FILTER, delay_level=2),),
    ),
    ("LeaseCalls.receive", (ReceiveRequest(NEW, "orders", "client", invisible_ms=1_000),)),
    ("ModeCalls.change_mode", (RequestModeChange(NEW, "orders", RequestMode.POP),)),
    ("LeaseCalls.ack", (AckRequest(HOLDERS, "orders", (HELD,)),)),
    ("LeaseCalls.change", (InvisibleChange(HOLDERS, "orders", HELD, 2_000),)),
    ("LeaseCalls.fail", (FailRequest(HOLDERS, "orders", HELD, is_dead=True),)),
    ("LeaseCalls.receive_any", ([ReceiveRequest(NEW, "orders", "c", invisible_ms=1)],)),
    ("LeaseCalls.release", (HOLDERS, "holder")),
    ("DeadLetterCalls.purge", (PurgeRequest(GROUP),)),
    ("RedriveCalls.start", (RedriveRequest(RedriveSpec(GROUP), "another"),)),
    ("RedriveCalls.change", (JobChange(JOB, JobAction.PAUSE),)),
    ("RedriveCalls.import_letters", (ImportRequest(GROUP, (LETTER,)),)),
    ("TransactionCalls.end", (TransactionEnd(PRODUCERS, 0, HALF_AT, is_commit=True),)),
)
"""Every method that can change what is on disk, with a request that does."""
READING: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("status", ()),
    ("FindingCalls.find", (MessageQuery("orders", "key"),)),
    ("FindingCalls.at", ("",)),
    ("FindingCalls.hand_out", ("",)),
    ("messages.record", (0,)),
    ("BulkCalls.job", (JOB,)),
    ("BulkCalls.jobs", ()),
    ("topics.all", ()),
    ("topics.probed", ("broker-a",)),
    ("topics.settings", ()),
    ("topics.settings_of", ("orders",)),
    ("topics.extras", ("orders",)),
    ("topics.version", ()),
    ("topics.entries", (Queue("orders", 0), 0, 1)),
    ("topics.written_ranges", ("orders",)),
    ("topics.clean", ()),
    ("FigureCalls.traffic", ()),
    ("FigureCalls.of_topic", ("orders",)),
    ("FigureCalls.of_timers", ()),
    ("FigureCalls.of_group", ("orders", GROUP)),
    ("FigureCalls.appends", ()),
    ("FigureCalls.refused_sends", ()),
    ("FigureCalls.unsynced_bytes", ()),
    ("FigureCalls.disk", ()),
    ("FigureCalls.first_stored_ms", ()),
    ("SettingCalls.all", ()),
    ("KeyValueCalls.of", ("space",)),
    ("KeyValueCalls.has_order", ()),
    ("KeyValueCalls.order_of", ("orders",)),
    ("KeyValueCalls.orders", ()),
    ("topics.info", ("orders",)),
    ("DeletionCalls.loss", ("orders",)),
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
    ("ProgressCalls.taken", (GROUP,)),
    ("ProgressCalls.times", (GROUP, "orders")),
    ("ProgressCalls.reset", (GROUP, "orders", None)),
    ("ProgressCalls.preview_reset", (OffsetReset(GROUP, "orders", 0),)),
    ("ProgressCalls.reset_offsets", (OffsetReset(GROUP, "orders", 0),)),
    ("groups.committed_by_topic", (GROUP,)),
    ("groups.committing", ()),
    ("ProgressCalls.status", (GROUP,)),
    ("groups.info", (GROUP,)),
    ("groups.offsets", (OffsetsQuery(GROUP, (Queue("orders", 0),)),)),
    ("groups.check", (HeartbeatRequest(GROUP, "client", (Subscription("orders"),)),)),
    ("ModeCalls.modes", ()),
    ("ModeCalls.assigned", (AssignmentQuery(GROUP, "orders", "client"),)),
    ("topics.elsewhere", ("orders",)),
    ("LeaseCalls.peek", (ReceiveRequest(GROUP, "orders", "client"),)),
    ("LeaseCalls.waiting", (ReceiveRequest(GROUP, "orders", "client"),)),
    ("QueueLockCalls.lock", (GROUP, "client", (Queue("orders", 0),))),
    ("QueueLockCalls.unlock", (GROUP, "client", (Queue("orders", 0),))),
    ("groups.leave", (LeaveRequest(GROUP, "client"),)),
    ("groups.members", (GROUP,)),
    ("ChangeCalls.pending", (PendingQuery(),)),
    ("ChangeCalls.counts", ()),
    ("schedule.delivered", ()),
    ("schedule.positions", ()),
    ("ChangeCalls.timeline", (TimelineRequest((1_000,)),)),
    ("schedule.levels", ()),
    ("DeadLetterCalls.dead_groups", ()),
    ("DeadLetterCalls.reasons", (GROUP,)),
    ("DeadLetterCalls.dead", (DeadLettersQuery(GROUP),)),
    ("DeadLetterCalls.retries", (DeadLettersQuery(GROUP),)),
    ("DeadLetterCalls.history", (HistoryQuery(WAITING),)),
    ("RedriveCalls.preview", (RedrivePreviewRequest(RedriveSpec(GROUP)),)),
    ("RedriveCalls.get", (RedriveJobQuery(JOB, with_results=True),)),
    ("RedriveCalls.all", ()),
    ("RedriveCalls.outcomes", (OutcomesQuery(JOB),)),
    ("LogCalls.snapshot", (LogSnapshotRequest(("orders",)),)),
    ("LogCalls.read", (LogReadRequest(0),)),
    ("LogCalls.read_queue", (QueueReadRequest(dlq_topic(GROUP), 0, 0),)),
)
"""Every method that only reads."""


def parts_of(service: Service) -> dict[str, Part]:
    """The service and its parts, those of features by their type's name."""
    own = {name: part for name, part in vars(service).items() if isinstance(part, Part)}
    of_features = {kind.__name__: service[kind] for each in features() for kind in each.calls}
    return {"": service, **own, **of_features}


async def ask(service: Service, method: str, arguments: tuple[Any, ...]) -> Any:
    part, _, name = method.rpartition(".")
    return await getattr(parts_of(service)[part], name)(*arguments)


def topic_row(topic: str) -> dict[str, Any]:
    return {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}


@contextmanager
def filled(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A pending message, dead letters, a redrive job that has not begun, and so on."""
    # A file from before, so that no record makes these topics and groups.
    (tmp_path / "config").mkdir()
    topics = {name: topic_row(name) for name in ("orders", HALF_TOPIC, HALF_ENDS_TOPIC)}
    text = json.dumps({"topicConfigTable": topics})
    (tmp_path / "config" / "topics.json").write_text(text)
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
    table = under_test.broker[Leases].table
    lease = Lease(
        HELD.lease,
        bytes(16),
        group=HOLDERS,
        topic="orders",
        client_id="holder",
        until_ms=START_MS + 86_400_000,
        is_renewed=False,
    )
    under_test.broker.groups.make([GroupInfo(HOLDERS)])
    queue = table.queue(HOLDERS, Queue("orders", 0))
    assert queue is not None
    queue.lease(0, lease)
    table.begin(lease, ((queue, (0,)),))
    KeyValues(under_test.store).put("space", "known", "value")
    yield under_test
    under_test.store.release()

"""A broker near its limits, and the largest request that each call may be.

Tables are as long as they may be; of messages there are so many that pages, slices and steps are
full.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import GET_BULK_JOB, LIST_BULK_JOBS, SCHEDULE_BULK, BulkRequest
from rmqlite.features.changes.requests import (
    BOUNDS_MAX,
    CHANGE_BY_FILTER,
    CHANGE_BY_IDS,
    COUNT_PENDING,
    GET_TIMELINE,
    IDS_MAX,
    LIST_PENDING,
    ChangeByFilter,
    ChangeByIds,
    PendingFilter,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.features.dead_letters.requests import (
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_REASONS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
    DeadLetterFilter,
    DeadLettersQuery,
    HistoryQuery,
    PurgeRequest,
)
from rmqlite.features.finding.requests import GET_MESSAGE, QUERY_MESSAGES, MessageQuery
from rmqlite.features.operating.requests import (
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    PREVIEW_OFFSET_RESET,
    PREVIEW_TOPIC_DELETION,
    RESET_OFFSETS,
    GroupDeletion,
    OffsetReset,
)
from rmqlite.features.raw_log.requests import (
    GET_LOG_SNAPSHOT,
    READ_LOG,
    READ_QUEUE,
    LogReadRequest,
    LogSnapshotRequest,
    QueueReadRequest,
)
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    GET_REDRIVE_JOB,
    IMPORT_DEAD_LETTERS,
    LIST_REDRIVE_JOBS,
    LIST_REDRIVE_OUTCOMES,
    PREVIEW_REDRIVE,
    START_REDRIVE,
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
from rmqlite.features.rows import Row
from rmqlite.kernel.requests.groups import (
    GroupChange,
    GroupInfo,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    OffsetsQuery,
    Subscription,
)
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest, SendRequest
from rmqlite.kernel.requests.schedule import LevelsChange, ScheduleAction
from rmqlite.kernel.requests.topics import Queue, RouteRequest, TimeQuery, TopicInfo
from rmqlite.kernel.tables.membership import PAUSE_MS
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.levels import INSTANT_MS_MIN
from rmqlite.kernel.words.message import Message, offset_message_id
from rmqlite.protocols.native.bytes import rpcs
from tests.support.brokers import BrokerUnderTest
from tests.support.sends import BORN_HOST, request_of
from tests.support.steps import done

GROUP: Final = "large-group"
READERS: Final = "readers"
WIDE: Final = "wide"
TOPIC: Final = "orders"
BODY: Final = bytes(4_000)
DAY_MS: Final = 86_400_000
LETTERS: Final = 1_500
PENDING: Final = 4_000
JOBS: Final = 1_000
USED: Final = 640
"""The number of topics that have messages."""
REASON: Final = "ValueError: " + "y" * 500
KEY_TEXT: Final = "k" * (limits.KEYS_BYTES_MAX // limits.KEYS_MAX - 2)
TEXT: Final = "x" * limits.MESSAGE_ID_BYTES_MAX
PROPERTIES: Final = {f"name-{number}": "v" * 20 for number in range(16)}


def filled(broker: BrokerUnderTest) -> None:
    """Bring a broker near its limits."""
    inner, config = broker.broker, broker.config
    rest = config.topics_max - len(inner.topics.all()) - 1_000
    inner.topics.make([TopicInfo(f"topic-{number:05}", 4, 4) for number in range(rest)])
    inner.groups.make([GroupInfo(f"group-{number:05}") for number in range(config.groups_max - 40)])
    inner.topics.create(TopicInfo(WIDE, config.topic_queues_max, config.topic_queues_max))
    _messages(broker)
    _members(broker)
    _jobs(broker)
    queues = {Queue(WIDE, number): 0 for number in range(config.topic_queues_max)}
    inner.commit_offsets(OffsetsCommit(READERS, queues))
    broker.sync()


def wait(number: int) -> dict[str, Any]:
    """Half of the messages wait at a level, the other half for instants, in no order."""
    if number % 2:
        return {"deliver_after": timedelta(milliseconds=DAY_MS + number * 7_919_317 % DAY_MS)}
    return {"delay_level": 18}


def _messages(broker: BrokerUnderTest) -> None:
    for begin in range(0, USED, limits.NEW_QUEUES_MAX):
        names = [f"used-{number:05}" for number in range(begin, begin + limits.NEW_QUEUES_MAX)]
        broker.send(*[Message(name, b"x") for name in names])
    for begin in range(0, PENDING, 500):
        broker.send(
            *[
                Message(TOPIC, b"x" * 100, message_id=f"id-{number}", keys=("k",), **wait(number))
                for number in range(begin, begin + 500)
            ]
        )
    for _ in range(6):
        broker.send(*[Message(TOPIC, BODY, "a", properties=PROPERTIES) for _ in range(250)])
    for _ in range(LETTERS // 500):
        for sent in broker.send(*[Message("sent", b"x" * 100, keys=("k",)) for _ in range(500)]):
            for level in (-1, 3):
                broker.broker.send_back(
                    SendBackRequest(
                        READERS, sent.physical_offset, level, "ValueError: " + "y" * 500
                    )
                )
    broker.sync()


def _members(broker: BrokerUnderTest) -> None:
    subscriptions = (Subscription(TOPIC, "a || b"), Subscription(WIDE))
    for number in range(broker.config.group_members_max - 10):
        broker.broker.heartbeat(HeartbeatRequest(GROUP, f"member-{number:05}", subscriptions))
    broker.clock.forward(PAUSE_MS * broker.config.group_members_max)
    for _ in broker.broker.membership.rebalance():
        pass


def _jobs(broker: BrokerUnderTest) -> None:
    for number in range(JOBS):
        body, message_id = (b"x",), (f"bulk-{number}",)
        request = BulkRequest(body, message_id, ("bulk",), job_id=f"job-{number}")
        done(broker.broker[Bulk].schedule(request, BORN_HOST))
    for number in range(12):
        broker.broker[Redrive].start(RedriveRequest(RedriveSpec(READERS), f"redrive-{number}"))
    while broker.broker[Redrive].step("redrive-0").looked_at:
        pass
    broker.sync()


class Largest:
    """The largest request of each call; a new one each time if it can be done only once."""

    def __init__(self, broker: BrokerUnderTest, rpc: Row[Any, Any]) -> None:
        self._broker = broker
        self._rpc = rpc
        self._number = 0

    def next(self) -> Any:
        """If two kinds of requests are large, one of each in turn."""
        self._number += 1
        return REQUESTS[self._rpc](self)

    @property
    def is_first(self) -> bool:
        """Is the next request of the first kind?"""
        return self._number % 2 == 1

    @property
    def name(self) -> str:
        """A name that was not used before."""
        return f"{self._rpc.name}-{self._number:05}"

    def send(self) -> SendRequest:
        """As many messages, bytes, keys and properties as one call may have, all scheduled.

        In every second call they wait for instants.
        """
        count, config = self._broker.config.send_messages_max, self._broker.config
        message = Message(
            TOPIC,
            bytes(config.send_bytes_max // count),
            tags="t" * 100,
            keys=tuple(KEY_TEXT + str(number) for number in range(limits.KEYS_MAX // count)),
            properties={str(number): "v" * 20 for number in range(limits.PROPERTIES_MAX // count)},
            **wait(self._number),
        )
        ids = (f"{self.name}-{number}".ljust(200, "i") for number in range(count))
        return request_of([message.named(each) for each in ids])

    def bulk(self) -> BulkRequest:
        config = self._broker.config
        count = config.bulk_messages_max
        pairs = [f"{number}\x01{'v' * 20}" for number in range(limits.PROPERTIES_MAX // count)]
        keys = " ".join(KEY_TEXT + str(number) for number in range(limits.KEYS_MAX // count))
        return BulkRequest(
            (bytes(config.send_bytes_max // count),) * count,
            tuple([f"{self.name}-{number}".ljust(200, "i") for number in range(count)]),
            (TOPIC,) * count,
            ("t" * 100,) * count,
            (keys,) * count,
            ("\x02".join(pairs),) * count,
            (0,) * count if self.is_first else (18,) * count,
            deliver_at_ms=self.instants(count) if self.is_first else (),
            job_id="largest",
        )

    def instants(self, count: int) -> tuple[int, ...]:
        """In no order."""
        begin_ms = self._broker.clock.now_ms() + DAY_MS
        return tuple([begin_ms + number * 7_919_317 % DAY_MS for number in range(count)])

    def new_time(self) -> dict[str, Any]:
        """Of a reschedule: an instant, then a level."""
        return {"deliver_after_ms": DAY_MS} if self.is_first else {"delay_level": 18}

    def new_topics(self) -> BulkRequest:
        count = limits.NEW_QUEUES_MAX
        names = tuple([f"{self.name}-{number}" for number in range(count)])
        return BulkRequest((b"x",) * count, names, names)

    def queues(self) -> dict[Queue, int]:
        names = [f"topic-{number:05}" for number in range(limits.QUEUES_MAX // 4)]
        return {Queue(name, queue_id): 0 for name in names for queue_id in range(4)}

    def heartbeat(self) -> HeartbeatRequest:
        expression = "||".join(f"tag-{number}" for number in range(40))
        topics = [f"topic-{number:05}" for number in range(limits.CALL_SUBSCRIPTIONS_MAX - 1)]
        sql = " OR ".join([f"{self.name.replace('-', '_')}=1"] * 20)
        size = limits.SUBSCRIPTIONS_SQL_BYTES_MAX // limits.CALL_SUBSCRIPTIONS_MAX
        subscriptions = tuple(
            Subscription(
                topic, expression, f"{sql[: size - 30].rpartition(' OR ')[0]} OR a={number}"
            )
            for number, topic in enumerate((*topics, WIDE))
        )
        return HeartbeatRequest(GROUP, self.name, subscriptions)

    def pull(self) -> PullRequest:
        config = self._broker.config
        expression = "a || " + " || ".join(f"tag-{number}" for number in range(300))
        most = (config.pull_messages_max, config.pull_bytes_max)
        if self.is_first:
            sql = " OR ".join(["x=1"] * 500) + f" OR _{self._number} IS NULL"
            return PullRequest(READERS, TOPIC, 0, 0, expression, *most, sql=sql)
        return PullRequest(READERS, TOPIC, 0, 0, "*", *most)

    def offset_id(self) -> str:
        return offset_message_id("127.0.0.1:10911", 0)


KEY: Final = "k" * limits.KEY_BYTES_MAX
EVERY_DEAD_LETTER: Final = DeadLetterFilter(reason="nothing like that " * 50)
EVERY_PENDING: Final = PendingFilter(reason="nothing like that " * 50)
LETTER_PROPERTIES: Final = b"RETRY_TOPIC\x01orders"
SPEC: Final = RedriveSpec(READERS, DeadLetterFilter(reason="nothing like that " * 50), again=True)
REQUESTS: Final[dict[Row[Any, Any], Callable[[Largest], Any]]] = {
    rpcs.GET_ROUTE: lambda at: RouteRequest(at.name, create=True),
    rpcs.SEND: Largest.send,
    SCHEDULE_BULK: Largest.bulk,
    rpcs.PULL: Largest.pull,
    rpcs.SEND_BACK: lambda at: SendBackRequest(at.name, 0, 0, "é" * 30_000),
    rpcs.QUERY_OFFSETS: lambda at: OffsetsQuery(READERS, tuple(at.queues())),
    rpcs.COMMIT_OFFSETS: lambda at: OffsetsCommit(at.name, at.queues()),
    rpcs.SEARCH_OFFSET: lambda _: TimeQuery(Queue(TOPIC, 0), INSTANT_MS_MIN),
    rpcs.GET_QUEUE_RANGES: lambda _: WIDE,
    rpcs.HEARTBEAT: Largest.heartbeat,
    rpcs.LEAVE: lambda at: LeaveRequest(GROUP, f"member-{at._number:05}"),
    rpcs.LIST_TOPICS: lambda _: None,
    rpcs.CREATE_TOPIC: lambda at: TopicInfo(at.name, 1_024, 1_024),
    rpcs.LIST_GROUPS: lambda _: None,
    DESCRIBE_GROUP: lambda at: GROUP if at.is_first else READERS,
    rpcs.GET_BROKER_STATUS: lambda _: None,
    QUERY_MESSAGES: lambda at: MessageQuery(TOPIC, KEY if at.is_first else "k", history=True),
    GET_MESSAGE: Largest.offset_id,
    LIST_PENDING: lambda at: PendingQuery(
        EVERY_PENDING if at.is_first else PendingFilter(key="k"), max_messages=1_000
    ),
    COUNT_PENDING: lambda _: None,
    GET_TIMELINE: lambda at: TimelineRequest(
        tuple(at._broker.clock.now_ms() + 36_000 * number for number in range(BOUNDS_MAX))
    ),
    CHANGE_BY_IDS: lambda at: ChangeByIds(
        ScheduleAction.RESCHEDULE,
        tuple(f"id-{number}" for number in range(IDS_MAX)),
        **at.new_time(),
    ),
    CHANGE_BY_FILTER: lambda at: ChangeByFilter(
        ScheduleAction.RESCHEDULE, PendingFilter(topic=TOPIC), max_messages=2_000, **at.new_time()
    ),
    rpcs.GET_LEVELS: lambda _: None,
    rpcs.CHANGE_LEVELS: lambda at: LevelsChange(
        " ".join(f"{100 + at._number % 2 + number}s" for number in range(64)), dry_run=True
    ),
    LIST_DEAD_LETTER_GROUPS: lambda _: None,
    LIST_REASONS: lambda _: READERS,
    LIST_DEAD_LETTERS: lambda at: DeadLettersQuery(
        READERS, EVERY_DEAD_LETTER if at.is_first else DeadLetterFilter(), max_letters=1_000
    ),
    PURGE_DEAD_LETTERS: lambda _: PurgeRequest(READERS, dry_run=True),
    LIST_RETRIES: lambda at: DeadLettersQuery(
        READERS, EVERY_DEAD_LETTER if at.is_first else DeadLetterFilter(), max_letters=1_000
    ),
    GET_HISTORY: lambda at: HistoryQuery("id-1" if at.is_first else TEXT),
    PREVIEW_TOPIC_DELETION: lambda _: WIDE,
    DELETE_TOPIC: lambda at: at.name,
    DELETE_GROUP: lambda at: GroupDeletion(at.name, force=True),
    PREVIEW_OFFSET_RESET: lambda _: OffsetReset(READERS, WIDE, INSTANT_MS_MIN),
    RESET_OFFSETS: lambda at: OffsetReset(READERS, WIDE, INSTANT_MS_MIN + at._number),
    rpcs.SET_GROUP: lambda at: GroupChange(at.name, 3, 1_000, True, "3 4 " * 32),
    PREVIEW_REDRIVE: lambda _: RedrivePreviewRequest(SPEC),
    START_REDRIVE: lambda at: RedriveRequest(SPEC, at.name),
    GET_REDRIVE_JOB: lambda _: RedriveJobQuery("redrive-0", with_results=True),
    LIST_REDRIVE_JOBS: lambda _: None,
    CHANGE_REDRIVE_JOB: lambda at: JobChange("redrive-1", JobAction.SET_RATE, at._number),
    IMPORT_DEAD_LETTERS: lambda at: ImportRequest(
        READERS,
        tuple(
            ImportedDeadLetter(
                0, 1_000_000 + 100 * at._number + n, "", 0, LETTER_PROPERTIES, b"x" * 40_000
            )
            for n in range(100)
        ),
    ),
    LIST_REDRIVE_OUTCOMES: lambda _: OutcomesQuery("redrive-0", max_letters=1_000),
    GET_BULK_JOB: lambda _: "job-1",
    LIST_BULK_JOBS: lambda _: None,
    GET_LOG_SNAPSHOT: lambda at: LogSnapshotRequest(
        tuple(f"topic-{number:05}" for number in range(1_000)) if at.is_first else ()
    ),
    READ_LOG: lambda _: LogReadRequest(0, max_bytes=4 << 20),
    READ_QUEUE: lambda _: QueueReadRequest(TOPIC, 0, 0, max_bytes=4 << 20),
}

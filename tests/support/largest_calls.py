"""A broker near its limits, and the largest request that each call may be.

Tables are as long as they may be; of messages there are so many that pages, slices and steps are
full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkRequest
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.features.request_modes.request_modes import ROWS_MAX, RequestModes
from rmqlite.features.request_modes.requests import RequestMode, RequestModeChange
from rmqlite.features.rows import Row
from rmqlite.kernel.requests.broker import LevelsChange
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
from rmqlite.kernel.requests.topics import Queue, RouteRequest, TimeQuery, TopicInfo
from rmqlite.kernel.tables.membership import PAUSE_MS
from rmqlite.kernel.words import limits
from rmqlite.kernel.words.levels import INSTANT_MS_MIN
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import SendRequest
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
    modes = inner[RequestModes]
    for number in range(ROWS_MAX - 1_000):
        group, pulled = f"group-{number:05}", RequestMode.PULL
        # Not one by one into the log: that takes a while.
        modes._put(group, WIDE, RequestModeChange(group, WIDE, pulled))
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
        self.broker = broker
        self._rpc = rpc
        self.number = 0

    def next(self) -> Any:
        """If two kinds of requests are large, one of each in turn."""
        self.number += 1
        return largest_requests()[self._rpc](self)

    @property
    def is_first(self) -> bool:
        """Is the next request of the first kind?"""
        return self.number % 2 == 1

    @property
    def name(self) -> str:
        """A name that was not used before."""
        return f"{self._rpc.name}-{self.number:05}"

    def send(self) -> SendRequest:
        """As many messages, bytes, keys and properties as one call may have, all scheduled.

        In every second call they wait for instants.
        """
        count, config = self.broker.config.send_messages_max, self.broker.config
        message = Message(
            TOPIC,
            bytes(config.send_bytes_max // count),
            tags="t" * 100,
            keys=tuple(KEY_TEXT + str(number) for number in range(limits.KEYS_MAX // count)),
            properties={str(number): "v" * 20 for number in range(limits.PROPERTIES_MAX // count)},
            **wait(self.number),
        )
        ids = (f"{self.name}-{number}".ljust(200, "i") for number in range(count))
        return request_of([message.named(each) for each in ids])

    def new_time(self) -> dict[str, Any]:
        """Of a reschedule: an instant, then a level."""
        return {"deliver_after_ms": DAY_MS} if self.is_first else {"delay_level": 18}

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
        config = self.broker.config
        expression = "a || " + " || ".join(f"tag-{number}" for number in range(300))
        most = (config.pull_messages_max, config.pull_bytes_max)
        if self.is_first:
            sql = " OR ".join(["x=1"] * 500) + f" OR _{self.number} IS NULL"
            return PullRequest(READERS, TOPIC, 0, 0, expression, *most, sql=sql)
        return PullRequest(READERS, TOPIC, 0, 0, "*", *most)


KEY: Final = "k" * limits.KEY_BYTES_MAX
Requests = Mapping[Row[Any, Any], Callable[[Largest], Any]]
_OF_KERNEL: Final[Requests] = {
    rpcs.GET_ROUTE: lambda at: RouteRequest(at.name, create=True),
    rpcs.SEND: Largest.send,
    rpcs.PULL: Largest.pull,
    rpcs.SEND_BACK: lambda at: SendBackRequest(at.name, 0, 0, "é" * 30_000),
    rpcs.QUERY_OFFSETS: lambda at: OffsetsQuery(READERS, tuple(at.queues())),
    rpcs.COMMIT_OFFSETS: lambda at: OffsetsCommit(at.name, at.queues()),
    rpcs.SEARCH_OFFSET: lambda _: TimeQuery(Queue(TOPIC, 0), INSTANT_MS_MIN),
    rpcs.GET_QUEUE_RANGES: lambda _: WIDE,
    rpcs.HEARTBEAT: Largest.heartbeat,
    rpcs.LEAVE: lambda at: LeaveRequest(GROUP, f"member-{at.number:05}"),
    rpcs.LIST_TOPICS: lambda _: None,
    rpcs.CREATE_TOPIC: lambda at: TopicInfo(at.name, 1_024, 1_024),
    rpcs.LIST_GROUPS: lambda _: None,
    rpcs.GET_BROKER_STATUS: lambda _: None,
    rpcs.GET_LEVELS: lambda _: None,
    rpcs.CHANGE_LEVELS: lambda at: LevelsChange(
        " ".join(f"{100 + at.number % 2 + number}s" for number in range(64)), dry_run=True
    ),
    rpcs.SET_GROUP: lambda at: GroupChange(at.name, 3, 1_000, True, "3 4 " * 32),
}


@cache
def largest_requests() -> Requests:
    """By call, those of the kernel and of all features."""
    found = dict(_OF_KERNEL)
    for path in sorted((Path(__file__).parents[1] / "features").glob("*/largest.py")):
        found |= import_module(f"tests.features.{path.parent.name}.largest").LARGEST
    return found

"""The calls of administrators and tools: one method per call, no state."""

from __future__ import annotations

from typing import Final

from rmqlite.client.admin import AdminCalls
from rmqlite.client.admin.dead_letters import DeadLetterAdmin
from rmqlite.client.admin.redrive import RedriveAdmin
from rmqlite.client.admin.schedule import ScheduleAdmin
from rmqlite.client.channel import Closing, Connection
from rmqlite.client.credentials import Credentials
from rmqlite.features.bulk.requests import GET_BULK_JOB, LIST_BULK_JOBS, BulkJob
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
from rmqlite.kernel.requests.figures import BrokerStatus
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.requests.schedule import LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.kernel.requests.topics import QueueRange, Route, RouteRequest, TopicInfo
from rmqlite.protocols.native.bytes import rpcs


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

    def route(self, topic: str) -> Route:
        """A topic's settings, the level table and the body limit.  Raises TopicUnknown."""
        return self._ask(rpcs.GET_ROUTE, RouteRequest(topic))

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
    ) -> GroupInfo:
        """Change a group's settings at once and durably, or create it; None changes nothing.

        retry_policy: "3 5 7", "10s 1m 10m", "exponential(10s, 2, 1h)", or "" for RocketMQ's.
        orderly: clients of RocketMQ 5 consume the messages of a message group in order.
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

    def job(self, job_id: str) -> BulkJob:
        """The counts and samples of a bulk job, over all its calls.  Raises JobUnknown."""
        return self._ask(GET_BULK_JOB, job_id)

    def jobs(self) -> tuple[BulkJob, ...]:
        """Every bulk job that the broker remembers, without samples, the latest used first."""
        return self._ask(LIST_BULK_JOBS, None)

    def close(self) -> None:
        self._connection.close()

"""rmqlite.v1.Admin: convert, call the broker, convert."""

from __future__ import annotations

from rmqlite.broker.broker import Broker
from rmqlite.requests.bulk import BulkJob
from rmqlite.requests.finding import FoundMessage, FoundMessages, MessageQuery
from rmqlite.requests.groups import GroupChange, GroupInfo, GroupStatus
from rmqlite.requests.levels import LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.requests.status import BrokerStatus
from rmqlite.requests.topics import TopicInfo
from rmqlite.server.front import Context, Methods
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.letter_service import LetterService
from rmqlite.server.redrive_service import RedriveService
from rmqlite.server.schedule_service import ScheduleService
from rmqlite.server.turns import done_in_turns
from rmqlite.server.waiting import Waiting
from rmqlite.wire import rpcs


class AdminService:
    """What administrators and tools call."""

    def __init__(self, broker: Broker, pulls: Waiting, commit: GroupCommit) -> None:
        self._broker = broker
        self._schedule = ScheduleService(broker, commit)
        self._letters = LetterService(broker)
        self._redrive = RedriveService(broker, commit)
        self._pulls = pulls

    def methods(self) -> Methods:
        return {
            rpcs.LIST_TOPICS: self.list_topics,
            rpcs.CREATE_TOPIC: self.create_topic,
            rpcs.LIST_GROUPS: self.list_groups,
            rpcs.DESCRIBE_GROUP: self.describe_group,
            rpcs.SET_GROUP: self.set_group,
            rpcs.GET_LEVELS: self.get_levels,
            rpcs.CHANGE_LEVELS: self.change_levels,
            rpcs.GET_BROKER_STATUS: self.get_broker_status,
            rpcs.QUERY_MESSAGES: self.query_messages,
            rpcs.GET_MESSAGE: self.get_message,
            rpcs.GET_BULK_JOB: self.get_bulk_job,
            rpcs.LIST_BULK_JOBS: self.list_bulk_jobs,
            **self._schedule.methods(),
            **self._letters.methods(),
            **self._redrive.methods(),
        }

    async def list_topics(self, _: None, __: Context) -> tuple[TopicInfo, ...]:
        return self._broker.topics.all()

    async def create_topic(self, topic: TopicInfo, _: Context) -> TopicInfo:
        return self._broker.topics.create(topic)

    async def list_groups(self, _: None, __: Context) -> tuple[GroupInfo, ...]:
        return self._broker.all_groups()

    async def describe_group(self, group: str, _: Context) -> GroupStatus:
        return await done_in_turns(self._broker.group_status(group))

    async def set_group(self, change: GroupChange, _: Context) -> GroupInfo:
        return self._broker.groups.change(change)

    async def get_broker_status(self, _: None, __: Context) -> BrokerStatus:
        return self._broker.status(self._pulls.count)

    async def query_messages(self, query: MessageQuery, _: Context) -> FoundMessages:
        return await done_in_turns(self._broker.find_messages(query))

    async def get_message(self, offset_message_id: str, _: Context) -> FoundMessage:
        return self._broker.message_at(offset_message_id)

    async def get_bulk_job(self, job_id: str, _: Context) -> BulkJob:
        return self._broker.bulk.jobs.get(job_id)

    async def list_bulk_jobs(self, _: None, __: Context) -> tuple[BulkJob, ...]:
        return self._broker.bulk.jobs.all()

    async def get_levels(self, _: None, __: Context) -> LevelsInForce:
        return self._broker.levels.in_force()

    async def change_levels(self, change: LevelsChange, _: Context) -> LevelsChanged:
        return self._broker.levels.change(change)

"""Consumer groups: settings, deletion, offsets, and the locks of ordered consumers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from rmqlite.features.operating.requests import GroupProgress, QueueTimes
from rmqlite.features.operating.service import ProgressCalls
from rmqlite.features.queue_locks.feature import QueueLockCalls
from rmqlite.kernel.requests.groups import (
    GroupChange,
    GroupExtras,
    GroupInfo,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import next_slice
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import NotMaster, Refused
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.requests import groups as codes
from rmqlite.protocols.remoting.bytes.requests.groups import (
    USUAL_SETTINGS,
    BrokerConsumeStats,
    BrokerConsumeStatsQuery,
    ConsumeOffset,
    ConsumeStats,
    ConsumeStatsQuery,
    CustomizedRetryPolicy,
    GroupAndTopic,
    GroupDelete,
    GroupOffsets,
    GroupQueue,
    GroupRetryPolicy,
    LockedQueues,
    LockRequest,
    MessageQueue,
    OffsetAnswer,
    OffsetCommit,
    OffsetsCopy,
    QueueAtTime,
    QueueOfTopic,
    RetryPolicyType,
    SettingsQuery,
    SubscriptionGroup,
    SubscriptionGroups,
    TableVersionBody,
    TimeSpan,
    TimeSpans,
    TimestampAnswer,
)
from rmqlite.protocols.remoting.bytes.shapes import read_change, write_body
from rmqlite.protocols.remoting.calls import (
    BYTES_MAX,
    Call,
    CodeRefusal,
    answers,
    large_body,
    read_large,
)

log = logging.getLogger(__name__)
QUEUES_A_STEP: Final = 100
"""The queues that are looked at without a turn for other calls: 5 ms.  A group counts as one."""
OFFSETS_A_STEP: Final = 2_000
"""The offsets that are taken without a turn for other calls: 2 ms.  A group counts as ten."""
_GROUP: Final = 10
GROWTH_STEPS_MAX: Final = 33
"""RocketMQ's exponential policy grows no more after so many retries."""


class Queues:
    """Requests about queues."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.QUERY_CONSUMER_OFFSET)
    async def offset(self, call: Call[GroupQueue]) -> Command | None:
        """A group's offset in a queue.  A queue that still has its first message begins there.

        Clients take any error for 22, and then skip or repeat messages: 22 is the answer for a
        group or a queue that cannot exist, and if the broker fails it gives no answer at all.
        """
        try:
            return await self._offset_of(call)
        except (FieldError, Refused) as error:
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from None
        except CodeRefusal:
            raise
        except NotMaster:
            return None
        except Exception as error:
            log.error("a group's offset is not answered", exc_info=error)
            return None

    async def _offset_of(self, call: Call[GroupQueue]) -> Command:
        asked = call.asked()
        queue = _queue(asked)
        known = await self._service.groups.offsets(OffsetsQuery(asked.consumer_group, (queue,)))
        offset = known.get(queue)
        if offset is None:
            if await self._service.topics.first_offset(queue) > 0:
                remark = f"group {asked.consumer_group} has no offset here"
                raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        return call.done(OffsetAnswer(offset))

    @answers(codes.UPDATE_CONSUMER_OFFSET)
    async def commit(self, call: Call[OffsetCommit]) -> Command:
        asked = call.asked()
        offsets = {_queue(asked): asked.commit_offset}
        await self._service.groups.commit(OffsetsCommit(asked.consumer_group, offsets))
        return call.done()

    @answers(codes.SEARCH_OFFSET_BY_TIMESTAMP)
    async def search(self, call: Call[QueueAtTime]) -> Command:
        asked = call.asked()
        query = TimeQuery(_queue(asked), asked.timestamp)
        return call.done(OffsetAnswer(await self._service.topics.search_offset(query)))

    @answers(codes.GET_MAX_OFFSET)
    async def max_offset(self, call: Call[QueueOfTopic]) -> Command:
        offset = await self._service.topics.end_offset(_queue(call.asked()))
        return call.done(OffsetAnswer(offset))

    @answers(codes.GET_MIN_OFFSET)
    async def min_offset(self, call: Call[QueueOfTopic]) -> Command:
        offset = await self._service.topics.first_offset(_queue(call.asked()))
        return call.done(OffsetAnswer(offset))

    @answers(codes.GET_EARLIEST_MSG_STORETIME)
    async def earliest(self, call: Call[QueueOfTopic]) -> Command:
        stored_ms = await self._service.topics.earliest_ms(_queue(call.asked()))
        return call.done(TimestampAnswer(-1 if stored_ms is None else stored_ms))

    @answers(codes.LOCK_BATCH_MQ)
    async def lock(self, call: Call[Nothing]) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        queues = [_queue(each) for each in asked.mq_set]
        locks = self._service[QueueLockCalls]
        locked = await locks.lock(asked.consumer_group, asked.client_id, queues)
        answer = LockedQueues(tuple([each for each in asked.mq_set if _queue(each) in locked]))
        return call.done(body=await asyncio.to_thread(write_body, answer))

    @answers(codes.UNLOCK_BATCH_MQ)
    async def unlock(self, call: Call[Nothing]) -> Command:
        asked = await read_large(LockRequest, call.command.body)
        queues = [_queue(each) for each in asked.mq_set]
        await self._service[QueueLockCalls].unlock(asked.consumer_group, asked.client_id, queues)
        return call.done()


def _queue(asked: GroupQueue | OffsetCommit | QueueAtTime | QueueOfTopic | MessageQueue) -> Queue:
    return Queue(asked.topic, asked.queue_id)


class Groups:
    """Requests about settings of groups."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def change(self, call: Call[Nothing]) -> Command:
        """Create a group, or give it other settings."""
        asked = read_change(SubscriptionGroup, call.command.body, USUAL_SETTINGS)
        levels = await self._service.schedule.levels()
        await self._service.groups.change(
            GroupChange(
                asked.group_name,
                asked.retry_max_times,
                asked.retry_queue_nums,
                asked.consume_enable,
                retry_policy=_policy_text(_retry_lengths(asked), levels.message_delay_level),
                orderly=asked.consume_message_orderly,
            ),
            GroupExtras(
                asked.broker_id,
                asked.consume_broadcast_enable,
                asked.consume_from_min_enable,
                asked.notify_consumer_ids_changed_enable,
                asked.which_broker_when_consume_slowly,
            ),
        )
        return call.done()

    @answers(codes.GET_SUBSCRIPTIONGROUP_CONFIG)
    async def one(self, call: Call[SettingsQuery]) -> Command:
        info, extras = await self._service.groups.settings_of(call.asked().group)
        return call.done(body=_config(info, extras))

    @answers(codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    async def all(self, call: Call[Nothing]) -> Command:
        settings = await self._service.groups.settings()
        counter, changed_at_ms = await self._service.groups.version()
        body = await large_body(
            SubscriptionGroups({}, TableVersionBody(changed_at_ms, counter)),
            "subscription_group_table",
            ((info.group, _config(info, extras)) for info, extras in settings),
        )
        return call.done(body=body)

    @answers(codes.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, call: Call[GroupDelete]) -> Command:
        """Delete a group's settings, and its offsets if that is asked for."""
        asked = call.asked()
        await self._service.groups.delete(asked.group_name, with_offsets=asked.remove_offset)
        return call.done()


def _config(info: GroupInfo, extras: GroupExtras) -> SubscriptionGroup:
    return SubscriptionGroup(
        info.group,
        info.can_consume,
        extras.begins_at_min,
        extras.may_broadcast,
        info.retry_queues,
        info.max_reconsume_times,
        extras.broker_id,
        extras.broker_id_when_slow,
        extras.notifies_members,
        info.orderly or None,
        _retry_policy(info),
    )


def _retry_lengths(asked: SubscriptionGroup) -> list[int]:
    """The lengths, in milliseconds, of the retries that a policy asks for; none: the usual ones.

    As RocketMQ 5 computes them: of a customized policy the third length is the first retry's.
    """
    policy = asked.group_retry_policy or GroupRetryPolicy()
    if policy.type is RetryPolicyType.CUSTOMIZED:
        given = policy.customized_retry_policy
        lengths = () if given is None else given.next
        if given is not None and not lengths:
            raise FieldError("groupRetryPolicy.customizedRetryPolicy.next", "[]", "some lengths")
        return _above_zero("customizedRetryPolicy", [*(lengths[2:] or lengths[-1:])])
    growth = policy.exponential_retry_policy
    if growth is None:
        return []
    found: list[int] = []
    # The limit of retries says how many lengths are ever needed; the last one repeats.
    for step in range(max(1, min(asked.retry_max_times, GROWTH_STEPS_MAX))):
        found.append(min(growth.max, growth.initial * growth.multiplier**step))
        if found[-1] == growth.max or found[-2:-1] == found[-1:]:
            break
    return _above_zero("exponentialRetryPolicy", found)


def _policy_text(lengths_ms: Sequence[int], levels: str) -> str | None:
    """The policy that waits exactly so long before the first, second … retry; the last repeats.

    It is one of levels if each length is a level's.  None without any length.
    """
    if not lengths_ms:
        return None
    table = parse_levels(levels)
    names = {ms: table.name(level) for level, ms in enumerate(table.delays_ms, 1)}
    if names.keys() >= {*lengths_ms}:
        return " ".join([names[each] for each in lengths_ms])
    return f"list({', '.join([f'{each}ms' for each in lengths_ms])})"


def _above_zero(kind: str, lengths_ms: list[int]) -> list[int]:
    for each in lengths_ms:
        if each <= 0:
            raise FieldError(f"groupRetryPolicy.{kind}", each, "lengths above 0 ms")
    return lengths_ms


def _retry_policy(info: GroupInfo) -> GroupRetryPolicy | None:
    """A policy of lengths as RocketMQ 5 knows it; others, or with jitter, have no such form."""
    policy = RetryPolicy.parse(info.retry_policy)
    lengths = policy.delays_ms
    if not lengths or policy.jitter:
        return None
    # Two lengths in front that no retry takes.
    listed = CustomizedRetryPolicy((*lengths[:1] * 2, *lengths))
    return GroupRetryPolicy(customized_retry_policy=listed)


class OffsetRequests:
    """Requests about committed offsets.  address: the broker's."""

    def __init__(self, broker_name: str, address: str, service: Service) -> None:
        self._broker_name = broker_name
        self._address = address
        self._service = service

    @answers(codes.GET_CONSUME_STATS)
    async def of_group(self, call: Call[ConsumeStatsQuery]) -> Command:
        asked = call.asked()
        taken = await self._service[ProgressCalls].taken(asked.consumer_group, asked.topic)
        body = await large_body(
            ConsumeStats({}, sum([each.per_second for each in taken])),
            "offset_table",
            (pair for each in taken for pair in self._offsets(each)),
        )
        return call.done(body=body)

    @answers(codes.GET_BROKER_CONSUME_STATS)
    async def of_all_groups(self, call: Call[BrokerConsumeStatsQuery]) -> Command:
        is_order = call.asked().is_order
        # Joined only once, because each copy of a long answer takes milliseconds.
        parts: list[bytes] = []
        behind = size = done = 0
        for info in await self._service.groups.all():
            done += 1
            name = json.dumps(info.group, ensure_ascii=False).encode()
            parts.append(b"%s{%s:[" % (b"," if parts else b"", name))
            between = b""
            for taken in await self._service[ProgressCalls].taken(info.group):
                extras = await self._service.topics.extras(taken.topic)
                if is_order <= extras.is_ordered:
                    parts.append(between + await self._stats(taken))
                    size += len(parts[-1])
                    between = b","
                    behind += taken.behind
                    done += len(taken.queues)
            parts.append(b"]}")
            size += len(name)
            if size > BYTES_MAX:
                raise CodeRefusal(
                    ResponseCode.SYSTEM_ERROR, "there are too many offsets for one answer"
                )
            if done >= QUEUES_A_STEP:
                done = 0
                await next_slice()
        head, _, tail = write_body(BrokerConsumeStats(self._address, (), behind)).partition(b"[]")
        await next_slice()
        body = b"".join([head, b"[", *parts, b"]", tail])
        await next_slice()
        return call.done(body=body)

    @answers(codes.GET_ALL_CONSUMER_OFFSET)
    async def all(self, call: Call[Nothing]) -> Command:
        entries: list[tuple[str, dict[int, int]]] = []
        done = 0
        for group in await self._service.groups.committing():
            by_topic = await self._service.groups.committed_by_topic(group)
            entries += [(f"{topic}@{group}", by_id) for topic, by_id in by_topic.items()]
            done += _GROUP + sum(map(len, by_topic.values()))
            if done >= OFFSETS_A_STEP:
                done = 0
                await next_slice()
        version = TableVersionBody(self._service.clock.now_ms())
        body = await large_body(GroupOffsets({}, version), "offset_table", entries)
        return call.done(body=body)

    @answers(codes.CLONE_GROUP_OFFSET)
    async def copy(self, call: Call[OffsetsCopy]) -> Command:
        """Give a group another group's offsets."""
        asked = call.asked()
        await self._service.groups.copy_offsets(asked.dest_group, asked.src_group, asked.topic)
        return call.done()

    @answers(codes.QUERY_CONSUME_TIME_SPAN)
    async def times(self, call: Call[GroupAndTopic]) -> Command:
        asked = call.asked()
        now_ms = self._service.clock.now_ms()
        times = await self._service[ProgressCalls].times(asked.group, asked.topic)
        spans = (self._span(each, now_ms) for each in times)
        body = await large_body(TimeSpans(()), "consume_time_span_set", spans)
        return call.done(body=body)

    async def _stats(self, taken: GroupProgress) -> bytes:
        empty = ConsumeStats({}, taken.per_second)
        return await large_body(empty, "offset_table", self._offsets(taken))

    def _offsets(self, taken: GroupProgress) -> Iterator[tuple[MessageQueue, ConsumeOffset]]:
        for each in taken.queues:
            queue = MessageQueue(taken.topic, each.queue.queue_id, self._broker_name)
            yield queue, ConsumeOffset(each.end_offset, each.committed_offset, each.taken_at_ms)

    def _span(self, times: QueueTimes, now_ms: int) -> TimeSpan:
        first_ms, last_ms, taken_ms = [
            -1 if each is None else each for each in (times.first_ms, times.last_ms, times.taken_ms)
        ]
        return TimeSpan(
            MessageQueue(times.queue.topic, times.queue.queue_id, self._broker_name),
            first_ms,
            last_ms,
            taken_ms,
            0 if times.next_ms is None else max(0, now_ms - times.next_ms),
            _text(first_ms),
            _text(last_ms),
            _text(taken_ms),
        )


def _text(timestamp_ms: int) -> str:
    """RocketMQ's spelling: 2026-11-22#14:03:07:250."""
    return local_text(timestamp_ms).replace(" ", "#").replace(".", ":")

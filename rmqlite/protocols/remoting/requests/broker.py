"""The broker as mqadmin sees it: traffic, disk, log, levels, timers, and its configuration."""

from __future__ import annotations

import json
from bisect import bisect_left
from struct import Struct
from typing import Final

from rmqlite.features.changes.service import ChangeCalls
from rmqlite.features.figures.requests import Rate, Rates, TrafficFigures
from rmqlite.features.figures.service import FigureCalls
from rmqlite.features.operating.service import SettingCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.counts import Histogram
from rmqlite.kernel.records.wait_queues import SLOT_MS, TIMERS
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.protocols.remoting.bytes.command import SERVER_VERSION, Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import Nothing
from rmqlite.protocols.remoting.bytes.requests import broker as codes
from rmqlite.protocols.remoting.bytes.requests.broker import (
    BrokerStats,
    DelayOffsets,
    KvTable,
    StatsItem,
    StatsQuery,
    TimerMetrics,
    TimingCount,
    VersionAnswer,
    read_settings,
    write_settings,
)
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers, large_body

_CHECK_POINT: Final = Struct(">7q")
"""Of RocketMQ's timers: time of the next slot, end of the timer log, queue offsets of the next
record for this broker and for its master, and a data version (state, time, counter)."""
_GIB: Final = 1 << 30
_BOUNDS_MS: Final = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_BOUND_NAMES: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)


class Figures:
    """Requests for figures about the broker as a whole."""

    def __init__(self, config: BrokerConfig, service: Service) -> None:
        self._config = config
        self._service = service

    @answers(codes.VIEW_BROKER_STATS_DATA)
    async def rates(self, call: Call[StatsQuery]) -> Command:
        """How many messages came to a topic, or were taken from it by a group."""
        asked = call.asked()
        figures = self._service[FigureCalls]
        if asked.stats_name == "TOPIC_PUT_NUMS":
            rates = await figures.of_topic(asked.stats_key)
        elif asked.stats_name == "GROUP_GET_NUMS":
            topic, _, group = asked.stats_key.partition("@")
            rates = await figures.of_group(topic, group)
        else:
            remark = f"The stats {asked.stats_name} does not exist"
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
        return call.done(body=_stats(rates))

    @answers(codes.GET_BROKER_RUNTIME_INFO)
    async def runtime(self, call: Call[Nothing]) -> Command:
        status = await self._service.status()
        traffic = await self._service[FigureCalls].traffic()
        table = {
            **_traffic(traffic),
            **_appends(await self._service[FigureCalls].appends()),
            "putMessageFailedTimes": str(await self._service[FigureCalls].refused_sends()),
            **await self._log(status),
            **await self._timers(status),
            **self._threads(),
            "bootTimestamp": str(status.started_at_ms),
            "runtime": _runtime(status.now_ms - status.started_at_ms),
            "brokerVersion": str(SERVER_VERSION),
            "brokerVersionDesc": "V4_9_8",
        }
        for level, (done, end) in (await self._service.schedule.positions()).items():
            if level != TIMERS:
                table[f"scheduleMessageOffset_{level}"] = f"{done},{end}"
        return call.done(body=KvTable(table))

    @answers(codes.GET_ALL_DELAY_OFFSET)
    async def of_levels(self, call: Call[Nothing]) -> Command:
        """Up to which queue offset each level is delivered."""
        return call.done(body=DelayOffsets(await self._service.schedule.delivered()))

    @answers(codes.GET_TIMER_CHECK_POINT)
    async def timer_check_point(self, call: Call[Nothing]) -> Command:
        """How far the timers are.  Here each one is indexed when it is stored, by no log."""
        status = await self._service.status()
        _, end = (await self._service.schedule.positions()).get(TIMERS, (0, 0))
        slot_ms = _begun_ms(status) // SLOT_MS * SLOT_MS
        body = _CHECK_POINT.pack(slot_ms, 0, end, end, 0, status.now_ms, end)
        return call.done(body=body)

    @answers(codes.GET_TIMER_METRICS)
    async def timer_metrics(self, call: Call[Nothing]) -> Command:
        """How many timers wait, by topic."""
        now_ms = self._service.clock.now_ms()
        counts = await self._service[ChangeCalls].counts()
        rows = [
            (each.topic, TimingCount(each.pending, now_ms))
            for each in counts
            if each.level == TIMERS
        ]
        body = await large_body(
            TimerMetrics({}, TableVersionBody(now_ms, 0, 0)), "timing_count", rows
        )
        return call.done(body=body)

    async def _timers(self, status: BrokerStatus) -> dict[str, str]:
        """No timer waits to be indexed, as in RocketMQ: it is so when it is stored."""
        stored, completed = await self._service[FigureCalls].of_timers()
        return {
            "timerReadBehind": str((status.now_ms - _begun_ms(status)) // 1000),
            "timerOffsetBehind": "0",
            "timerCongestNum": str(sum(each.pending for each in _of_timers(status))),
            "timerEnqueueTps": str(stored.per_second),
            "timerDequeueTps": str(completed.per_second),
        }

    async def _log(self, status: BrokerStatus) -> dict[str, str]:
        size, free = await self._service[FigureCalls].disk()
        first_ms = await self._service[FigureCalls].first_stored_ms()
        ratio = f"{status.disk_used_ratio:.2f}"
        return {
            "commitLogMinOffset": str(status.log_min_offset),
            "commitLogMaxOffset": str(status.log_max_offset),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{self._config.store_path}/commitlog": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {size / _GIB:.1f} GiB, Free : {free / _GIB:.1f} GiB.",
            "earliestMessageTimeStamp": str(-1 if first_ms is None else first_ms),
            "remainHowManyDataToFlush": f"{await self._service[FigureCalls].unsynced_bytes()} B",
        }

    def _threads(self) -> dict[str, str]:
        """RocketMQ's queues of requests that wait for a thread: here none waits for one."""
        limit = str(self._config.connections_max)
        return {
            "sendThreadPoolQueueSize": "0",
            "sendThreadPoolQueueCapacity": limit,
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueCapacity": limit,
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": limit,
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": limit,
            "pageCacheLockTimeMills": "0",
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "remainTransientStoreBufferNumbs": str(INT32_MAX),
            "startAcceptSendRequestTimeStamp": "0",
        }


def _of_timers(status: BrokerStatus) -> list[LevelStatus]:
    return [each for each in status.levels if each.level == TIMERS]


def _begun_ms(status: BrokerStatus) -> int:
    """The instant up to which every timer has been delivered."""
    waiting = [each.next_due_ms for each in _of_timers(status) if each.pending]
    return min([status.now_ms, *waiting])


def _traffic(traffic: TrafficFigures) -> dict[str, str]:
    yesterday, today = traffic.at_midnight
    now = traffic.now
    every = [
        found + missed
        for found, missed in zip(traffic.found_per_second, traffic.missed_per_second, strict=True)
    ]
    return {
        "putTps": _words(traffic.stored_per_second),
        "getFoundTps": _words(traffic.found_per_second),
        "getMissTps": _words(traffic.missed_per_second),
        "getTransferedTps": _words(traffic.taken_per_second),
        "getTotalTps": _words(every),
        "msgPutTotalYesterdayMorning": str(yesterday.stored),
        "msgPutTotalTodayMorning": str(today.stored),
        "msgPutTotalTodayNow": str(now.stored),
        "msgGetTotalYesterdayMorning": str(yesterday.taken),
        "msgGetTotalTodayMorning": str(today.taken),
        "msgGetTotalTodayNow": str(now.taken),
        "putMessageTimesTotal": str(now.stored),
        "putMessageSizeTotal": str(traffic.stored_bytes),
        "putMessageAverageSize": str(traffic.stored_bytes / max(1, now.stored)),
    }


def _appends(appends: Histogram) -> dict[str, str]:
    """How long appends took."""
    counts = [0] * len(_BOUND_NAMES)
    before = 0
    for bound_s, upto in appends.up_to:
        counts[bisect_left(_BOUNDS_MS, bound_s * 1000)] += upto - before
        before = upto
    counts[-1] += appends.total - before
    parts = [f"[{name}]:{count} " for name, count in zip(_BOUND_NAMES, counts, strict=True)]
    return {
        "putMessageDistributeTime": "".join(parts),
        "putMessageEntireTimeMax": f"{_within_ms(appends, 1):.0f}",
        "putLatency99": f"{_within_ms(appends, 0.99):.2f}",
        "putLatency999": f"{_within_ms(appends, 0.999):.2f}",
        # How long a pull takes is not measured.
        "getMessageEntireTimeMax": "0",
    }


def _within_ms(appends: Histogram, share: float) -> float:
    """The first bound of the histogram within which at least this share of appends ended."""
    for bound_s, upto in appends.up_to:
        if upto >= share * appends.total:
            return bound_s * 1000 if appends.total else 0.0
    return appends.up_to[-1][0] * 1000


def _words(figures: tuple[float, ...] | list[float]) -> str:
    return "".join([f"{each} " for each in figures])


def _runtime(passed_ms: int) -> str:
    minutes, seconds = divmod(max(0, passed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _stats(rates: Rates) -> BrokerStats:
    return BrokerStats(*[_item(rate) for rate in rates])


def _item(rate: Rate) -> StatsItem:
    return StatsItem(rate.messages, rate.per_second, rate.per_call)


_FIXED: Final = {
    "filterServerNums": "0",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "slaveReadEnable": "false",
    "traceOn": "true",
    "traceTopicEnable": "true",
    "useTLS": "false",
}
"""RocketMQ's keys that are no keys here but that mqadmin exportConfigs needs: how it is here."""


class SettingRequests:
    """Requests about the broker's configuration."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.GET_BROKER_CONFIG)
    async def get(self, call: Call[Nothing]) -> Command:
        """All keys of broker.conf and their values in force."""
        settings = await self._service[SettingCalls].all()
        version = {"counter": 0, "timestamp": (await self._service.status()).started_at_ms}
        answer = VersionAnswer(json.dumps(version, separators=(",", ":")))
        return call.done(answer, write_settings(_FIXED | settings))

    @answers(codes.UPDATE_BROKER_CONFIG)
    async def change(self, call: Call[Nothing]) -> Command:
        """Change keys that take effect at once; if one of them cannot, none is changed."""
        wanted = read_settings(call.command.body)
        for key, value in wanted.items():
            if _FIXED.get(key, value) != value:
                remark = f"{key}={value}: it is always {_FIXED[key]} here"
                raise CodeRefusal(ResponseCode.NO_PERMISSION, remark)
        await self._service[SettingCalls].change(
            {key: value for key, value in wanted.items() if key not in _FIXED}
        )
        return call.done()

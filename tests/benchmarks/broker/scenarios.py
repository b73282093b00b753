"""Every scenario: what is measured, on a broker of its own with an empty store.

Sizes are for scale 1; a smaller scale is for a quick look, not for figures to publish.  Scenarios
that give a rate within seconds run several times, and their figures are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rmqlite.client import AdminClient, Producer, PullConsumer
from rmqlite.features.changes.requests import PAGE_DEFAULT, PendingFilter, PendingQuery
from rmqlite.kernel.requests.broker import LevelStatus, ScheduleAction
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import BrokerUnreachable
from rmqlite.kernel.words.levels import DEFAULT_LEVELS
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.benchmarks.broker.bench import (
    FAR_LEVEL,
    FAR_LEVEL_MS,
    SECONDS_MAX,
    Bench,
    fill,
    log_bytes,
)
from tests.benchmarks.broker.beside import (
    BODY_BYTES,
    LATENESS_PER_S,
    LATENESS_SECONDS,
    calls_beside,
    lateness,
    lateness_figures,
)
from tests.benchmarks.broker.figures import Figure, medians, spread
from tests.benchmarks.broker.growth import growth
from tests.benchmarks.broker.loads import ENDLESS, GROUP, RARE_TOPIC, TOPIC, Load, parked_polls
from tests.benchmarks.broker.throughput import SEND_SECONDS, consume, drain, sends
from tests.benchmarks.broker.timers import timers
from tests.support.broker_processes import cpu_s_of, peak_mib, resident_mib

PARKED_POLLS: Final = 5_000
RATES: Final = ((1, 1), (100, 1), (1_000, 10), (10_000, 100))
"""Messages per second, and messages per call, which are due in the same millisecond."""
RATES_SECONDS: Final = 15.0
BURST_MESSAGES: Final = 1_000_000
LIMITED_MESSAGES: Final = 50_000
LIMITED_PER_S: Final = 5_000
AFTERWARDS_SECONDS: Final = 5.0
IDLE_POLLS: Final = 1_000
IDLE_SECONDS: Final = 10.0
IDLE_SECONDS_MAX: Final = 40.0
"""Parked polls end after POLL_MS."""
CHANGES: Final = (
    (ScheduleAction.CANCEL, 500_000, 0),
    (ScheduleAction.FIRE, 100_000, 0),
    (ScheduleAction.RESCHEDULE, 100_000, FAR_LEVEL - 1),
)
"""The change, of how many messages, and to which level."""
PENDING_MESSAGES: Final = (1_000_000, 10_000_000)
"""The second only at scale 1 and more."""
PENDING_BODY_BYTES: Final = 100
PENDING_BATCH_MESSAGES: Final = 500
RARE_EVERY: Final = 100_000
"""One of this many messages goes to another topic."""
ASKED_TIMES: Final = 20
ASKED_SECONDS: Final = 5.0
TIMELINE_BOUNDS: Final = 40
CALL_MS_MAX: Final = 60_000
START_MESSAGES: Final = 1_000_000
STORED_MESSAGES: Final = 4_300_000
"""Messages of 1 KiB each: a commit log of 5 GB."""
_PULL_MESSAGES: Final = 1_024
_SECOND_MS: Final = 1_000


def _parked(bench: Bench) -> Iterator[Figure]:
    """Single sends by one thread, first alone, then beside long polls of another topic."""
    with bench.broker("parked") as broker:
        load = Load(broker.endpoint, 1, ENDLESS, bench.seconds(SEND_SECONDS))
        for polls in (0, bench.size(PARKED_POLLS)):
            with parked_polls(broker.endpoint, "quiet", polls):
                result = bench.load(f"parked: {polls:,} polls", load)
            yield from spread("parked", f"send, {polls:,} polls", result.calls_ms)


def _idle(bench: Bench) -> Iterator[Figure]:
    """The CPU time of a broker without work: RocketMQ's 18 levels, a message in each, and polls.

    The messages of the first levels are delivered meanwhile.
    """
    polls, levels = bench.size(IDLE_POLLS), len(DEFAULT_LEVELS.split())
    with (
        bench.broker("idle", messageDelayLevel=DEFAULT_LEVELS) as broker,
        parked_polls(broker.endpoint, "quiet", polls),
        Producer(broker.endpoint, GROUP) as producer,
    ):
        producer.send_batch([Message(TOPIC, b"x", delay_level=n) for n in range(1, levels + 1)])
        with bench.phase(f"idle: {polls:,} polls"):
            began_s, before_s = elapsed_s(), cpu_s_of(broker.pid)
            pause_s(min(IDLE_SECONDS_MAX, bench.seconds(IDLE_SECONDS)))
            share = (cpu_s_of(broker.pid) - before_s) / (elapsed_s() - began_s)
    case = f"{levels} levels, {polls:,} polls"
    yield Figure("idle", case, "CPU", 100 * share, "% of a core")


def _lateness(bench: Bench) -> Iterator[Figure]:
    """The time from a message's deliver time to its topic, and to a listener."""
    seconds = max(0.5, LATENESS_SECONDS * bench.scale)
    case = f"{LATENESS_PER_S}/s level 1"
    message = Message(TOPIC, bytes(BODY_BYTES), delay_level=1)
    with bench.broker("lateness") as broker, bench.phase("lateness"):
        result = lateness(broker.endpoint, message, per_second=LATENESS_PER_S, seconds=seconds)
    yield from lateness_figures("lateness", case, result)


def _rates(bench: Bench) -> Iterator[Figure]:
    """The lateness of messages in their topic, for several rates.

    The broker itself counts it, in whole milliseconds.  Each rate has its own level.
    """
    seconds = max(0.5, RATES_SECONDS * bench.scale)
    with bench.broker("rates", messageDelayLevel=" ".join(["1s"] * len(RATES))) as broker:
        for level, (per_second, batch) in enumerate(RATES, 1):
            messages = max(1, round(per_second * seconds))
            load = Load(
                broker.endpoint,
                1,
                messages,
                SECONDS_MAX,
                batch,
                level=level,
                interval_s=batch / per_second,
            )
            sent = bench.load(f"rates: {per_second:,}/s", load)
            late = _delivered(broker, level, messages)
            case = f"{per_second:,}/s stored"
            # Count the last interval, too: otherwise the rate of a single message would be
            # infinite.
            took_s = max(sent.ended_s - sent.began_s, messages / per_second)
            yield Figure("rates", case, "rate", messages / took_s, "msg/s")
            yield Figure("rates", case, "p50", late.lateness_p50_ms, "ms")
            yield Figure("rates", case, "p99", late.lateness_p99_ms, "ms")
            yield Figure("rates", case, "max", late.lateness_max_ms, "ms")


def _burst(bench: Bench) -> Iterator[Figure]:
    """A million messages are due when the broker starts: other calls, memory, and the rate."""
    messages = bench.size(BURST_MESSAGES)
    with bench.overdue("burst", messages) as broker:
        broker.start()
        with calls_beside(broker.endpoint) as meanwhile:
            took_s = bench.drained("burst: deliver", broker, messages)
        yield Figure("burst", f"{messages:,} at once", "rate", messages / took_s, "msg/s")
        yield Figure("burst", "peak memory", "RSS", peak_mib(broker), "MiB")
        yield from meanwhile.figures("burst", "meanwhile")
        with bench.phase("burst: idle"), calls_beside(broker.endpoint) as afterwards:
            pause_s(bench.seconds(AFTERWARDS_SECONDS))
        yield from afterwards.figures("burst", "afterwards")
    yield from _limited(bench)


def _limited(bench: Bench) -> Iterator[Figure]:
    """A burst with a limit: the rate, and the largest count in any span of one second."""
    messages = bench.size(LIMITED_MESSAGES)
    with bench.overdue("limit", messages, scheduleDeliverRateMax=LIMITED_PER_S) as broker:
        broker.start()
        took_s = bench.drained("burst: deliver with a limit", broker, messages)
        most = most_in(_SECOND_MS, _store_timestamps_ms(broker))
    case = f"{messages:,} at {LIMITED_PER_S:,}/s"
    yield Figure("burst", case, "rate", messages / took_s, "msg/s")
    yield Figure("burst", "its fullest second", "count", most, "msg")


def _cancel(bench: Bench) -> Iterator[Figure]:
    """The rate of changes of a topic's pending messages, and other calls meanwhile."""
    for action, full, level in CHANGES:
        messages = bench.size(full)
        name = action.name.lower()
        with bench.broker(name) as broker, _admin(broker) as admin:
            bench.load(f"{name}: send {messages:,}", fill(broker, messages, level=FAR_LEVEL))
            with (
                bench.phase(f"{name}: {messages:,}") as on_tick,
                calls_beside(broker.endpoint) as calls,
            ):
                began_s = elapsed_s()
                changed = admin.schedule.change_pending(
                    action,
                    PendingFilter(topic=TOPIC),
                    delay_level=level,
                    progress=_share_of(messages, on_tick),
                )
                took_s = elapsed_s() - began_s
        yield Figure("cancel", f"{name} {changed:,}", "took", took_s, "s")
        yield Figure("cancel", f"{name} rate", "rate", changed / took_s, "msg/s")
        yield from calls.figures("cancel", f"during {name}")


def _pending(bench: Bench) -> Iterator[Figure]:
    """Memory, time to ready and time of queries, with millions of small messages pending."""
    with bench.broker("pending") as broker:
        held = 0
        for full in PENDING_MESSAGES if bench.scale >= 1 else PENDING_MESSAGES[:1]:
            messages = bench.size(full)
            load = fill(
                broker,
                messages - held,
                level=FAR_LEVEL,
                body_bytes=PENDING_BODY_BYTES,
                batch=PENDING_BATCH_MESSAGES,
                rare_every=RARE_EVERY,
            )
            bench.load(f"pending: send {messages - held:,}", load)
            held = messages
            case = f"{messages:,}"
            yield Figure("pending", f"{case} sent", "RSS", resident_mib(broker), "MiB")
            broker.stop()
            with bench.phase(f"pending: start with {case}"):
                ready_s = broker.start()
            yield Figure("pending", f"{case} restart", "ready", ready_s, "s")
            yield Figure("pending", f"{case} restarted", "RSS", resident_mib(broker), "MiB")
            with _admin(broker) as admin, bench.phase(f"pending: ask with {case}") as on_tick:
                questions = _questions(admin)
                for number, (name, ask) in enumerate(questions.items()):
                    on_tick(number / len(questions))
                    yield from spread("pending", f"{case} {name}", _times_ms(ask))


def _start(bench: Bench) -> Iterator[Figure]:
    """Time to ready and memory with messages pending."""
    messages = bench.size(START_MESSAGES)
    case = f"{messages:,} pending"
    with bench.broker("start") as broker:
        yield Figure("memory", "idle", "RSS", resident_mib(broker), "MiB")
        bench.load(f"{case}: send", fill(broker, messages, level=FAR_LEVEL))
        yield Figure("memory", f"{messages:,} just sent", "RSS", resident_mib(broker), "MiB")
        broker.kill()
        with bench.phase("start after SIGKILL"):
            killed_s = broker.start()
        broker.stop()
        with bench.phase("start after a clean stop"):
            stopped_s = broker.start()
        yield Figure("start", f"{messages:,} after a stop", "ready", stopped_s, "s")
        yield Figure("start", f"{messages:,} after SIGKILL", "ready", killed_s, "s")
        yield Figure("memory", f"{messages:,} after a restart", "RSS", resident_mib(broker), "MiB")


def _recovery(bench: Bench) -> Iterator[Figure]:
    """Time to ready of a large store after SIGKILL in mid-write, and the rate of a check."""
    messages = bench.size(STORED_MESSAGES)
    with bench.broker("recovery") as broker:
        for share in (0.02, 0.98):
            part = max(1, round(messages * share))
            bench.load(f"recovery: send {part:,}", fill(broker, part, level=0))
            broker.kill()
            case = f"{log_bytes(broker.store) / 1e9:.1f} GB after SIGKILL"
            with bench.phase(case):
                ready_s = broker.start()
            yield Figure("recovery", case, "ready", ready_s, "s")
        broker.stop()
        began_s = elapsed_s()
        with bench.phase("check") as on_tick:
            findings = sum(1 for _ in check(broker.store, progress=lambda n, of: on_tick(n / of)))
        rate = log_bytes(broker.store) / 1e6 / (elapsed_s() - began_s)
    case = f"{messages:,} x 1 KiB"
    yield Figure("check", case, "rate", rate, "MB/s")
    if findings:
        yield Figure("check", case, "inconsistencies", findings, "")


SCENARIOS: Final[dict[tuple[str, ...], Callable[[Bench], Iterator[Figure]]]] = {
    ("send",): sends("send", (1, 8, 32), futures=True),
    ("batch",): sends("batch", (8, 32), size=32),
    ("delayed-send",): sends("delayed-send", (32,), level=FAR_LEVEL, futures=True),
    ("parked",): _parked,
    ("idle",): _idle,
    ("lateness",): _lateness,
    ("timers",): timers,
    ("rates",): _rates,
    ("drain",): drain,
    ("consume",): consume,
    ("burst",): _burst,
    ("cancel",): _cancel,
    ("pending",): _pending,
    ("start", "memory"): _start,
    ("recovery", "check"): _recovery,
    ("growth",): growth,
}
"""In the order in which they run; those of one line share a store, which is filled once."""
REPEATED: Final = frozenset({"send", "batch", "delayed-send", "drain", "consume", "timers"})
NAMES: Final = tuple([name for names in SCENARIOS for name in names])


def measure(bench: Bench, wanted: frozenset[str]) -> Iterator[Figure]:
    """The figures of the wanted scenarios."""
    for names, scenario in SCENARIOS.items():
        if wanted & set(names):
            times = bench.repeat if REPEATED & set(names) else 1
            figures = medians([list(scenario(bench)) for _ in range(times)])
            yield from [each for each in figures if each.scenario in wanted]


def _admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient(broker.endpoint, timeout_ms=CALL_MS_MAX)


def _delivered(broker: BrokerProcess, level: int, messages: int) -> LevelStatus:
    """Wait until a level has delivered this many; returns the level's status then."""
    until_s = elapsed_s() + SECONDS_MAX
    with _admin(broker) as admin:
        while elapsed_s() < until_s:
            status = admin.broker_status().levels[level - 1]
            if status.delivered >= messages:
                return status
            pause_s(0.05)
    raise BrokerUnreachable(f"only {status.delivered} of {messages} messages were delivered")


def _store_timestamps_ms(broker: BrokerProcess) -> list[int]:
    """The store timestamps of all messages in the topic, ascending."""
    found = []
    with PullConsumer(broker.endpoint, GROUP) as consumer:
        for queue in consumer.queues(TOPIC):
            while True:
                pulled = consumer.pull(queue.topic, queue.queue_id, max_messages=_PULL_MESSAGES)
                if not pulled.messages:
                    break
                found += [each.store_timestamp_ms for each in pulled.messages]
    return sorted(found)


def most_in(span_ms: int, ordered_ms: Sequence[int]) -> int:
    """The largest number of these ascending instants in a span of that length."""
    most = first = 0
    for index, at_ms in enumerate(ordered_ms):
        while ordered_ms[first] <= at_ms - span_ms:
            first += 1
        most = max(most, index - first + 1)
    return most


def _share_of(messages: int, on_tick: Callable[[float], None]) -> Callable[[int], None]:
    return lambda done: on_tick(done / messages)


def _questions(admin: AdminClient) -> dict[str, Callable[[], object]]:
    """The queries with millions pending, by name."""
    schedule = admin.schedule
    now_ms = admin.broker_status().now_ms
    # Bounds over the two hours of the level: most are before all messages, the last among them.
    bounds = tuple([now_ms + n * FAR_LEVEL_MS // TIMELINE_BOUNDS for n in range(TIMELINE_BOUNDS)])
    rare = PendingFilter(topic=RARE_TOPIC)
    return {
        "count": schedule.count_pending,
        f"list {PAGE_DEFAULT}": lambda: schedule.list_pending(PendingQuery()),
        "rare, a call": lambda: schedule.list_pending(PendingQuery(rare)),
        "rare, the first": lambda: next(schedule.pending(rare), None),
        f"timeline {TIMELINE_BOUNDS}": lambda: schedule.timeline(bounds),
    }


def _times_ms(ask: Callable[[], object]) -> Iterator[float]:
    """The durations of repeated queries, ASKED_TIMES or for ASKED_SECONDS."""
    until_s = elapsed_s() + ASKED_SECONDS
    for _ in range(ASKED_TIMES):
        began_s = elapsed_s()
        ask()
        ended_s = elapsed_s()
        yield (ended_s - began_s) * 1000
        if ended_s > until_s:
            return

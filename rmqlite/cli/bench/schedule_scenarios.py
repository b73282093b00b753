"""The scenarios of the schedule: lateness, a burst, changes, and millions that wait.

They are like those of scenarios.py; during a burst and during changes other calls are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rmqlite.cli.bench.bench import (
    FAR_LEVEL,
    FAR_LEVEL_MS,
    SECONDS_MAX,
    Bench,
    drained,
    fill,
    overdue,
)
from rmqlite.cli.bench.beside import Beside
from rmqlite.cli.bench.broker_process import BrokerProcess
from rmqlite.cli.bench.figures import Figure, spread
from rmqlite.cli.bench.load import RARE_TOPIC, Load
from rmqlite.client import AdminClient, PullConsumer
from rmqlite.clock import elapsed_s, pause_s
from rmqlite.errors import BrokerUnreachable
from rmqlite.requests.schedule import PAGE_DEFAULT, PendingFilter, PendingQuery, ScheduleAction
from rmqlite.requests.status import LevelStatus

RATES: Final = ((1, 1), (100, 1), (1_000, 10), (10_000, 100))
"""Messages per second, and messages per call, which are due in the same millisecond."""
RATES_SECONDS: Final = 15.0
BURST_MESSAGES: Final = 1_000_000
LIMITED_MESSAGES: Final = 50_000
LIMITED_PER_S: Final = 5_000
IDLE_SECONDS: Final = 5.0
CANCEL_MESSAGES: Final = 500_000
CHANGE_MESSAGES: Final = 100_000
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
_PULL_MESSAGES: Final = 1_024
_SECOND_MS: Final = 1_000


def rates(bench: Bench) -> Iterator[Figure]:
    """The lateness of messages in their topic, for several rates.

    The broker itself counts it, in whole milliseconds.  Each rate has its own level.
    """
    seconds = max(0.5, RATES_SECONDS * bench.scale)
    levels = " ".join(["1s"] * len(RATES))
    with bench.broker("rates", levels) as broker:
        for level, (per_second, batch) in enumerate(RATES, 1):
            messages = max(1, round(per_second * seconds))
            load = Load(
                broker.endpoint,
                "bench",
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
            took_s = max(sent.seconds, messages / per_second)
            yield Figure("rates", case, "rate", messages / took_s, "msg/s")
            yield Figure("rates", case, "p50", late.lateness_p50_ms, "ms")
            yield Figure("rates", case, "p99", late.lateness_p99_ms, "ms")
            yield Figure("rates", case, "max", late.lateness_max_ms, "ms")


def burst(bench: Bench) -> Iterator[Figure]:
    """A million messages are due when the broker starts: other calls, memory, and the rate."""
    messages = bench.size(BURST_MESSAGES)
    case = f"{messages:,} at once"
    with overdue(bench, "burst", messages) as broker, Beside() as beside:
        broker.start()
        beside.begin(broker.endpoint)
        took_s = drained(bench, "burst: deliver", broker, messages)
        calls = beside.end()
        yield Figure("burst", case, "rate", messages / took_s, "msg/s")
        yield Figure("burst", "peak memory", "RSS", broker.peak_mib(), "MiB")
        yield from calls.figures("burst", "meanwhile")
        beside.begin(broker.endpoint)
        with bench.phase("burst: idle"):
            pause_s(max(0.2, IDLE_SECONDS * bench.scale))
        yield from beside.end().figures("burst", "afterwards")
    yield from _limited(bench)


def cancel(bench: Bench) -> Iterator[Figure]:
    """The rate of changes of a topic's pending messages, and other calls meanwhile."""
    for action, full, level in (
        (ScheduleAction.CANCEL, CANCEL_MESSAGES, 0),
        (ScheduleAction.FIRE, CHANGE_MESSAGES, 0),
        (ScheduleAction.RESCHEDULE, CHANGE_MESSAGES, FAR_LEVEL - 1),
    ):
        messages = bench.size(full)
        name = action.name.lower()
        with bench.broker(name) as broker, Beside() as beside, _admin(broker) as admin:
            bench.load(f"{name}: send {messages:,}", fill(broker, messages, level=FAR_LEVEL))
            beside.begin(broker.endpoint)
            began_s = elapsed_s()
            with bench.phase(f"{name}: {messages:,}") as on_tick:
                changed = admin.schedule.change_pending(
                    action,
                    PendingFilter(topic="bench"),
                    delay_level=level,
                    progress=_share_of(messages, on_tick),
                )
            took_s = elapsed_s() - began_s
            calls = beside.end()
        case = f"{name} {changed:,}"
        yield Figure("cancel", case, "took", took_s, "s")
        yield Figure("cancel", f"{name} rate", "rate", changed / took_s, "msg/s")
        yield from calls.figures("cancel", f"during {name}")


def pending(bench: Bench) -> Iterator[Figure]:
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
            yield Figure("pending", f"{case} sent", "RSS", broker.resident_mib(), "MiB")
            broker.stop()
            with bench.phase(f"pending: start with {case}"):
                ready_s = broker.start()
            yield Figure("pending", f"{case} restart", "ready", ready_s, "s")
            yield Figure("pending", f"{case} restarted", "RSS", broker.resident_mib(), "MiB")
            with _admin(broker) as admin, bench.phase(f"pending: ask with {case}") as on_tick:
                questions = _questions(admin)
                for number, (name, ask) in enumerate(questions.items()):
                    on_tick(number / len(questions))
                    yield from spread("pending", f"{case} {name}", _times_ms(ask))


# ---- questions to a broker


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


def _limited(bench: Bench) -> Iterator[Figure]:
    """A burst with a limit: the rate, and the largest count in any span of one second."""
    messages = bench.size(LIMITED_MESSAGES)
    case = f"{messages:,} at {LIMITED_PER_S:,}/s"
    with overdue(bench, "limit", messages, scheduleDeliverRateMax=LIMITED_PER_S) as broker:
        broker.start()
        took_s = drained(bench, "burst: deliver with a limit", broker, messages)
        most = most_in(_SECOND_MS, _store_timestamps_ms(broker))
    yield Figure("burst", case, "rate", messages / took_s, "msg/s")
    yield Figure("burst", "its fullest second", "count", most, "msg")


def _store_timestamps_ms(broker: BrokerProcess) -> list[int]:
    """The store timestamps of all messages in the topic, ascending."""
    found = []
    with PullConsumer(broker.endpoint, "rmqlite-bench") as consumer:
        for queue in consumer.queues("bench"):
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


# ---- the queries with millions pending


def _questions(admin: AdminClient) -> dict[str, Callable[[], object]]:
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

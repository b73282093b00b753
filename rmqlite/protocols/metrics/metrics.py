"""The broker's metrics, for Prometheus.

Nothing is stored here: each scrape reads the objects that count anyway, by the tables below; so a
metric costs nothing until somebody reads it.  A new metric is an entry in a table.  The loop's
thread only reads the numbers; another one makes the text.  Counts are since the broker started.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rmqlite.features.operating.progress import Progress
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.counts import Histogram
from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.part import Watched
from rmqlite.kernel.service.service import Ports
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.protocols.metrics.groups import PREFIX, group_metrics
from rmqlite.protocols.metrics.timers import TimerFigures
from rmqlite.views.levels import delay_cell, level_text

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LEVEL: Final = ("level", "delay")


class Now(NamedTuple):
    """The objects that a scrape reads."""

    broker: Broker
    status: BrokerStatus
    commit: GroupCommit
    watch: ClockWatch
    access: Access
    files: Sequence[Watched]
    ports: Ports


COUNTERS: Final[Sequence[tuple[str, str, Callable[[Now], float]]]] = (
    (
        "messages_sent",
        "Messages stored by sends, delayed ones included.",
        lambda now: now.status.sent,
    ),
    (
        "messages_delivered",
        "Messages delivered from the schedule to their topic, retries included.",
        lambda now: now.status.delivered,
    ),
    ("messages_cancelled", "Scheduled messages, cancelled.", lambda now: now.status.cancelled),
    (
        "messages_fired",
        "Scheduled messages that were delivered at once because somebody asked for it.",
        lambda now: now.status.fired,
    ),
    (
        "messages_rescheduled",
        "Scheduled messages that were given another delay.",
        lambda now: now.status.rescheduled,
    ),
    (
        "messages_undeliverable",
        "Scheduled messages that could not be delivered and became dead letters of"
        " %DLQ%SCHEDULE_CONSUMER, each with its reason.",
        lambda now: now.status.undeliverable,
    ),
    (
        "redriven",
        "Dead letters that redrive jobs have sent again.",
        lambda now: now.broker[Redrive].sent,
    ),
    (
        "disk_full_sends_refused",
        "Sends refused because the disk was full.",
        lambda now: now.broker.retention.sends_refused,
    ),
    (
        "access_refused",
        "Calls refused because of their account; the log rmqlite.audit says whose.",
        lambda now: now.access.refused,
    ),
    (
        "ports_opened_anew",
        "How often the gRPC port was opened again, because gRPC had stopped taking calls.",
        lambda now: now.ports.opened_anew,
    ),
    (
        "suspends",
        "How often the machine was suspended and resumed.",
        lambda now: now.watch.suspends,
    ),
    (
        "suspended_seconds",
        "How long the machine was suspended.",
        lambda now: now.watch.suspended_ms / 1000,
    ),
)

LABELLED_COUNTERS: Final[Sequence[tuple[str, str, str, Callable[[Now], Mapping[str, int]]]]] = (
    (
        "clock_steps",
        "Steps of the wall clock; deliveries are not affected.",
        "direction",
        lambda now: now.watch.steps,
    ),
)

GAUGES: Final[Sequence[tuple[str, str, Callable[[Now], float]]]] = (
    (
        "oldest_pending_age_seconds",
        "Time since the oldest pending message was stored; 0 if none is pending.",
        lambda now: _oldest_pending_age_s(now),
    ),
    (
        "parked_polls",
        "Pulls that found nothing and wait for a message.",
        lambda now: now.status.parked_polls,
    ),
    (
        "messages_in_flight",
        "Messages that clients of RocketMQ 5 hold: received, and neither acknowledged nor failed.",
        lambda now: now.broker[Progress].in_flight,
    ),
    (
        "registered_brokers",
        "Other brokers that have registered at the name server of this one.",
        lambda now: len(now.status.registered),
    ),
    (
        "name_servers_away",
        "Name servers of namesrvAddr at which this broker is not registered.",
        lambda now: sum([not each.is_registered for each in now.status.name_servers]),
    ),
    (
        "archive_behind_bytes",
        "Bytes of the commit log that are on disk and not in the archive; 0 without archiveUrl.",
        lambda now: sum([each.behind_bytes for each in now.status.archives]),
    ),
    (
        "archive_behind_seconds",
        "How long the archive has lacked something that is on disk; 0 if it lacks nothing.",
        lambda now: _since_s(now.status, [each.behind_since_ms for each in now.status.archives]),
    ),
    (
        "archive_lost_bytes",
        "Bytes of the commit log that a full disk lost before they were archived, since the start.",
        lambda now: sum([each.lost_bytes for each in now.status.archives]),
    ),
    (
        "standby_behind_bytes",
        "Bytes of the commit log that the standby does not have; 0 if there never was one.",
        lambda now: sum([each.behind_bytes for each in now.status.replication]),
    ),
    (
        "standby_behind_seconds",
        "How long the standby has been away, or has lacked something; 0 if it has all.",
        lambda now: _since_s(now.status, [e.behind_since_ms for e in now.status.replication]),
    ),
    (
        "one_copy_seconds",
        "How long messages are acknowledged with one copy, though inSyncReplicas=2; 0: with two.",
        lambda now: _since_s(now.status, [e.alone_since_ms for e in now.status.replication]),
    ),
    (
        "authority_away_seconds",
        "How long the authority that decides who is the master has not answered; 0 if it does.",
        lambda now: _since_s(now.status, [e.unheard_since_ms for e in now.status.replication]),
    ),
    (
        "authority_lease_seconds",
        "For how long this master may answer without the authority; 0 for a standby.",
        lambda now: sum([each.lease_left_ms for each in now.status.replication]) / 1000,
    ),
    (
        "broken_files",
        "Files of accounts or keys that have changed and cannot be used: the former ones stay.",
        lambda now: sum(files.is_broken for files in now.files),
    ),
    (
        "log_bytes",
        "Size of the commit log, from its oldest record to its end.",
        lambda now: now.status.log_max_offset - now.status.log_min_offset,
    ),
    (
        "disk_used_ratio",
        "Used share of the store's disk, 0 to 1.",
        lambda now: now.status.disk_used_ratio,
    ),
    (
        "disk_full",
        "1 while sends are refused because the disk is full, else 0.",
        lambda now: now.status.is_disk_full,
    ),
    (
        "clock_ahead_of_wall_seconds",
        "The broker's clock minus the wall clock; negative when it is behind.",
        lambda now: now.watch.ahead_of_wall_ms() / 1000,
    ),
)

LEVEL_GAUGES: Final[Sequence[tuple[str, str, Callable[[Now, LevelStatus], float]]]] = (
    (
        "scheduled_messages_pending",
        "Messages of a delay level, or of any instant, that are still to be delivered.",
        lambda _, level: level.pending,
    ),
    (
        "oldest_overdue_seconds",
        "How late a delay level's earliest message is by now; 0 if none is due.",
        lambda now, level: (
            max(0, now.status.now_ms - level.next_due_ms) / 1000 if level.pending else 0
        ),
    ),
    (
        "pinned_log_bytes",
        "Commit log kept beyond fileReservedTime because of a message of this delay level that"
        " is still to be delivered.",
        lambda now, level: (
            now.status.pinned_bytes if level.level == now.status.pinned_by_level else 0
        ),
    ),
)

LEVEL_HISTOGRAMS: Final[Sequence[tuple[str, str, Callable[[Now, LevelStatus], Histogram]]]] = (
    (
        "delivery_lateness_seconds",
        "How long after its deliver time a message of a delay level was in its topic.",
        lambda now, level: now.broker.wait_queues.lateness(level.level).histogram(),
    ),
)

HISTOGRAMS: Final[Sequence[tuple[str, str, str, Callable[[Now], Mapping[str, Histogram]]]]] = (
    (
        "append_seconds",
        "Time to write records into the commit log and the queues, not yet to disk: by a call"
        " (send, send-back), or by a slice of deliveries.",
        "by",
        lambda now: {
            "call": now.broker.counts.appends.histogram(),
            "delivery": now.broker.schedule.appends.histogram(),
        },
    ),
    (
        "fsync_seconds",
        "Time that the disk took to make the commit log durable, for all calls that waited.",
        "",
        lambda now: {"": now.commit.syncs.histogram()},
    ),
)


def _since_s(status: BrokerStatus, since_ms: Iterable[int]) -> float:
    """The seconds since the first of these times; 0 is none."""
    return max(0, status.now_ms - min(filter(None, since_ms), default=status.now_ms)) / 1000


class Collected(Collector):
    """The metrics of one scrape; any thread may turn them into text."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        """Called by the client library."""
        return self._metrics

    def text(self) -> bytes:
        """The metrics in Prometheus' text format 0.0.4."""
        return generate_latest(self)


class Metrics:
    """The metrics of one broker; only the broker's own thread may use it."""

    def __init__(
        self,
        broker: Broker,
        commit: GroupCommit,
        watch: ClockWatch,
        access: Access,
        files: Sequence[Watched] = (),
        ports: Ports | None = None,
    ) -> None:
        self._broker = broker
        self._commit = commit
        self._watch = watch
        self._access = access
        self._files = files
        self._ports = ports or Ports()
        self._process = ProcessCollector(registry=None)
        self._timers = TimerFigures(broker)

    def collected(self, status: BrokerStatus) -> Steps[Collected]:
        """All metrics, those of the process included, in steps.  status: the broker's, now."""
        own: list[Metric] = []
        for metric in self._own(status):
            if metric is None:
                yield
            else:
                own.append(metric)
        return Collected([*own, *self._process.collect()])

    def _own(self, status: BrokerStatus) -> Iterator[Metric | None]:
        """None: the end of a step."""
        now = Now(
            self._broker,
            status,
            self._commit,
            self._watch,
            self._access,
            self._files,
            self._ports,
        )
        build = {"version": status.version}
        yield InfoMetricFamily(PREFIX + "build", "The broker that is running.", build)
        for name, help_text, number in COUNTERS:
            yield CounterMetricFamily(PREFIX + name, help_text, number(now))
        for name, help_text, label, counts_of in LABELLED_COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, help_text, labels=(label,))
            for value, count in counts_of(now).items():
                counter.add_metric((value,), count)
            yield counter
        for name, help_text, number in GAUGES:
            yield GaugeMetricFamily(PREFIX + name, help_text, number(now))
        yield from group_metrics(self._broker)
        yield from _by_level(now)
        yield from self._timers.collected(status.now_ms)
        for name, help_text, label, histograms in HISTOGRAMS:
            labels = (label,) if label else ()
            family = HistogramMetricFamily(PREFIX + name, help_text, labels=labels)
            for value, histogram in histograms(now).items():
                _add(family, (value,) if label else (), histogram)
            yield family


def _by_level(now: Now) -> Iterator[Metric]:
    labelled = [
        ((level_text(each.level), delay_cell(each.level, each.delay) if each.delay else ""), each)
        for each in now.status.levels
    ]
    for name, help_text, number in LEVEL_GAUGES:
        family = GaugeMetricFamily(PREFIX + name, help_text, labels=_LEVEL)
        for labels, level in labelled:
            family.add_metric(labels, number(now, level))
        yield family
    for name, help_text, histogram in LEVEL_HISTOGRAMS:
        lateness = HistogramMetricFamily(PREFIX + name, help_text, labels=_LEVEL)
        for labels, level in labelled:
            _add(lateness, labels, histogram(now, level))
        yield lateness


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    buckets = [(str(bound_s), float(count)) for bound_s, count in histogram.up_to]
    family.add_metric(labels, [*buckets, ("+Inf", histogram.total)], histogram.sum_s)


def _oldest_pending_age_s(now: Now) -> float:
    try:
        oldest = now.broker.wait_queues.oldest_pending()
        if oldest is None:
            return 0
        stored_ms = now.broker.store.store_timestamp_ms(oldest[1].physical_offset)
    except (StoreDamaged, StoreUnavailable):
        # The other metrics must still be shown, above all when the disk has a fault.
        return math.nan
    return math.nan if stored_ms is None else max(0, now.status.now_ms - stored_ms) / 1000

"""Metrics of consumer groups, by the tables below; see metrics.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.operating.progress import Progress
from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.views.groups import GroupFigures, group_figures

PREFIX: Final = "rmqlite_"
_STEP_GROUPS: Final = 500
"""Samples of groups that are made in one step, within 3 ms."""
_STEP_PROGRESS: Final = 20
"""Groups whose progress is read in one step, within 2 ms; of more than some queues it has steps."""

GROUP_COUNTERS: Final[Sequence[tuple[str, str, Callable[[Broker], Mapping[str, int]]]]] = (
    (
        "messages_pulled",
        "Messages given to a consumer group, repeated ones included.",
        lambda broker: broker.counts.pulled,
    ),
    (
        "messages_retried",
        "Failed messages that a consumer group will be given again.",
        lambda broker: broker.counts.retried,
    ),
    (
        "messages_dead",
        "Failed messages that became a consumer group's dead letters.",
        lambda broker: broker.counts.dead,
    ),
    (
        "messages_expired",
        "Messages that had expired when a consumer group came to them.",
        lambda broker: broker.counts.expired,
    ),
    (
        "rate_limit_waits",
        "Calls of a consumer group that had to wait for its rate limit.",
        lambda broker: broker.counts.held_back,
    ),
)

GROUP_GAUGES: Final[Sequence[tuple[str, str, Callable[[Broker], Steps[Mapping[str, float]]]]]] = (
    (
        "dead_letters_open",
        "Dead letters of a consumer group that nobody has sent again or purged.",
        lambda broker: broker[DeadLetters].open_counts(),
    ),
    (
        "members",
        "Members of a consumer group that are alive.",
        lambda broker: _by_info(broker, lambda info: len(broker.membership.members(info.group))),
    ),
    (
        "rate_limit_per_second",
        "Messages a second that a consumer group is handed at most; 0: no limit.",
        lambda broker: _by_info(broker, lambda info: info.max_per_second),
    ),
)

PROGRESS_GAUGES: Final[Sequence[tuple[str, str, Callable[[GroupFigures], float]]]] = (
    (
        "messages_not_consumed",
        "LAG: messages from a consumer group's committed offsets to the ends of its queues, due"
        " retries included; 0 of a broadcasting group.",
        lambda figures: figures.lag or 0,
    ),
    (
        "oldest_not_consumed_seconds",
        "Age of the oldest message that a consumer group has not consumed; 0 without one.",
        lambda figures: (figures.oldest_ms or 0) / 1000,
    ),
    (
        "group_silent_seconds",
        "How long a consumer group has finished nothing in a queue that has messages for it; 0 if"
        " no queue has any.",
        lambda figures: figures.silent_ms / 1000,
    ),
)


def group_metrics(broker: Broker) -> Iterator[Metric | None]:
    """The metrics of all groups; None: the end of a step."""
    # Also groups that count 0: rate() does not notice a series that begins with 1.
    groups = [info.group for info in broker.groups.all()]
    for name, help_text, counts_of in GROUP_COUNTERS:
        family = CounterMetricFamily(PREFIX + name, help_text, labels=("group",))
        yield from _added(family, groups, counts_of(broker))
        yield family
    for name, help_text, steps_of in GROUP_GAUGES:
        counts = yield from steps_of(broker)
        gauge = GaugeMetricFamily(PREFIX + name, help_text, labels=("group",))
        # Also groups that nobody has created, such as SCHEDULE_CONSUMER.
        yield from _added(gauge, sorted({*groups, *counts}), counts)
        yield gauge
    progress = yield from _progress(broker)
    for name, help_text, value_of in PROGRESS_GAUGES:
        gauge = GaugeMetricFamily(PREFIX + name, help_text, labels=("group",))
        values = {group: value_of(figures) for group, figures in progress.items()}
        yield from _added(gauge, groups, values)
        yield gauge


def _added(
    family: CounterMetricFamily | GaugeMetricFamily,
    groups: Sequence[str],
    counts: Mapping[str, float],
) -> Iterator[None]:
    """Add a sample of each group to a family, in steps."""
    for number, group in enumerate(groups, 1):
        family.add_metric((group,), counts.get(group, 0))
        if number % _STEP_GROUPS == 0:
            yield


def _progress(broker: Broker) -> Steps[dict[str, GroupFigures]]:
    found: dict[str, GroupFigures] = {}
    for number, info in enumerate(broker.groups.all(), 1):
        # It may have been deleted since the last step.
        with suppress(GroupUnknown):
            status = yield from broker[Progress].status(info.group)
            found[info.group] = group_figures(info.group, status)
        if number % _STEP_PROGRESS == 0:
            yield
    return found


def _by_info(broker: Broker, number_of: Callable[[GroupInfo], float]) -> Steps[dict[str, float]]:
    found: dict[str, float] = {}
    for number, info in enumerate(broker.groups.all(), 1):
        found[info.group] = number_of(info)
        if number % _STEP_GROUPS == 0:
            yield
    return found

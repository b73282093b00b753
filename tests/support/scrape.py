"""Prometheus' text as numbers that a test can look up, and a broker's metrics without a port."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.service.group_commit import GroupCommit, SyncThread
from rmqlite.protocols.metrics.metrics import Metrics
from tests.support.brokers import BrokerUnderTest
from tests.support.steps import done

METRIC = re.compile(r"\b(?:rmqlite|rocketmq|process)_[a-z_]+")
"""A broker's metric in an expression of PromQL."""


class Scrape:
    """What one scrape said."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The one sample that has these labels and no other."""
        return self._values[name, frozenset(labels.items())]

    def labels(self, name: str) -> set[tuple[tuple[str, str], ...]]:
        """With which labels a sample is there."""
        return {tuple(sorted(labels)) for each, labels in self._values if each == name}

    def sample_names(self) -> set[str]:
        return {name for name, _ in self._values}


def watch_of(broker: BrokerUnderTest) -> ClockWatch:
    """What a server makes when the store is open."""
    return ClockWatch(broker.clock, broker.clock.machine, broker.store.clock_origin)


def scrape(broker: BrokerUnderTest, watch: ClockWatch | None = None) -> Scrape:
    """The metrics of a broker, with a group commit that has had nothing to do."""
    watched = watch or watch_of(broker)

    async def main() -> str:
        with closing(SyncThread()) as syncer:
            commit = GroupCommit(broker.config, broker.store, syncer, lambda _: None)
            metrics = Metrics(broker.broker, commit, watched, Access())
            text = done(metrics.collected(broker.broker.status(parked_polls=0))).text().decode()
            return text

    return Scrape(asyncio.run(main()))

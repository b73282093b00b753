"""A broker behind gRPC for sinks: a real one on a real store, in the test's own process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkAnswer, BulkJob, BulkRequest
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.spark.sink.rows import SinkOptions
from tests.support.brokers import BrokerUnderTest
from tests.support.fake_broker import FakeBroker
from tests.support.sends import BORN_HOST
from tests.support.steps import done


class SinkBroker:
    """calls: how many bulk calls it was asked."""

    def __init__(self, folder: Path) -> None:
        self.under_test = BrokerUnderTest(folder / "store")
        self.service = FakeBroker(folder)
        self.service.answers["ScheduleBulk"] = self._schedule
        self.service.answers["GetBulkJob"] = self.job
        self.service.answers["GetLevels"] = lambda _: self.under_test.broker.levels.in_force()
        self._lock = threading.Lock()
        self.service.start()

    def close(self) -> None:
        self.service.stop()
        self.under_test.close()

    @property
    def calls(self) -> list[BulkRequest]:
        return self.service.asked["ScheduleBulk"]

    def options(self, **changes: Any) -> SinkOptions:
        return SinkOptions(**{"endpoint": self.service.endpoint, "retry_ms": 0, **changes})

    def job(self, job_id: str) -> BulkJob:
        return self.under_test.broker[Bulk].jobs.get(job_id)

    def stored(self) -> int:
        """How many messages are scheduled."""
        keys = [key for key in self.under_test.store.queue_keys() if key[0] == SCHEDULE_TOPIC]
        queues = [self.under_test.store.queue(*key) for key in keys]
        return sum([queue.max_offset for queue in queues if queue])

    def _schedule(self, request: BulkRequest) -> BulkAnswer:
        with self._lock:
            answer = done(self.under_test.broker[Bulk].schedule(request, BORN_HOST))
            self.under_test.sync()
            return answer

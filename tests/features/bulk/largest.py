"""The largest requests of calls about bulk jobs."""

from __future__ import annotations

from typing import Final

from rmqlite.features.bulk.requests import GET_BULK_JOB, LIST_BULK_JOBS, SCHEDULE_BULK, BulkRequest
from rmqlite.kernel.words import limits
from tests.support.largest_calls import DAY_MS, KEY_TEXT, TOPIC, Largest, Requests


def _bulk(at: Largest) -> BulkRequest:
    config = at.broker.config
    count = config.bulk_messages_max
    pairs = [f"{number}\x01{'v' * 20}" for number in range(limits.PROPERTIES_MAX // count)]
    keys = " ".join(KEY_TEXT + str(number) for number in range(limits.KEYS_MAX // count))
    begin_ms = at.broker.clock.now_ms() + DAY_MS
    instants = tuple([begin_ms + number * 7_919_317 % DAY_MS for number in range(count)])
    return BulkRequest(
        (bytes(config.send_bytes_max // count),) * count,
        tuple([f"{at.name}-{number}".ljust(200, "i") for number in range(count)]),
        (TOPIC,) * count,
        ("t" * 100,) * count,
        (keys,) * count,
        ("\x02".join(pairs),) * count,
        (0,) * count if at.is_first else (18,) * count,
        deliver_at_ms=instants if at.is_first else (),
        job_id="largest",
    )


LARGEST: Final[Requests] = {
    SCHEDULE_BULK: _bulk,
    GET_BULK_JOB: lambda _: "job-1",
    LIST_BULK_JOBS: lambda _: None,
}

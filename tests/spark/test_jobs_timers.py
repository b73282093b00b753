"""Every job on stores with timers of RocketMQ 5, against what plain Python counts and finds.

Nearly every answer was wrong: of 10 messages that waited, 44 were pending and 16 missing.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.names import HALF_TOPIC, TIMER_TOPIC
from rmqlite.spark.jobs import waits as w
from rmqlite.spark.reading import read_here
from tests.support.foreign_timers import Foreign
from tests.support.golden import Row, pending_timers, unpack_timers
from tests.support.jobs import answered, named
from tests.support.stores import StoreUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
RECORDS, KEYS = 400, 80
"""Of random timers, and how many timers these are of."""


class Timers:
    """A store of RocketMQ 5.3.2, and what its list of timers says; halves are nobody's timers."""

    def __init__(self, folder: Path, which: str) -> None:
        self.path, rows = unpack_timers(folder, which)
        self.pending = [(row, due_ms) for row, due_ms in pending_timers(rows)]
        self.timers = [
            row for row in rows if row["kind"] == "timer" and row["realTopic"] != HALF_TOPIC
        ]
        self.delivered = [row for row in self.timers if row["fate"] == "delivered"]
        self.deliveries = [delivery for row in self.delivered for delivery in row["delivered"]]

    def of(self, *fates: str) -> list[Row]:
        """The timers with one of these fates."""
        return [row for row in self.timers if row["fate"] in fates]


@pytest.fixture(scope="module", params=["killed", pytest.param("clean", marks=pytest.mark.long)])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Timers:
    return Timers(tmp_path_factory.mktemp("timers"), request.param)


def of_timers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["level"] == TIMERS]


def test_reconcile_says_of_every_timer_what_became_of_it(golden: Timers) -> None:
    """What was due when RocketMQ was killed is overdue; the tombstones themselves are no waits."""
    found = answered("reconcile", golden)
    now_ms = found["now_ms"]
    expected = Counter("pending" if due_ms > now_ms else "overdue" for _, due_ms in golden.pending)
    expected["delivered"] = len(golden.delivered)
    expected["cancelled"] = len(golden.of("recalled", "pending-recalled"))
    counted = named(of_timers(found["levels"]), "state")
    # A roll of a recalled timer is a copy of nothing.
    recalled = {(row["uniqKey"], row["timerOutMs"]) for row in golden.of("recalled")}
    recalled |= {(row["uniqKey"], row["timerOutMs"]) for row in golden.of("pending-recalled")}
    rolled = [row for row in golden.of("rolled") if row["tombstoneFor"] is None]
    rolled_once = [row for row in rolled if (row["uniqKey"], row["timerOutMs"]) not in recalled]
    assert len(rolled_once) <= counted.pop("carried") <= len(rolled)
    assert counted == expected
    assert (found["held"], sum(row["duplicates"] + row["early"] for row in found["levels"])) == (
        True,
        0,
    )


@pytest.mark.long
def test_lateness_counts_what_rocketmq_delivered(golden: Timers) -> None:
    """Each delivery once, against the instant that its producer asked for."""
    late = [delivery["lateMs"] for delivery in golden.deliveries]
    (row,) = of_timers(answered("lateness", golden)["levels"])
    assert (row["messages"], row["min_ms"], row["max_ms"]) == (len(late), min(late), max(late))


@pytest.mark.long
def test_a_service_level_counts_what_rocketmq_delivered(golden: Timers) -> None:
    """Beside the messages of levels, which the list of timers has not."""
    expected = Counter[tuple[str, str]]()
    for row in golden.delivered:
        (delivery,) = row["delivered"]
        due_s = (delivery["storeTimestamp"] - delivery["lateMs"]) / 1000
        expected[row["realTopic"], str(datetime.fromtimestamp(due_s, UTC).date())] += 1
    found = answered("slo", golden, "--within", "1h")["rows"]
    in_time = {(row["real_topic"], row["day"]): row["in_time"] for row in found}
    levels = {"orders": 4, "%RETRY%closer": 1}
    assert in_time == expected + Counter({(t, "2026-11-25"): n for t, n in levels.items()})
    assert sum(row["undelivered"] for row in found) == 0


@pytest.mark.long
def test_forecast_counts_what_still_waits(golden: Timers) -> None:
    """By its topic and by whether it is due within the hour."""
    found = answered("forecast", golden, "--hours", 1)
    now_ms, expected = found["now_ms"], Counter[tuple[str, str]]()
    for row, due_ms in golden.pending:
        state = "overdue" if due_ms <= now_ms else "due"
        expected["later" if due_ms > now_ms + 3_600_000 else state, row["realTopic"]] += 1
    counted = Counter[tuple[str, str]]()
    for row in of_timers(found["rows"]):
        counted[row["state"], row["real_topic"]] += row["messages"]
    assert counted == expected


def test_spark_and_the_store_find_the_same_timers_pending(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of random records: sent, copied, recalled, delivered by RocketMQ or by us, in any order."""
    drawn = random.Random(20261127)
    under_test = StoreUnderTest(tmp_path / "store")
    foreign = Foreign(under_test)
    ends: list[int] = []
    kind = ""
    for _ in range(RECORDS):
        key = f"k{drawn.randrange(KEYS)}"
        made = {
            "timer": foreign.timer(key),
            "copy": foreign.copy(key),
            "recall": foreign.tombstone(drawn.choice([key, f"orders+{key}", f"other+{key}"])),
            "delivery": foreign.delivered(key),
            "delivery of a copy": foreign.delivered(key, TIMER_ROLL_TIMES=1),
            "half": foreign.timer(key, topic=HALF_TOPIC),
        }
        if kind in ("timer", "copy"):
            # Of the timer just before: we deliver none that RocketMQ has ended.
            made["ours"] = foreign.delivered(key)._replace(completes=ends[-1])
        kind = drawn.choice([*made, "timer", "timer", "copy", "delivery"])
        (written,) = under_test.append(made[kind])
        if made[kind].topic == TIMER_TOPIC:
            ends.append(written.physical_offset + written.size)
    pending = [ends[offset] for offset in foreign.pending()]
    assert len(pending) > KEYS / 4
    root = str(under_test.root)
    found = w.ended(read_here(spark, path=root, endpoint="", columns=w.MORE_COLUMNS))
    is_open = "level = -1 and completion is null"
    assert sorted(row.end_offset for row in found.where(is_open).collect()) == pending

"""One Spark session for all tests that need one; most need none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqlite.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two slots, each task tried up to three times; ends with the last test that uses it."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    made = session("local[2,3]", app_name="rmqlite tests", conf=QUICK | warehouse)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()

"""A notebook's cells as a script: questions about a store, answered by plain functions.

    python examples/pipeline/questions.py /data/store levels.csv

Each cell begins with `# %%`: an editor runs one at a time, and `jupytext --to ipynb` makes a
notebook of the file.  Needs `pip install "rmqlite[spark]"` and Java 17 or newer.
"""

# %% The store, as it is now: all tables below read the same records.
from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rmqlite.spark.jobs import forecast, redrives, retries, slo
from rmqlite.spark.jobs.committed import committed
from rmqlite.spark.reading import read_log, snapshot
from rmqlite.spark.session import session
from rmqlite.spark.tables import write

if len(sys.argv) != 3:
    raise SystemExit(
        "give a store's folder and a file for the table:"
        " python examples/pipeline/questions.py /data/store levels.csv"
    )
path, output = sys.argv[1:]
spark = session()
now = snapshot(path=path)
offsets = committed(spark, path=path)


def read(columns: Sequence[str]) -> DataFrame:
    return read_log(spark, path=path, columns=columns, endingPhysicalOffset=now.end_offset)


# %% Did last night's redrives work?  And which dead letters are dead again?
redriven = redrives.redriven(read(redrives.COLUMNS), offsets).persist()
redrives.summary(redriven).show(truncate=False)
redriven.where("state = 'dead'").select("redriven_from", "failure_kind").show(truncate=False)

# %% Was every topic in time on every day?  99.9 % at most a second late, and all delivered.
target = slo.Target(within_ms=1_000, in_time=0.999, complete=1.0)
levels = slo.log_service_levels(read, target, now_ms=now.newest_timestamp_ms)
levels.select("day", "real_topic", "due", "late", "undelivered", "in_time_share", "is_met").show()

# %% The hour of the sale: what comes due between two times, by topic and minute?
sale_ms = now.newest_timestamp_ms + 3_600_000
due = forecast.log_forecast(
    read, now_ms=now.newest_timestamp_ms, from_ms=sale_ms, span_ms=3_600_000
)
in_time = due.where("state = 'due'").groupBy("real_topic")
in_time.agg(F.sum("messages").alias("messages"), F.max("messages").alias("in_a_minute")).show()

# %% What do failures cost each group?
costs = retries.costs(retries.failures(read(retries.COLUMNS), offsets))
costs.withColumn("waited_s", F.col("waited_ms") / 1_000).drop("waited_ms").show(truncate=False)

# %% Any of these is a table as others: join it, write it, or hand it to pandas.
print(write(levels, output))

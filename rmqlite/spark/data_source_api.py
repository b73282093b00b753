"""The classes of Spark's data source API that its older versions lack.

Before 4.2 a stream has no limit for a batch; before 4.1 only the class for batches takes rows as
Arrow, and a worker hands Arrow to a stream's writer, too, if it has that class.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import datasource

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark reads all that is there in one batch."""


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef, misc]
        datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter
    ):
        """The rows of a stream as Arrow."""


HAS_READ_LIMITS: Final = "pyspark" in SupportsTriggerAvailableNow.__module__
"""Does Spark pass a start and a limit to latestOffset()?"""

__all__ = ["HAS_READ_LIMITS", "DataSourceStreamArrowWriter", "SupportsTriggerAvailableNow"]
